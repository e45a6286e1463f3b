//! The helpers of a computation: how many there are, how many of them search for a job, and whether
//! another one is wanted.
//!
//! **Claim.** Whether another helper is wanted is asked at each [`join`](super::join), and changes
//! no more once there are as many helpers as there may be. The count changes twice for each stolen
//! job. So the answer is a word of its own, and all participants have its line in their caches.
//!
//! **Protocol.** Another helper is wanted while none searches and there are fewer than there may
//! be. Who changes the count so that the answer changes, (1) fences, (2) reads the count, (3)
//! writes the answer, (4) fences, (5) reads the count again, and goes on with (3) if the answer is
//! another one.
//!
//! **Invariant.** When no thread is between the change of the count and (5), the answer is right.
//!
//! **Memory ordering.** Of two that write the answer, the one whose fence (4) comes after the other
//! one's fence (1) reads the other one's change in (5). If its fence (4) comes first, so does its
//! answer. Nothing is published by these words: spawning a helper publishes what it is to do.
//!
//! The model checker runs these words: `fork_join/helpers/loom.rs`.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};

const ONE: u64 = 1;
const SEARCHES: u64 = 1 << 32;

/// The words. The first line is read by all participants and seldom changes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Helpers<M: Memory> {
    /// The answer: 1 if another helper is wanted.
    wanted: M::Atomic<u32>,
    /// How many there may be.
    most: M::Atomic<u32>,
    count: Count<M>,
}

/// The number of helpers that search (high half) and of all helpers (low half).
#[derive(Debug)]
#[repr(align(128))]
struct Count<M: Memory>(M::Atomic<u64>);

impl<M: Memory> Helpers<M> {
    /// No helpers, of which there may be `most`.
    pub(super) fn new(most: u32) -> Self {
        Self {
            wanted: M::Atomic::new(u32::from(most > 0)),
            most: M::Atomic::new(most),
            count: Count(M::Atomic::new(0)),
        }
    }

    /// Returns whether there is none.
    pub(super) fn are_none(&self) -> bool {
        // Relaxed: after zero, the next participant alone counts helpers in.
        self.count.0.load(Ordering::Relaxed) == 0
    }

    /// Sets how many there may be. It changes only while there are none.
    pub(super) fn set_most(&self, most: u32) {
        // Relaxed, both: the helpers that come are spawned afterwards.
        if self.most.load(Ordering::Relaxed) != most {
            self.most.store(most, Ordering::Relaxed);
            self.answer();
        }
    }

    /// Returns whether another one is wanted: a hint.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        // Relaxed: an old answer costs time, never a result.
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Counts one in that searches, if another one is wanted. Returns whether it did: then the
    /// caller spawns it.
    pub(super) fn call(&self) -> bool {
        // Relaxed, all: see the module's documentation.
        let mut before = self.count.0.load(Ordering::Relaxed);
        while self.are_wanted_beside(before) {
            let after = before + ONE + SEARCHES;
            match self.count.0.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.answer();
                    return true;
                }
                Err(now) => before = now,
            }
        }
        false
    }

    /// One that has counted itself out searches again. There may be one too many for a while.
    pub(super) fn come(&self) {
        self.change(ONE + SEARCHES);
    }

    /// One that searches counts itself out.
    pub(super) fn go(&self) {
        self.change((ONE + SEARCHES).wrapping_neg());
    }

    /// One that searches has found a job.
    pub(super) fn find(&self) {
        self.change(SEARCHES.wrapping_neg());
    }

    /// One has run the job that it found.
    pub(super) fn search(&self) {
        self.change(SEARCHES);
    }

    fn change(&self, by: u64) {
        // Relaxed: see the module's documentation.
        let before = self.count.0.fetch_add(by, Ordering::Relaxed);
        if self.are_wanted_beside(before) != self.are_wanted_beside(before.wrapping_add(by)) {
            self.answer();
        }
    }

    fn are_wanted_beside(&self, count: u64) -> bool {
        // Relaxed: as in `set_most`.
        count < SEARCHES && count < u64::from(self.most.load(Ordering::Relaxed))
    }

    /// Does (1) to (5) after a change.
    #[cold]
    fn answer(&self) {
        let read = || {
            // SeqCst: (1) and (4), which pair with those of another thread.
            M::fence(Ordering::SeqCst);
            // Relaxed: fenced.
            self.are_wanted_beside(self.count.0.load(Ordering::Relaxed))
        };
        let mut wanted = read();
        loop {
            // Relaxed: a hint.
            self.wanted.store(wanted.into(), Ordering::Relaxed);
            let now = read();
            if now == wanted {
                return;
            }
            wanted = now;
        }
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
