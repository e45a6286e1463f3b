//! The words that waiters of a queue wait on, each on its own line: what [`Mcs`](super::Mcs) and [`Queued`](super::Queued) share.
//!
//! **Protocol.** (1) *Prepare* the own waiter. (2) Become the end of the queue, which is the lock's matter. (3) *Wait behind* the
//! end before, if there was one: write the own number into its waiter, then read the own one. (4) Whoever is done lets its
//! *successor* go on, when it has said who it is.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `wait_behind`, store Release of `next` | `successor`, load; `awaited_successor`, spin | the waiter is prepared |
//! | `let_go_on`, store Release of `waits` | `wait_behind`, spin | what the predecessor did |

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};
use hitm_topology::{CpuId, Topology};

described! {
    /// What a waiter waits on, on a line of its own.
    struct Waiter<M: Memory> as "probe_lock_waiter" {
        /// Who comes next: its number and 1, or 0. Written by the successor, read by the owner.
        next: M::Atomic<u32>,
        /// 1 until the predecessor lets its owner go on.
        waits: M::Atomic<u32>,
    }
}

/// One waiter a participant, each on its CPU's node.
pub(super) struct Waiters<M: Memory>(Box<[Placed<M, Waiter<M>>]>);

impl<M: Memory> Waiters<M> {
    pub(super) fn new(topology: &Topology, cpus: &[CpuId]) -> Self {
        let place = |(index, &cpu): (usize, &CpuId)| {
            let waiter = Waiter { next: M::Atomic::new(0), waits: M::Atomic::new(0) };
            Placed::new(waiter, Some(index), Some(topology.cpu(cpu).node))
        };
        Self(cpus.iter().enumerate().map(place).collect())
    }

    /// Before `participant` is put at the end of the queue.
    pub(super) fn prepare(&self, participant: usize) {
        // Relaxed: what puts the participant into the queue releases both to its neighbours.
        self.0[participant].next.store(0, Ordering::Relaxed);
        self.0[participant].waits.store(1, Ordering::Relaxed);
    }

    /// `participant` is behind the one whose number is `before - 1`: waits until that lets it go on.
    pub(super) fn wait_behind(&self, participant: usize, before: u32) {
        // Release: who reads the number goes on to write this waiter, which was prepared before. Pairs with the Acquire in
        // `successor`, by load or by spin.
        self.0[before as usize - 1].next.store(participant as u32 + 1, Ordering::Release);
        // Acquires what the predecessor released in `let_go_on`.
        M::spin_while(&self.0[participant].waits, |waits| waits != 0);
    }

    /// Who comes after `participant`, if it has said so.
    pub(super) fn successor(&self, participant: usize) -> Option<u32> {
        // Acquire: the successor's waiter is prepared. Pairs with the Release in `wait_behind`.
        Some(self.0[participant].next.load(Ordering::Acquire)).filter(|&next| next != 0)
    }

    /// Who comes after `participant`, once it has said so; somebody does.
    pub(super) fn awaited_successor(&self, participant: usize) -> u32 {
        M::spin_while(&self.0[participant].next, |next| next == 0)
    }

    /// The waiter whose number is `next - 1` goes on.
    pub(super) fn let_go_on(&self, next: u32) {
        // Release: what this participant did comes before what that one does. Pairs with the spin in `wait_behind`.
        self.0[next as usize - 1].waits.store(0, Ordering::Release);
    }
}
