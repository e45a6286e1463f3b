//! The taken ids of a map: one bit each.
//!
//! **Invariants.** The CPU that sets a bit owns the id, and clears the bit once.
//!
//! **Memory ordering.** Taking is Acquire and giving back is Release: the next owner sees what the
//! last owner did with the id's data.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, Field, Memory, PlacedSlice};
use hitm_topology::Topology;

const BITS: usize = u64::BITS as usize;

/// The bits behind a map's words: sets of CPUs, and the taken ids. Each set is as wide as the
/// machine. The sets follow each other without gaps, as in the original, so the last one may begin
/// within a line.
#[derive(Debug)]
pub(crate) struct Bits<M: Memory> {
    words: PlacedSlice<M, M::Atomic<u64>>,
    /// Words per set.
    width: usize,
    sets: usize,
}

impl<M: Memory> Bits<M> {
    /// Creates sets with these names. The last one is the set of ids.
    pub(crate) fn new(index: usize, topology: &Topology, names: &[&'static str]) -> Self {
        let width = topology.cpus().div_ceil(BITS);
        let fields = || {
            let field = |(place, &name): (usize, &&'static str)| Field {
                count: width,
                ..Field::word(name, place * width * size_of::<u64>(), size_of::<u64>(), "64 CPUs or ids")
            };
            names.iter().enumerate().map(field).collect()
        };
        let words = PlacedSlice::new("mm_bits", Some(index), None, names.len() * width, &fields, |_| M::Atomic::new(0));
        Self { words, width, sets: names.len() }
    }

    fn word(&self, set: usize, index: usize) -> &M::Atomic<u64> {
        &self.words[set * self.width + index]
    }

    /// Returns the first free id, if it is below `limit`.
    pub(crate) fn first_free(&self, limit: u32) -> Option<u32> {
        for index in 0..self.width {
            // Relaxed: a hint that `take` checks.
            let free = !self.word(self.sets - 1, index).load(Ordering::Relaxed);
            if free != 0 {
                let id = (index * BITS) as u32 + free.trailing_zeros();
                return (id < limit).then_some(id);
            }
        }
        None
    }

    /// Takes `id`. Returns false when it is already taken.
    #[must_use]
    pub(crate) fn take(&self, id: u32) -> bool {
        let (word, bit) = (self.word(self.sets - 1, id as usize / BITS), 1 << (id as usize % BITS));
        // Acquire: sees what the last owner did. Pairs with `give_back`.
        word.fetch_or(bit, Ordering::Acquire) & bit == 0
    }

    /// Gives back `id`, which the caller has taken.
    pub(crate) fn give_back(&self, id: u32) {
        let (word, bit) = (self.word(self.sets - 1, id as usize / BITS), 1 << (id as usize % BITS));
        // Release: publishes what the owner did. Pairs with `take`.
        let before = word.fetch_and(!bit, Ordering::Release);
        assert_ne!(before & bit, 0, "id {id} is given back twice");
    }

    /// Returns the number of taken ids.
    pub(crate) fn population(&self) -> u32 {
        // Relaxed: a snapshot of changing words.
        (0..self.width).map(|index| self.word(self.sets - 1, index).load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Returns whether set `set` has all of `cpus`. Without the lock this is a hint.
    pub(crate) fn contains_all(&self, set: usize, cpus: &CpuSet) -> bool {
        // Relaxed: the set only grows.
        (0..self.width).all(|index| cpus.word(index) & !self.word(set, index).load(Ordering::Relaxed) == 0)
    }

    /// Adds `cpus` to set `set`, under a lock of the caller. Returns the size of the set after
    /// that.
    pub(crate) fn add(&self, set: usize, cpus: &CpuSet) -> u32 {
        let mut count = 0;
        for index in 0..self.width {
            let word = self.word(set, index);
            // Relaxed: under the caller's lock.
            let (before, more) = (word.load(Ordering::Relaxed), cpus.word(index));
            if more & !before != 0 {
                // Relaxed: as above.
                word.store(before | more, Ordering::Relaxed);
            }
            count += (before | more).count_ones();
        }
        count
    }

    /// Returns the taken ids.
    pub(crate) fn taken(&self) -> Vec<u32> {
        // Relaxed: for checkers, in a quiescent state.
        let word = |index| self.word(self.sets - 1, index).load(Ordering::Relaxed);
        let bits =
            |index: usize| (0..BITS).filter(move |bit| word(index) >> bit & 1 != 0).map(move |bit| index * BITS + bit);
        (0..self.width).flat_map(bits).map(|id| id as u32).collect()
    }

    /// Empties all sets.
    pub(crate) fn clear(&self) {
        // Relaxed: no task uses the map.
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}
