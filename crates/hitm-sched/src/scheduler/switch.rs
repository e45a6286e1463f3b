//! Switching from one task to the next.
//!
//! **Protocol.** Under the queue's lock:
//!
//! 1. A task that blocks leaves the queue.
//! 2. If that made the queue less urgent, the CPU pulls. A CPU that keeps wakeups and has no task
//!    left does not: it looks in step 4.
//! 3. A task that stays queued and may move becomes pushable.
//! 4. The first task of the most urgent priority is picked and is not pushable any more. If its
//!    group may not [run](crate::fair::group::real_time) any longer, the next task is picked.
//! 5. The CPU switches.
//! 6. The previous task is released to other CPUs.
//! 7. If the previous task may not stay here, it moves.
//! 8. Other waiting tasks are pushed.
//!
//! A task may not stay when its affinity was changed while it ran, or when its CPU goes offline.
//! The original moves it from a task of its own, the stopper. Here step 4 skips it, since it can
//! move only after it was left.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PathCost, PlainWord, Platform};

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::rq::{BALANCE_PUSH, RqGuard};
use crate::base::stats::Count;
use crate::base::task::Task;
use crate::base::task_table::TaskRef;
use crate::scheduler::change::Relocation;
use crate::scheduler::{Scheduler, SwitchReason};

impl<P: Platform> Scheduler<P> {
    pub(crate) fn switch_task(&self, why: SwitchReason) -> Option<TaskId> {
        let mut rq = self.state.lock(P::current_cpu());
        if let Some(next) = self.succeed(&mut rq, why) {
            self.run_balance(&mut rq);
            // It did not idle, and has looked for nothing. Offered tasks that are advertised are
            // spared already.
            let are_told = rq.rt.tells_offered.get() != 0;
            let others_wait = rq.nr_running.get() > 1 || !are_told && self.has_offered(rq.cpu);
            let called = if others_wait { self.spare(&mut rq) } else { None };
            drop(rq);
            self.interrupt_called(called);
            return Some(next);
        }
        rq.clear_need_resched();
        self.fair.groups.charge_real_time(&self.state, &rq);
        let prev = rq.curr();
        if let Some(prev) = prev {
            self.leave(&mut rq, prev, why);
        }
        // Read before the task is released: a task that left may at once be queued elsewhere, under
        // another lock.
        let queued = prev.filter(|&prev| self.state.tasks.get(prev).on_rq.get() != 0);
        let may_not_stay = |rq: &RqGuard<'_, P>| queued.filter(|&prev| !self.may_stay(rq, prev));
        let mut goes = may_not_stay(&rq);
        let mut next = self.pick(&rq, goes);
        // A throttled task cannot be run.
        let has_none =
            |rq: &RqGuard<'_, P>| queued.is_none_or(|prev| self.fair.groups.is_held(&self.state, rq.cpu, prev));
        let idles = next.is_none() && has_none(&rq);
        if idles {
            let has_one = if self.keeps_wakeups() {
                self.find_before_idle(&mut rq)
            } else {
                self.fair.pull_when_idle(&self.state, &self.rd, self, &mut rq)
            };
            // The lock may have been released meanwhile. A throttled task may be elsewhere now, or
            // may run.
            goes = may_not_stay(&rq);
            if has_one {
                next = self.pick(&rq, goes);
            }
        }
        if self.take_urgent(&rq, next) {
            next = self.pick(&rq, goes);
        }
        if next == prev {
            // A CPU that enqueued a task while this CPU was about to reschedule has left the push
            // to this CPU.
            self.push_behind(&rq, next);
            self.run_balance(&mut rq);
            self.spare_behind(rq, next, idles);
            return next;
        }
        let taken_turns = queued.zip(next).is_some_and(|(prev, next)| self.take_turns(&rq, prev, next));
        if let Some(prev) = queued.filter(|_| !taken_turns) {
            self.put(&rq, prev);
        }
        self.fair.note_idleness(&self.state, &rq, prev, next);
        self.begin(&rq, next, taken_turns);
        self.part(&rq, prev.map(|prev| self.state.tasks.look_up(prev)), why, next);
        if let Some(prev) = goes {
            self.send_home(&mut rq, prev);
        }
        self.run_balance(&mut rq);
        self.spare_behind(rq, next, idles);
        next
    }

