//! The scratch masks of a search: the CPUs that it has yet to examine.
//!
//! **Origin.** Linux's `select_idle_mask` and, of v5.10, `load_balance_mask`: two scratch masks per
//! CPU, on its node.
//!
//! **Layout.** Whole lines that only their CPU reads and writes. So they cost time and no misses:
//! one store per word to fill a mask, a load and a store to remove a CPU, a load to find the next
//! one.
//!
//! **Difference.** A copy outside the shared memory decides: natively, threads that are no CPU
//! search too, with the words of the CPU that they use.

use hitm_memory::{CpuSet, Field, Memory, PlacedSlice, PlainWord};
use hitm_topology::{CpuId, Topology};

const BITS: usize = u64::BITS as usize;

/// One CPU's scratch masks.
pub(crate) struct Masks<M: Memory> {
    /// The CPUs that a search has yet to look at.
    pub(crate) select: Mask<M>,
    /// The cores that a single pass has yet to look at.
    pub(crate) balance: Mask<M>,
}

/// A mask: a bit a CPU.
pub(crate) type Mask<M> = PlacedSlice<M, <M as Memory>::Plain<u64>>;

impl<M: Memory> Masks<M> {
    /// Empty ones, of `cpu`.
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

    /// Takes `cpu` out.
    #[track_caller]
    pub(crate) fn remove(&mut self, cpu: CpuId) {
        self.left.remove(cpu);
        self.store(cpu.index() / BITS);
    }

    /// Takes a core out. Linux goes over the whole mask for that; the words in which the core has
    /// no CPU are left out here.
    #[track_caller]
    pub(crate) fn remove_all(&mut self, core: &CpuSet) {
        self.left.subtract(core);
        // No closure around the accesses: they would count here and not where this was called.
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

    /// Whether `cpu` is in there. No access: a look at the word that gave the CPU.
    pub(crate) fn contains(&self, cpu: CpuId) -> bool {
        self.left.contains(cpu)
    }

    /// The first CPU at or after `from`, or else the first of all.
    #[track_caller]
    pub(crate) fn first_from(&self, from: CpuId) -> Option<CpuId> {
        let found = self.left.first_from(from)?;
        // The words between are one line's, mostly: the one that decides stands for them.
        _ = self.mask[found.index() / BITS].peek();
        Some(found)
    }

    /// All CPUs from `from` on and around.
    #[track_caller]
    pub(crate) fn all_from(&self, from: CpuId) -> impl Iterator<Item = CpuId> {
        let caller_reads = |cpu: &CpuId| _ = self.mask[cpu.index() / BITS].peek();
        self.left.common_from(&self.left, from).inspect(caller_reads)
    }
}
