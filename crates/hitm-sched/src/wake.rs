//! Waking a task.
//!
//! **Origin.** Linux's try-to-wake-up. Differences: the task's state is changed by read-modify-writes, so a wakeup of a task
//! that is awake is one of them and takes no lock; the queue of the chosen CPU is locked from here also when that CPU idles
//! (the original may hand the task over by an interrupt instead).

use hitm_memory::{PlainWord, Platform};

use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::{Scheduler, WakeHint};
use crate::stats::Count;
use crate::task::{TaskId, Wake};

/// How a task comes to a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coming {
    /// For the first time.
    New,
    /// By a waker who knows this of itself.
    Woken(WakeHint),
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    pub(crate) fn wake_task(&self, id: TaskId, hint: WakeHint) -> bool {
        match self.tasks.get(id).wake() {
            Wake::Noted | Wake::Dead => return false,
            Wake::Slept => {}
        }
        self.start_task(id, Coming::Woken(hint));
        true
    }

    /// Queues `id`, which sleeps and which nobody else will queue, or which was never queued.
    pub(crate) fn start_task(&self, id: TaskId, coming: Coming) {
        let task = self.tasks.get(id);
        let _pi = task.pi_lock.lock();
        // It may be asleep and its CPU still on the way out of it.
        task.wait_off_cpu();
        self.stats.add(Count::Wake);
        let mut rq = self.queue_for(id, coming);
        task.transition_to_runnable();
        self.enqueue(&rq, id, false);
        self.preempt_for(&rq, id);
        self.push_after_wakeup(&mut rq, id);
        self.run_balance(&mut rq);
    }

    /// Chooses the CPU for `id`, which is on no queue and whose `pi_lock` the caller holds, and locks its queue.
    fn queue_for(&self, id: TaskId, coming: Coming) -> RqGuard<'_, P> {
        let task = self.tasks.get(id);
        loop {
            let before = task.cpu();
            let chosen = self.nearest_active(id, self.select(id, before, coming));
            if chosen != before {
                self.stats.add(Count::Migration);
                self.remove_load(before, id);
                task.cpu.set(chosen.0);
                self.follow_group(id, chosen);
                self.leave_cpu(id, before);
            }
            let rq = self.lock(chosen);
            if rq.online.get() != 0 {
                return rq;
            }
            // It went offline since it was chosen.
        }
    }

    /// `id` was queued: whether it should run instead of what runs.
    pub(crate) fn preempt_for(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.is_held(rq.cpu, id) {
            return;
        }
        let Some(curr) = rq.curr() else {
            self.resched(rq);
            return;
        };
        let (prio, running) = (self.tasks.get(id).prio(), self.rank(rq, curr));
        if prio < running {
            self.resched(rq);
        } else if !prio.is_real_time() {
            self.preempt_for_fair(rq, id, running);
        } else if prio == running && !rq.needs_resched() {
            self.preempt_equal(rq, id, curr);
        }
    }

    /// `id` is as urgent as `curr`. If only `curr` can go elsewhere, it is made to.
    fn preempt_equal(&self, rq: &RqGuard<'_, P>, id: TaskId, curr: TaskId) {
        if !self.tasks.get(curr).can_move() || !self.could_run_elsewhere(curr) {
            return;
        }
        if self.tasks.get(id).can_move() && self.could_run_elsewhere(id) {
            return;
        }
        self.requeue(rq, id, true);
        self.resched(rq);
    }

    /// `id` was woken and will not run here at once: perhaps it can elsewhere.
    fn push_after_wakeup(&self, rq: &mut RqGuard<'_, P>, id: TaskId) {
        let task = self.tasks.get(id);
        let Some(id_of_curr) = rq.curr() else { return };
        if self.is_fair(id) || self.is_held_real_time(id) {
            return;
        }
        let curr = self.tasks.get(id_of_curr);
        let is_as_urgent = || self.rank(rq, id_of_curr) <= task.prio();
        if !rq.needs_resched() && task.can_move() && (!curr.can_move() || is_as_urgent()) {
            if self.rd.config.shipped {
                // No place was found for it just now: the push below is the look that follows an announcement.
                self.announce(rq, Some(id));
            }
            self.push_all(rq);
        }
    }
}
