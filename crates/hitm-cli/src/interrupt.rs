//! Ctrl-C and SIGTERM: a line says what is kept, and which command goes on.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::Failure;

/// The conventional status of a process that SIGINT ended.
pub(crate) const STATUS: u8 = 130;

/// What the line says of the results so far.
static KEPT: Mutex<Option<String>> = Mutex::new(None);
/// Held while a file is moved to its place.
static WHOLE: Mutex<()> = Mutex::new(());
/// Whether the command ends by itself at the first interrupt.
static COLLECTS: AtomicBool = AtomicBool::new(false);
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// Folders that are removed when an interrupt ends the process.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes interrupts end the process with a line that says what was kept.
///
/// # Errors
/// When the operating system refuses.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        // Relaxed: nothing else is shared by them.
        if COLLECTS.load(Ordering::Relaxed) && !IS_ASKED.swap(true, Ordering::Relaxed) {
            return;
        }
        // A file that is being moved to its place gets there, so nothing hidden is left beside it.
        let _whole = lock(&WHOLE);
        for folder in &*lock(&FOLDERS) {
            // What is left is in the folder for temporary files.
            let _left = fs::remove_dir_all(folder);
        }
        let kept = lock(&KEPT).take();
        let kept = kept.unwrap_or_else(|| "nothing was written; the same command starts again".to_owned());
        // Nothing can be done when stderr is closed.
        let _closed = writeln!(io::stderr(), "\nhitm: interrupted: {kept}");
        process::exit(STATUS.into());
    })
    .map_err(|error| Failure::new(format!("signals: {error}; report it")))
}

/// Says what an interrupt leaves from now on.
pub(crate) fn keeps(what: String) {
    *lock(&KEPT) = Some(what);
}

/// The command looks at [`is_asked`] from now on, and ends with what it has. A second interrupt
/// ends it at once.
pub(crate) fn collect() {
    // Relaxed: nothing else is shared by it.
    COLLECTS.store(true, Ordering::Relaxed);
}

/// Returns whether the user has asked for the end, since [`collect`].
pub(crate) fn is_asked() -> bool {
    // Relaxed: nothing else is shared by it.
    IS_ASKED.load(Ordering::Relaxed)
}

/// Waits until the interrupt that may have ended another process has come here, too: that of a
/// terminal goes to both at the same time.
pub(crate) fn await_own() {
    thread::sleep(Duration::from_millis(100));
}

/// Makes a folder for temporary files, which is removed when the guard is dropped or an interrupt
/// ends the process.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn folder() -> io::Result<Folder> {
    let folder = tempfile::tempdir()?;
    lock(&FOLDERS).push(folder.path().to_owned());
    Ok(Folder(folder))
}

/// A folder for temporary files.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        lock(&FOLDERS).retain(|folder| folder != self.0.path());
    }
}

/// Delays interrupts while the guard lives.
pub(crate) fn hold() -> MutexGuard<'static, ()> {
    lock(&WHOLE)
}
