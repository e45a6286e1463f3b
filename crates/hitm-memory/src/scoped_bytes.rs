//! Sets of CPUs with one byte a CPU, whole or split over the parts of a topology.
//!
//! **Claim.** A CPU enters and leaves with a plain store, which waits for no other CPU; a search
//! reads the bytes of the CPUs that it allows, its own part first. Use
//! [`ScopedBitmaps`](crate::ScopedBitmaps) where the set is searched as a whole much more often
//! than it is written, or where one CPU must take another's bit.
//!
//! **Origin.** Masks of one byte a CPU without a locked instruction stand in out-of-tree patches to
//! the kernel's idle search (the "poc selector"). Differences: any [`Scope`]; several rows.
//!
//! **State.** A byte is 1 when its CPU is in the set. There are rows (one a priority level, say);
//! the bytes of a part's CPUs stand side by side in each row, from a line's start. Where a CPU's
//! byte is in its part is a constant that is never read from shared memory.
//!
//! **Roles.** A byte has one writer at a time: its CPU, or whoever holds a lock that goes with the
//! CPU. [`BytesRow::set`] and [`BytesRow::clear`] need nothing else. *Why a plain store is enough:*
//! a byte holds one CPU's membership and nothing else, so no CPU adds to what another has written;
//! its stores are in the order of that lock; and a byte store leaves the bytes beside it alone. A
//! bit needs a read-modify-write because its word has the bits of others.
//!
//! **Memory ordering.** The callers' own: each method takes the ordering of its accesses. A store
//! that is to be seen before the writer reads something else needs a `SeqCst` fence in between,
//! which the read-modify-writes of other forms bring along on x86.
//!
//! **Cost.** Set, clear: one store, on the part's line. A search: a load of each allowed byte until
//! one matches; eight times as many lines as bits would take. A kernel would read eight bytes at
//! once, which words of one size cannot express.
//!
//! **Limits.** No CPU can claim another CPU's byte: that needs a read-modify-write by both.

use std::sync::atomic::Ordering;

use hitm_topology::{CpuId, Scope, Topology};

use crate::cpu_set::CpuSet;
use crate::field::Field;
use crate::memory::{LINE, Memory};
use crate::placed::PlacedSlice;
use crate::scoped_bitmap::CpuMask;
use crate::word::AtomicWord;

/// Rows of bytes, one a CPU, split by a scope.
#[derive(Debug)]
pub struct ScopedBytes<M: Memory> {
    /// The bytes of each part, row after row, in the order of its CPUs.
    parts: Box<[PlacedSlice<M, M::Atomic<u8>>]>,
    /// By CPU: its part, and where it is there.
    place_of: Box<[(u32, u32)]>,
    /// The CPUs of each part.
    members: Box<[Box<[CpuId]>]>,
}

/// One row.
#[derive(Debug)]
pub struct BytesRow<'a, M: Memory> {
    bytes: &'a ScopedBytes<M>,
    index: usize,
}

/// Bytes from one row to the next: whole lines, where layouts hold.
fn stride<M: Memory>(cpus: usize) -> usize {
    if M::EXACT { cpus.next_multiple_of(LINE) } else { cpus }
}

impl<M: Memory> ScopedBytes<M> {
    /// `rows` empty rows. Reports call a part `object`, a row `row`.
    #[must_use]
    pub fn new(object: &str, row: &'static str, rows: usize, topology: &Topology, scope: Scope) -> Self {
        let members: Vec<Box<[CpuId]>> =
            (0..topology.parts(scope)).map(|part| topology.cpus_of(scope, part).into()).collect();
        let place = |part: usize| {
            let cpus = &members[part];
            let size = stride::<M>(cpus.len());
            let fields = || {
                let byte = Field { count: cpus.len(), ..Field::word("cpu", 0, 1, "1 when it is in the set") };
                vec![Field { size, count: rows, fields: vec![byte], ..Field::word(row, 0, size, "one byte a CPU") }]
            };
            let node = topology.cpu(cpus[0]).node;
            let index = (scope != Scope::Machine).then_some(part);
            PlacedSlice::new(object, index, Some(node), rows * size, &fields, |_| M::Atomic::new(0))
        };
        let mut place_of = vec![(0, 0); topology.cpus()];
        for (part, cpus) in members.iter().enumerate() {
            for (index, cpu) in cpus.iter().enumerate() {
                place_of[cpu.index()] = (part as u32, index as u32);
            }
        }
        Self { parts: (0..members.len()).map(place).collect(), place_of: place_of.into(), members: members.into() }
    }

    /// Row `index`.
    #[inline]
    #[must_use]
    pub fn row(&self, index: usize) -> BytesRow<'_, M> {
        BytesRow { bytes: self, index }
    }

    /// Bytes that the parts take, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len().next_multiple_of(LINE)).sum()
    }

    /// The parts from the one of `here` onward and around, without a division.
    #[inline]
    fn parts_from(&self, here: CpuId) -> impl Iterator<Item = usize> + use<M> {
        let first = self.place_of[here.index()].0 as usize;
        (first..self.parts.len()).chain(0..first)
    }
}

