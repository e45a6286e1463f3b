//! The standard input of a program's runs: each of several gets all of it.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::digest;
use crate::failure::Failure;

/// This process's standard input, as Linux names it.
const OWN: &str = "/proc/self/fd/0";

/// The time in which most inputs come to their end. Runs that begin later read a file, and their
/// results do not depend on when the input came.
const SOON: Duration = Duration::from_secs(1);

/// What runs read.
pub(super) enum Input {
    /// The command's own input.
    Own,
    /// Nothing.
    Nothing,
    /// A file, from a byte on.
    File(PathBuf, u64),
    /// What comes through a pipe.
    Coming(Arc<Coming>),
}

impl Input {
    /// Returns the input of this many runs.
    ///
    /// # Errors
    /// When it cannot be read or kept.
    pub(super) fn of(runs: usize) -> Result<Self, Failure> {
        if runs == 1 {
            return Ok(Self::Own);
        }
        if io::stdin().is_terminal() {
            return Ok(Self::Nothing);
        }
        let own = Path::new(OWN);
        let Ok(metadata) = fs::metadata(own) else { return Ok(Self::Nothing) };
        if metadata.is_file() && File::open(own).is_ok() {
            return Ok(Self::File(own.to_owned(), position()));
        }
        // A device, as /dev/null, gives each reader the same.
        if fs::read_link(own).is_ok_and(|path| path.starts_with("/dev")) {
            return Ok(Self::Own);
        }
        let coming = Coming::begin().map_err(|error| unkept(&error))?;
        coming.end_within(SOON)?;
        Ok(Self::Coming(coming))
    }

    /// Returns a digest of it; none if it is a terminal, or a device.
    ///
    /// # Errors
    /// When it cannot be read, or has not ended yet.
    pub(super) fn digest(&self) -> Result<Option<u64>, Failure> {
        let (path, from) = match self {
            Self::Own | Self::Nothing => return Ok(None),
            Self::File(path, from) => (path.as_path(), *from),
            Self::Coming(coming) if coming.state().has_ended => (coming.file.path(), 0),
            Self::Coming(_) => {
                let why = "--state: standard input is a pipe that has not ended, so it cannot be compared";
                return Err(Failure::new(format!("{why}; give it as a file")));
            }
        };
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(from))?;
            digest::of(file)
        });
        read.map(Some).map_err(|error| unkept(&error))
    }

    /// Makes it the input of a command that is about to be started.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn give(&self, command: &mut Command) -> Result<(), Failure> {
        let opened = |path: &Path, from: u64| -> Result<Stdio, Failure> {
            let opened = File::open(path).and_then(|mut file| file.seek(SeekFrom::Start(from)).map(|_| file));
            opened.map(Stdio::from).map_err(|error| unkept(&error))
        };
        let input = match self {
            Self::Own => return Ok(()),
            Self::Nothing => Stdio::null(),
            Self::File(path, from) => opened(path, *from)?,
            Self::Coming(coming) if coming.state().has_ended => opened(coming.file.path(), 0)?,
            Self::Coming(_) => Stdio::piped(),
        };
        command.stdin(input);
        Ok(())
    }

    /// Writes what comes to a run that has begun, until the value that is returned is dropped.
    pub(super) fn feed(&self, pipe: Option<ChildStdin>) -> Option<Feed> {
        let (Self::Coming(coming), Some(pipe)) = (self, pipe) else { return None };
        let feed = Feed { coming: coming.clone(), is_over: Arc::default() };
        let (coming, is_over) = (coming.clone(), feed.is_over.clone());
        // A run that has ended needs no more. It takes its end of the pipe with it.
        thread::spawn(move || coming.write_to(pipe, &is_over));
        Some(feed)
    }

    /// Returns whether runs had all of it.
    ///
    /// # Errors
    /// When they had not.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Coming(coming) => coming.end_within(Duration::ZERO),
            _ => Ok(()),
        }
    }
}

/// Where the next read of standard input begins.
fn position() -> u64 {
    let told = fs::read_to_string("/proc/self/fdinfo/0").unwrap_or_default();
    let position = told.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok());
    position.unwrap_or(0)
}

fn unkept(error: &io::Error) -> Failure {
    Failure::new(format!("standard input: {error}; give it as a file, or give `</dev/null`"))
}

/// An input that comes through a pipe, and the file that keeps it for all runs.
pub(super) struct Coming {
    file: NamedTempFile,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes in the file.
    bytes: u64,
    has_ended: bool,
    failed: Option<io::Error>,
}

impl Coming {
    fn begin() -> io::Result<Arc<Self>> {
        let coming = Arc::new(Self { file: NamedTempFile::new()?, state: Mutex::default(), more: Condvar::new() });
        let (own, to) = (coming.clone(), coming.file.reopen()?);
        // It may never end, so no other thread waits for this one.
        thread::spawn(move || {
            let failed = own.keep(to).err();
            let mut state = own.state();
            (state.has_ended, state.failed) = (true, failed);
            own.more.notify_all();
        });
        Ok(coming)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, mut to: File) -> io::Result<()> {
        let (mut from, mut bytes) = (io::stdin().lock(), vec![0; 1 << 16]);
        loop {
            let count = match from.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            to.write_all(&bytes[..count])?;
            self.state().bytes += count as u64;
            self.more.notify_all();
        }
    }

    /// Waits for the end.
    fn end_within(&self, time: Duration) -> Result<(), Failure> {
        let waited = self.more.wait_timeout_while(self.state(), time, |state| !state.has_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.failed.as_ref().map_or(Ok(()), |error| Err(unkept(error)))
    }

    fn write_to(&self, mut pipe: ChildStdin, is_over: &AtomicBool) {
        let Ok(from) = self.file.reopen() else { return };
        let mut written = 0;
        loop {
            // Relaxed: who sets it takes the lock afterwards.
            let waits =
                |state: &mut State| state.bytes == written && !state.has_ended && !is_over.load(Ordering::Relaxed);
            let state = self.more.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
            let bytes = state.bytes - written;
            drop(state);
            // The reader of a pipe that is closed needs no more.
            if bytes == 0 || io::copy(&mut (&from).take(bytes), &mut pipe).is_err() {
                return;
            }
            written += bytes;
        }
    }
}

/// Ends the writes to a run when it is dropped.
pub(super) struct Feed {
    coming: Arc<Coming>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Relaxed: the lock comes after it.
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.coming.state());
        self.coming.more.notify_all();
    }
}
