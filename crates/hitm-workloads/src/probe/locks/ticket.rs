//! The ticket lock: served in order of arrival.
//!
//! **Claim.** Mutual exclusion in order of arrival, with one add to arrive and one store to release.
//!
//! **Origin.** Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", 1991, the
//! back-off in proportion to those before one included. Both words stand on one line, as in the kernels that had this lock.
//!
//! **State.** `next`: the ticket of who arrives next; `served`: the ticket that holds the lock. Free when they are equal.
//!
//! **Memory ordering.** `release`, store Release of `served`, publishes the section to `acquire`, load Acquire of `served`.
//!
//! **Cost.** Each arrival and each release takes the line from all who read it; each reads it again. With back-off they read
//! when their turn should be near.
//!
//! **Limits.** 2^32 participants.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};

use super::SpinLock;

described! {
    /// The lock.
    struct Words<M: Memory> as "probe_lock" {
        /// Written by who arrives.
        next: M::Atomic<u32>,
        /// Written by who holds the lock, read by all who wait.
        served: M::Atomic<u32>,
    }
}

/// See the module.
pub struct Ticket<M: Memory> {
    lock: Placed<M, Words<M>>,
    proportional: bool,
}

impl<M: Memory> Ticket<M> {
    /// A free lock. A waiter pauses, with `proportional`, one turn for each before it between two looks.
    #[must_use]
    pub fn new(proportional: bool) -> Self {
        let words = Words { next: M::Atomic::new(0), served: M::Atomic::new(0) };
        Self { lock: Placed::new(words, None, None), proportional }
    }
}

impl<M: Memory> SpinLock for Ticket<M> {
    fn acquire(&self, _participant: usize, back_off: &dyn Fn(u32)) {
        // Relaxed: a ticket gives an order and publishes nothing.
        let own = self.lock.next.fetch_add(1, Ordering::Relaxed);
        if !self.proportional {
            M::spin_while(&self.lock.served, |served| served != own);
            return;
        }
        loop {
            // Acquire: the last holder's section is seen. Pairs with the Release in `release`.
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
