//! The placement of cpupri's counts and mask pointers: three variants behind one trait.
//!
//! | placement | a level's count and pointer | bytes | lines |
//! |---|---|---|---|
//! | [`Packed`] | side by side, four levels per line | 1,624 | 26 |
//! | [`Split`] (patch 1) | each on its own line | 12,992 | 203 |
//! | [`Compact`] (an alternative to patch 1) | counts together, pointers together, level 0's count alone | 1,328 | 21 |
//!
//! Every CPU that enters or leaves a level writes the level's count, and every search that passes
//! the level reads it. A pointer is written once, at construction, and both read it.

use std::mem::offset_of;

use hitm_memory::{AtomicWord, Described, Field, LineStart, Memory, Native};

use crate::prio::Level;

/// The counts, the mask pointers and the pointer to the array of levels, in any placement.
pub trait CpupriVecs<M: Memory>: Described + Send + Sync + Sized + 'static {
    /// The number of levels: [`Level::COUNT`], or fewer under a model checker.
    const LEVELS: usize;

    /// Creates vectors with all counts 0. `mask(level)` is the value of the level's pointer,
    /// `cpu_to_pri` that of the array's pointer.
    fn new(mask: impl FnMut(usize) -> u64, cpu_to_pri: u64) -> Self;

    /// Returns the count of CPUs at `level`.
    fn count(&self, level: Level) -> &M::Atomic<i32>;

    /// Returns the pointer to the bitmap of the CPUs at `level`.
    fn mask(&self, level: Level) -> &M::Atomic<u64>;

    /// Returns the pointer to the array of the CPUs' levels.
    fn cpu_to_pri(&self) -> &M::Atomic<u64>;
}

/// Returns the fields of one level, which are at these offsets.
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
    /// The baseline: Linux v5.11 to v7.1.
    Packed,
    PackedVec {}
}

side_by_side! {
    /// Patch 1: the pointer of each level starts a line, so the count is alone on the line before.
    Split,
    SplitVec { before_mask }
}

/// The alternative to patch 1: one vector of counts and one of pointers. Only the count of level 0
/// has a line of its own, as every real-time activation on every CPU changes it.
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
