//! Changing a task's priority or affinity while it is queued, running or asleep.
//!
//! **Origin.** Linux's bracket: dequeue the task if queued, put it if running, change it, enqueue
//! it, set it if running, then act on the consequences. A priority that is lowered within the class
//! puts the task at the head of its new level, since the task did not give up the CPU. There are
//! two differences. First, a waiting task is pushed after every change: a CPU that searched for
//! work meanwhile has missed the task, and the task may now be more urgent or allowed elsewhere.
//! Second, a queue that a change makes less urgent pulls, whichever task was changed.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::attributes::Policy;
use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::{BALANCE_PULL, BALANCE_PUSH, RqGuard};
use crate::scheduler::Scheduler;

/// The result of moving a task that may not stay.
pub(crate) enum Relocation {
    /// The task has moved.
    Moved,
    /// The lock was released meanwhile, and the task does not wait on that queue any more.
    Gone,
    /// The target may not take the task any more. The caller must find another.
    Refused,
}

impl<P: Platform> Scheduler<P> {
    pub(crate) fn change_prio(&self, id: TaskId, prio: Prio, policy: Policy, is_lent: bool) {
        if policy.nice().is_some() {
            self.fair.make_fair(&self.state);
        }
        let task = self.state.tasks.get(id);
        let _pi = task.pi_lock.lock();
        let mut rq = self.state.lock_queue_of(id);
        self.fair.groups.charge_real_time(&self.state, &rq);
        let before = task.prio();
        let highest = rq.highest();
        let cpu = rq.cpu;
        self.bracket(&rq, id, before < prio, || {
            self.fair.groups.detach_load(&self.state, cpu, id);
            task.prio.set(prio.0);
            task.set_policy(policy, is_lent);
            if let Some(nice) = policy.nice() {
                self.state.tasks.make_fair(&self.state.topology, id, nice).set_nice(nice);
                self.fair.groups.recount_load(&self.state, id);
            }
        });
        if task.on_rq.get() == 0 {
            return;
        }
        // A task whose priority is the same may be throttled now, or no longer, because the
        // priority is lent or not lent any more.
        if before != prio || self.fair.groups.has_real_time_limits() {
            self.look_after_change(&rq, id, before, highest);
        }
        self.run_balance(&mut rq);
    }

    /// Acts on the consequences of a change for `id`, which is queued on `rq`. `before` was its
    /// priority before the change, and `highest` the queue's.
    fn look_after_change(&self, rq: &RqGuard<'_, P>, id: TaskId, before: Prio, highest: Prio) {
        let prio = self.state.tasks.get(id).prio();
        if highest < rq.highest() {
            rq.request_balance(BALANCE_PULL);
        }
        match rq.curr() {
            Some(curr) if curr == id => {
                if before < prio {
                    rq.request_balance(BALANCE_PULL);
                }
                if rq.highest() < prio || self.fair.groups.used_up_real_time(&self.state, rq, id).is_some() {
                    self.state.resched(rq);
                }
            }
            _ if self.fair.groups.is_held_real_time(&self.state, id) => {}
            // It is not urgent enough to run here.
            Some(curr) if self.fair.rank(&self.state, rq, curr) <= prio => {}
            _ => self.state.resched(rq),
        }
    }

    pub(crate) fn change_allowed(&self, id: TaskId, allowed: &CpuSet) {
        let task = self.state.tasks.get(id);
        let _pi = task.pi_lock.lock();
        let mut rq = self.state.lock_queue_of(id);
        self.bracket(&rq, id, false, || {
            let count = allowed.len();
            self.state.tasks.allow(&self.state.topology, id, allowed, count);
            self.state.stats.note(|| Entry::May(id, Box::new(allowed.clone())));
            task.cpus_allowed_count.set(count as u32);
            self.ids.allow(&self.state, id, allowed);
        });
        if task.on_rq.get() == 0 {
            return;
        }
        if !allowed.contains(rq.cpu) {
            if rq.curr() == Some(id) {
                // It moves when its CPU leaves it.
                self.state.resched(&rq);
            } else {
                self.expel(&mut rq, id);
            }
        }
        self.run_balance(&mut rq);
    }

