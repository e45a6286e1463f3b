//! A counter, whole or split over the parts of a topology.
//!
//! **Claim.** Adding costs one read-modify-write on a line that only the CPUs of one part write;
//! reading adds up the parts and may stop early.
//!
//! **Origin.** Pan Deng, "sched/rt: Split root_domain->rto_count to per-NUMA-node counters", 2025,
//! for the node scope. Differences: any [`Scope`], and every part has a line of its own (the posted
//! counters are bare four-byte allocations that may share a line with anything).
//!
//! **Invariants.** (1) A part's value is never negative when every add of -1 follows an add of 1
//! for the same CPU. (2) With nothing in flight the sum is exact. With adds in flight it is not:
//! what moves from a part not yet read to one already read is missed. Callers must treat the sum as
//! a hint.
//!
//! **Layout.** At machine scope the word is the caller's own, wherever its layout has it; otherwise
//! one line a part, on the part's node.
//!
//! **Cost.** Add: one line. Read: one line a part until the limit is reached; parts that no CPU
//! changed hit.

use std::sync::atomic::Ordering;

use hitm_topology::{CpuId, Scope, Topology};

use crate::field::Field;
use crate::memory::Memory;
use crate::placed::PlacedSlice;
use crate::word::AtomicWord;

/// Where the parts of a counter are. At [`Scope::Machine`] there are none: the word stands in the
/// caller's object.
#[derive(Debug)]
pub struct ScopedCounter<M: Memory> {
    parts: Box<[PlacedSlice<M, M::Atomic<i32>>]>,
    part_of: Box<[u32]>,
}

impl<M: Memory> ScopedCounter<M> {
    /// A counter of value 0, split by `scope`. Reports call its parts `object`.
    #[must_use]
    pub fn new(object: &str, topology: &Topology, scope: Scope) -> Self {
        if scope == Scope::Machine {
            return Self { parts: Box::new([]), part_of: Box::new([]) };
        }
        Self::of_parts(object, topology, scope)
    }

    /// As [`ScopedCounter::new`], with a word of its own also at machine scope.
    #[must_use]
    pub fn of_parts(object: &str, topology: &Topology, scope: Scope) -> Self {
        let fields = || vec![Field::word("count", 0, 4, "the part's share of the count")];
        let part = |part: usize| {
            let node = topology.cpu(topology.cpus_of(scope, part)[0]).node;
            PlacedSlice::new(object, Some(part), Some(node), 1, &fields, |_| M::Atomic::new(0))
        };
        Self {
            parts: (0..topology.parts(scope)).map(part).collect(),
            part_of: topology.cpu_ids().map(|cpu| topology.part_of(scope, cpu) as u32).collect(),
        }
    }

    /// The word that `cpu` counts in: its part's, or `whole` at machine scope.
    #[inline]
    pub fn cell<'a>(&'a self, whole: &'a M::Atomic<i32>, cpu: CpuId) -> &'a M::Atomic<i32> {
        if self.parts.is_empty() { whole } else { self.cell_of(cpu) }
    }

    /// The word that `cpu` counts in, of a counter that has parts.
    #[inline]
    pub fn cell_of(&self, cpu: CpuId) -> &M::Atomic<i32> {
        &self.parts[self.part_of[cpu.index()] as usize][0]
    }

    /// Adds up the parts from the one of `cpu` onward, until the sum exceeds `limit`.
    ///
    /// The loads are Relaxed; the caller fences.
    #[inline]
    #[track_caller]
    pub fn sum_beyond(&self, whole: &M::Atomic<i32>, cpu: CpuId, limit: i32) -> i32 {
        if self.parts.is_empty() {
            // Relaxed: the caller fences before it reads what the count announces.
            return whole.load(Ordering::Relaxed);
        }
        self.sum_of_parts(cpu, limit)
    }

    /// As [`ScopedCounter::sum_beyond`], of a counter that has parts.
    #[inline]
    #[track_caller]
    pub fn sum_of_parts(&self, cpu: CpuId, limit: i32) -> i32 {
        let first = self.part_of[cpu.index()] as usize;
        let mut sum = 0;
        // From here on and around, without a division.
        for part in (first..self.parts.len()).chain(0..first) {
            // Relaxed: as above.
            sum += self.parts[part][0].load(Ordering::Relaxed);
            if sum > limit {
                break;
            }
        }
        sum
    }

    /// Bytes that the parts take, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.len() * crate::LINE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Native;

    #[test]
    fn every_scope_counts_the_same() {
        let topology = hitm_topology::parse("clx-2x20").expect("a preset");
        for scope in Scope::ALL {
            let counter = ScopedCounter::<Native>::new("count", &topology, scope);
            let whole = AtomicWord::new(0);
            for cpu in topology.cpu_ids() {
                // Relaxed: one thread.
                counter.cell(&whole, cpu).fetch_add(1, Ordering::Relaxed);
            }
            for cpu in topology.cpu_ids() {
                assert_eq!(counter.sum_beyond(&whole, cpu, i32::MAX), 80, "{scope}");
                assert!(counter.sum_beyond(&whole, cpu, 1) > 1, "{scope}");
            }
        }
    }
}
