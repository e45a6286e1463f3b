//! Putting a task on a queue and taking it off, and what that does to the queue's priority.
//!
//! **Origin.** Linux's real-time class, v6.12 onward. What groups hold back stands elsewhere: see [`real_time`](crate::fair::group::real_time).
//!
//! **Cost.** Beside the queue's own lines: cpupri's four read-modify-writes when the queue's priority changes; a set or
//! clear of overload for a task that may move; a load of the root domain's `overloaded` when two tasks are left.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform};

use crate::journal::Entry;
use crate::list::{Links, List};
use crate::prio::Prio;
use crate::root_domain::RootDomainWords;
use crate::rq::{RqGuard, RunQueue};
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// The tasks of one priority of a queue.
    pub(crate) fn queue_of<'a>(
        &'a self,
        rq: &'a RunQueue<P>,
        prio: Prio,
    ) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        List::new(&rq.rt.queue[prio.0 as usize], |id| &self.tasks.get(id).run_list)
    }

    /// Puts `id` on the queue: behind its equals, or before them.
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

    /// Takes `id` off the queue. It `sleeps`, or has ended; else it goes on elsewhere or as something else.
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

    /// The class's tasks leave the queue's count while they change.
    fn uncount_rt(&self, rq: &RqGuard<'_, P>) {
        if rq.rt.rt_queued.get() != 0 {
            rq.nr_running.set(rq.nr_running.get() - rq.rt.rt_nr_running.get());
            rq.rt.rt_queued.set(0);
        }
    }

    /// The class's tasks are counted again; two or more are announced.
    fn count_rt(&self, rq: &RqGuard<'_, P>) {
        let (before, tasks) = (rq.nr_running.get(), rq.rt.rt_nr_running.get());
        if tasks == 0 {
            return;
        }
        rq.nr_running.set(before + tasks);
        rq.rt.rt_queued.set(1);
        self.tell_of_two(before, before + tasks);
    }

    /// A queue had `before` tasks and has `after`: idle CPUs are to know of one that has two.
    pub(crate) fn tell_of_two(&self, before: u32, after: u32) {
        if before < 2 && after >= 2 {
            let overloaded = self.rd.words().overloaded();
            // Relaxed: a hint for idle CPUs, allowed to be stale. Looking first keeps the line shared.
            if overloaded.load(Ordering::Relaxed) == 0 {
                // Relaxed: as above.
                overloaded.store(1, Ordering::Relaxed);
            }
        }
    }

    /// A task of `prio` has come.
    fn raise_prio(&self, rq: &RqGuard<'_, P>, prio: Prio) {
        if prio < rq.highest() {
            rq.rt.highest_prio_curr.set(prio.0);
            if rq.online.get() != 0 {
                self.tell_level(rq, prio);
            }
        }
    }

    /// A task of `prio` has gone.
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

    /// The queue's most urgent task is now of `prio`, another than before.
    fn tell_level(&self, rq: &RqGuard<'_, P>, prio: Prio) {
        if !self.rd.config.shipped {
            self.stats.add(Count::LevelChange);
            self.rd.set_level(rq.cpu, Some(prio));
        }
    }

    /// Moves `id`, which is queued, behind or before its equals. Where it is held it has none.
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