    /// Dequeues the task, changes it, and enqueues it. The caller holds its `pi_lock`. A running
    /// task stays at the head of its priority. For a waiting task it defers a push.
    pub(crate) fn bracket(&self, rq: &RqGuard<'_, P>, id: TaskId, lowered: bool, change: impl FnOnce()) {
        let task = self.state.tasks.get(id);
        // `id` may be one of the offered tasks, or they came before the change.
        self.queue_next(rq);
        let queued = task.on_rq.get() != 0;
        if !queued {
            change();
            return;
        }
        let running = rq.curr() == Some(id);
        self.dequeue(rq, id, false);
        change();
        self.enqueue(rq, id, lowered || running);
        if !running {
            // A CPU that searched for work meanwhile has missed it.
            rq.request_balance(BALANCE_PUSH);
        }
    }

    /// Moves `id`, which is queued on `rq` and does not run, to a CPU where it may run. The caller
    /// holds the task's `pi_lock`, or is the CPU that goes offline.
    pub(crate) fn expel(&self, rq: &mut RqGuard<'_, P>, id: TaskId) {
        loop {
            let target = self.roomiest_active(id, rq.cpu);
            if target == rq.cpu {
                return;
            }
            match self.relocate_to(rq, id, target) {
                Relocation::Moved => return,
                Relocation::Gone => {
                    if rq.curr() == Some(id) {
                        // Its CPU has picked it. It moves when that CPU leaves it.
                        self.state.resched(rq);
                    }
                    return;
                }
                Relocation::Refused => {}
            }
        }
    }

    /// Moves `id`, which is queued on `rq` and may not stay, to `target`, whatever runs there.
    pub(crate) fn relocate_to(&self, rq: &mut RqGuard<'_, P>, id: TaskId, target: CpuId) -> Relocation {
        let (to, let_go) = rq.lock_both(&self.state.rqs[target], target);
        if let_go && !self.waits_on(rq, id) {
            return Relocation::Gone;
        }
        // The target may have gone offline meanwhile, or the affinity may have changed.
        if to.online.get() == 0 || self.nearest_active(id, target) != target {
            return Relocation::Refused;
        }
        self.relocate(rq, id, &to);
        Relocation::Moved
    }

    fn relocate(&self, rq: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        // The offered tasks came first.
        self.queue_next(to);
        self.move_away(rq, id, to);
        self.preempt_for(to, id);
        if to.rt.overloaded.get() != 0 {
            // A push takes further locks. The target CPU does it when it holds only its own lock.
            to.request_balance(BALANCE_PUSH);
            self.state.resched(to);
        }
    }

    /// Returns whether `id` is queued on `rq` and does not run. The task's own words are under the
    /// lock of its present queue, which may be another queue by now. The lists here are under this
    /// queue's lock.
    fn waits_on(&self, rq: &RqGuard<'_, P>, id: TaskId) -> bool {
        rq.curr() != Some(id) && (self.queued(rq).contains(&id) || self.holds(rq.cpu, id))
    }

    /// Returns whether `id` is throttled on `cpu`, in any class.
    fn holds(&self, cpu: CpuId, id: TaskId) -> bool {
        self.fair.held(&self.state, cpu).contains(&id)
            || self.fair.groups.held_real_time(&self.state, cpu).iter().any(|&(_, held)| held == id)
    }

    /// Returns a CPU that runs something less urgent than `id`, else any CPU where `id` may run.
    fn roomiest_active(&self, id: TaskId, cpu: CpuId) -> CpuId {
        self.find_lowest(id, &CpuSet::new())
            .filter(|&target| target != cpu)
            .unwrap_or_else(|| self.nearest_active(id, cpu))
    }
}
