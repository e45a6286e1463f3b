//! Waking a task.
//!
//! **Origin.** Linux's try-to-wake-up. There are two differences. First, read-modify-writes change
//! the task's state, so a wakeup of an awake task is one of them, or two, and takes no lock.
//! Second, the waker locks the queue of the chosen CPU also when that CPU is idle. The original may
//! pass the task on by an interrupt instead.

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::attributes::WakeHint;
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::base::task::Wake;
use crate::scheduler::Scheduler;

/// The wake flags: how a task comes to a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WakeFlags {
    /// For the first time, by a spawner with this hint.
    New(WakeHint),
    /// By a waker with this hint.
    Woken(WakeHint),
}

impl<P: Platform> Scheduler<P> {
    pub(crate) fn wake_task(&self, id: TaskId, hint: WakeHint) -> bool {
        let task = self.state.tasks.get(id);
        match if self.keeps_wakeups() { task.wake_up() } else { task.wake() } {
            Wake::Noted | Wake::Dead => return false,
            Wake::Slept => {}
        }
        self.start_task(id, WakeFlags::Woken(hint));
        true
    }

    /// Enqueues `id`. Either it sleeps and no other waker will enqueue it, or it was never queued.
    pub(crate) fn start_task(&self, id: TaskId, flags: WakeFlags) {
        let task = self.state.tasks.look_up(id);
        let _pi = task.pi_lock.lock();
        // It may be asleep while its CPU has not yet left it.
        task.wait_off_cpu();
        self.state.stats.add(Count::Wake);
        let is_runnable = self.keeps_wakeups();
        if is_runnable && matches!(flags, WakeFlags::New(_)) {
            task.transition_to_begun();
        }
        let stays = self.keeps(task, flags);
        if stays && (self.offer_next(task) || self.leave_to_holder(task)) {
            return;
        }
        let mut rq = self.queue_for(id, flags, stays);
        // The offered tasks came first.
        self.queue_before(&rq, id);
        if !is_runnable {
            task.transition_to_runnable();
        }
        self.enqueue(&rq, id, false);
        if stays && rq.cpu == P::current_cpu() && rq.curr().is_some() {
            let called = self.keep(&mut rq, id);
            self.run_balance(&mut rq);
            drop(rq);
            return self.interrupt_called(called);
        }
        self.preempt_for(&rq, id);
        self.tell_urgent(&rq, id);
        self.push_after_wakeup(&mut rq, id);
        self.run_balance(&mut rq);
    }

    /// Chooses the CPU for `id` and locks its queue. The task is on no queue, and the caller holds
    /// its `pi_lock`. With `stays` it is the calling CPU, if that is online.
    fn queue_for(&self, id: TaskId, flags: WakeFlags, stays: bool) -> RqGuard<'_, P> {
        let task = self.state.tasks.get(id);
        loop {
            let before = task.cpu();
            let chosen = if stays { P::current_cpu() } else { self.select(id, before, flags) };
            let chosen = self.nearest_active(id, chosen);
            self.go_to(id, before, chosen);
            let rq = self.state.lock(chosen);
            if rq.online.get() != 0 {
                return rq;
            }
            // The CPU went offline after it was chosen.
        }
    }

    /// `id`, which is on no queue, was a task of `before` and is one of `cpu` from now on. The
    /// caller holds its `pi_lock`, or has taken it out of the [ring](crate::shipped::run_next) of
    /// `before` and holds the locks of both queues.
    #[inline]
    pub(super) fn go_to(&self, id: TaskId, before: CpuId, cpu: CpuId) {
        if cpu != before {
            self.state.stats.add(Count::Migration);
            self.fair.groups.remove_load(&self.state, before, id);
            self.state.tasks.get(id).cpu.set(cpu.0);
            self.fair.groups.follow_group(&self.state, id, cpu);
            self.ids.leave_cpu(&self.state, id, before);
        }
    }

    /// Decides, after `id` was enqueued, whether it preempts the running task.
    pub(crate) fn preempt_for(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.fair.groups.is_held(&self.state, rq.cpu, id) {
            return;
        }
        let Some(curr) = rq.curr() else {
            self.state.resched(rq);
            return;
        };
        let (prio, running) = (self.state.tasks.get(id).prio(), self.fair.rank(&self.state, rq, curr));
        if prio < running {
            self.state.resched(rq);
        } else if !prio.is_real_time() {
            self.fair.preempt_for_fair(&self.state, rq, id, running);
        } else if prio == running && !rq.needs_resched() {
            self.preempt_equal(rq, id, curr);
        }
    }

    /// Decides for `id`, which is as urgent as `curr`. If only `curr` can run elsewhere, `curr` is
    /// preempted.
    fn preempt_equal(&self, rq: &RqGuard<'_, P>, id: TaskId, curr: TaskId) {
        if !self.state.tasks.get(curr).can_move() || !self.could_run_elsewhere(curr) {
            return;
        }
        if self.state.tasks.get(id).can_move() && self.could_run_elsewhere(id) {
            return;
        }
        self.requeue(rq, id, true);
        self.state.resched(rq);
    }

    /// Pushes after the wakeup of `id`, if it does not run here at once and may run elsewhere.
    fn push_after_wakeup(&self, rq: &mut RqGuard<'_, P>, id: TaskId) {
        let task = self.state.tasks.get(id);
        let Some(id_of_curr) = rq.curr() else { return };
        if self.fair.is_fair(&self.state, id) || self.fair.groups.is_held_real_time(&self.state, id) {
            return;
        }
        let curr = self.state.tasks.get(id_of_curr);
        let is_as_urgent = || self.fair.rank(&self.state, rq, id_of_curr) <= task.prio();
        if !rq.needs_resched() && task.can_move() && (!curr.can_move() || is_as_urgent()) {
            // `placement` has just found no CPU for it. The push is the second search.
            self.searched_in_vain(rq, Some(id));
            self.push_all(rq);
        }
    }
}
