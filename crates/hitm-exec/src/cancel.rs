//! Threads that are cancelled (`pthread_cancel`).
//!
//! **Protocol.** A thread that is cancelled ends at its next *cancellation point*: a call that may
//! wait, or `pthread_testcancel`. If it waits in such a call, it is woken, and leaves the call as
//! if a signal had interrupted it. Then its stack is unwound ([`leave`]). A point ends the thread
//! in functions that have nothing to destroy, as no destructor of theirs would run.
//!
//! **Origin.** POSIX, section 2.9.5; the points are those of the C library that are simulated.
//!
//! **Differences.** A call that opens, closes or syncs a file is no point, and one that waits for
//! the host is not interrupted. A thread cannot be cancelled at any instruction
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`).

use std::cell::Cell;
use std::ffi::c_int;

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform};
use libc::{EINVAL, ESRCH};

use crate::access::enter_call;
use crate::leave;
use crate::locks::call;
use crate::native::native;
use crate::start::{refuse_call, shared};
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// `PTHREAD_CANCEL_ENABLE` and `PTHREAD_CANCEL_DEFERRED`; the other state and the other type.
const USUAL: c_int = 0;
const OTHER: c_int = 1;

/// `PTHREAD_CANCELED`: what a thread that was cancelled returns.
const CANCELLED: usize = usize::MAX;

/// What a thread keeps.
#[derive(Debug, Default)]
pub(crate) struct OfThread {
    is_asked: Cell<bool>,
    is_disabled: Cell<bool>,
    is_in_point: Cell<bool>,
    /// Whether it ends already.
    is_ending: Cell<bool>,
    /// Whether it leaves its call for that.
    is_interrupted: Cell<bool>,
}

impl OfThread {
    /// Whether a wait ends, since the thread is to end.
    pub(crate) fn is_due(&self) -> bool {
        self.is_open() && self.is_in_point.get()
    }

    /// Whether it was cancelled, and may be.
    fn is_open(&self) -> bool {
        self.is_asked.get() && !self.is_disabled.get() && !self.is_ending.get()
    }

    /// The same as [`Self::is_due`], for a call that has ended its wait: the thread ends after it.
    pub(crate) fn interrupts(&self) -> bool {
        let is_due = self.is_due();
        self.is_interrupted.set(self.is_interrupted.get() || is_due);
        is_due
    }

    /// The thread ends from now on: what it still runs is not cancelled.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
    }

    /// The rest of the call is no cancellation point.
    pub(crate) fn goes_on(&self) {
        self.is_in_point.set(false);
    }

    /// Runs `f`, of whose calls each is a point for itself.
    pub(crate) fn outside_of_point(&self, f: impl FnOnce()) {
        let before = self.is_in_point.replace(false);
        f();
        self.is_in_point.set(before);
    }
}

/// Ends the calling thread if it was cancelled before.
fn test(thread: &'static Thread) {
    if thread.cancel.is_open() {
        end(thread);
    }
}

fn end(thread: &'static Thread) -> ! {
    thread.cancel.end();
    thread.value.set(CANCELLED);
    leave::unwind(thread)
}

/// Runs a call of the program that is a cancellation point. On the program's side.
pub(crate) fn point<R: Copy>(f: impl FnOnce() -> R) -> R {
    let Some(thread) = thread::current() else { return f() };
    test(thread);
    // A handler of a signal may make such a call in the middle of another one.
    let before = thread.cancel.is_in_point.replace(true);
    let result = f();
    thread.cancel.is_in_point.set(before);
    if thread.cancel.is_interrupted.take() {
        end(thread);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_cancel(handle: usize) -> c_int {
    call!(native!(fn pthread_cancel(usize) -> c_int)(handle), |_thread| {
        Simulated::charge(PathCost::SystemCall);
        Simulated::settle();
        let Some(target) = shared().threads.of_handle(handle) else { return ESRCH };
        target.cancel.is_asked.set(true);
        if !target.has_ended.get() {
            target.wake();
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_testcancel() {
    match thread::at_call() {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(unwinding fn pthread_testcancel() -> ())() },
        Some(thread) => {
            on_host(|| {
                enter_call(thread);
                Simulated::settle();
            });
            test(thread);
        }
    }
}

/// Sets one of the two, and tells what it was.
fn set(cell: &Cell<bool>, new: c_int, before: *mut c_int) -> c_int {
    if !matches!(new, USUAL | OTHER) {
        return EINVAL;
    }
    let old = cell.replace(new == OTHER);
    // SAFETY: the program's argument: null or a place.
    if let Some(before) = unsafe { before.as_mut() } {
        *before = if old { OTHER } else { USUAL };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int {
    match thread::current() {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn pthread_setcancelstate(c_int, *mut c_int) -> c_int)(state, before) },
        Some(thread) => set(&thread.cancel.is_disabled, state, before),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    match thread::current() {
        // SAFETY: the program's own call: its duty.
        None => unsafe { native!(fn pthread_setcanceltype(c_int, *mut c_int) -> c_int)(kind, before) },
        Some(_) if kind == OTHER => refuse_call(
            "pthread_setcanceltype",
            "a thread that may be cancelled at any instruction is not simulated",
            "leave the type deferred, and call pthread_testcancel",
        ),
        Some(_) => set(&Cell::new(false), kind, before),
    }
}
