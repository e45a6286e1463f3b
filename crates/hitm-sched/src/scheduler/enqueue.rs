//! Enqueueing and dequeueing a task, and the effect on the queue's priority.
//!
//! **Origin.** Linux's real-time class, v6.12 and later.
//! [`real_time`](crate::fair::group::real_time) has the limits by group.
//!
//! **Cost.** In addition to the queue's own lines: cpupri's four read-modify-writes when the
//! queue's priority changes; a set or clear of overload for a task that may move; one load of the
//! root domain's `overloaded` when two tasks are left.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform};

use crate::base::journal::Entry;
use crate::base::list::{Links, List};
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::{RqGuard, RunQueue};
use crate::base::stats::Count;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Returns the list of tasks of one priority of a queue.
    pub(crate) fn queue_of<'a>(
        &'a self,
        rq: &'a RunQueue<P>,
        prio: Prio,
    ) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        List::new(&rq.rt.queue[prio.0 as usize], |id| &self.tasks.get(id).run_list)
    }

    /// Enqueues `id` behind the tasks of its priority, or before them if `at_head`.
    pub(crate) fn enqueue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool) {
        if let Some(holder) = self.holder(rq.cpu, id) {
            self.hold(rq, id, holder);
            if rq.curr() == Some(id) {
                self.resched(rq);
            }
            return;
        }
        self.stats.note(|| Entry::Comes(rq.cpu, id));
        let task = self.tasks.get(id);
        let prio = task.prio();
        if !prio.is_real_time() {
            return self.enqueue_fair(rq, id);
        }
        self.uncount_rt(rq);
        let queue = self.queue_of(rq, prio);
        if at_head {
            queue.push_front(id);
        } else {
            queue.push_back(id);
        }
        rq.rt.set_active(prio, true);
        task.on_list.set(1);
        task.on_rq.set(1);
        self.arrive_ids(rq, id);
        rq.rt.rt_nr_running.set(rq.rt.rt_nr_running.get() + 1);
        rq.rt.rr_nr_running.set(rq.rt.rr_nr_running.get() + task.round_robin());
        self.raise_prio(rq, prio);
        self.count_rt(rq);
        if rq.curr() != Some(id) && task.can_move() {
            self.enqueue_pushable(rq, id);
        }
    }

    /// Dequeues `id`. With `sleeps` it sleeps or has ended, else it will be enqueued again, on this
    /// queue or on another.
    pub(crate) fn dequeue(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool) {
        if self.is_held_real_time(id) {
            return self.let_go_of(rq, id);
        }
        self.stats.note(|| Entry::Leaves(rq.cpu, id));
        let task = self.tasks.get(id);
        let prio = task.prio();
        if !prio.is_real_time() {
            return self.dequeue_fair(rq, id, sleeps);
        }
        self.uncount_rt(rq);
        let queue = self.queue_of(rq, prio);
        queue.remove(id);
        if queue.is_empty() {
            rq.rt.set_active(prio, false);
        }
        task.on_list.set(0);
        task.on_rq.set(0);
        rq.rt.rt_nr_running.set(rq.rt.rt_nr_running.get() - 1);
        rq.rt.rr_nr_running.set(rq.rt.rr_nr_running.get() - task.round_robin());
        self.lower_prio(rq, prio);
        self.count_rt(rq);
        self.dequeue_pushable(rq, id);
    }

    /// Takes the class's tasks out of the queue's count while they change.
    fn uncount_rt(&self, rq: &RqGuard<'_, P>) {
        if rq.rt.rt_queued.get() != 0 {
            rq.nr_running.set(rq.nr_running.get() - rq.rt.rt_nr_running.get());
            rq.rt.rt_queued.set(0);
        }
    }

    /// Counts the class's tasks again. A queue with two or more is advertised.
    fn count_rt(&self, rq: &RqGuard<'_, P>) {
        let (before, tasks) = (rq.nr_running.get(), rq.rt.rt_nr_running.get());
        if tasks == 0 {
            return;
        }
        rq.nr_running.set(before + tasks);
        rq.rt.rt_queued.set(1);
        self.tell_of_two(before, before + tasks);
    }

    /// Tells idle CPUs of a queue with two tasks, if it had `before` tasks and has `after`.
    pub(crate) fn tell_of_two(&self, before: u32, after: u32) {
        if before < 2 && after >= 2 {
            let overloaded = &self.rd.words().overloaded;
            // Relaxed: a hint for idle CPUs, which may be stale. The load before the store keeps
            // the line shared.
            if overloaded.load(Ordering::Relaxed) == 0 {
                // Relaxed: as above.
                overloaded.store(1, Ordering::Relaxed);
            }
        }
    }

    /// Updates the queue's priority after a task of `prio` has come.
    fn raise_prio(&self, rq: &RqGuard<'_, P>, prio: Prio) {
        if prio < rq.highest() {
            rq.rt.highest_prio_curr.set(prio.0);
            if rq.online.get() != 0 {
                self.tell_level(rq, prio);
            }
        }
    }

    /// Updates the queue's priority after a task of `prio` has gone.
    fn lower_prio(&self, rq: &RqGuard<'_, P>, prio: Prio) {
        let before = rq.highest();
        if rq.rt.rt_nr_running.get() == 0 {
            rq.rt.highest_prio_curr.set(Prio::NONE.0);
        } else if prio == before {
            let first = rq.rt.first_active().expect("tasks are queued");
            rq.rt.highest_prio_curr.set(first.0);
        }
        let now = rq.highest();
        if now != before && rq.online.get() != 0 {
            self.tell_level(rq, now);
        }
    }

    /// Publishes `prio`, the new priority of the queue's most urgent task.
    fn tell_level(&self, rq: &RqGuard<'_, P>, prio: Prio) {
        if !self.rd.config.shipped {
            self.stats.add(Count::LevelChange);
            self.rd.set_level(rq.cpu, Some(prio));
        }
    }

    /// Moves `id`, which is queued, behind or before the tasks of its priority. Does nothing for a
    /// throttled task.
    pub(crate) fn requeue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool) {
        if self.is_held_real_time(id) {
            return;
        }
        let queue = self.queue_of(rq, self.tasks.get(id).prio());
        queue.remove(id);
        if at_head {
            queue.push_front(id);
        } else {
            queue.push_back(id);
        }
    }
}
