//! cpupri's counts of CPUs a level, split over the parts of a topology.
//!
//! **Claim.** A CPU that enters or leaves a level writes its own part's count; a search of a level reads the parts' counts, its own
//! first, and stops at the first that is not zero.
//!
//! **Origin.** Ours: patch 4 of "sched/rt: mitigate root_domain cache line contention" splits a level's bitmap and leaves its count, one word
//! that every CPU which enters or leaves the level changes; patch 3 does this for the count of overloaded CPUs.
//!
//! **State.** Three forms. *Whole*: the words of [`cpupri_vecs`](crate::cpupri_vecs). *Parts*: an object a part. *Bytes*: a byte a CPU and level,
//! 1 while the CPU is there: what a part of one CPU counts, stored instead of added. In the last two the words of `cpupri_vecs` stay 0,
//! and nobody reads them.
//!
//! **Invariant.** A part's count is never negative, as a CPU is always in the same part and leaves only what it has entered. So some
//! part's count is not zero exactly where the whole count would not be, and a search may stop at the first such.
//!
//! **Memory ordering.** As of the whole count, see [`cpupri`](crate::cpupri): a CPU's entry and its leave of the level before are made
//! in words of the same part, and a search that goes by reads that part of both levels, Acquire.
//!
//! **Layout.** A part's counts are together, eight lines on its node, written by its CPUs and read by every search that finds nothing in
//! the parts before it. Level 0's, which every CPU of the part changes when it begins or ends real-time work, is alone on the first line; the others
//! stand sixteen a line, so that a search upward reads seven lines a part for a hundred levels and not a hundred. Bytes stand by level, a
//! line's start each, as those of the bitmaps.
//!
//! **Cost.** Entry, leave: a read-modify-write each, or a store. A search: a load a part and level until one is not zero; of bytes, a load a
//! CPU and level.

use hitm_memory::{AtomicWord, Field, Form, LINE, Memory, PlacedSlice, ScopedBytes};
use hitm_topology::{CpuId, Scope, Topology};

use crate::cpupri_vecs::CpupriVecs;
use crate::prio::Level;

/// The object that holds a part's counts, or its bytes.
pub(crate) const OBJECT: &str = "cpupri_counts";

/// Words before the count of level 1: level 0's is alone on its line, where layouts hold.
const fn alone<M: Memory>() -> usize {
    if M::EXACT { LINE / size_of::<i32>() } else { 1 }
}

/// Where the counts are.
#[derive(Debug)]
pub(crate) enum LevelCounts<M: Memory> {
    /// Where the vectors have them.
    Whole,
    /// A vector a part.
    Parts {
        /// By part.
        parts: Box<[PlacedSlice<M, M::Atomic<i32>>]>,
        /// By CPU.
        part_of: Box<[u32]>,
    },
    /// A byte a CPU and level.
    Bytes(ScopedBytes<M>),
}

