//! Ctrl-C and SIGTERM: a line says what is kept, and which command goes on.

use std::io::{self, Write};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// The conventional status of a process that SIGINT ended.
const STATUS: i32 = 130;

/// What the line says of the results so far.
static KEPT: Mutex<Option<String>> = Mutex::new(None);
/// Held while a file is moved to its place.
static WHOLE: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes interrupts end the process with a line that says what was kept.
///
/// # Errors
/// When the operating system refuses.
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        // A file that is being moved to its place gets there, so nothing hidden is left beside it.
        let _whole = lock(&WHOLE);
        let kept = lock(&KEPT).take();
        let kept = kept.unwrap_or_else(|| "nothing was written; the same command starts again".to_owned());
        // Nothing can be done when stderr is closed.
        let _closed = writeln!(io::stderr(), "\nhitm: interrupted: {kept}");
        process::exit(STATUS);
    })
    .map_err(|error| Failure::new(format!("signals: {error}; report it")))
}

/// Says what an interrupt leaves from now on.
pub(crate) fn keeps(what: String) {
    *lock(&KEPT) = Some(what);
}

/// Delays interrupts while the guard lives.
pub(crate) fn hold() -> MutexGuard<'static, ()> {
    lock(&WHOLE)
}
