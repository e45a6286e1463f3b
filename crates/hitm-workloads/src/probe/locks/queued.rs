//! A lock of four bytes with a queue behind it, similar to the kernel's queued spin lock.
//!
//! **Claim.** An uncontended acquisition costs as much as test-and-set and touches one line. A
//! contended lock behaves as [`Mcs`](super::Mcs), but the first waiter needs no line of its own.
//!
//! **Origin.** The idea of Waiman Long and Peter Zijlstra, "qspinlock: a 4-byte queue spinlock",
//! 2014. Differences: the kernel writes parts of the word by plain stores of one and two bytes. The
//! memory trait has no such stores, so every change here is an RMW of the whole word. The pending
//! bit is set by a compare-exchange, so that it never has to be undone. A participant holds one
//! lock at a time, so it has one waiter instead of four.
//!
//! **State.** One word:
//!
//! | bits | name | set by | cleared by |
//! |---|---|---|---|
//! | 0 | locked | the participant that takes the lock | the holder that releases it |
//! | 8 | pending | the first waiter, while there is no other waiter | itself, when it takes the lock |
//! | 16 to 31 | tail: the number of the last participant in the queue, plus 1 | a participant that enters the queue | the last participant of the queue, when it takes the lock |
//!
//! **Protocol.** (1) *Fast*: if no bit is set, take the lock. (2) *Pending*: if only locked is set,
//! set pending, wait until locked is clear, and take the lock. (3) *Queue*: become the tail, and
//! wait behind the previous tail, if any. (4) *Head*: wait until locked and pending are clear, and
//! take the lock. If the tail is the own number, clear it; otherwise let the successor become the
//! head.
//!
//! **Memory ordering.** Besides that of [`waiters`](super::waiters):
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `release`, subtraction Release | *fast*, compare-exchange Acquire; *pending* and *head*, the spin | the section |
//! | *queue*, compare-exchange AcqRel | *queue* of the next participant, the same | the prepared waiter |
//!
//! **Limits.** 65,535 participants. A participant that finds no bit set goes first, as in the
//! original; waiters are served in order.

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

/// The queued spin lock; see the module.
pub struct Queued<M: Memory> {
    lock: Placed<M, Word<M>>,
    waiters: Waiters<M>,
}

impl<M: Memory> Queued<M> {
    /// Makes a free lock; participant `i` runs on `cpus[i]`.
    ///
    /// # Panics
    /// When there are more CPUs than a tail has numbers for.
    #[must_use]
    pub fn new(topology: &Topology, cpus: &[CpuId]) -> Self {
        assert!(cpus.len() < 1 << (u32::BITS - TAIL_SHIFT), "{} participants: a tail has 16 bits", cpus.len());
        let lock = Placed::new(Word { word: M::Atomic::new(0) }, None, None);
        Self { lock, waiters: Waiters::new(topology, cpus) }
    }

    /// Puts `participant` at the end of the queue; returns the previous tail, or 0.
    fn enter_queue(&self, participant: usize, mut seen: u32) -> u32 {
        let own = (participant as u32 + 1) << TAIL_SHIFT;
        loop {
            let new = own | seen & (LOCKED | PENDING);
            // AcqRel. Release: publishes the prepared waiter before another participant can find
            // it. Acquire: sees that of the previous tail. Relaxed on failure: the value is
            // compared again.
            match self.lock.word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen >> TAIL_SHIFT,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the lock as the first of the queue, and makes its successor the first.
    fn take_as_head(&self, participant: usize) {
        let own = (participant as u32 + 1) << TAIL_SHIFT;
        // Acquire: sees what the last holder released.
        let word = M::spin_while(&self.lock.word, |word| word & (LOCKED | PENDING) != 0);
        // Relaxed, both: the spin has acquired the section, and while there is a tail, only the
        // head takes the lock.
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
        // Acquire: sees the last holder's section. Pairs with the Release in `release`. Relaxed on
        // failure: the section is not read then.
        let mut seen = match self.lock.word.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => seen,
        };
        if seen == LOCKED {
            // Relaxed, both: becoming the first waiter publishes nothing.
            match self.lock.word.compare_exchange(LOCKED, LOCKED | PENDING, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // Acquire: sees what the holder released.
                    M::spin_while(&self.lock.word, |word| word & LOCKED != 0);
                    // Relaxed: the spin has acquired the section, and while pending is set, no
                    // other participant takes the lock.
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
