//! The words that queued waiters wait on, each on its own line; shared by [`Mcs`](super::Mcs) and
//! [`Queued`](super::Queued).
//!
//! **Protocol.** (1) *Prepare* the own waiter. (2) Become the end of the queue; the lock does this.
//! (3) *Wait behind* the previous end, if there was one: write the own number into its waiter, then
//! read the own waiter. (4) A participant that is done lets its *successor* go on, once the
//! successor has written its number.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `wait_behind`, store Release of `next` | `successor`, load; `awaited_successor`, spin | the prepared waiter |
//! | `let_go_on`, store Release of `waits` | `wait_behind`, spin | the predecessor's writes |

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};
use hitm_topology::{CpuId, Topology};

described! {
    /// The words of one waiter, on a line of its own.
    struct Waiter<M: Memory> as "probe_lock_waiter" {
        /// The number of the next participant plus 1, or 0. Written by the successor, read by the
        /// owner.
        next: M::Atomic<u32>,
        /// 1 until the predecessor lets the owner go on.
        waits: M::Atomic<u32>,
    }
}

/// One waiter per participant, each on its CPU's node.
pub(super) struct Waiters<M: Memory>(Box<[Placed<M, Waiter<M>>]>);

impl<M: Memory> Waiters<M> {
    pub(super) fn new(topology: &Topology, cpus: &[CpuId]) -> Self {
        let place = |(index, &cpu): (usize, &CpuId)| {
            let waiter = Waiter { next: M::Atomic::new(0), waits: M::Atomic::new(0) };
            Placed::new(waiter, Some(index), Some(topology.cpu(cpu).node))
        };
        Self(cpus.iter().enumerate().map(place).collect())
    }

    /// Prepares the waiter of `participant`, before it becomes the end of the queue.
    pub(super) fn prepare(&self, participant: usize) {
        // Relaxed: the operation that puts the participant into the queue releases both to its
        // neighbours.
        self.0[participant].next.store(0, Ordering::Relaxed);
        self.0[participant].waits.store(1, Ordering::Relaxed);
    }

    /// Waits behind the participant whose number is `before - 1`, until it lets `participant` go
    /// on.
    pub(super) fn wait_behind(&self, participant: usize, before: u32) {
        // Release: the reader of the number then writes this waiter, which was prepared before.
        // Pairs with the Acquire in `successor`, by load or by spin.
        self.0[before as usize - 1].next.store(participant as u32 + 1, Ordering::Release);
        // Acquire: sees what the predecessor released in `let_go_on`.
        M::spin_while(&self.0[participant].waits, |waits| waits != 0);
    }

    /// Returns the successor of `participant`, if it has written its number.
    pub(super) fn successor(&self, participant: usize) -> Option<u32> {
        // Acquire: sees that the successor's waiter is prepared. Pairs with the Release in
        // `wait_behind`.
        Some(self.0[participant].next.load(Ordering::Acquire)).filter(|&next| next != 0)
    }

    /// Waits until the successor of `participant` has written its number and returns it. A
    /// successor must exist.
    pub(super) fn awaited_successor(&self, participant: usize) -> u32 {
        M::spin_while(&self.0[participant].next, |next| next == 0)
    }

    /// Lets the waiter whose number is `next - 1` go on.
    pub(super) fn let_go_on(&self, next: u32) {
        // Release: publishes this participant's writes to the successor. Pairs with the spin in
        // `wait_behind`.
        self.0[next as usize - 1].waits.store(0, Ordering::Release);
    }
}
