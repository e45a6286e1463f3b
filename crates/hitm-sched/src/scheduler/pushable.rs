//! What a change of the pushable list means to other CPUs.
//!
//! **Invariant.** Under the queue's lock: `overloaded` tells whether the list has an entry, once
//! enqueue or dequeue has returned. [`rt_queue`](crate::base::rt_queue) has the list.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Platform};

use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Adds `id`, which is queued, may move and does not run.
    pub(crate) fn enqueue_pushable(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let tasks = &self.state.tasks;
        if !rq.rt.remove_pushable(tasks, id) {
            self.begin_wait(rq);
        }
        if rq.rt.insert_pushable(tasks, id) && rq.rt.overloaded.get() != 0 && !self.rd.config.push_by_interrupt {
            // SeqCst: the CPU that pushes this task reads other CPUs' priorities next. One of them
            // that becomes less urgent reads this priority after its own store (`pull_from`). One
            // of the two must see the other. Pairs with the operations on cpupri's counts before
            // that read. A queue that was not overloaded is advertised by such an operation, below.
            P::fence(Ordering::SeqCst);
        }
        if rq.rt.overloaded.get() == 0 {
            if rq.online.get() != 0 {
                self.tell_overload(rq.cpu, true);
            }
            rq.rt.overloaded.set(1);
        }
    }

    /// `next` runs instead of `prev`, which stays queued. Where CPUs keep wakeups, `prev` takes the
    /// place of an equal in the list, and the advertisement: no word changes that other CPUs read.
    /// Does nothing and returns false if that cannot be done.
    pub(super) fn take_turns(&self, rq: &RqGuard<'_, P>, prev: TaskId, next: TaskId) -> bool {
        let (Some(_), Some(own)) = (self.searchers(), self.shipped()) else { return false };
        let tasks = &self.state.tasks;
        let task = tasks.get(prev);
        let are_equal = rq.rt.first_pushable(tasks) == Some(next)
            && task.prio() == tasks.get(next).prio()
            && task.can_move()
            && self.runs_everywhere(prev)
            && self.runs_everywhere(next)
            && !self.fair.groups.has_real_time_limits();
        if !are_equal || !own.pass_on(&self.state, rq, next, prev) {
            return false;
        }
        rq.rt.exchange_pushable(tasks, next, prev);
        true
    }

    /// Removes `id`, which runs, sleeps or moves. Harmless when it is not in the list.
    pub(crate) fn dequeue_pushable(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let tasks = &self.state.tasks;
        if rq.rt.remove_pushable(tasks, id) {
            self.end_wait(rq, id);
        }
        if rq.rt.update_next(tasks) && rq.rt.overloaded.get() != 0 {
            if rq.online.get() != 0 {
                self.tell_overload(rq.cpu, false);
            }
            rq.rt.overloaded.set(0);
        }
    }
}
