//! The MCS lock: each waiter reads a line of its own.
//!
//! **Claim.** Mutual exclusion in order of arrival; a release invalidates one line at one waiter,
//! however many waiters there are.
//!
//! **Origin.** Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", 1991.
//!
//! **State.** `tail`: the number of the last participant in the queue, plus 1; 0 when the lock is
//! free. The holder is the first in the queue.
//!
//! **Memory ordering.** Besides that of [`waiters`](super::waiters):
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `release`, compare-exchange Release of `tail` | `acquire`, swap AcqRel of `tail` | the section, to a participant that finds the lock free |
//! | `acquire`, swap AcqRel of `tail` | `release`, compare-exchange | nothing: only its failure is used |
//!
//! **Cost.** Uncontended: a swap and a compare-exchange. Contended: the swap, one store to the
//! predecessor's line, one load of the own line after the predecessor wrote it, one store to the
//! successor's line.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};
use hitm_topology::{CpuId, Topology};

use super::SpinLock;
use super::waiters::Waiters;

described! {
    /// The lock.
    struct Tail<M: Memory> as "probe_lock" {
        /// The last participant in the queue, plus 1; 0 when the lock is free.
        tail: M::Atomic<u32>,
    }
}

/// The MCS lock; see the module.
pub struct Mcs<M: Memory> {
    lock: Placed<M, Tail<M>>,
    waiters: Waiters<M>,
}

impl<M: Memory> Mcs<M> {
    /// Makes a free lock; participant `i` runs on `cpus[i]`.
    #[must_use]
    pub fn new(topology: &Topology, cpus: &[CpuId]) -> Self {
        let lock = Placed::new(Tail { tail: M::Atomic::new(0) }, None, None);
        Self { lock, waiters: Waiters::new(topology, cpus) }
    }
}

impl<M: Memory> SpinLock for Mcs<M> {
    fn acquire(&self, participant: usize, _back_off: &dyn Fn(u32)) {
        self.waiters.prepare(participant);
        // AcqRel. Acquire: sees the section of the holder that left the lock free; pairs with the
        // Release in `release`. Release: publishes the prepared waiter before another participant
        // can find it.
        let before = self.lock.tail.swap(participant as u32 + 1, Ordering::AcqRel);
        if before != 0 {
            self.waiters.wait_behind(participant, before);
        }
    }

    fn release(&self, participant: usize) {
        let next = self.waiters.successor(participant);
        let own = participant as u32 + 1;
        // Release: publishes the section to a participant that finds the lock free. Pairs with the
        // swap in `acquire`. Relaxed on failure: a successor exists, and its number is read by
        // Acquire below.
        if next.is_none() && self.lock.tail.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let next = match next {
            Some(next) => next,
            None => self.waiters.awaited_successor(participant),
        };
        self.waiters.let_go_on(next);
    }
}
