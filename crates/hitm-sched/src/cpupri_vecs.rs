//! Where cpupri's counts and mask pointers stand: three placements behind one trait.
//!
//! | placement | a level's count and pointer | bytes | lines |
//! |---|---|---|---|
//! | [`Packed`] | side by side, four levels a line | 1,624 | 26 |
//! | [`Split`] (patch 1) | each on a line of its own | 12,992 | 203 |
//! | [`Compact`] (its alternative) | counts together, pointers together, level 0's count alone | 1,328 | 21 |
//!
//! A count is written by every CPU that enters or leaves the level and read by every search that comes by. A pointer is
//! written once, at construction, and read by all of both.

use std::mem::offset_of;

use hitm_memory::{AtomicWord, Described, Field, LineStart, Memory, Native};

use crate::prio::Level;

/// The counts, mask pointers and the pointer to the array of levels, wherever they stand.
pub trait CpupriVecs<M: Memory>: Described + Send + Sync + Sized + 'static {
    /// Levels: [`Level::COUNT`], fewer under a model checker.
    const LEVELS: usize;

    /// All counts 0; `mask(level)` is what the level's pointer holds, `cpu_to_pri` what the array's does.
    fn new(mask: impl FnMut(usize) -> u64, cpu_to_pri: u64) -> Self;

    /// How many CPUs are at `level`.
    fn count(&self, level: Level) -> &M::Atomic<i32>;

    /// The pointer to the bitmap of the CPUs at `level`.
    fn mask(&self, level: Level) -> &M::Atomic<u64>;

    /// The pointer to the array of each CPU's level.
    fn cpu_to_pri(&self) -> &M::Atomic<u64>;
}

/// The fields of one level, at these offsets, `size` bytes a level.
fn vec_fields(count: usize, mask: usize) -> Vec<Field> {
    vec![
        Field::word(
            "count",
            count,
            size_of::<i32>(),
            "CPUs at this level: written by every entry and exit, read by every search",
        ),
        Field::word("mask", mask, size_of::<u64>(), "pointer to the bitmap: written at construction only"),
    ]
}

