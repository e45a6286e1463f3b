//! The word by which the waiter for a job learns that it has been done elsewhere.
//!
//! **State.** `UNSET`, `SLEEPS`, `SET`, in this order; `SLEEPS` may be left out.
//!
//! **Protocol.** The job's memory is the waiter's stack, so it ends when the waiter sees `SET`. A
//! waiter that wants to sleep (1) stores its thread beside the word, (2) changes `UNSET` to
//! `SLEEPS`, (3) parks until it sees `SET`. The thread that has done the job (a) stores the result,
//! (b) changes `UNSET` to `SET`, and touches nothing after. If the waiter sleeps, it (c) takes a
//! copy of the waiter's thread, (d) stores `SET`, (e) unparks the thread by its copy.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | b and d | the waiter's look, and the failure of 2 | the result; that the word is left |
//! | 2 | failure of b | the waiter's thread |
//!
//! The model checker runs this word: `fork_join/latch/loom.rs`.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};

const UNSET: u32 = 0;
const SLEEPS: u32 = 1;
const SET: u32 = 2;

/// The word.
#[derive(Debug)]
pub(super) struct Latch<M: Memory>(M::Atomic<u32>);

impl<M: Memory> Latch<M> {
    pub(super) fn new() -> Self {
        Self(M::Atomic::new(UNSET))
    }

    /// Returns whether the job is done. The waiter calls.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        // Acquire: the result. Pairs with `set` and `set_asleep`.
        self.0.load(Ordering::Acquire) == SET
    }

    /// The waiter has stored its thread, and is about to sleep. Returns false if the job is done.
    #[must_use]
    pub(super) fn sleeps(&self) -> bool {
        // Release: publishes the thread. Pairs with the failure of `set`. Acquire on failure: the
        // result.
        self.0.compare_exchange(UNSET, SLEEPS, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// The job is done. Returns false if the waiter sleeps: then the caller copies the waiter's
    /// thread and calls [`set_asleep`](Self::set_asleep). After true, the word may be gone.
    #[must_use]
    pub(super) fn set(&self) -> bool {
        // Release: publishes the result. Pairs with `is_set`. Acquire on failure: the thread. Pairs
        // with `sleeps`.
        self.0.compare_exchange(UNSET, SET, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// The job is done, and the caller has copied the thread of the waiter, which sleeps. After the
    /// call, the word may be gone.
    pub(super) fn set_asleep(&self) {
        // Release: publishes the result, and that the thread was copied. Pairs with `is_set`.
        self.0.store(SET, Ordering::Release);
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
