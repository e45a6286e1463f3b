//! Masks of idle CPUs, and of CPUs on cores that are wholly idle: one bit per CPU. A CPU sets its
//! bit when it begins to idle and clears it when it stops.
//!
//! **Origin.** sched_ext's built-in idle tracking (Linux v6.12, per node since v6.15). A search
//! reads masks instead of queues and claims the CPU that it finds, so no two wakers choose the same
//! one.
//!
//! **Claim.** At most one waker takes a bit that was set once. Whether the CPU still idles is a
//! hint, as in every search: a task that comes too late waits there, or balance moves it.
//!
//! **Protocol.** A CPU that begins to idle sets its bit. If all CPUs of its core are set, it also
//! sets those of the core in the second mask. A CPU that stops idling clears the bits of these that
//! are still set. A waker reads a bit before it writes it, so a line on which nothing is found
//! stays shared.
//!
//! [`Hints`](crate::shipped::hints::Hints) keeps the first mask as a hint alone.
//! A CPU that begins to idle sets its bit if it is clear, and leaves it set when it stops idling. A
//! search examines the queues of the CPUs whose bits it sees. It clears the bits of the CPUs that
//! it examined in vain, all at once, if they were more than a few and if tasks on the target run
//! longer than a migration costs. So where CPUs idle often, the mask is not written, and where they
//! hardly ever idle, searches have little to examine. Where no core of the LLC may be wholly idle,
//! and tasks on the target run for less time than an idle CPU takes to wake, a search examines
//! fewer CPUs the busier balance found the LLC, in the end none. Tasks that hand over to each other
//! then stay together, and a task that would wait longer looks elsewhere.
//!
//! **Memory ordering.** Relaxed: hints that publish nothing. A CPU that begins to run while the
//! class is made may keep its bit until it next idles.
//!
//! **Layout.** One line or more per part and mask, on the part's node. Written at the beginning and
//! end of every idle time in the part, and read by every wakeup there. This replaces the probes of
//! each queue.

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
    /// Masks by `scope`, where the CPUs of `idle` are set.
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

    /// `cpu`, of `core`, stops idling.
    #[track_caller]
    pub(crate) fn end_idle(&self, cpu: CpuId, core: &CpuSet) {
        let cpus = self.cpus();
        if cpus.contains(cpu, HINT) {
            cpus.clear(cpu, HINT);
        }
        self.core_is_used(core);
    }

    /// `core` is not wholly idle.
    #[track_caller]
    fn core_is_used(&self, core: &CpuSet) {
        let cores = self.cores();
        // No closures: their accesses would be counted here, and not at the caller's place.
        for sibling in core.iter() {
            if cores.contains(sibling, HINT) {
                cores.clear(sibling, HINT);
            }
        }
    }

    /// `cpu` idles from time to time: sets its hint.
    #[track_caller]
    pub(crate) fn hint(&self, cpu: CpuId) {
        let cpus = self.cpus();
        if !cpus.contains(cpu, HINT) {
            cpus.set(cpu, HINT);
        }
    }

    /// Clears the hints of `cpus`, which were seen in the mask around `cpu` and do not idle.
    #[track_caller]
    pub(crate) fn forget(&self, cpu: CpuId, cpus: &CpuSet) {
        self.cpus().clear_near(cpu, cpus, HINT);
    }

    /// Returns whether `cpu` and its whole core idle.
    #[track_caller]
    pub(crate) fn has_idle_core(&self, cpu: CpuId) -> bool {
        self.cores().contains(cpu, HINT)
    }

    /// Claims `cpu`, of `core`, for a task, if it idles and is not claimed. In either case that
    /// core does not idle.
    #[track_caller]
    pub(crate) fn claim(&self, cpu: CpuId, core: &CpuSet) -> bool {
        self.core_is_used(core);
        let cpus = self.cpus();
        cpus.contains(cpu, HINT) && cpus.take(cpu, HINT)
    }

    /// Returns the CPUs around `cpu` on wholly idle cores.
    #[track_caller]
    pub(crate) fn idle_cores_near(&self, cpu: CpuId) -> CpuSet {
        self.cores().near(cpu, HINT)
    }

    /// Returns the idle CPUs around `cpu`.
    #[track_caller]
    pub(crate) fn idle_cpus_near(&self, cpu: CpuId) -> CpuSet {
        self.cpus().near(cpu, HINT)
    }

    /// Returns the mask of idle CPUs.
    fn cpus(&self) -> BitmapRow<'_, M> {
        self.0.row(self.0.pointer_to(CPUS))
    }

    /// Returns the mask of CPUs on wholly idle cores.
    fn cores(&self) -> BitmapRow<'_, M> {
        self.0.row(self.0.pointer_to(CORES))
    }
}
