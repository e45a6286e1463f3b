//! cpupri's counts of CPUs per level, split over the parts of a topology.
//!
//! **Claim.** A CPU that enters or leaves a level writes the count of its own part. A search of a
//! level reads the parts' counts, its own part's first, and stops at the first that is not zero.
//!
//! **Origin.** Ours. Pan Deng, "[PATCH v2 4/4] sched/rt: Split cpupri_vec->cpumask to per NUMA node
//! to reduce contention", LKML, 2025-07-21, splits a level's bitmap but not its count. Every CPU
//! that enters or leaves the level changes that one word. Patch 3 of the same series splits the
//! count of overloaded CPUs in this way.
//!
//! **State.** There are three forms. *Whole*: the words of [`cpupri_vecs`](super::cpupri_vecs).
//! *Parts*: one object per part. *Bytes*: one byte per CPU and level, 1 while the CPU is at the
//! level. A byte has the content of a count for one CPU, but is stored instead of added. In the
//! last two forms the words of `cpupri_vecs` stay 0 and are not read.
//!
//! **Invariant.** A part's count is never negative: a CPU is always in the same part, and leaves
//! only levels that it has entered. So some part's count is nonzero exactly when the whole count
//! would be nonzero, and a search may stop at the first such part.
//!
//! **Memory ordering.** As of the whole count, see [`cpupri`](super::cpupri). A CPU enters the new
//! level and leaves the old one in words of the same part. A search reads that part of both levels
//! with Acquire loads.
//!
//! **Layout.** A part's counts are together in eight lines on the part's node. The part's CPUs
//! write them. A search reads them if it finds nothing in the parts before. Level 0's count is
//! alone on the first line, as every CPU of the part changes it when it begins or ends real-time
//! work. The other counts are sixteen per line, so an upward search reads seven lines per part for
//! a hundred levels instead of a hundred. Bytes are grouped by level. Each level's bytes start a
//! line, like those of the bitmaps.
//!
//! **Cost.** Entry and exit: one read-modify-write or store each. A search: one load per part and
//! level until a count is nonzero; with bytes, one load per CPU and level.

use hitm_memory::{AtomicWord, Field, Form, LINE, Memory, PlacedSlice, ScopedBytes};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::prio::Level;
use crate::linux::cpupri_vecs::CpupriVecs;

/// The name of the object that holds a part's counts or bytes.
pub(crate) const OBJECT: &str = "cpupri_counts";

/// Returns the number of words before the count of level 1. Where layouts are exact, level 0's
/// count is alone on its line.
const fn alone<M: Memory>() -> usize {
    if M::EXACT { LINE / size_of::<i32>() } else { 1 }
}

/// The counts in one of three forms.
#[derive(Debug)]
pub(crate) enum LevelCounts<M: Memory> {
    /// In the vectors.
    Whole,
    /// One vector per part.
    Parts {
        /// By part.
        parts: Box<[PlacedSlice<M, M::Atomic<i32>>]>,
        /// By CPU.
        part_of: Box<[u32]>,
    },
    /// One byte per CPU and level.
    Bytes(ScopedBytes<M>),
}

/// The word that counts a CPU at a level.
pub(crate) enum Counter<'a, M: Memory> {
    /// A number that other CPUs change too.
    Shared(&'a M::Atomic<i32>),
    /// A byte that is stored only under the CPU's run queue lock.
    Own(&'a M::Atomic<u8>),
}

/// Returns the index of the count of `level` in a part's counts.
#[inline]
fn index_of<M: Memory>(level: Level) -> usize {
    match level.index() {
        0 => 0,
        above_normal => alone::<M>() - 1 + above_normal,
    }
}

/// Returns the size and the fields of a part's counts.
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
    /// Creates counts that are all 0.
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

    /// Returns the word that counts `cpu` at `level`.
    #[inline]
    pub(crate) fn of<'a>(&'a self, vecs: &'a CpupriVecs<M>, cpu: CpuId, level: Level) -> Counter<'a, M> {
        match self {
            Self::Whole => Counter::Shared(vecs.count(level)),
            Self::Parts { parts, part_of } => {
                Counter::Shared(&parts[part_of[cpu.index()] as usize][index_of::<M>(level)])
            }
            Self::Bytes(bytes) => Counter::Own(bytes.row(level.index()).byte_of(cpu)),
        }
    }

    /// Returns the lowest level from `from` up to but not including `end` at which a CPU is
    /// counted. Of each level it reads the part of `here` first and stops at the first nonzero
    /// count.
    #[inline]
    #[track_caller]
    pub(crate) fn first_of(&self, vecs: &CpupriVecs<M>, from: Level, end: Level, here: CpuId) -> Option<Level> {
        match self {
            Self::Whole => {
                for (level, count) in (from.0..).zip(vecs.counts.range(from.index()..end.index())) {
                    // Acquire, also where it is zero: see `Cpupri::next_available`.
                    if count.load(COUNT_READ) != 0 {
                        return Some(Level(level));
                    }
                }
            }
            Self::Parts { parts, part_of } => {
                let first = part_of[here.index()] as usize;
                for level in (from.0..end.0).map(Level) {
                    // From this part onward and around, without a division.
                    for part in (first..parts.len()).chain(0..first) {
                        // Acquire: as above.
                        if parts[part][index_of::<M>(level)].load(COUNT_READ) != 0 {
                            return Some(level);
                        }
                    }
                }
            }
            Self::Bytes(bytes) => {
                for level in (from.0..end.0).map(Level) {
                    // Acquire: as above.
                    if bytes.row(level.index()).count_beyond(here, 0, COUNT_READ) != 0 {
                        return Some(level);
                    }
                }
            }
        }
        None
    }

    /// Returns the count of CPUs at `level`, for checkers.
    pub(crate) fn sum(&self, vecs: &CpupriVecs<M>, level: Level) -> i32 {
        match self {
            // Acquire: checkers of invariant 3 read while CPUs move.
            Self::Whole => vecs.count(level).load(COUNT_READ),
            // Acquire: as above.
            Self::Parts { parts, .. } => parts.iter().map(|part| part[index_of::<M>(level)].load(COUNT_READ)).sum(),
            // Acquire: as above.
            Self::Bytes(bytes) => bytes.row(level.index()).count_beyond(CpuId(0), i32::MAX, COUNT_READ),
        }
    }

    /// Returns whether a plain store counts a CPU.
    #[inline]
    pub(crate) fn are_stored(&self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Returns their bytes outside the vectors, in whole lines.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Parts { parts, .. } => parts.iter().map(|part| size_of_val(&**part).next_multiple_of(LINE)).sum(),
            Self::Bytes(bytes) => bytes.bytes(),
        }
    }
}

/// The ordering of reading a count: Acquire, see the table of [`cpupri`](super::cpupri).
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
