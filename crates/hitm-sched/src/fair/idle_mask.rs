//! Which CPUs idle, and which of them on a core that idles whole: a bit each, kept by who begins
//! and ceases to idle.
//!
//! **Origin.** sched_ext's built-in idle tracking (v6.12 of Linux, by node since v6.15): a search
//! reads masks instead of queues, and who finds a CPU claims it, so that no two wakers choose the
//! same one.
//!
//! **Claim.** A bit that was set once is taken by one waker at most. That its CPU still idles is a
//! hint, as for every search: a task that comes too late waits there, or balance moves it.
//!
//! **Protocol.** A CPU that begins to idle sets its bit, and where all CPUs of its core have
//! theirs, those of the core in the second mask. One that ceases to clears what is left of them. A
//! waker looks whether a bit is set before it writes, so that what is looked at in vain stays
//! shared.
//!
//! [`IdleSearch::Shipped`](super::idle::IdleSearch::Shipped) keeps the first mask as a hint alone:
//! a CPU that begins to idle sets its bit if it is not set, and one that ceases to leaves it. A
//! search looks at the queues of those whose bits it sees, and clears the bits of those that it
//! looked at in vain, all at once, if they were more than a few and what runs on the target runs
//! for longer than a move costs. So where CPUs idle often nobody writes, and where they hardly ever
//! do searches have little to look at. Where no core of the LLC may idle whole, and what runs on
//! the target runs on average for less than an idle CPU takes to wake, a search looks at the fewer
//! the busier balance found the LLC last, in the end at none: tasks that hand over to each other
//! stay together, and one that would wait for longer looks elsewhere.
//!
//! **Memory ordering.** Relaxed: hints, that publish nothing. A CPU that begins to run while the
//! class is made may keep its bit, until it idles next.
//!
//! **Layout.** A line or more a part and mask, on the part's node. Written at every beginning and
//! end of idling in the part, read by every wakeup there: what a probe of each queue costs is
//! traded for that.

use std::sync::atomic::Ordering;

use hitm_memory::{BitmapRow, CpuSet, Encoding, Memory, ScopedBitmaps};
use hitm_topology::{CpuId, Scope, Topology};

/// Relaxed: hints, which publish nothing; see the module.
const HINT: Ordering = Ordering::Relaxed;

/// The rows.
const CPUS: usize = 0;
const CORES: usize = 1;

/// The masks.
pub(crate) struct IdleMasks<M: Memory>(ScopedBitmaps<M>);

impl<M: Memory> IdleMasks<M> {
    /// Masks by `scope`, of `idle`.
    pub(crate) fn new(
        topology: &Topology,
        scope: Scope,
        idle: impl Fn(CpuId) -> bool,
        core: impl Fn(CpuId) -> CpuSet,
    ) -> Self {
        let masks = Self(ScopedBitmaps::new("idle_masks", "mask", 2, topology, scope, Encoding::Zeros));
        topology.cpu_ids().filter(|&cpu| idle(cpu)).for_each(|cpu| masks.begin_idle(cpu, &core(cpu)));
        masks
    }

    /// `cpu`, of `core`, begins to idle.
    #[track_caller]
    pub(crate) fn begin_idle(&self, cpu: CpuId, core: &CpuSet) {
        let (cpus, cores) = (self.cpus(), self.cores());
        cpus.set(cpu, HINT);
        if core.iter().all(|sibling| cpus.contains(sibling, HINT)) {
            core.iter().filter(|&sibling| !cores.contains(sibling, HINT)).for_each(|sibling| cores.set(sibling, HINT));
        }
    }

    /// `cpu`, of `core`, ceases to idle.
    #[track_caller]
    pub(crate) fn end_idle(&self, cpu: CpuId, core: &CpuSet) {
        let cpus = self.cpus();
        if cpus.contains(cpu, HINT) {
            cpus.clear(cpu, HINT);
        }
        self.core_is_used(core);
    }

    /// `core` does not idle whole.
    #[track_caller]
    fn core_is_used(&self, core: &CpuSet) {
        let cores = self.cores();
        // No closures: their accesses would count here and not where this was called.
        for sibling in core.iter() {
            if cores.contains(sibling, HINT) {
                cores.clear(sibling, HINT);
            }
        }
    }

    /// `cpu` idles now and then.
    #[track_caller]
    pub(crate) fn hint(&self, cpu: CpuId) {
        let cpus = self.cpus();
        if !cpus.contains(cpu, HINT) {
            cpus.set(cpu, HINT);
        }
    }

    /// None of `cpus`, whose bits were seen in the mask around `cpu`, idles.
    #[track_caller]
    pub(crate) fn forget(&self, cpu: CpuId, cpus: &CpuSet) {
        self.cpus().clear_near(cpu, cpus, HINT);
    }

    /// Whether `cpu` idles and so does its core.
    #[track_caller]
    pub(crate) fn has_idle_core(&self, cpu: CpuId) -> bool {
        self.cores().contains(cpu, HINT)
    }

    /// Takes `cpu`, of `core`, for a task, if it idles and nobody else has. Whether or not, that
    /// core does not idle.
    #[track_caller]
    pub(crate) fn claim(&self, cpu: CpuId, core: &CpuSet) -> bool {
        self.core_is_used(core);
        let cpus = self.cpus();
        cpus.contains(cpu, HINT) && cpus.take(cpu, HINT)
    }

    /// The CPUs around `cpu` on cores that idle.
    #[track_caller]
    pub(crate) fn idle_cores_near(&self, cpu: CpuId) -> CpuSet {
        self.cores().near(cpu, HINT)
    }

    /// The CPUs around `cpu` that idle.
    #[track_caller]
    pub(crate) fn idle_cpus_near(&self, cpu: CpuId) -> CpuSet {
        self.cpus().near(cpu, HINT)
    }

    /// The mask of CPUs that idle.
    fn cpus(&self) -> BitmapRow<'_, M> {
        self.0.row(self.0.pointer_to(CPUS))
    }

    /// The mask of those of them whose cores idle whole.
    fn cores(&self) -> BitmapRow<'_, M> {
        self.0.row(self.0.pointer_to(CORES))
    }
}