    /// Lets other CPUs have what waits behind `next`, where CPUs keep the tasks that their own
    /// tasks wake. `looked` says that this CPU has looked for tasks elsewhere.
    fn spare_behind(&self, mut rq: RqGuard<'_, P>, next: Option<TaskId>, looked: bool) {
        if !self.keeps_wakeups() {
            return;
        }
        let mut called = [None; 2];
        if next.is_some() || rq.online.get() == 0 {
            called[0] = self.stop_idling(&rq, looked);
        }
        if next.is_some() {
            // Also if a CPU was called: it finds only what is advertised.
            called[1] = self.spare(&mut rq);
        }
        drop(rq);
        called.into_iter().for_each(|called| self.interrupt_called(called));
    }

    /// The CPU of `rq` runs `next` from now on.
    #[inline]
    pub(super) fn set_running(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>) {
        rq.set_curr(next);
        self.state.stats.note(|| Entry::Runs(rq.cpu, next));
        rq.nr_switches.set(rq.nr_switches.get() + 1);
        self.state.stats.add(Count::ContextSwitch);
    }

    /// The CPU of `rq` has switched: ids follow, and `prev` is released to other CPUs.
    #[inline]
    pub(super) fn part(
        &self,
        rq: &RqGuard<'_, P>,
        prev: Option<TaskRef<'_, P>>,
        why: SwitchReason,
        next: Option<TaskId>,
    ) {
        self.ids.switch(&self.state, rq, prev.map(|prev| prev.id), why == SwitchReason::Exit, next);
        P::charge(PathCost::Switch);
        if let Some(prev) = prev {
            prev.clear_on_cpu();
        }
    }

    /// `prev` waits or ends. Returns false if it does not: it lets others run, or was woken before
    /// it slept.
    #[inline]
    pub(super) fn gives_up(prev: &Task<P>, why: SwitchReason) -> bool {
        match why {
            SwitchReason::Block => prev.transition_to_sleeping(),
            SwitchReason::Exit => {
                prev.transition_to_dead();
                true
            }
            SwitchReason::Yield | SwitchReason::Preempt => false,
        }
    }

    /// Returns whether `prev`, which the CPU of `rq` runs, may run there further.
    #[inline]
    pub(super) fn may_stay(&self, rq: &RqGuard<'_, P>, prev: TaskId) -> bool {
        // A CPU is active while it is online: both words change under the queue's lock.
        (P::LEAVES_OUT_READS && rq.online.get() != 0 && self.runs_everywhere(prev))
            || self.nearest_active(prev, rq.cpu) == rq.cpu
    }

    /// Does steps 1 and 2.
    fn leave(&self, rq: &mut RqGuard<'_, P>, prev: TaskId, why: SwitchReason) {
        if why == SwitchReason::Yield {
            // First: the lock may be released, and the task changed meanwhile.
            self.even_out(rq, prev);
        }
        if !Self::gives_up(self.state.tasks.get(prev), why) {
            match why {
                // It was woken before it slept. It goes behind its equals, as a thread does that
                // blocks and is woken (POSIX, `SCHED_FIFO`). Otherwise a task that is woken in each
                // of its polls would starve them. In the original it has not left the queue and
                // keeps its place.
                SwitchReason::Block if self.config.shipped && !self.fair.is_fair(&self.state, prev) => {
                    self.requeue(rq, prev, false);
                }
                SwitchReason::Yield if self.fair.is_fair(&self.state, prev) => {
                    self.fair.let_go_fair(&self.state, rq);
                }
                SwitchReason::Yield => self.requeue(rq, prev, false),
                _ => {}
            }
            return;
        }
        self.dequeue(rq, prev, true);
        // `find_before_idle` looks for a CPU without any task.
        let looks_later = self.keeps_wakeups() && rq.nr_running.get() == 0;
        if !looks_later && rq.online.get() != 0 && rq.highest() > self.state.tasks.get(prev).prio() {
            self.pull(rq);
        }
    }

