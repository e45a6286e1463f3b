//! The pushable list: a queue's tasks that could run elsewhere, by priority, tasks of equal
//! priority in order of arrival.
//!
//! **Origin.** Linux's priority-sorted list: one circular list of all nodes, and one of the first
//! node of each priority. An insertion takes as many steps as there are priorities.
//!
//! **Invariants.** Under the queue's lock: (1) `highest_prio_next` is the first entry's priority,
//! or 99; (2) `overloaded` tells whether there is an entry, once set or clear has returned; (3) the
//! running task, and tasks that may run on only one CPU, are never in the list.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Platform};

use crate::base::list::{Links, List, Ring};
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::{RqGuard, RunQueue};
use crate::base::stats::Count;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    fn nodes<'a>(&'a self, head: &'a Links<P>) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        List::new(head, |id| &self.tasks.get(id).node_list)
    }

    /// Returns the first entry, under the lock.
    pub(crate) fn first_pushable(&self, rq: &RunQueue<P>) -> Option<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).first()
    }

    /// Returns the entry after `id`.
    pub(crate) fn next_pushable(&self, rq: &RunQueue<P>, id: TaskId) -> Option<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).next(Some(id))
    }

    /// Returns whether there is an entry, without the lock.
    pub(crate) fn has_pushable_hint(&self, rq: &RunQueue<P>) -> bool {
        rq.rt.pushable_tasks.peek_first().is_some()
    }

    /// Returns the entries in order, for checkers.
    pub(crate) fn pushable(&self, rq: &RunQueue<P>) -> Vec<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).collect()
    }

    /// Returns whether the root domain keeps the queue's overload. `shipped` advertises tasks, not
    /// queues.
    pub(crate) fn shows_overload(&self, rq: &RunQueue<P>) -> bool {
        rq.online.get() != 0 && !self.rd.config.shipped
    }

    /// Adds `id`, which is queued, may move and does not run.
    pub(crate) fn enqueue_pushable(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if !self.remove_node(rq, id) && self.rd.config.shipped {
            self.expect_announcement(rq);
        }
        let task = self.tasks.get(id);
        let prio = task.prio();
        task.pushable_prio.set(prio.0);
        self.insert_node(rq, id, prio);
        if prio.0 < rq.rt.highest_prio_next.get() {
            rq.rt.highest_prio_next.set(prio.0);
            if rq.rt.overloaded.get() != 0 && !self.rd.config.push_by_interrupt {
                // SeqCst: the CPU that pushes this task reads other CPUs' priorities next. One of
                // them that becomes less urgent reads this priority after its own store
                // (`pull_from`). One of the two must see the other. Pairs with the operations on
                // cpupri's counts before that read. A queue that was not overloaded is advertised
                // by such an operation, below.
                P::fence(Ordering::SeqCst);
            }
        }
        if rq.rt.overloaded.get() == 0 {
            if self.shows_overload(rq) {
                self.stats.add(Count::OverloadSet);
                self.rd.set_overload(rq.cpu);
            }
            rq.rt.overloaded.set(1);
        }
    }

    /// Removes `id`, which runs, sleeps or moves. Harmless when it is not in the list.
    pub(crate) fn dequeue_pushable(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.remove_node(rq, id) && self.rd.config.shipped {
            self.withdraw(rq, id);
        }
        if let Some(first) = self.first_pushable(rq) {
            rq.rt.highest_prio_next.set(self.tasks.get(first).pushable_prio.get());
            return;
        }
        rq.rt.highest_prio_next.set(Prio::NONE.0);
        if rq.rt.overloaded.get() != 0 {
            if self.shows_overload(rq) {
                self.stats.add(Count::OverloadClear);
                self.rd.clear_overload(rq.cpu);
            }
            rq.rt.overloaded.set(0);
        }
    }

    /// Returns the ring of the first node of each priority. With it an insertion takes as many
    /// steps as there are priorities.
    fn firsts<'a>(&'a self) -> Ring<impl Fn(TaskId) -> &'a Links<P>> {
        Ring::new(|id| &self.tasks.get(id).prio_list)
    }

    fn insert_node(&self, rq: &RunQueue<P>, id: TaskId, prio: Prio) {
        let (nodes, firsts) = (self.nodes(&rq.rt.pushable_tasks), self.firsts());
        let prio_of = |task: TaskId| self.tasks.get(task).pushable_prio.get();
        let Some(first) = nodes.first() else {
            nodes.push_back(id);
            firsts.start(id);
            return;
        };
        // Most new entries are not more urgent than the present ones.
        let last = firsts.prev(first);
        if prio_of(last) <= prio.0 {
            nodes.push_back(id);
            if prio_of(last) != prio.0 {
                firsts.insert_before(first, id);
            }
            return;
        }
        let mut place = first;
        let mut same = false;
        while prio_of(place) <= prio.0 {
            same = prio_of(place) == prio.0;
            place = firsts.next(place);
        }
        nodes.insert_before(Some(place), id);
        if !same {
            firsts.insert_before(place, id);
        }
    }

    /// Removes `id`. Returns whether it was in the list.
    fn remove_node(&self, rq: &RunQueue<P>, id: TaskId) -> bool {
        let (nodes, firsts) = (self.nodes(&rq.rt.pushable_tasks), self.firsts());
        if !self.tasks.get(id).node_list.is_linked() {
            return false;
        }
        if firsts.contains(id) {
            match nodes.next(Some(id)) {
                // The next task of the same priority becomes the first one.
                Some(next) if !firsts.contains(next) => firsts.replace(id, next),
                _ => firsts.remove(id),
            }
        }
        nodes.remove(id);
        true
    }
}
