//! Test-and-set: the lock of one word.
//!
//! **Claim.** Mutual exclusion with one compare-exchange to take and one store to release. With
//! `test_first`, a waiter reads until the lock is free before it tries again.
//!
//! **Origin.** Folklore; the second form is from Rudolph and Segall, "Dynamic decentralized cache
//! schemes for MIMD parallel processors", 1984. Difference: a compare-exchange instead of a swap.
//! The two cost the same (David, Guerraoui and Trigonakis, 2013). A failed compare-exchange writes
//! nothing, so that the model checker can see the end of the wait.
//!
//! **State.** 0 is free, 1 is held.
//!
//! **Memory ordering.** `release`, store Release, publishes the section to `acquire`,
//! compare-exchange Acquire.
//!
//! **Cost.** Contended, each attempt invalidates the line at the holder, which needs it to release
//! the lock. With `test_first`, each release costs every waiter a load miss, and then all waiters
//! try.
//!
//! **Limits.** Not fair.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};

use super::SpinLock;

const FREE: u32 = 0;
const HELD: u32 = 1;

described! {
    /// The lock.
    struct Word<M: Memory> as "probe_lock" {
        /// [`FREE`] or [`HELD`].
        word: M::Atomic<u32>,
    }
}

/// The test-and-set lock; see the module.
pub struct TestAndSet<M: Memory> {
    lock: Placed<M, Word<M>>,
    test_first: bool,
}

impl<M: Memory> TestAndSet<M> {
    /// Makes a free lock. A waiter tries again after a turn of back-off, or, with `test_first`,
    /// once it has read that the lock is free.
    #[must_use]
    pub fn new(test_first: bool) -> Self {
        Self { lock: Placed::new(Word { word: M::Atomic::new(FREE) }, None, None), test_first }
    }
}

impl<M: Memory> SpinLock for TestAndSet<M> {
    fn acquire(&self, _participant: usize, back_off: &dyn Fn(u32)) {
        // Acquire: sees the last holder's section. Pairs with the Release in `release`. Relaxed on
        // failure: the section is not read then.
        while self.lock.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if self.test_first {
                M::spin_while(&self.lock.word, |word| word == HELD);
            } else {
                back_off(1);
            }
        }
    }

    fn release(&self, _participant: usize) {
        // Release: publishes the section. Pairs with the Acquire in `acquire`.
        self.lock.word.store(FREE, Ordering::Release);
    }
}
