//! Pull: a CPU that has become less urgent gets waiting tasks from other CPUs.
//!
//! **Origin.** Linux's real-time class. By default the CPU asks the overloaded CPUs to push, see
//! [`push_token`](crate::linux::push_token). Otherwise it locks their queues, one after the other.

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Pulls from the overloaded CPUs, or requests a push. Returns whether tasks were pulled.
    pub(super) fn pull_overloaded(&self, rq: &mut RqGuard<'_, P>) -> bool {
        if !self.rd.overload_elsewhere(rq.cpu) {
            return false;
        }
        self.state.stats.add(Count::Pull);
        if self.rd.config.push_by_interrupt {
            if let Some(first) = self.rd.request_push(rq.cpu) {
                self.send_push_work(first);
            }
            return false;
        }
        let mut pulled = false;
        let here = rq.cpu;
        for cpu in self.rd.overload_bits().iter().filter(|&cpu| cpu != here) {
            pulled |= self.pull_from(rq, cpu);
        }
        pulled
    }

    pub(crate) fn pull_from(&self, rq: &mut RqGuard<'_, P>, cpu: CpuId) -> bool {
        // If that CPU is about to get a task that is more urgent still, it pushes by itself.
        let takes_half = self.keeps_wakeups() && rq.rt.rt_nr_running.get() == 0;
        let queue = &self.state.rqs[cpu];
        // A CPU that is about to idle relies on what the lock shows: the priority may be old.
        let passes_by =
            if takes_half { queue.has_takers() } else { queue.rt.highest_prio_next.peek() >= rq.highest().0 };
        if passes_by {
            return false;
        }
        let (source, _let_go) = rq.lock_both(queue, cpu);
        // Everything below reads both queues again.
        let takes_half = takes_half && rq.rt.rt_nr_running.get() == 0;
        let pulled = self.pullable(&source, rq);
        if let Some(id) = pulled {
            self.move_away(&source, id, rq);
            if takes_half {
                self.take_half(&source, rq, self.state.tasks.get(id).prio());
            }
        }
        // A CPU without any task looks for fair ones later.
        takes_half && self.take_offered(source, rq, false) || pulled.is_some()
    }

    /// Returns the task of `source` that should run on the CPU of `rq`.
    fn pullable(&self, source: &RqGuard<'_, P>, rq: &RqGuard<'_, P>) -> Option<TaskId> {
        let mut id = source.rt.first_pushable(&self.state.tasks)?;
        while !self.may_come(id, rq) {
            id = source.rt.next_pushable(&self.state.tasks, id)?;
        }
        let prio = self.state.tasks.get(id).prio();
        let running = source.curr().map(|curr| self.fair.rank(&self.state, source, curr));
        // A task that is more urgent than the running task of `source` is about to run there.
        (prio < rq.highest() && rq.online.get() != 0 && running.is_some_and(|running| running <= prio)).then_some(id)
    }

    /// Returns whether `id` may run on the CPU of `rq` and would not be throttled there.
    pub(super) fn may_come(&self, id: TaskId, rq: &RqGuard<'_, P>) -> bool {
        self.state.tasks.allowed(id).contains(rq.cpu) && self.fair.groups.holder(&self.state, rq.cpu, id).is_none()
    }
}
