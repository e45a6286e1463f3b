//! The pushable list: a queue's tasks that could run elsewhere, by priority, tasks of equal
//! priority in order of arrival.
//!
//! **Origin.** Linux's priority-sorted list: one circular list of all nodes, and one of the first
//! node of each priority. An insertion takes as many steps as there are priorities.
//!
//! **Invariants.** Under the queue's lock: (1) `highest_prio_next` is the first entry's priority,
//! or 99; (2) the running task, and tasks that may run on only one CPU, are never in the list.

use hitm_memory::{Memory, PlainWord};

use super::list::{Links, List, Ring};
use super::numbers::TaskId;
use super::prio::Prio;
use super::rt_queue::RtQueue;
use super::task_table::TaskTable;

impl<M: Memory> RtQueue<M> {
    fn nodes<'a>(&'a self, tasks: &'a TaskTable<M>) -> List<'a, M, impl Fn(TaskId) -> &'a Links<M>> {
        List::new(&self.pushable_tasks, |id| &tasks.get(id).node_list)
    }

    /// Returns the first entry of the pushable list, under the lock.
    pub(crate) fn first_pushable(&self, tasks: &TaskTable<M>) -> Option<TaskId> {
        self.nodes(tasks).first()
    }

    /// Returns the entry after `id`.
    pub(crate) fn next_pushable(&self, tasks: &TaskTable<M>, id: TaskId) -> Option<TaskId> {
        self.nodes(tasks).next(Some(id))
    }

    /// Returns the entry before `id`, or the last one for `None`.
    pub(crate) fn prev_pushable(&self, tasks: &TaskTable<M>, id: Option<TaskId>) -> Option<TaskId> {
        self.nodes(tasks).prev(id)
    }

    /// Returns whether there is an entry, without the lock.
    pub(crate) fn has_pushable_hint(&self) -> bool {
        self.pushable_tasks.peek_first().is_some()
    }

    /// Returns the entries in order.
    pub(crate) fn pushable(&self, tasks: &TaskTable<M>) -> Vec<TaskId> {
        self.nodes(tasks).collect()
    }

    /// Returns the ring of the first node of each priority. With it an insertion takes as many
    /// steps as there are priorities.
    fn firsts<'a>(tasks: &'a TaskTable<M>) -> Ring<impl Fn(TaskId) -> &'a Links<M>> {
        Ring::new(|id| &tasks.get(id).prio_list)
    }

    /// Inserts `id` of `prio` into the pushable list. Returns true when it is its most urgent task.
    pub(crate) fn insert_pushable(&self, tasks: &TaskTable<M>, id: TaskId) -> bool {
        let task = tasks.get(id);
        let prio = task.prio();
        task.pushable_prio.set(prio.0);
        self.insert_node(tasks, id, prio);
        let is_first = prio.0 < self.highest_prio_next.get();
        if is_first {
            self.highest_prio_next.set(prio.0);
        }
        is_first
    }

    /// Updates the priority of the first entry after one has gone. Returns true when there is none.
    pub(crate) fn update_next(&self, tasks: &TaskTable<M>) -> bool {
        let first = self.first_pushable(tasks);
        self.highest_prio_next.set(first.map_or(Prio::NONE.0, |first| tasks.get(first).pushable_prio.get()));
        first.is_none()
    }

    fn insert_node(&self, tasks: &TaskTable<M>, id: TaskId, prio: Prio) {
        let (nodes, firsts) = (self.nodes(tasks), Self::firsts(tasks));
        let prio_of = |task: TaskId| tasks.get(task).pushable_prio.get();
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

    /// Puts `new` into the pushable list behind its equals, and removes `old`. That is the first
    /// entry, and of the same priority. `highest_prio_next` stays as it is.
    pub(crate) fn exchange_pushable(&self, tasks: &TaskTable<M>, old: TaskId, new: TaskId) {
        let (nodes, firsts) = (self.nodes(tasks), Self::firsts(tasks));
        tasks.get(new).pushable_prio.set(tasks.get(old).pushable_prio.get());
        let less_urgent = Some(firsts.next(old)).filter(|&place| place != old);
        nodes.insert_before(less_urgent, new);
        let equal = nodes.next(Some(old)).expect("the new entry is behind the old one");
        firsts.replace(old, equal);
        nodes.remove(old);
    }

    /// Removes `id` from the pushable list. Returns whether it was there.
    pub(crate) fn remove_pushable(&self, tasks: &TaskTable<M>, id: TaskId) -> bool {
        let (nodes, firsts) = (self.nodes(tasks), Self::firsts(tasks));
        if !tasks.get(id).node_list.is_linked() {
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

#[cfg(test)]
mod tests {
    use hitm_memory::{Native, NativeWorkers};
    use hitm_topology::CpuId;

    use super::*;
    use crate::base::attributes::{Attributes, Policy};

    /// A queue, and its tasks by number. `waiting` are the priorities of those in the list.
    fn queue(waiting: &[i32], runs: i32) -> (TaskTable<Native>, RtQueue<Native>, Vec<TaskId>) {
        let topology = hitm_topology::parse("core:2 pu:1").expect("a machine");
        let (tasks, queue) = (TaskTable::new(&topology, true), RtQueue::new());
        let create = |&prio: &i32| {
            let attributes =
                Attributes { prio: Prio(prio), policy: Policy::Fifo, allowed: None, map: None, group: None };
            tasks.create(&topology, &attributes, CpuId(0), CpuId(0)).expect("a number")
        };
        let ids: Vec<TaskId> = waiting.iter().chain([&runs]).map(create).collect();
        for &id in &ids[..waiting.len()] {
            queue.insert_pushable(&tasks, id);
        }
        (tasks, queue, ids)
    }

    #[test]
    fn an_exchange_is_an_insertion_and_a_removal() {
        NativeWorkers::new(2, false).visit(CpuId(0), || {
            // All lists of up to five tasks of three priorities.
            for choice in 0..3_i32.pow(5) {
                for length in 1..=5 {
                    let waiting: Vec<i32> = (0..length).map(|place| choice / 3_i32.pow(place) % 3).collect();
                    let runs = *waiting.iter().min().expect("a task waits");
                    let [(tasks, exchanged, ids), (others, expected, _)] = [(); 2].map(|()| queue(&waiting, runs));
                    let (first, last) = (exchanged.first_pushable(&tasks).expect("a task"), ids[length as usize]);
                    exchanged.exchange_pushable(&tasks, first, last);
                    expected.insert_pushable(&others, last);
                    assert!(expected.remove_pushable(&others, first));
                    expected.update_next(&others);
                    let next = [&exchanged, &expected].map(|queue| queue.highest_prio_next.get());
                    assert_eq!(next[0], next[1], "{waiting:?}");
                    // Each removal goes by the ring of the first tasks of the priorities.
                    for &id in &ids {
                        let lists = [exchanged.pushable(&tasks), expected.pushable(&others)];
                        assert_eq!(lists[0], lists[1], "{waiting:?}, before {id} goes");
                        let ring =
                            |tasks| ids.iter().map(|&id| RtQueue::<Native>::firsts(tasks).contains(id)).collect();
                        let rings: [Vec<bool>; 2] = [ring(&tasks), ring(&others)];
                        assert_eq!(rings[0], rings[1], "{waiting:?}, before {id} goes");
                        assert_eq!(exchanged.remove_pushable(&tasks, id), expected.remove_pushable(&others, id));
                    }
                }
            }
        });
    }
}