macro_rules! side_by_side {
    ($(#[$attribute:meta])* $vecs:ident, $(#[$vec_attribute:meta])* $vec:ident { $($padding:ident)? }) => {
        $(#[$vec_attribute])*
        #[repr(C)]
        struct $vec<M: Memory> {
            count: M::Atomic<i32>,
            $($padding: LineStart,)?
            mask: M::Atomic<u64>,
        }

        $(#[$attribute])*
        #[repr(C)]
        pub struct $vecs<M: Memory, const LEVELS: usize = { Level::COUNT }> {
            pri_to_cpu: [$vec<M>; LEVELS],
            cpu_to_pri: M::Atomic<u64>,
        }

        impl<M: Memory, const LEVELS: usize> Described for $vecs<M, LEVELS> {
            const OBJECT: &'static str = "cpupri";

            fn fields() -> Vec<Field> {
                let fields = vec_fields(offset_of!($vec<M>, count), offset_of!($vec<M>, mask));
                let levels = Field {
                    count: LEVELS,
                    fields,
                    ..Field::word("pri_to_cpu", offset_of!(Self, pri_to_cpu), size_of::<$vec<M>>(), "one a level")
                };
                let array = Field::word(
                    "cpu_to_pri",
                    offset_of!(Self, cpu_to_pri),
                    size_of::<u64>(),
                    "pointer to each CPU's level: written at construction only",
                );
                vec![levels, array]
            }
        }

        impl<M: Memory, const LEVELS: usize> CpupriVecs<M> for $vecs<M, LEVELS> {
            const LEVELS: usize = LEVELS;

            fn new(mut mask: impl FnMut(usize) -> u64, cpu_to_pri: u64) -> Self {
                let vec = |level| $vec {
                    count: M::Atomic::new(0),
                    $($padding: LineStart,)?
                    mask: M::Atomic::new(mask(level)),
                };
                Self { pri_to_cpu: std::array::from_fn(vec), cpu_to_pri: M::Atomic::new(cpu_to_pri) }
            }

            #[inline(always)]
            fn count(&self, level: Level) -> &M::Atomic<i32> {
                &self.pri_to_cpu[level.index()].count
            }

            #[inline(always)]
            fn mask(&self, level: Level) -> &M::Atomic<u64> {
                &self.pri_to_cpu[level.index()].mask
            }

            #[inline(always)]
            fn cpu_to_pri(&self) -> &M::Atomic<u64> {
                &self.cpu_to_pri
            }
        }
    };
}

side_by_side! {
    /// The baseline: v5.11 to v7.1 of Linux.
    Packed,
    PackedVec {}
}

side_by_side! {
    /// Patch 1: the pointer of each level starts a line, so the count is alone on the one before.
    Split,
    SplitVec { before_mask }
}

/// The alternative to patch 1: a vector of counts and one of pointers. Only the count of level 0, which every real-time
/// activation on every CPU changes, has a line of its own.
#[repr(C)]
pub struct Compact<M: Memory> {
    count_normal: M::Atomic<i32>,
    before_counts: LineStart,
    counts: [M::Atomic<i32>; Level::COUNT - 1],
    before_masks: LineStart,
    masks: [M::Atomic<u64>; Level::COUNT],
    cpu_to_pri: M::Atomic<u64>,
}

impl<M: Memory> Described for Compact<M> {
    const OBJECT: &'static str = "cpupri";

    fn fields() -> Vec<Field> {
        let (count, pointer) = (size_of::<i32>(), size_of::<u64>());
        vec![
            Field::word("count_normal", offset_of!(Self, count_normal), count, "CPUs at level 0"),
            Field {
                count: Level::COUNT - 1,
                ..Field::word("counts", offset_of!(Self, counts), count, "CPUs at levels 1 to 100")
            },
            Field {
                count: Level::COUNT,
                ..Field::word("masks", offset_of!(Self, masks), pointer, "pointers to the bitmaps, by level")
            },
            Field::word("cpu_to_pri", offset_of!(Self, cpu_to_pri), pointer, "pointer to each CPU's level"),
        ]
    }
}

impl<M: Memory> CpupriVecs<M> for Compact<M> {
    const LEVELS: usize = Level::COUNT;

    fn new(mut mask: impl FnMut(usize) -> u64, cpu_to_pri: u64) -> Self {
        Self {
            count_normal: M::Atomic::new(0),
            before_counts: LineStart,
            counts: std::array::from_fn(|_| M::Atomic::new(0)),
            before_masks: LineStart,
            masks: std::array::from_fn(|level| M::Atomic::new(mask(level))),
            cpu_to_pri: M::Atomic::new(cpu_to_pri),
        }
    }

    #[inline(always)]
    fn count(&self, level: Level) -> &M::Atomic<i32> {
        match level.index().checked_sub(1) {
            None => &self.count_normal,
            Some(above_normal) => &self.counts[above_normal],
        }
    }

    #[inline(always)]
    fn mask(&self, level: Level) -> &M::Atomic<u64> {
        &self.masks[level.index()]
    }

    #[inline(always)]
    fn cpu_to_pri(&self) -> &M::Atomic<u64> {
        &self.cpu_to_pri
    }
}

// Sizes and offsets of the originals (mechanisms 1.2 and 1.4 of the reference).
const _: () = assert!(size_of::<PackedVec<Native>>() == 16, "a level of the baseline is 16 bytes");
const _: () = assert!(size_of::<Packed<Native>>() == 1_624, "the baseline is 1,624 bytes");
const _: () = assert!(offset_of!(Packed<Native>, cpu_to_pri) == 1_616, "the baseline's array pointer is last");
const _: () = assert!(size_of::<SplitVec<Native>>() == 128, "a level of patch 1 is two lines");
const _: () = assert!(offset_of!(SplitVec<Native>, mask) == 64, "patch 1 puts the pointer on a line of its own");
const _: () = assert!(size_of::<Split<Native>>() == 12_992, "patch 1 is 203 lines");
const _: () = assert!(size_of::<Compact<Native>>() == 1_344, "the alternative is 21 lines, 1,328 bytes of them used");
const _: () = assert!(offset_of!(Compact<Native>, counts) == 64, "level 0's count is alone on its line");
const _: () = assert!(offset_of!(Compact<Native>, masks) == 512, "the pointers start a line");
const _: () = assert!(offset_of!(Compact<Native>, cpu_to_pri) == 1_320, "the array pointer is last");
