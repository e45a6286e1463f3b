//! The tasks of a queue that could run elsewhere, by priority, equals in order of arrival.
//!
//! **Origin.** Linux's priority-sorted list: one circular list of all nodes, and one of the first node of each
//! priority, so that finding a place takes as many steps as there are priorities.
//!
//! **Invariants.** Under the queue's lock: (1) `highest_prio_next` is the first entry's priority, or 99; (2) `overloaded`
//! says whether there is an entry, once set or clear has returned; (3) the running task and tasks that may run on one
//! CPU only are never in the list.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Platform};

use crate::list::{Links, List, Ring};
use crate::prio::Prio;
use crate::root_domain::RootDomainWords;
use crate::rq::{RqGuard, RunQueue};
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    fn nodes<'a>(&'a self, head: &'a Links<P>) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        List::new(head, |id| &self.tasks.get(id).node_list)
    }

    /// The first entry, under the lock.
    pub(crate) fn first_pushable(&self, rq: &RunQueue<P>) -> Option<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).first()
    }

    /// The entry after `id`.
    pub(crate) fn next_pushable(&self, rq: &RunQueue<P>, id: TaskId) -> Option<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).next(Some(id))
    }

    /// Whether there is an entry, without the lock.
    pub(crate) fn has_pushable_hint(&self, rq: &RunQueue<P>) -> bool {
        rq.rt.pushable_tasks.peek_first().is_some()
    }

    /// The entries in order, for checkers.
    pub(crate) fn pushable(&self, rq: &RunQueue<P>) -> Vec<TaskId> {
        self.nodes(&rq.rt.pushable_tasks).collect()
    }

    /// Whether the root domain is to know that a queue is overloaded: `shipped` tells of tasks, not of queues.
    pub(crate) fn shows_overload(&self, rq: &RunQueue<P>) -> bool {
        rq.online.get() != 0 && !self.rd.config.shipped
    }

    /// `id`, which is queued, may move and does not run, could run elsewhere.
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
                // SeqCst: who pushes this task looks at other CPUs' priorities next, and one of them that becomes less urgent looks at this
                // priority after its own (`pull_from`): one of the two must see the other. Pairs with the operations on cpupri's
                // counts before that look. A queue that was not overloaded is announced by such an operation, below.
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

    /// `id` runs, sleeps or moves. Harmless when it is not in the list.
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

    /// The ring of the first node of each priority, so that finding a place takes as many steps as there are priorities.
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
        // Most arrivals are no more urgent than what is there.
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

    /// Whether `id` was in the list.
    fn remove_node(&self, rq: &RunQueue<P>, id: TaskId) -> bool {
        let (nodes, firsts) = (self.nodes(&rq.rt.pushable_tasks), self.firsts());
        if !self.tasks.get(id).node_list.is_linked() {
            return false;
        }
        if firsts.contains(id) {
            match nodes.next(Some(id)) {
                // The next of the same priority becomes the first of it.
                Some(next) if !firsts.contains(next) => firsts.replace(id, next),
                _ => firsts.remove(id),
            }
        }
        nodes.remove(id);
        true
    }
}
