//! A socket at which a running process shows the metrics of a runtime:
//! [`Builder::expose_metrics`](crate::Builder::expose_metrics).
//!
//! **Protocol.** Whoever connects gets the page of [`MetricsSnapshot`](crate::MetricsSnapshot), and
//! the connection is closed. A thread waits for connections; nothing runs while none comes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hitm_memory::Native;

use crate::runtime::Handle;

/// How long a reader that reads nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The socket. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Exposed {
    path: PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exposed {
    /// Makes the socket, in the place of one that a process has left.
    pub(crate) fn new(path: &Path, handle: Handle<Native>) -> io::Result<Self> {
        let listener = bind(path)?;
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = ends.clone();
        let show = move || {
            for stream in listener.incoming() {
                // Acquire: pairs with the Release in `drop`.
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                if let (Ok(stream), Some(page)) = (stream, handle.metrics()) {
                    // A reader that has gone needs no page.
                    let _gone = show(stream, &page.to_string());
                }
            }
        };
        let thread = thread::Builder::new().name("hitm-metrics".to_owned()).spawn(show)?;
        Ok(Self { path: path.to_owned(), ends, thread: Some(thread) })
    }
}

fn show(mut stream: UnixStream, page: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(page.as_bytes())
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let refused = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
        other => return other,
    };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let is_left = is_socket && UnixStream::connect(path).is_err();
    if !is_left {
        return Err(refused);
    }
    fs::remove_file(path)?;
    UnixListener::bind(path)
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `new`.
        self.ends.store(true, Ordering::Release);
        // It ends the wait for a connection. If it fails, the thread waits on, and the process ends
        // it.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
        // Another process may have removed it.
        let _removed = fs::remove_file(&self.path);
    }
}
