//! The placement of cpupri's counts and mask pointers: one table per placement.
//!
//! | placement | a level's count and pointer | bytes | lines |
//! |---|---|---|---|
//! | [`PACKED`] | side by side, four levels per line | 1,624 | 26 |
//! | [`SPLIT`] (patch 1) | each on its own line | 12,992 | 203 |
//! | [`NORMAL`] (a part of patch 1) | as packed, but level 0's count on its own line | 1,728 | 27 |
//! | [`COMPACT`] (an alternative to patch 1) | counts together, pointers together, level 0's count alone | 1,328 | 21 |
//!
//! Every CPU that enters or leaves a level writes the level's count, and every search that passes
//! the level reads it. A pointer is written once, at construction, and both read it.
//!
//! A new placement is one more table here, and one line in [`mitigation`](crate::mitigation).

use hitm_memory::{AtomicWord, Entry, Member, Memory, Record, RecordArray, RecordField, RecordLayout};

use crate::base::prio::Level;

/// A placement of cpupri's counts and pointers.
#[derive(Debug, PartialEq, Eq)]
pub struct CpupriOrder {
    /// What one element of `pri_to_cpu` has, where there is such an array.
    level: &'static [Entry],
    /// The whole.
    vectors: &'static [Entry],
    /// Where the counts are, level 0's first.
    counts: &'static [&'static str],
    /// Where the pointers are.
    masks: &'static [&'static str],
}

/// The baseline: Linux v5.11 to v7.1.
pub static PACKED: CpupriOrder = CpupriOrder {
    level: &[Entry::Word("count"), Entry::Word("mask")],
    vectors: &[Entry::Word("pri_to_cpu"), Entry::Word("cpu_to_pri")],
    counts: &["pri_to_cpu.count"],
    masks: &["pri_to_cpu.mask"],
};

/// Patch 1: the pointer of each level starts a line, so the count is alone on the line before.
pub static SPLIT: CpupriOrder = CpupriOrder {
    level: &[Entry::Word("count"), Entry::Line, Entry::Word("mask")],
    vectors: PACKED.vectors,
    counts: PACKED.counts,
    masks: PACKED.masks,
};

/// The part of patch 1 that every real-time activation needs: level 0's count has a line of its
/// own. The counts of levels 1 to 100 stay beside their pointers, four levels per line.
pub static NORMAL: CpupriOrder = CpupriOrder {
    level: PACKED.level,
    vectors: &[
        Entry::Word("count_normal"),
        Entry::Line,
        Entry::Word("mask_normal"),
        Entry::Word("above_normal"),
        Entry::Word("cpu_to_pri"),
    ],
    counts: &["count_normal", "above_normal.count"],
    masks: &["mask_normal", "above_normal.mask"],
};

/// The alternative to patch 1: one vector of counts and one of pointers. Only the count of level 0
/// has a line of its own, as every real-time activation on every CPU changes it.
pub static COMPACT: CpupriOrder = CpupriOrder {
    level: &[],
    vectors: &[
        Entry::Word("count_normal"),
        Entry::Line,
        Entry::Word("counts"),
        Entry::Line,
        Entry::Word("masks"),
        Entry::Word("cpu_to_pri"),
    ],
    counts: &["count_normal", "counts"],
    masks: &["masks"],
};

impl CpupriOrder {
    /// Returns the layout for `levels` levels: [`Level::COUNT`], or fewer under a model checker.
    pub(crate) fn layout<M: Memory>(&self, levels: usize) -> RecordLayout {
        let count = "CPUs at this level: written by every entry and exit, read by every search";
        let mask = "pointer to the bitmap: written at construction only";
        let level = [Member::word::<M::Atomic<i32>>("count", count), Member::word::<M::Atomic<u64>>("mask", mask)];
        let members = [
            Member::nested("pri_to_cpu", levels, RecordLayout::new(self.level, &level), "one per level"),
            Member::nested("above_normal", levels - 1, RecordLayout::new(self.level, &level), "one per level from 1"),
            Member::word::<M::Atomic<i32>>("count_normal", "CPUs at level 0"),
            Member::word::<M::Atomic<u64>>("mask_normal", "pointer to the bitmap of level 0"),
            Member::words::<M::Atomic<i32>>("counts", levels - 1, "CPUs at levels 1 to 100"),
            Member::words::<M::Atomic<u64>>("masks", levels, "pointers to the bitmaps, by level"),
            Member::word::<M::Atomic<u64>>("cpu_to_pri", "pointer to each CPU's level: written at construction only"),
        ];
        RecordLayout::new(self.vectors, &members)
    }
}

