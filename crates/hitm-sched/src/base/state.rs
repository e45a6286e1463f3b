//! What every part of a scheduler works on: the machine, its run queues, all tasks, and the event
//! counts.

use std::sync::Arc;

use hitm_memory::{CpuSet, Interrupts, PerCpu, PlainWord, Platform};
use hitm_topology::{CpuId, Scope, Topology};

use super::numbers::TaskId;
use super::rq::{RqGuard, RunQueue};
use super::stats::{Count, Stats};
use super::task::Task;
use super::task_table::TaskTable;

/// The queues and tasks of one machine.
pub(crate) struct State<P: Platform> {
    pub(crate) topology: Arc<Topology>,
    pub(crate) rqs: PerCpu<P, RunQueue<P>>,
    pub(crate) tasks: TaskTable<P>,
    pub(crate) stats: Stats,
    /// For each CPU, the sets of CPUs around it, smallest first: core, LLC, node, machine.
    pub(crate) neighbourhoods: Box<[[Arc<CpuSet>; 4]]>,
    /// The CPUs of each LLC.
    pub(crate) llcs: Box<[Arc<CpuSet>]>,
}

impl<P: Platform> State<P> {
    /// Creates empty queues for all CPUs of `topology`, all offline. Tasks that may run everywhere
    /// share a mask, or do not.
    pub(crate) fn new(topology: Arc<Topology>, shares_mask: bool) -> Self {
        let sets = |scope| -> Vec<Arc<CpuSet>> {
            let set = |part| Arc::new(topology.cpus_of(scope, part).iter().copied().collect());
            (0..topology.parts(scope)).map(set).collect()
        };
        let scopes = [Scope::Core, Scope::Llc, Scope::Node, Scope::Machine];
        let by_scope = scopes.map(sets);
        let around = |cpu| std::array::from_fn(|at| by_scope[at][topology.part_of(scopes[at], cpu)].clone());
        Self {
            rqs: PerCpu::new(&topology, |_| RunQueue::new()),
            tasks: TaskTable::new(&topology, shares_mask),
            stats: Stats::new(topology.cpus(), || (!P::is_visitor()).then(P::current_cpu), P::now),
            neighbourhoods: topology.cpu_ids().map(around).collect(),
            llcs: by_scope[1].iter().cloned().collect(),
            topology,
        }
    }

    /// Locks the queue of `cpu`.
    #[track_caller]
    pub(crate) fn lock(&self, cpu: CpuId) -> RqGuard<'_, P> {
        RqGuard::lock(&self.rqs[cpu], cpu)
    }

    /// Locks the queue that `id` is on or was on last. The caller holds the task's `pi_lock`, so a
    /// sleeping task stays asleep.
    #[track_caller]
    pub(crate) fn lock_queue_of(&self, id: TaskId) -> RqGuard<'_, P> {
        loop {
            let cpu = self.tasks.get(id).cpu();
            let rq = self.lock(cpu);
            // A push or pull may have moved it before the lock was taken.
            if self.tasks.get(id).cpu() == cpu {
                return rq;
            }
        }
    }

    /// Asks the CPU of `rq` to reschedule.
    pub(crate) fn resched(&self, rq: &RqGuard<'_, P>) {
        if rq.needs_resched() {
            return;
        }
        rq.set_need_resched();
        if rq.cpu != P::current_cpu() {
            self.stats.add(Count::Kick);
            P::interrupt(rq.cpu, Interrupts::RESCHEDULE);
        }
    }

    /// Returns the CPU that the calling CPU has chosen last.
    #[track_caller]
    pub(crate) fn last_choice(&self) -> CpuId {
        // Peek: the cursor is a hint of this CPU. Threads outside the CPUs may share it.
        CpuId(self.rqs[P::current_cpu()].cursor.peek())
    }

    /// Returns the CPU after that. Choices that begin there spread over the CPUs.
    #[track_caller]
    pub(crate) fn after_last_choice(&self) -> CpuId {
        CpuId((self.last_choice().0 + 1) % self.topology.cpus() as u32)
    }

    /// Notes that the calling CPU has chosen `cpu`.
    #[track_caller]
    pub(crate) fn note_choice(&self, cpu: CpuId) {
        self.rqs[P::current_cpu()].cursor.set(cpu.0);
    }

    /// Returns whether nothing runs or is queued on a CPU: a hint.
    #[track_caller]
    pub(crate) fn idles(&self, cpu: CpuId) -> bool {
        self.rqs[cpu].curr().is_none() && self.rqs[cpu].nr_running.peek() == 0
    }

    /// As [`idles`](Self::idles), for a search: it counts as a probe.
    #[track_caller]
    pub(crate) fn is_available(&self, cpu: CpuId) -> bool {
        self.stats.add(Count::Probe);
        self.idles(cpu)
    }

    /// Returns the sets around `cpu`: its core and its LLC.
    pub(crate) fn around(&self, cpu: CpuId) -> [&CpuSet; 2] {
        let [core, llc, ..] = &self.neighbourhoods[cpu.index()];
        [core, llc]
    }

    /// Returns all CPUs, the nearest ones to `cpu` first. Near ones come more than once.
    pub(crate) fn near(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        self.neighbourhoods[cpu.index()].iter().flat_map(move |around| around.common_from(around, cpu))
    }

    /// Returns whether `id` may run on all CPUs.
    #[inline]
    #[track_caller]
    pub(crate) fn runs_everywhere(&self, id: TaskId) -> bool {
        self.has_all_cpus(self.tasks.get(id))
    }

    /// As [`runs_everywhere`](Self::runs_everywhere), of a task that was looked up.
    #[inline]
    #[track_caller]
    pub(crate) fn has_all_cpus(&self, task: &Task<P>) -> bool {
        task.cpus_allowed_count.get() as usize == self.topology.cpus()
    }

    /// Returns whether two CPUs are of one LLC.
    pub(crate) fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.topology.part_of(Scope::Llc, one) == self.topology.part_of(Scope::Llc, other)
    }
}