impl<'a, M: Memory> BytesRow<'a, M> {
    /// The byte of `cpu`. 1 when it is in the row; who may store to it: see the module's
    /// documentation.
    #[inline]
    #[must_use]
    pub fn byte_of(&self, cpu: CpuId) -> &'a M::Atomic<u8> {
        let (part, index) = self.bytes.place_of[cpu.index()];
        &self.part(part as usize)[index as usize]
    }

    /// The bytes of `part`, in the order of its CPUs.
    #[inline]
    fn part(&self, part: usize) -> &'a [M::Atomic<u8>] {
        let cpus = self.bytes.members[part].len();
        let first = self.index * stride::<M>(cpus);
        &self.bytes.parts[part][first..first + cpus]
    }

    /// Puts `cpu`, whose lock the caller holds if it is not `cpu` itself, into the row.
    #[inline]
    #[track_caller]
    pub fn set(&self, cpu: CpuId, order: Ordering) {
        self.byte_of(cpu).store(1, order);
    }

    /// Takes `cpu`, as in [`BytesRow::set`], out of the row.
    #[inline]
    #[track_caller]
    pub fn clear(&self, cpu: CpuId, order: Ordering) {
        self.byte_of(cpu).store(0, order);
    }

    /// Whether `cpu` is in the row.
    #[inline]
    #[track_caller]
    pub fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        self.byte_of(cpu).load(order) != 0
    }

    /// Whether some CPU of `allowed` is in the row. Looks at the part of `here` first and stops at
    /// the first match.
    #[inline]
    #[track_caller]
    pub fn intersects(&self, allowed: &CpuMask<M>, here: CpuId, order: Ordering) -> bool {
        let allowed = allowed.load();
        for part in self.bytes.parts_from(here) {
            for (byte, &cpu) in self.part(part).iter().zip(&self.bytes.members[part]) {
                if allowed.contains(cpu) && byte.load(order) != 0 {
                    return true;
                }
            }
        }
        false
    }

    /// The CPUs of `allowed` that are in the row. Reads the byte of every one of them.
    #[inline]
    #[track_caller]
    pub fn intersection(&self, allowed: &CpuMask<M>, order: Ordering) -> CpuSet {
        let mut set = allowed.load();
        for (part, cpus) in self.bytes.members.iter().enumerate() {
            for (byte, &cpu) in self.part(part).iter().zip(cpus) {
                if set.contains(cpu) && byte.load(order) == 0 {
                    set.remove(cpu);
                }
            }
        }
        set
    }

    /// How many CPUs are in the row, counted from the part of `here` onward until there are more
    /// than `limit`.
    #[inline]
    #[track_caller]
    pub fn count_beyond(&self, here: CpuId, limit: i32, order: Ordering) -> i32 {
        let mut count = 0;
        for part in self.bytes.parts_from(here) {
            for byte in self.part(part) {
                count += i32::from(byte.load(order));
                if count > limit {
                    return count;
                }
            }
        }
        count
    }

    /// The first CPU of the row after `previous`, or the first of all. Reads bytes up to the match.
    #[inline]
    #[track_caller]
    pub fn next_after(&self, previous: Option<CpuId>, order: Ordering) -> Option<CpuId> {
        let start = previous.map_or(0, |cpu| cpu.index() + 1);
        // A loop: a closure would not be charged to the caller's place.
        let mut cpu = CpuId(start as u32);
        while cpu.index() < self.bytes.place_of.len() {
            if self.byte_of(cpu).load(order) != 0 {
                return Some(cpu);
            }
            cpu.0 += 1;
        }
        None
    }

    /// The CPUs in the row: a snapshot for checkers.
    #[track_caller]
    pub fn snapshot(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for (part, cpus) in self.bytes.members.iter().enumerate() {
            for (byte, &cpu) in self.part(part).iter().zip(cpus) {
                // Relaxed: checkers look when nothing is in flight.
                if byte.load(Ordering::Relaxed) != 0 {
                    set.insert(cpu);
                }
            }
        }
        set
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
            let sets = ScopedBytes::<Native>::new("set", "row", 3, &topology, scope);
            assert_eq!(sets.bytes(), 3 * bytes, "{scope}");
            let set = sets.row(1);
            // Relaxed: one thread.
            let order = Ordering::Relaxed;
            assert!(!set.intersects(&everybody, CpuId(3), order), "{scope}");
            assert_eq!(set.next_after(None, order), None, "{scope}");
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
            assert_eq!(set.count_beyond(CpuId(3), i32::MAX, order), expect.len() as i32, "{scope}");
            assert_eq!(set.count_beyond(CpuId(3), 1, order), 2, "{scope}");
            let next = std::iter::successors(set.next_after(None, order), |&cpu| set.next_after(Some(cpu), order));
            assert_eq!(next.collect::<CpuSet>(), expect, "{scope}");
            for other in [0, 2] {
                assert!(sets.row(other).snapshot().is_empty(), "{scope}: rows are apart");
            }
        }
    }
}
