//! Enqueueing and dequeueing a task, and the effect on the queue's priority.
//!
//! **Origin.** Linux's real-time class, v6.12 and later.
//! [`real_time`](crate::fair::group::real_time) has the limits by group.
//!
//! **Cost.** In addition to the queue's own lines: cpupri's four read-modify-writes when the
//! queue's priority changes; a set or clear of overload for a task that may move; one load of the
//! root domain's `overloaded` when two tasks are left.

use hitm_memory::{PlainWord, Platform};

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Enqueues `id` behind the tasks of its priority, or before them if `at_head`.
    pub(crate) fn enqueue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool) {
        if let Some(holder) = self.fair.groups.holder(&self.state, rq.cpu, id) {
            self.fair.groups.hold(&self.state, &self.ids, rq, id, holder);
            if rq.curr() == Some(id) {
                self.state.resched(rq);
            }
            return;
        }
        self.state.stats.note(|| Entry::Comes(rq.cpu, id));
        let task = self.state.tasks.get(id);
        let prio = task.prio();
        if !prio.is_real_time() {
            return self.fair.enqueue_fair(&self.state, &self.rd, &self.ids, rq, id);
        }
        rq.uncount_rt();
        rq.rt.insert(&self.state.tasks, id, prio, at_head);
        self.ids.arrive(&self.state, rq, id);
        rq.rt.count_in(task);
        if rq.rt.raise(prio) && rq.online.get() != 0 {
            self.tell_level(rq.cpu, prio);
        }
        self.count_rt(rq);
        if rq.curr() != Some(id) && task.can_move() {
            self.enqueue_pushable(rq, id);
        }
    }

    /// Dequeues `id`. With `sleeps` it sleeps or has ended, else it will be enqueued again, on this
    /// queue or on another.
    pub(crate) fn dequeue(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool) {
        if self.fair.groups.is_held_real_time(&self.state, id) {
            return self.fair.groups.let_go_of(&self.state, rq, id);
        }
        self.state.stats.note(|| Entry::Leaves(rq.cpu, id));
        let task = self.state.tasks.get(id);
        let prio = task.prio();
        if !prio.is_real_time() {
            return self.fair.dequeue_fair(&self.state, rq, id, sleeps);
        }
        rq.uncount_rt();
        rq.rt.remove(&self.state.tasks, id, prio);
        if let Some(now) = rq.rt.lower(prio)
            && rq.online.get() != 0
        {
            self.tell_level(rq.cpu, now);
        }
        self.count_rt(rq);
        self.dequeue_pushable(rq, id);
    }

    /// Counts the real-time tasks again. A queue with two tasks or more is advertised.
    fn count_rt(&self, rq: &RqGuard<'_, P>) {
        if let Some((before, after)) = rq.count_rt() {
            self.rd.tell_of_two(before, after);
        }
    }

    /// Moves `id`, which is queued, behind or before the tasks of its priority. Does nothing for a
    /// throttled task.
    pub(crate) fn requeue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool) {
        if self.fair.groups.is_held_real_time(&self.state, id) {
            return;
        }
        rq.rt.requeue(&self.state.tasks, id, at_head);
    }
}