/// The counts, the mask pointers and the pointer to the array of levels.
#[derive(Debug)]
pub(crate) struct CpupriVecs<M: Memory> {
    /// The count of CPUs at each level.
    pub(crate) counts: RecordArray<M, M::Atomic<i32>>,
    /// The pointer to the bitmap of the CPUs at each level.
    masks: RecordArray<M, M::Atomic<u64>>,
    /// The pointer to the array of the CPUs' levels.
    pub(crate) cpu_to_pri: RecordField<M, M::Atomic<u64>>,
}

impl<M: Memory> CpupriVecs<M> {
    /// Puts the vectors into a record in whose layout they are under `prefix`. All counts are 0.
    /// `mask(level)` is the value of a level's pointer.
    pub(crate) fn put(record: &mut Record<M>, prefix: &str, order: &CpupriOrder, mask: impl Fn(usize) -> u64) -> Self {
        let under = |names: &[&str]| -> Vec<String> { names.iter().map(|name| format!("{prefix}{name}")).collect() };
        fn borrowed(paths: &[String]) -> Vec<&str> {
            paths.iter().map(String::as_str).collect()
        }
        Self {
            counts: record.put_array(&borrowed(&under(order.counts)), |_| M::Atomic::new(0)),
            masks: record.put_array(&borrowed(&under(order.masks)), |level| M::Atomic::new(mask(level))),
            cpu_to_pri: record.put(&format!("{prefix}cpu_to_pri"), M::Atomic::new(0)),
        }
    }

    /// Returns the count of CPUs at `level`.
    #[inline(always)]
    pub(crate) fn count(&self, level: Level) -> &M::Atomic<i32> {
        &self.counts[level.index()]
    }

    /// Returns the pointer to the bitmap of the CPUs at `level`.
    #[inline(always)]
    pub(crate) fn mask(&self, level: Level) -> &M::Atomic<u64> {
        &self.masks[level.index()]
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::{LINE, Native};

    use super::*;

    /// Sizes and offsets of the originals (mechanisms 1.2 and 1.4 of the reference).
    #[test]
    fn placements_are_the_originals() {
        let check = |order: &CpupriOrder, size, places: &[(&str, (usize, usize, usize))]| {
            let layout = order.layout::<Native>(Level::COUNT);
            assert_eq!(layout.size(), size);
            for &(path, place) in places {
                assert_eq!(layout.locate(path), Some(place), "{path}");
            }
        };
        let levels = Level::COUNT;
        check(
            &PACKED,
            1_624,
            &[
                ("pri_to_cpu.count", (0, 16, levels)),
                ("pri_to_cpu.mask", (8, 16, levels)),
                ("cpu_to_pri", (1_616, 8, 1)),
            ],
        );
        check(
            &SPLIT,
            203 * LINE,
            &[("pri_to_cpu.count", (0, 2 * LINE, levels)), ("pri_to_cpu.mask", (LINE, 2 * LINE, levels))],
        );
        check(
            &NORMAL,
            27 * LINE,
            &[
                ("count_normal", (0, 4, 1)),
                ("mask_normal", (LINE, 8, 1)),
                ("above_normal.count", (LINE + 8, 16, levels - 1)),
                ("above_normal.mask", (LINE + 16, 16, levels - 1)),
                ("cpu_to_pri", (LINE + 8 + 16 * (levels - 1), 8, 1)),
            ],
        );
        check(
            &COMPACT,
            21 * LINE,
            &[
                ("count_normal", (0, 4, 1)),
                ("counts", (LINE, 4, levels - 1)),
                ("masks", (512, 8, levels)),
                ("cpu_to_pri", (1_320, 8, 1)),
            ],
        );
    }
}
