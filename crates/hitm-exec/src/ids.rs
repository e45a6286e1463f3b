//! Who the program and its threads are. Ids are the same in every run: a thread's is the number of
//! its task plus 1, and the program's is that of its first thread, as in a container of its own.

use std::ffi::c_int;

use crate::native::native;
use crate::start::shared;
use crate::thread;

/// The program's id, of a program that runs on a machine.
pub(crate) fn process() -> c_int {
    shared().threads.first().map_or(1, |first| first.tid.get())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpid() -> c_int {
    match thread::current() {
        // SAFETY: it reads the process's id.
        None => unsafe { native!(fn getpid() -> c_int)() },
        Some(_) => process(),
    }
}

/// It has no parent, as the first process of a container.
#[unsafe(no_mangle)]
unsafe extern "C" fn getppid() -> c_int {
    match thread::current() {
        // SAFETY: it reads an id.
        None => unsafe { native!(fn getppid() -> c_int)() },
        Some(_) => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettid() -> c_int {
    match thread::current() {
        // SAFETY: it reads the thread's id.
        None => unsafe { native!(fn gettid() -> c_int)() },
        Some(thread) => thread.tid.get(),
    }
}
