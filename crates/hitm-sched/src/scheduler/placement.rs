//! Placement: the CPU for a task that wakes.
//!
//! **Origin.** Linux's real-time class, without capacities. Where the original walks the sched
//! domains, this code uses the topology's core, LLC, node and machine.
//!
//! **Cost.** If the task's CPU is idle or runs something less urgent: one read of that CPU's
//! running task. Otherwise one search of cpupri, and a read of the CPU found.

use hitm_memory::{CpuSet, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::stats::Count;
use crate::base::task_table::TaskRef;
use crate::fair::newcomer;
use crate::linux::cpupri::Search;
use crate::scheduler::Scheduler;
use crate::scheduler::wake::WakeFlags;
use crate::shipped::spread;

impl<P: Platform> Scheduler<P> {
    pub(super) fn search(&self, id: TaskId, prio: Prio) -> Search<'_, P> {
        self.state.stats.add(Count::Find);
        Search { prio, allowed: self.state.tasks.allowed(id), here: P::current_cpu() }
    }

    /// Returns the CPU for `id`, which last ran on `cpu` or was created there.
    pub(crate) fn select(&self, id: TaskId, cpu: CpuId, flags: WakeFlags) -> CpuId {
        if self.fair.is_fair(&self.state, id) {
            return match flags {
                WakeFlags::New(_) if self.keeps_wakeups() => spread::select_new(&self.state, &self.rd.active, id, cpu),
                WakeFlags::New(_) => newcomer::select_new(&self.state, &self.rd, id, cpu),
                WakeFlags::Woken(hint) => self.fair.select_fair(&self.state, &self.rd, id, cpu, hint),
            };
        }
        let task = self.state.tasks.get(id);
        let blocked = self.state.rqs[cpu].curr().is_some_and(|curr| {
            // A fair task gives way, pinned or not, unless it runs in its server's time.
            let is_pinned = !self.state.tasks.get(curr).can_move() && !self.fair.is_fair(&self.state, curr);
            is_pinned || self.fair.rank_on(&self.state, cpu, curr) <= task.prio()
        });
        let is_held = || self.fair.groups.where_held(&self.state, id).is_some_and(|held| held.contains(cpu));
        if !blocked && !is_held() {
            // The more urgent task preempts the running task, which is then pushed away.
            return cpu;
        }
        let target = self.find_lowest(id, &CpuSet::new());
        target.filter(|&target| task.prio() < self.state.rqs[target].highest()).unwrap_or(cpu)
    }

    /// Returns `cpu` if `id` may run there, else a CPU where it may run. If none of its CPUs is
    /// active, its affinity is ignored, and `cpu` is as good as any other.
    pub(crate) fn nearest_active(&self, id: TaskId, cpu: CpuId) -> CpuId {
        if self.state.tasks.allowed(id).contains(cpu) && self.rd.active.contains(cpu) {
            return cpu;
        }
        let mut allowed = self.state.tasks.allowed(id).load();
        let active = self.rd.active.load();
        allowed.intersect(&active);
        let from = CpuId((cpu.0 + 1) % self.state.topology.cpus() as u32);
        if let Some(allowed) = allowed.first_from(from) {
            return allowed;
        }
        let anywhere = if active.contains(cpu) { cpu } else { active.first_from(from).unwrap_or(cpu) };
        // The number of ids is the number of CPUs that the tasks may use.
        self.ids.allow(&self.state, id, &CpuSet::from_iter([anywhere]));
        anywhere
    }

    /// Returns whether `id` may run on all CPUs.
    #[track_caller]
    pub(super) fn runs_everywhere(&self, id: TaskId) -> bool {
        self.state.runs_everywhere(id)
    }

    /// Returns whether `task` may run on `cpu`. Most tasks may run everywhere, and their own words
    /// say so.
    #[inline]
    #[track_caller]
    pub(super) fn may_run_on(&self, task: TaskRef<'_, P>, cpu: CpuId) -> bool {
        self.state.has_all_cpus(&task) || self.state.tasks.allowed(task.id).contains(cpu)
    }

    /// Returns whether any CPU where `id` may run runs something less urgent than `id`.
    pub(crate) fn could_run_elsewhere(&self, id: TaskId) -> bool {
        if self.fair.groups.where_held(&self.state, id).is_some() {
            return self.find_lowest(id, &CpuSet::new()).is_some();
        }
        self.is_any_less_urgent(id)
    }

    /// Returns a CPU that runs something less urgent than `id` and is not `busy`, as near as
    /// possible to the task's last CPU.
    pub(crate) fn find_lowest(&self, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        let task = self.state.tasks.get(id);
        if !task.can_move() || self.fair.is_fair(&self.state, id) {
            return None;
        }
        // A CPU where it would be throttled too is no improvement.
        let held = self.fair.groups.where_held(&self.state, id).map(|mut held| {
            busy.iter().for_each(|cpu| held.insert(cpu));
            held
        });
        let busy = held.as_ref().unwrap_or(busy);
        self.find_less_urgent(id, busy)
    }

    /// Returns such a CPU by cpupri: as near as possible to the task's last CPU.
    pub(super) fn find_by_level(&self, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        let task = self.state.tasks.get(id);
        let search = self.search(id, task.prio());
        let found = if busy.is_empty() {
            self.rd.cpupri.find(&search, &self.rd.active)?
        } else {
            let free = |cpu| !busy.contains(cpu);
            let found = self.rd.cpupri.find_fitting(&search, &self.rd.active, &free)?;
            // If no level has a free CPU, the search returns CPUs that are not free.
            found.iter().filter(|&cpu| free(cpu)).collect()
        };
        let cpu = task.cpu();
        if found.contains(cpu) {
            // Most likely the task's lines are still in its caches.
            return Some(cpu);
        }
        let here = P::current_cpu();
        let here_found = found.contains(here);
        for around in &self.state.neighbourhoods[cpu.index()] {
            if here_found && around.contains(here) {
                // Preempting this CPU is cheaper than preempting another.
                return Some(here);
            }
            let mut near = found.clone();
            near.intersect(around);
            if let Some(cpu) = self.any_of(&near) {
                return Some(cpu);
            }
        }
        if here_found { Some(here) } else { self.any_of(&found) }
    }

    /// Returns one of `cpus`. Successive calls on one CPU spread over them.
    fn any_of(&self, cpus: &CpuSet) -> Option<CpuId> {
        let cpu = cpus.first_from(self.state.after_last_choice())?;
        self.state.note_choice(cpu);
        Some(cpu)
    }
}
