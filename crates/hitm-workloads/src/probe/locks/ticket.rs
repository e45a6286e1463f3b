//! The ticket lock: waiters are served in order of arrival.
//!
//! **Claim.** Mutual exclusion in order of arrival, with one add to arrive and one store to
//! release.
//!
//! **Origin.** Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", 1991, including the back-off in proportion to the waiters before. Both words
//! are on one line, as in the kernels that had this lock.
//!
//! **State.** `next`: the ticket of the next participant to arrive; `served`: the ticket that holds
//! the lock. The lock is free when they are equal.
//!
//! **Memory ordering.** `release`, store Release of `served`, publishes the section to `acquire`,
//! load Acquire of `served`.
//!
//! **Cost.** Each arrival and each release invalidates the line at all waiters that read it, and
//! each waiter reads it again. With back-off, a waiter reads only when its turn should be near.
//!
//! **Limits.** 2^32 participants.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};

use super::SpinLock;

described! {
    /// The lock.
    struct Words<M: Memory> as "probe_lock" {
        /// Written by arriving participants.
        next: M::Atomic<u32>,
        /// Written by the holder, read by all waiters.
        served: M::Atomic<u32>,
    }
}

/// The ticket lock; see the module.
pub struct Ticket<M: Memory> {
    lock: Placed<M, Words<M>>,
    proportional: bool,
}

impl<M: Memory> Ticket<M> {
    /// Makes a free lock. With `proportional`, a waiter pauses between two reads for one turn per
    /// waiter before it.
    #[must_use]
    pub fn new(proportional: bool) -> Self {
        let words = Words { next: M::Atomic::new(0), served: M::Atomic::new(0) };
        Self { lock: Placed::new(words, None, None), proportional }
    }
}

impl<M: Memory> SpinLock for Ticket<M> {
    fn acquire(&self, _participant: usize, back_off: &dyn Fn(u32)) {
        // Relaxed: a ticket only gives an order; it publishes nothing.
        let own = self.lock.next.fetch_add(1, Ordering::Relaxed);
        if !self.proportional {
            M::spin_while(&self.lock.served, |served| served != own);
            return;
        }
        loop {
            // Acquire: sees the last holder's section. Pairs with the Release in `release`.
            let served = self.lock.served.load(Ordering::Acquire);
            if served == own {
                return;
            }
            back_off(own.wrapping_sub(served));
        }
    }

    fn release(&self, _participant: usize) {
        // Relaxed: only the holder writes it.
        let own = self.lock.served.load(Ordering::Relaxed);
        // Release: publishes the section. Pairs with the Acquire in `acquire`, by load or by spin.
        self.lock.served.store(own.wrapping_add(1), Ordering::Release);
    }
}