/// What a CPU is counted in at a level.
pub(crate) enum Counter<'a, M: Memory> {
    /// A number that others change too.
    Shared(&'a M::Atomic<i32>),
    /// A byte that nobody stores to but under the CPU's run queue lock.
    Own(&'a M::Atomic<u8>),
}

/// Where the count of `level` is among a part's.
#[inline]
fn index_of<M: Memory>(level: Level) -> usize {
    match level.index() {
        0 => 0,
        above_normal => alone::<M>() - 1 + above_normal,
    }
}

/// The size of a part's counts, and their fields.
pub(crate) fn layout(levels: usize) -> (usize, Vec<Field>) {
    let size = size_of::<i32>();
    let normal = Field::word(
        "count_normal",
        0,
        size,
        "the part's CPUs at level 0: written by each that begins or ends real-time work",
    );
    let above = Field {
        count: levels - 1,
        ..Field::word(
            "counts",
            LINE,
            size,
            "the part's CPUs at levels 1 and up: written by each that enters or leaves, read by every search",
        )
    };
    (LINE + (levels - 1) * size, vec![normal, above])
}

impl<M: Memory> LevelCounts<M> {
    /// All 0.
    pub(crate) fn new(levels: usize, topology: &Topology, form: Form) -> Self {
        match form {
            Form::Words(Scope::Machine) => Self::Whole,
            Form::Words(scope) => {
                let part = |part: usize| {
                    let node = topology.cpu(topology.cpus_of(scope, part)[0]).node;
                    let fields = || layout(levels).1;
                    let count = alone::<M>() - 1 + levels;
                    PlacedSlice::new(OBJECT, Some(part), Some(node), count, &fields, |_| M::Atomic::new(0))
                };
                Self::Parts {
                    parts: (0..topology.parts(scope)).map(part).collect(),
                    part_of: topology.cpu_ids().map(|cpu| topology.part_of(scope, cpu) as u32).collect(),
                }
            }
            Form::Bytes(scope) => Self::Bytes(ScopedBytes::new(OBJECT, "level", levels, topology, scope)),
        }
    }

    /// What `cpu` is counted in at `level`.
    #[inline]
    pub(crate) fn of<'a, V: CpupriVecs<M>>(&'a self, vecs: &'a V, cpu: CpuId, level: Level) -> Counter<'a, M> {
        match self {
            Self::Whole => Counter::Shared(vecs.count(level)),
            Self::Parts { parts, part_of } => {
                Counter::Shared(&parts[part_of[cpu.index()] as usize][index_of::<M>(level)])
            }
            Self::Bytes(bytes) => Counter::Own(bytes.row(level.index()).byte_of(cpu)),
        }
    }

    /// Whether any CPU is counted at `level`. Looks at the part of `here` first and stops at the first.
    #[inline]
    #[track_caller]
    pub(crate) fn any<V: CpupriVecs<M>>(&self, vecs: &V, level: Level, here: CpuId) -> bool {
        match self {
            // Acquire, also where it is zero: see `Cpupri::available_at`.
            Self::Whole => vecs.count(level).load(COUNT_READ) != 0,
            Self::Parts { parts, part_of } => {
                let (first, index) = (part_of[here.index()] as usize, index_of::<M>(level));
                // From here on and around, without a division.
                for part in (first..parts.len()).chain(0..first) {
                    // Acquire: as above.
                    if parts[part][index].load(COUNT_READ) != 0 {
                        return true;
                    }
                }
                false
            }
            // Acquire: as above.
            Self::Bytes(bytes) => bytes.row(level.index()).count_beyond(here, 0, COUNT_READ) != 0,
        }
    }

    /// How many CPUs are counted at `level`, for checkers.
    pub(crate) fn sum<V: CpupriVecs<M>>(&self, vecs: &V, level: Level) -> i32 {
        match self {
            // Acquire: checkers of invariant 3 look while CPUs move.
            Self::Whole => vecs.count(level).load(COUNT_READ),
            // Acquire: as above.
            Self::Parts { parts, .. } => parts.iter().map(|part| part[index_of::<M>(level)].load(COUNT_READ)).sum(),
            // Acquire: as above.
            Self::Bytes(bytes) => bytes.row(level.index()).count_beyond(CpuId(0), i32::MAX, COUNT_READ),
        }
    }

    /// Whether a CPU is counted by a plain store.
    #[inline]
    pub(crate) fn are_stored(&self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Bytes that they take outside the vectors, whole lines.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Parts { parts, .. } => parts.iter().map(|part| size_of_val(&**part).next_multiple_of(LINE)).sum(),
            Self::Bytes(bytes) => bytes.bytes(),
        }
    }
}

/// How a count is read: Acquire, see the table of [`cpupri`](crate::cpupri).
const COUNT_READ: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Acquire;

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn a_parts_counts_take_eight_lines() {
        let (size, fields) = layout(Level::COUNT);
        assert_eq!(size.div_ceil(LINE), 8);
        assert_eq!((alone::<Native>() - 1 + Level::COUNT) * size_of::<i32>(), size);
        assert_eq!(
            (index_of::<Native>(Level::NORMAL), index_of::<Native>(Level(1)) * size_of::<i32>()),
            (0, fields[1].offset)
        );
        assert_eq!((index_of::<Native>(Level::HIGHER) + 1) * size_of::<i32>(), size);
    }
}
