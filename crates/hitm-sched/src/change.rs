//! Changing a task's priority or affinity while it may be queued, running or asleep.
//!
//! **Origin.** Linux's bracket: off the queue if queued, put if running, change, on the queue, set if running, then look at
//! what follows from it. A priority that is lowered within the class goes to the head of its new level, since the task
//! did not give up the CPU. Differences: a waiting task is pushed after every change, since who looked for work
//! meanwhile has not found it, and since it may be more urgent now, or allowed elsewhere; a queue that a change makes less
//! urgent pulls, whichever task was changed.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::journal::Entry;
use crate::prio::Prio;
use crate::root_domain::RootDomainWords;
use crate::rq::{BALANCE_PULL, BALANCE_PUSH, RqGuard};
use crate::scheduler::Scheduler;
use crate::task::{Policy, TaskId};

/// What came of moving a task that may not stay.
pub(crate) enum Relocation {
    /// It has moved.
    Moved,
    /// The lock was let go, and the task does not wait on that queue any more.
    Gone,
    /// It may not go there any more: another place is to be found.
    Refused,
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Locks the queue that `id` is on, or was on last. The caller holds its `pi_lock`, so it stays asleep if it is.
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

    pub(crate) fn change_prio(&self, id: TaskId, prio: Prio, policy: Policy, is_lent: bool) {
        if policy.nice().is_some() {
            self.make_fair();
        }
        let task = self.tasks.get(id);
        let _pi = task.pi_lock.lock();
        let mut rq = self.lock_queue_of(id);
        self.charge_real_time(&rq);
        let before = task.prio();
        let highest = rq.highest();
        let cpu = rq.cpu;
        self.bracket(&rq, id, before < prio, || {
            self.detach_load(cpu, id);
            task.prio.set(prio.0);
            task.set_policy(policy, is_lent);
            if let Some(nice) = policy.nice() {
                self.tasks.make_fair(&self.topology, id, nice).set_nice(nice);
                self.recount_load(id);
            }
        });
        if task.on_rq.get() == 0 {
            return;
        }
        // With the same priority, but lent or not lent any more, it may be held or not.
        if before != prio || self.has_real_time_limits() {
            self.look_after_change(&rq, id, before, highest);
        }
        self.run_balance(&mut rq);
    }

    /// `id`, which is queued on `rq`, had priority `before` until now, and the queue `highest`.
    fn look_after_change(&self, rq: &RqGuard<'_, P>, id: TaskId, before: Prio, highest: Prio) {
        let prio = self.tasks.get(id).prio();
        if highest < rq.highest() {
            rq.request_balance(BALANCE_PULL);
        }
        match rq.curr() {
            Some(curr) if curr == id => {
                if before < prio {
                    rq.request_balance(BALANCE_PULL);
                }
                if rq.highest() < prio || self.used_up_real_time(rq, id).is_some() {
                    self.resched(rq);
                }
            }
            _ if self.is_held_real_time(id) => {}
            // Not urgent enough to run here.
            Some(curr) if self.rank(rq, curr) <= prio => {}
            _ => self.resched(rq),
        }
    }

    pub(crate) fn change_allowed(&self, id: TaskId, allowed: &CpuSet) {
        let task = self.tasks.get(id);
        let _pi = task.pi_lock.lock();
        let mut rq = self.lock_queue_of(id);
        self.bracket(&rq, id, false, || {
            self.tasks.allowed(id).store(allowed);
            self.stats.note(|| Entry::May(id, allowed.clone()));
            task.cpus_allowed_count.set(allowed.len() as u32);
            self.allow_ids(id, allowed);
        });
        if task.on_rq.get() == 0 {
            return;
        }
        if !allowed.contains(rq.cpu) {
            if rq.curr() == Some(id) {
                // It goes when its CPU leaves it.
                self.resched(&rq);
            } else {
                self.expel(&mut rq, id);
            }
        }
        self.run_balance(&mut rq);
    }

    /// Off the queue, change, on the queue. A running task keeps its place at the head of its priority; for one that waits a push is
    /// put off.
    pub(crate) fn bracket(&self, rq: &RqGuard<'_, P>, id: TaskId, lowered: bool, change: impl FnOnce()) {
        let task = self.tasks.get(id);
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
            // Who looked for work meanwhile has not found it.
            rq.request_balance(BALANCE_PUSH);
        }
    }

    /// Moves `id`, which is queued on `rq` and does not run, to a CPU where it may. Called with the task's `pi_lock` or
    /// by the CPU that goes offline.
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
                        // Its CPU has taken it up. It goes when that leaves it.
                        self.resched(rq);
                    }
                    return;
                }
                Relocation::Refused => {}
            }
        }
    }

    /// Moves `id`, which is queued on `rq` and may not stay, to `target`, whatever runs there.
    pub(crate) fn relocate_to(&self, rq: &mut RqGuard<'_, P>, id: TaskId, target: CpuId) -> Relocation {
        let (to, let_go) = rq.lock_both(&self.rqs[target], target);
        if let_go && !self.waits_on(rq, id) {
            return Relocation::Gone;
        }
        // Meanwhile the target may have gone, or the affinity may have been changed.
        if to.online.get() == 0 || self.nearest_active(id, target) != target {
            return Relocation::Refused;
        }
        self.relocate(rq, id, &to);
        Relocation::Moved
    }

    fn relocate(&self, rq: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        self.move_away(rq, id, to);
        self.preempt_for(to, id);
        if to.rt.overloaded.get() != 0 {
            // Pushing takes further locks, which the CPU there does when it holds its own alone.
            to.request_balance(BALANCE_PUSH);
            self.resched(to);
        }
    }

    /// Whether `id` is queued on `rq` and does not run. What the task itself says of that is under the lock of the queue that it
    /// is on, which may be another by now; the lists here are under this one.
    fn waits_on(&self, rq: &RqGuard<'_, P>, id: TaskId) -> bool {
        rq.curr() != Some(id) && (self.queued(rq).contains(&id) || self.holds(rq.cpu, id))
    }

    /// Whether `id` is held on `cpu`, by whatever class.
    fn holds(&self, cpu: CpuId, id: TaskId) -> bool {
        self.held(cpu).contains(&id) || self.held_real_time(cpu).iter().any(|&(_, held)| held == id)
    }

    /// A CPU that runs something less urgent than `id`, else any where it may run.
    fn roomiest_active(&self, id: TaskId, cpu: CpuId) -> CpuId {
        self.find_lowest(id, &CpuSet::new())
            .filter(|&target| target != cpu)
            .unwrap_or_else(|| self.nearest_active(id, cpu))
    }
}
