//! The helpers of a computation: how many there are, how many of them search for a job, and whether
//! another one is wanted.
//!
//! **Claim.** Each [`join`](super::join) asks whether another helper is wanted. The answer stays
//! "no" while there are as many helpers as there may be, but the count changes twice for each
//! stolen job. So the answer is a word of its own, and all participants have its cache line.
//!
//! **Protocol.** Another helper is wanted while none searches and there are fewer than there may
//! be. Who changes the count so that the answer changes, (1) fences, (2) reads the count, (3)
//! writes the answer, (4) fences, (5) reads the count again; if it now gives another answer, it
//! goes back to (3).
//!
//! A helper that has counted itself out may come back. So a computation that begins to serve a task
//! with other options counts a new *generation*, which it can only while there are no helpers. A
//! helper of an earlier generation does not come back.
//!
//! **Invariant.** When no thread is between a change and its last (5), the last answer written is
//! right.
//!
//! **Memory ordering.** Take the last answer in the order of writes. Its writer has fenced (4),
//! read the count (5), and found the answer right. A change that (5) has not read, and after which
//! another answer is right, has its fence (1) after that fence (4). So its answer is written later:
//! a contradiction. A change that leaves the answer as it is needs no write. Nothing is published
//! by these words: spawning a helper publishes what it is to do.
//!
//! The model checker runs these words: `fork_join/helpers/loom.rs`.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};
use hitm_topology::MAX_CPUS;

const ONE: u64 = 1;
const SEARCHES: u64 = 1 << 16;
const GENERATION: u64 = 1 << 32;

const _: () = assert!(MAX_CPUS < SEARCHES as usize, "the count has room for a helper per CPU");

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

/// All helpers (16 bits), those that search (16 bits), and the generation.
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

    /// Begins a new generation, of which there may be `most`, if there are no helpers. Returns
    /// whether there are none. No other thread participates.
    #[must_use]
    pub(super) fn renew(&self, most: u32) -> bool {
        // Relaxed, all: the helpers of the new generation are spawned afterwards.
        let count = self.count.0.load(Ordering::Relaxed);
        let is_free = count % GENERATION == 0
            && (self.count.0)
                .compare_exchange(count, count.wrapping_add(GENERATION), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_free && self.most.load(Ordering::Relaxed) != most {
            self.most.store(most, Ordering::Relaxed);
            self.answer();
        }
        is_free
    }

    /// Returns the generation of a helper that is counted in, and calls.
    pub(super) fn generation(&self) -> u64 {
        // Relaxed: it does not change meanwhile.
        self.count.0.load(Ordering::Relaxed) / GENERATION
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
        self.count_in(|count| self.are_wanted_beside(count))
    }

    /// One of `generation` that has counted itself out searches again, unless there is a new
    /// generation. Returns whether it does. There may be one too many for a while.
    #[must_use]
    pub(super) fn come(&self, generation: u64) -> bool {
        self.count_in(|count| count / GENERATION == generation)
    }

    /// Counts one in that searches, if the count `may` grow. Returns whether it did.
    fn count_in(&self, may: impl Fn(u64) -> bool) -> bool {
        // Relaxed, all: see the module's documentation.
        let mut before = self.count.0.load(Ordering::Relaxed);
        while may(before) {
            let after = before + ONE + SEARCHES;
            match self.count.0.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.answer_if_changed(before, after);
                    return true;
                }
                Err(now) => before = now,
            }
        }
        false
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
        self.answer_if_changed(before, before.wrapping_add(by));
    }

    fn answer_if_changed(&self, before: u64, after: u64) {
        if self.are_wanted_beside(before) != self.are_wanted_beside(after) {
            self.answer();
        }
    }

    fn are_wanted_beside(&self, count: u64) -> bool {
        // Less than `SEARCHES`: none searches.
        let helpers = count % GENERATION;
        // Relaxed: as in `renew`.
        helpers < SEARCHES && helpers < u64::from(self.most.load(Ordering::Relaxed))
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
