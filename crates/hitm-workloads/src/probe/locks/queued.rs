//! A lock of four bytes with a queue behind it, in the manner of the kernel's queued spin lock.
//!
//! **Claim.** Free, it costs what test-and-set costs and touches one line; contended, it behaves as [`Mcs`](super::Mcs). The first
//! waiter needs no line of its own.
//!
//! **Origin.** Waiman Long and Peter Zijlstra, "qspinlock: a 4-byte queue spinlock", 2014, the idea. Differences: the kernel writes
//! parts of the word with plain stores of one and two bytes, of which this seam knows nothing, so every change here is a
//! read-modify-write of the whole word; the pending bit is set by a compare-exchange, so that nothing is ever undone; a
//! participant holds one lock at a time, so it has one waiter and not four.
//!
//! **State.** One word:
//!
//! | bits | name | set by | cleared by |
//! |---|---|---|---|
//! | 0 | locked | who takes the lock | who lets it go |
//! | 8 | pending | the first waiter, while nobody else waits | itself, when it takes the lock |
//! | 16 to 31 | tail: the last in the queue, its number and 1 | who enters the queue | the last of the queue, when it takes the lock |
//!
//! **Protocol.** (1) *Fast*: nothing is set: take it. (2) *Pending*: only locked is set: set pending, wait for locked to go, take
//! it. (3) *Queue*: become the tail, wait behind the one before, if any. (4) *Head*: wait for locked and pending to go, take
//! the lock, clear the tail if it is one's own, else let the successor be head.
//!
//! **Memory ordering.** Besides that of [`waiters`](super::waiters):
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `release`, subtraction Release | *fast*, compare-exchange Acquire; *pending* and *head*, the spin | the section |
//! | *queue*, compare-exchange AcqRel | *queue* of the next, the same | the waiter is prepared |
//!
//! **Limits.** 65,535 participants. Who finds the lock free of all waiters goes first, as everywhere; who waits is served in order.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};
use hitm_topology::{CpuId, Topology};

use super::SpinLock;
use super::waiters::Waiters;

const LOCKED: u32 = 1;
const PENDING: u32 = 1 << 8;
const TAIL_SHIFT: u32 = 16;

const _: () =
    assert!(LOCKED & PENDING == 0 && (LOCKED | PENDING) >> TAIL_SHIFT == 0, "the parts of the word are apart");

described! {
    /// The lock.
    struct Word<M: Memory> as "probe_lock" {
        /// See the module's table.
        word: M::Atomic<u32>,
    }
}

/// See the module.
pub struct Queued<M: Memory> {
    lock: Placed<M, Word<M>>,
    waiters: Waiters<M>,
}

impl<M: Memory> Queued<M> {
    /// A free lock; participant `i` runs on `cpus[i]`.
    ///
    /// # Panics
    /// When there are more CPUs than a tail has numbers for.
    #[must_use]
    pub fn new(topology: &Topology, cpus: &[CpuId]) -> Self {
        assert!(cpus.len() < 1 << (u32::BITS - TAIL_SHIFT), "{} participants: a tail has 16 bits", cpus.len());
        let lock = Placed::new(Word { word: M::Atomic::new(0) }, None, None);
        Self { lock, waiters: Waiters::new(topology, cpus) }
    }

    /// Puts `participant` at the end; who was there before, or 0.
    fn enter_queue(&self, participant: usize, mut seen: u32) -> u32 {
        let own = (participant as u32 + 1) << TAIL_SHIFT;
        loop {
            let new = own | seen & (LOCKED | PENDING);
            // AcqRel: Release, the waiter is prepared before anybody learns of it; Acquire, so is that of the one before.
            // Relaxed on failure: the value is compared again.
            match self.lock.word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen >> TAIL_SHIFT,
                Err(now) => seen = now,
            }
        }
    }

    /// The first of the queue takes the lock, and its successor becomes the first.
    fn take_as_head(&self, participant: usize) {
        let own = (participant as u32 + 1) << TAIL_SHIFT;
        // Acquires what the last holder released.
        let word = M::spin_while(&self.lock.word, |word| word & (LOCKED | PENDING) != 0);
        // Relaxed, both: the spin has acquired the section, and while there is a tail nobody but the head takes the lock.
        if word == own && self.lock.word.compare_exchange(own, LOCKED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
        // Relaxed: as above.
        self.lock.word.fetch_or(LOCKED, Ordering::Relaxed);
        let next = self.waiters.awaited_successor(participant);
        self.waiters.let_go_on(next);
    }
}

impl<M: Memory> SpinLock for Queued<M> {
    fn acquire(&self, participant: usize, _back_off: &dyn Fn(u32)) {
        // Acquire: the last holder's section is seen. Pairs with the Release in `release`. Relaxed on failure: nothing is
        // read from the section then.
        let mut seen = match self.lock.word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => seen,
        };
        if seen == LOCKED {
            // Relaxed, both: to be the next publishes nothing.
            match self.lock.word.compare_exchange(LOCKED, LOCKED | PENDING, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // Acquires what the holder released.
                    M::spin_while(&self.lock.word, |word| word & LOCKED != 0);
                    // Relaxed: the spin has acquired the section, and with pending set nobody else takes the lock.
                    self.lock.word.fetch_sub(PENDING - LOCKED, Ordering::Relaxed);
                    return;
                }
                Err(now) => seen = now,
            }
        }
        self.waiters.prepare(participant);
        let before = self.enter_queue(participant, seen);
        if before != 0 {
            self.waiters.wait_behind(participant, before);
        }
        self.take_as_head(participant);
    }

    fn release(&self, _participant: usize) {
        // Release: publishes the section. Pairs with the Acquires in `acquire` and `take_as_head`.
        self.lock.word.fetch_sub(LOCKED, Ordering::Release);
    }
}
