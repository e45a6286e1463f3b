//! Jobs: closures that wait in a deque until a participant runs them.
//!
//! **Layout.** A deque has [`Job`]s: an address, and a function that knows what is there. The
//! second closure of a join is in a [`StackJob`], on the stack of the thread that joins. A closure
//! that a scope spawns is in a box ([`scope`](mod@super::scope)).

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::from_ref;
use std::thread::{Result, Thread};

use hitm_memory::Native;

use super::latch::Latch;

/// A job in a deque. It is executed once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    data: *const (),
    execute: unsafe fn(*const ()),
}

// SAFETY: who makes a job sees to it that `execute` may be called with `data` on any thread.
unsafe impl Send for Job {}

impl Job {
    /// Makes a job.
    ///
    /// # Safety
    /// `execute` may be called with `data` once, on any thread, until the caller has seen that it
    /// was.
    pub(super) unsafe fn new(data: *const (), execute: unsafe fn(*const ())) -> Self {
        Self { data, execute }
    }

    /// Returns whether the job is the one at this address.
    #[inline]
    pub(super) fn is_at(&self, data: *const ()) -> bool {
        self.data == data
    }

    /// Runs the job. Its panics do not come out.
    pub(super) fn execute(self) {
        // SAFETY: the duty of `new`'s caller. A deque returns each of its jobs once.
        unsafe { (self.execute)(self.data) };
    }
}

/// What a waiter waits with: a latch, and the waiter's thread once it sleeps.
#[derive(Debug)]
pub(super) struct Waiter {
    latch: Latch<Native>,
    /// The waiter writes it once, before `Latch::sleeps`; who sets the latch reads it after that.
    thread: UnsafeCell<Option<Thread>>,
}

// SAFETY: the latch says who uses `thread`.
unsafe impl Sync for Waiter {}

impl Waiter {
    pub(super) fn new() -> Self {
        Self { latch: Latch::new(), thread: UnsafeCell::new(None) }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.latch.is_set()
    }

    /// Lets [`done`](Self::done) unpark this thread, which waits. One thread calls, once. Returns
    /// false if the wait is over.
    #[must_use]
    pub(super) fn sleeps(&self) -> bool {
        // SAFETY: the waiter is the only caller, and the latch is not `SLEEPS` yet, so nothing else
        // uses the place.
        unsafe { *self.thread.get() = Some(std::thread::current()) };
        self.latch.sleeps()
    }

    /// Ends the wait. The waiter, and with it the memory of `this`, may be gone after.
    ///
    /// # Safety
    /// `this` is valid until its wait is over, and one thread calls, once.
    pub(super) unsafe fn done(this: *const Self) {
        // SAFETY: the wait is not over. The reference is not used after the wait.
        let is_over = unsafe { &(*this).latch }.set();
        if is_over {
            return;
        }
        // SAFETY: the wait is not over.
        let place = unsafe { &(*this).thread };
        // SAFETY: the waiter has written the place before it slept, and does not write it again.
        let thread = unsafe { &*place.get() }.clone();
        // SAFETY: the wait is not over. The reference is not used after the wait.
        unsafe { &(*this).latch }.set_asleep();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }
}

/// The second closure of a join, later its result, on the stack of the thread that joins.
pub(super) struct StackJob<F, R> {
    pub(super) waiter: Waiter,
    /// Who takes the job out of a deque uses both, until the wait is over. Then the waiter does.
    closure: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<Result<R>>>,
}

impl<F: FnOnce() -> R + Send, R: Send> StackJob<F, R> {
    pub(super) fn new(closure: F) -> Self {
        Self { waiter: Waiter::new(), closure: UnsafeCell::new(Some(closure)), result: UnsafeCell::new(None) }
    }

    pub(super) fn address(&self) -> *const () {
        from_ref(self).cast()
    }

    /// Returns the job for a deque.
    ///
    /// # Safety
    /// The caller does not move `self`, and uses it only after the deque has given the job back to
    /// it, or after the wait.
    pub(super) unsafe fn job(&self) -> Job {
        // SAFETY: `F` and `R` are `Send`, and the caller keeps the memory.
        unsafe { Job::new(self.address(), Self::execute) }
    }

    unsafe fn execute(this: *const ()) {
        let this = this.cast::<Self>();
        let waiter = {
            // SAFETY: the waiter waits, and keeps the memory. The reference ends before the wait.
            let this = unsafe { &*this };
            // SAFETY: the job was taken out of its deque, so nothing else uses the closure.
            let closure = unsafe { &mut *this.closure.get() }.take();
            // Unwind safety: the closure is consumed, and the waiter resumes the panic.
            let result = closure.map(|closure| catch_unwind(AssertUnwindSafe(closure)));
            // SAFETY: as above, of the result.
            unsafe { *this.result.get() = result };
            &raw const this.waiter
        };
        // SAFETY: the waiter waits until this call.
        unsafe { Waiter::done(waiter) };
    }

    /// Returns the closure, which the deque has given back.
    #[inline]
    pub(super) fn into_closure(self) -> F {
        self.closure.into_inner().expect("nothing else has run it")
    }

    /// Returns the result, after the wait.
    pub(super) fn into_result(self) -> Result<R> {
        self.result.into_inner().expect("the wait is over")
    }
}
