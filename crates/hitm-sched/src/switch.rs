//! Leaving one task for the next.
//!
//! **Protocol.** Under the queue's lock: (1) a task that blocks leaves the queue; (2) if that made the queue less urgent, it
//! pulls; (3) a task that stays queued and may move becomes pushable; (4) the first of the most urgent priority is chosen, or, where
//! its group may not [run](crate::fair::group::real_time) any longer, the next, and ceases to be pushable; (5) the switch; (6) the
//! task that was left is released to other CPUs; (7) one that may not stay here moves; (8) what else waits here is pushed.
//!
//! A task may not stay when its affinity was changed while it ran, or when its CPU goes. The original moves it from a
//! task of its own, the stopper; here it is passed over in step 4, since it can move only once it was left.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PathCost, PlainWord, Platform};

use crate::change::Relocation;
use crate::journal::Entry;
use crate::root_domain::RootDomainWords;
use crate::rq::{BALANCE_PUSH, RqGuard};
use crate::scheduler::{Scheduler, Why};
use crate::stats::Count;
use crate::task::TaskId;

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    pub(crate) fn switch_task(&self, why: Why) -> Option<TaskId> {
        let mut rq = self.lock(P::current_cpu());
        rq.clear_need_resched();
        self.charge_real_time(&rq);
        let prev = rq.curr();
        if let Some(prev) = prev {
            self.leave(&mut rq, prev, why);
        }
        // Looked at before the task is released: one that left may be queued elsewhere at once, under another lock.
        let queued = prev.filter(|&prev| self.tasks.get(prev).on_rq.get() != 0);
        let may_not_stay = |rq: &RqGuard<'_, P>| queued.filter(|&prev| self.nearest_active(prev, rq.cpu) != rq.cpu);
        let mut goes = may_not_stay(&rq);
        let mut next = self.pick(&rq, goes);
        // A task that is held is nothing to run.
        let has_none = |rq: &RqGuard<'_, P>| queued.is_none_or(|prev| self.is_held(rq.cpu, prev));
        if next.is_none() && has_none(&rq) {
            let has_one = self.pull_when_idle(&mut rq);
            // The lock may have been let go, and what is held here may be elsewhere now, or may run.
            goes = may_not_stay(&rq);
            if has_one {
                next = self.pick(&rq, goes);
            }
        }
        if next == prev {
            // Whoever queued a task while this CPU was about to look has left the push to it.
            self.push_behind(&rq, next);
            self.run_balance(&mut rq);
            return next;
        }
        if let Some(prev) = queued {
            self.put(&rq, prev);
        }
        self.note_idleness(&rq, prev, next);
        self.begin(&rq, next);
        self.switch_ids(&rq, prev, why, next);
        P::charge(PathCost::Switch);
        if let Some(prev) = prev {
            self.tasks.get(prev).clear_on_cpu();
        }
        if let Some(prev) = goes {
            self.send_home(&mut rq, prev);
        }
        self.run_balance(&mut rq);
        next
    }

    /// Step 1 and 2.
    fn leave(&self, rq: &mut RqGuard<'_, P>, prev: TaskId, why: Why) {
        let task = self.tasks.get(prev);
        let leaves = match why {
            Why::Block => task.transition_to_sleeping(),
            Why::Exit => {
                task.transition_to_dead();
                true
            }
            Why::Yield => {
                if self.is_fair(prev) {
                    self.let_go_fair(rq);
                } else {
                    self.requeue(rq, prev, false);
                }
                false
            }
            Why::Preempt => false,
        };
        if !leaves {
            return;
        }
        self.dequeue(rq, prev, true);
        if rq.online.get() != 0 && rq.highest() > task.prio() {
            self.pull(rq);
        }
    }

    /// Step 3: `prev` stays queued while something else runs.
    fn put(&self, rq: &RqGuard<'_, P>, prev: TaskId) {
        if self.is_fair(prev) {
            self.put_fair(rq);
        } else if !self.is_held_real_time(prev) && self.tasks.get(prev).can_move() {
            self.enqueue_pushable(rq, prev);
        }
    }

    /// Step 4: the next task but `goes`, if any. What has used up what its group may run is held, and another looked for.
    fn pick(&self, rq: &RqGuard<'_, P>, goes: Option<TaskId>) -> Option<TaskId> {
        let next = loop {
            let first = rq.rt.first_active().and_then(|prio| self.queue_of(rq, prio).first());
            let next = match first {
                Some(_) if first == goes => self.queued_real_time(rq).into_iter().find(|&id| Some(id) != goes),
                _ => first,
            };
            match next.and_then(|next| self.used_up_real_time(rq, next)) {
                None => break next,
                Some(group) => self.throttle_real_time(rq, group),
            }
        };
        let next = self.pick_fair(rq, next, goes);
        if next.is_none() {
            // About to idle: the original asks whether any CPU has two tasks.
            // Relaxed: a hint.
            let _any = self.rd.words().overloaded().load(Ordering::Relaxed);
        }
        next
    }

    /// Steps 4 and 5: `next` runs from now on.
    fn begin(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>) {
        if let Some(next) = next {
            self.tasks.get(next).set_on_cpu();
            if self.is_fair(next) {
                self.begin_fair(rq, next);
            } else {
                self.put_groups(rq);
                self.dequeue_pushable(rq, next);
            }
        } else {
            self.put_groups(rq);
        }
        self.push_behind(rq, next);
        rq.set_curr(next);
        self.stats.note(|| Entry::Runs(rq.cpu, next));
        rq.nr_switches.set(rq.nr_switches.get() + 1);
        self.stats.add(Count::ContextSwitch);
    }

    /// Step 8, put off: what waits behind `next` is pushed.
    fn push_behind(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>) {
        if next.is_some() && self.first_pushable(rq).is_some() {
            rq.request_balance(BALANCE_PUSH);
        }
    }

    /// Step 7: `prev`, which may not stay, moves.
    fn send_home(&self, rq: &mut RqGuard<'_, P>, prev: TaskId) {
        loop {
            let target = self.nearest_active(prev, rq.cpu);
            if target == rq.cpu {
                // It may stay after all, and was passed over.
                self.preempt_for(rq, prev);
                return;
            }
            match self.relocate_to(rq, prev, target) {
                Relocation::Moved | Relocation::Gone => return,
                Relocation::Refused => {}
            }
        }
    }

    /// The running task has used up its turn: behind its equals with it, if it has any.
    pub(crate) fn rotate_round_robin(&self) -> bool {
        let rq = self.lock(P::current_cpu());
        let Some(curr) = rq.curr() else { return false };
        let task = self.tasks.get(curr);
        if task.round_robin() == 0 {
            return false;
        }
        let queue = self.queue_of(&rq, task.prio());
        if queue.next(None) == queue.prev(None) {
            return false;
        }
        self.requeue(&rq, curr, false);
        self.resched(&rq);
        true
    }
}
