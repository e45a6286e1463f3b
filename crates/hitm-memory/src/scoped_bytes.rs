//! A set of CPUs with one byte a CPU, whole or split over the parts of a topology.
//!
//! **Claim.** A CPU enters and leaves with a plain store, which waits for nobody; a search reads the parts in turn, its own first.
//! Use [`ScopedBitmaps`](crate::ScopedBitmaps) where the set is searched as a whole much more often than it is written, or where
//! one CPU must take another's bit.
//!
//! **Origin.** Masks of one byte a CPU without a locked instruction stand in out-of-tree patches to the kernel's idle search (the "poc
//! selector"). Differences: any [`Scope`].
//!
//! **State.** A byte is 1 when its CPU is in the set. The bytes of a part's CPUs stand side by side from a line's start. Only a CPU
//! writes its own byte.
//!
//! **Memory ordering.** The callers' own: each method takes the ordering of its accesses.
//!
//! **Cost.** Set, clear: one store, on the part's line. A search: a load of each byte until one matches; eight times as many lines as
//! bits would take. A kernel would read eight bytes at once, which words of one size cannot express.
//!
//! **Limits.** Nobody can claim another CPU's byte: that needs a read-modify-write by both.

use std::sync::atomic::Ordering;

use hitm_topology::{CpuId, Scope, Topology};

use crate::cpu_set::CpuSet;
use crate::field::Field;
use crate::memory::Memory;
use crate::placed::PlacedSlice;
use crate::scoped_bitmap::CpuMask;
use crate::word::AtomicWord;

/// One byte a CPU, split by a scope.
#[derive(Debug)]
pub struct ScopedBytes<M: Memory> {
    /// The bytes of each part, in the order of its CPUs.
    parts: Box<[PlacedSlice<M, M::Atomic<u8>>]>,
    /// By CPU: its part, and where it is there.
    place_of: Box<[(u32, u32)]>,
    /// The CPUs of each part.
    members: Box<[Box<[CpuId]>]>,
}

impl<M: Memory> ScopedBytes<M> {
    /// An empty set. Reports call a part `object`.
    #[must_use]
    pub fn new(object: &str, topology: &Topology, scope: Scope) -> Self {
        let members: Vec<Box<[CpuId]>> =
            (0..topology.parts(scope)).map(|part| topology.cpus_of(scope, part).into()).collect();
        let place = |part: usize| {
            let cpus = &members[part];
            let fields = || vec![Field { count: cpus.len(), ..Field::word("cpu", 0, 1, "1 when it is in the set") }];
            let node = topology.cpu(cpus[0]).node;
            let index = (scope != Scope::Machine).then_some(part);
            PlacedSlice::new(object, index, Some(node), cpus.len(), &fields, |_| M::Atomic::new(0))
        };
        let mut place_of = vec![(0, 0); topology.cpus()];
        for (part, cpus) in members.iter().enumerate() {
            for (index, cpu) in cpus.iter().enumerate() {
                place_of[cpu.index()] = (part as u32, index as u32);
            }
        }
        Self { parts: (0..members.len()).map(place).collect(), place_of: place_of.into(), members: members.into() }
    }

    #[inline]
    fn byte_of(&self, cpu: CpuId) -> &M::Atomic<u8> {
        let (part, index) = self.place_of[cpu.index()];
        &self.parts[part as usize][index as usize]
    }

    /// Puts `cpu`, which calls, into the set.
    #[inline]
    #[track_caller]
    pub fn set(&self, cpu: CpuId, order: Ordering) {
        self.byte_of(cpu).store(1, order);
    }

    /// Takes `cpu`, which calls, out of the set.
    #[inline]
    #[track_caller]
    pub fn clear(&self, cpu: CpuId, order: Ordering) {
        self.byte_of(cpu).store(0, order);
    }

    /// Whether `cpu` is in the set.
    #[inline]
    #[track_caller]
    pub fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        self.byte_of(cpu).load(order) != 0
    }

    /// Whether some CPU of `allowed` is in the set. Looks at the part of `here` first and stops at the first match.
    #[inline]
    #[track_caller]
    pub fn intersects(&self, allowed: &CpuMask<M>, here: CpuId, order: Ordering) -> bool {
        let first = self.place_of[here.index()].0 as usize;
        // From here on and around, without a division.
        for part in (first..self.parts.len()).chain(0..first) {
            for (byte, &cpu) in self.parts[part].iter().zip(&self.members[part]) {
                if byte.load(order) != 0 && allowed.contains(cpu) {
                    return true;
                }
            }
        }
        false
    }

    /// The CPUs of `allowed` that are in the set. Reads every byte of every part.
    #[inline]
    #[track_caller]
    pub fn intersection(&self, allowed: &CpuMask<M>, order: Ordering) -> CpuSet {
        let mut set = CpuSet::new();
        for (part, cpus) in self.parts.iter().zip(&self.members) {
            for (byte, &cpu) in part.iter().zip(cpus) {
                if byte.load(order) != 0 && allowed.contains(cpu) {
                    set.insert(cpu);
                }
            }
        }
        set
    }

    /// The CPUs in the set: a snapshot for checkers.
    #[track_caller]
    pub fn snapshot(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for (part, cpus) in self.parts.iter().zip(&self.members) {
            for (byte, &cpu) in part.iter().zip(cpus) {
                // Relaxed: checkers look when nothing is in flight.
                if byte.load(Ordering::Relaxed) != 0 {
                    set.insert(cpu);
                }
            }
        }
        set
    }

    /// Bytes that the parts take, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len().next_multiple_of(crate::LINE)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Native;

    #[test]
    fn every_scope_holds_the_same_set() {
        let topology = hitm_topology::parse("clx-2x20").expect("a preset");
        let all: CpuSet = topology.cpu_ids().collect();
        let everybody = CpuMask::<Native>::new("everybody", None, &topology, &all);
        for (scope, bytes) in Scope::ALL.into_iter().zip([128, 128, 128, 40 * 64, 80 * 64]) {
            let set = ScopedBytes::<Native>::new("set", &topology, scope);
            assert_eq!(set.bytes(), bytes, "{scope}");
            // Relaxed: one thread.
            let order = Ordering::Relaxed;
            assert!(!set.intersects(&everybody, CpuId(3), order), "{scope}");
            topology.cpu_ids().step_by(7).for_each(|cpu| set.set(cpu, order));
            set.clear(CpuId(14), order);
            let expect: CpuSet = topology.cpu_ids().step_by(7).filter(|&cpu| cpu != CpuId(14)).collect();
            assert_eq!(set.snapshot(), expect, "{scope}");
            assert_eq!(set.intersection(&everybody, order), expect, "{scope}");
            assert!(set.intersects(&everybody, CpuId(3), order), "{scope}");
            assert!(set.contains(CpuId(7), order) && !set.contains(CpuId(14), order), "{scope}");
            let others =
                CpuMask::<Native>::new("others", None, &topology, &[CpuId(14), CpuId(15)].into_iter().collect());
            assert!(!set.intersects(&others, CpuId(3), order), "{scope}");
        }
    }
}
