//! The scratch masks of a search: the CPUs that it has yet to examine.
//!
//! **Origin.** Linux's `select_idle_mask` and, of v5.10, `load_balance_mask`: two scratch masks per
//! CPU, on its node.
//!
//! **Layout.** Whole lines that only their CPU reads and writes. So they cost time and no
//! transfers: one store per word to fill a mask, a load and a store to remove a CPU, a load to find
//! the next one.
//!
//! **Difference.** A copy outside the shared memory decides: natively, threads that are no CPU
//! search too, with the words of the CPU that they use.

use hitm_memory::{CpuSet, Field, Memory, PlacedSlice, PlainWord};
use hitm_topology::{CpuId, Topology};

const BITS: usize = u64::BITS as usize;

/// The scratch masks of a CPU.
pub(crate) struct Masks<M: Memory> {
    /// The CPUs that a search has yet to examine.
    pub(crate) select: Mask<M>,
    /// The cores that a single pass has yet to examine.
    pub(crate) balance: Mask<M>,
}

/// A mask: one bit per CPU.
pub(crate) type Mask<M> = PlacedSlice<M, <M as Memory>::Plain<u64>>;

impl<M: Memory> Masks<M> {
    /// Empty masks of `cpu`.
    pub(crate) fn new(topology: &Topology, cpu: CpuId) -> Self {
        let count = topology.cpus().div_ceil(BITS);
        let fields =
            || vec![Field { count, ..Field::word("word", 0, size_of::<u64>(), "64 CPUs yet to be looked at") }];
        let mask = |object| {
            let node = Some(topology.cpu(cpu).node);
            PlacedSlice::new(object, Some(cpu.index()), node, count, &fields, |_| M::Plain::new(0))
        };
        Self { select: mask("select_idle_mask"), balance: mask("load_balance_mask") }
    }
}

/// A mask in use.
pub(crate) struct Scan<'a, M: Memory> {
    left: CpuSet,
    mask: &'a [M::Plain<u64>],
}

impl<'a, M: Memory> Scan<'a, M> {
    /// Fills `mask` with `left`.
    #[track_caller]
    pub(crate) fn begin(mask: &'a [M::Plain<u64>], left: CpuSet) -> Self {
        for (index, word) in mask.iter().enumerate() {
            word.set(left.word(index));
        }
        Self { left, mask }
    }

    /// Copies it to `mask`.
    #[track_caller]
    pub(crate) fn copy<'b>(&self, mask: &'b [M::Plain<u64>]) -> Scan<'b, M> {
        for word in self.mask {
            _ = word.peek();
        }
        Scan::begin(mask, self.left.clone())
    }

    /// Removes `cpu`.
    #[track_caller]
    pub(crate) fn remove(&mut self, cpu: CpuId) {
        self.left.remove(cpu);
        self.store(cpu.index() / BITS);
    }

    /// Removes a core. Linux goes over the whole mask; the words without a CPU of the core are left
    /// out here.
    #[track_caller]
    pub(crate) fn remove_all(&mut self, core: &CpuSet) {
        self.left.subtract(core);
        // No closure around the accesses: they would be counted here, and not at the caller's
        // place.
        for index in (0..core.words()).filter(|&index| core.word(index) != 0) {
            self.store(index);
        }
    }

    #[track_caller]
    fn store(&self, index: usize) {
        let word = &self.mask[index];
        _ = word.peek();
        word.set(self.left.word(index));
    }

    /// Returns whether it contains `cpu`. No access: the word that gave the CPU was read before.
    pub(crate) fn contains(&self, cpu: CpuId) -> bool {
        self.left.contains(cpu)
    }

    /// Returns the first CPU at or after `from`, else the first of all.
    #[track_caller]
    pub(crate) fn first_from(&self, from: CpuId) -> Option<CpuId> {
        let found = self.left.first_from(from)?;
        // The words in between are mostly on one line: a read of the last one represents them.
        _ = self.mask[found.index() / BITS].peek();
        Some(found)
    }

    /// Returns all CPUs, from `from` on and around.
    #[track_caller]
    pub(crate) fn all_from(&self, from: CpuId) -> impl Iterator<Item = CpuId> {
        let caller_reads = |cpu: &CpuId| _ = self.mask[cpu.index() / BITS].peek();
        self.left.common_from(&self.left, from).inspect(caller_reads)
    }
}