    /// Does step 3: `prev` stays queued while another task runs.
    pub(super) fn put(&self, rq: &RqGuard<'_, P>, prev: TaskId) {
        if self.fair.is_fair(&self.state, prev) {
            self.fair.put_fair(&self.state, rq);
        } else if !self.fair.groups.is_held_real_time(&self.state, prev) && self.state.tasks.get(prev).can_move() {
            self.enqueue_pushable(rq, prev);
            self.keep_telling(rq);
        }
    }

    /// Does step 4: picks the next task, but never `goes`. It throttles a group that has used up
    /// its runtime and picks again.
    fn pick(&self, rq: &RqGuard<'_, P>, goes: Option<TaskId>) -> Option<TaskId> {
        let next = loop {
            let first = rq.rt.first_active().and_then(|prio| rq.rt.list(&self.state.tasks, prio).first());
            let next = match first {
                Some(_) if first == goes => rq.rt.queued(&self.state.tasks).into_iter().find(|&id| Some(id) != goes),
                _ => first,
            };
            match next.and_then(|next| self.fair.groups.used_up_real_time(&self.state, rq, next)) {
                None => break next,
                Some(group) => self.fair.groups.throttle_real_time(&self.state, &self.ids, self, rq, group),
            }
        };
        let next = self.fair.pick_fair(&self.state, rq, next, goes);
        if next.is_none() {
            // The CPU becomes idle. The original reads here whether any CPU has two tasks.
            // Relaxed: a hint.
            let _any = self.rd.words().overloaded.load(Ordering::Relaxed);
        }
        next
    }

    /// Does steps 4 and 5: `next` runs from now on. With `taken_turns` it is not pushable any more.
    fn begin(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>, taken_turns: bool) {
        if let Some(next) = next {
            self.state.tasks.get(next).set_on_cpu();
            if self.fair.is_fair(&self.state, next) {
                self.fair.begin_fair(&self.state, rq, next);
            } else {
                self.fair.put_groups(&self.state, rq);
                if !taken_turns {
                    self.dequeue_pushable(rq, next);
                }
            }
        } else {
            self.fair.put_groups(&self.state, rq);
        }
        self.push_behind(rq, next);
        self.set_running(rq, next);
    }

    /// Defers step 8, the push of the tasks that wait behind `next`.
    fn push_behind(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>) {
        if next.is_some() && !self.keeps_wakeups() && rq.rt.first_pushable(&self.state.tasks).is_some() {
            rq.request_balance(BALANCE_PUSH);
        }
    }

    /// Does step 7: moves `prev`, which may not stay.
    fn send_home(&self, rq: &mut RqGuard<'_, P>, prev: TaskId) {
        loop {
            let target = self.nearest_active(prev, rq.cpu);
            if target == rq.cpu {
                // It may stay after all, and was skipped.
                self.preempt_for(rq, prev);
                return;
            }
            match self.relocate_to(rq, prev, target) {
                Relocation::Moved | Relocation::Gone => return,
                Relocation::Refused => {}
            }
        }
    }

    /// Handles the end of the running task's time slice: moves it behind the tasks of its priority,
    /// if there are any.
    pub(crate) fn rotate_round_robin(&self) -> bool {
        let rq = self.state.lock(P::current_cpu());
        self.queue_next(&rq);
        let Some(curr) = rq.curr() else { return false };
        let task = self.state.tasks.get(curr);
        if task.round_robin() == 0 {
            return false;
        }
        let queue = rq.rt.list(&self.state.tasks, task.prio());
        if queue.next(None) == queue.prev(None) {
            return false;
        }
        self.requeue(&rq, curr, false);
        self.state.resched(&rq);
        true
    }
}
