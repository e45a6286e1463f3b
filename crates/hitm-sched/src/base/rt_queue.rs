//! The real-time class's part of a run queue: the tasks of each priority, and the most urgent
//! priority. [`pushable`](super::pushable) has the list of the tasks that could run elsewhere.
//!
//! **Origin.** Linux's real-time class, v6.12 and later.

use std::mem::offset_of;

use hitm_memory::{Memory, Native, PlainWord, described};

use super::list::{Links, List};
use super::numbers::TaskId;
use super::prio::Prio;
use super::task::Task;
use super::task_table::{TaskRef, TaskTable};

/// List heads: one per real-time priority, and one that stays empty, as in the original.
const QUEUES: usize = 100;

described! {
    /// The real-time class's part of a run queue.
    pub struct RtQueue<M: Memory> as "rt_rq" {
        /// One bit per priority that has tasks.
        active_bitmap: [M::Plain<u64>; 2] = words,
        /// The tasks of each priority, the running one included.
        queue: [Links<M>; QUEUES] = described,
        /// Tasks queued here.
        pub(crate) rt_nr_running: M::Plain<u32>,
        /// Round-robin tasks among them.
        rr_nr_running: M::Plain<u32>,
        /// The most urgent priority queued here, 99 for none. Peeked at by wakers and pushers
        /// elsewhere.
        pub(crate) highest_prio_curr: M::Plain<i32>,
        /// The most urgent priority that could run elsewhere, 99 for none. Peeked at by pullers
        /// elsewhere.
        pub(crate) highest_prio_next: M::Plain<i32>,
        /// Whether this CPU is advertised as overloaded.
        pub(crate) overloaded: M::Plain<u8>,
        hole_after_overloaded: [u8; 7],
        /// Tasks that could run elsewhere, by priority. Peeked at by the push work.
        pub(super) pushable_tasks: Links<M> = described,
        /// Whether `rt_nr_running` is counted in the queue's `nr_running`.
        pub(crate) rt_queued: M::Plain<u32>,
        /// Tasks of the pushable list that are advertised to all, and 1 more while those of the
        /// ring are: see `shipped::announce`.
        pub(crate) announced: M::Plain<u32>,
        /// Tasks of the pushable list that are not advertised yet.
        pub(crate) unannounced: M::Plain<u32>,
        /// 1 while the offered tasks of the ring are advertised. Peeked at by pullers elsewhere.
        pub(crate) tells_offered: M::Plain<u32>,
        /// The part of `announced` that may run on all CPUs. It stays 0 where CPUs have no ring.
        /// Peeked at by the queue's CPU.
        pub(crate) everywhere: M::Plain<u32>,
        throttling: [u32; 7],
    }
}

const _: () = assert!(size_of::<RtQueue<Native>>() == 1_704, "the original's size with group scheduling");
const _: () = assert!(offset_of!(RtQueue<Native>, queue) == 16, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, rt_nr_running) == 1_616, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, highest_prio_curr) == 1_624, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, highest_prio_next) == 1_628, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, overloaded) == 1_632, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, pushable_tasks) == 1_640, "the original's offset");
const _: () = assert!(offset_of!(RtQueue<Native>, rt_queued) == 1_656, "the original's offset");

impl<M: Memory> RtQueue<M> {
    pub(crate) fn new() -> Self {
        Self {
            active_bitmap: std::array::from_fn(|_| M::Plain::new(0)),
            queue: std::array::from_fn(|_| Links::head()),
            rt_nr_running: M::Plain::new(0),
            rr_nr_running: M::Plain::new(0),
            highest_prio_curr: M::Plain::new(Prio::NONE.0),
            highest_prio_next: M::Plain::new(Prio::NONE.0),
            overloaded: M::Plain::new(0),
            hole_after_overloaded: [0; 7],
            pushable_tasks: Links::head(),
            rt_queued: M::Plain::new(0),
            announced: M::Plain::new(0),
            unannounced: M::Plain::new(0),
            tells_offered: M::Plain::new(0),
            everywhere: M::Plain::new(0),
            throttling: [0; 7],
        }
    }

    /// Returns the most urgent priority that has tasks, from the bitmap.
    #[track_caller]
    pub(crate) fn first_active(&self) -> Option<Prio> {
        let low = self.active_bitmap[0].get();
        if low != 0 {
            return Some(Prio(low.trailing_zeros() as i32));
        }
        let high = self.active_bitmap[1].get();
        (high != 0).then(|| Prio(64 + high.trailing_zeros() as i32))
    }

    #[track_caller]
    fn set_active(&self, prio: Prio, active: bool) {
        let (word, bit) = (&self.active_bitmap[prio.0 as usize / 64], 1 << (prio.0 % 64));
        word.set(if active { word.get() | bit } else { word.get() & !bit });
    }

    /// Returns the list of tasks of one priority.
    pub(crate) fn list<'a>(
        &'a self,
        tasks: &'a TaskTable<M>,
        prio: Prio,
    ) -> List<'a, M, impl Fn(TaskId) -> &'a Links<M>> {
        List::new(&self.queue[prio.0 as usize], |id| &tasks.get(id).run_list)
    }

    /// Returns the queued tasks, most urgent first.
    pub(crate) fn queued(&self, tasks: &TaskTable<M>) -> Vec<TaskId> {
        (0..Prio::REAL_TIME_COUNT as i32).flat_map(|prio| self.list(tasks, Prio(prio)).collect()).collect()
    }

    /// Inserts `id` behind the tasks of its priority `prio`, or before them if `at_head`. The
    /// caller counts it by [`count_in`](Self::count_in).
    pub(crate) fn insert(&self, tasks: &TaskTable<M>, id: TaskId, prio: Prio, at_head: bool) {
        let task = tasks.get(id);
        let list = self.list(tasks, prio);
        if at_head {
            list.push_front(id);
        } else {
            list.push_back(id);
        }
        self.set_active(prio, true);
        task.on_list.set(1);
        task.on_rq.set(1);
    }

    /// Counts an inserted task.
    pub(crate) fn count_in(&self, task: &Task<M>) {
        self.rt_nr_running.set(self.rt_nr_running.get() + 1);
        self.rr_nr_running.set(self.rr_nr_running.get() + task.round_robin());
    }

    /// Removes `id` of priority `prio`, and counts it no more.
    pub(crate) fn remove(&self, tasks: &TaskTable<M>, id: TaskId, prio: Prio) {
        let task = tasks.get(id);
        let list = self.list(tasks, prio);
        list.remove(id);
        if list.is_empty() {
            self.set_active(prio, false);
        }
        self.count_out(task);
    }

    /// Counts a removed task no more.
    fn count_out(&self, task: &Task<M>) {
        task.on_list.set(0);
        task.on_rq.set(0);
        self.rt_nr_running.set(self.rt_nr_running.get() - 1);
        self.rr_nr_running.set(self.rr_nr_running.get() - task.round_robin());
    }

    /// Removes `id` of priority `prio`, behind which another task of that priority waits, and
    /// counts it no more.
    pub(crate) fn remove_before_equal(&self, tasks: &TaskTable<M>, id: TaskId, prio: Prio) {
        let task = tasks.get(id);
        self.list(tasks, prio).remove(id);
        self.count_out(task);
    }

    /// Removes `old`, the first task of its priority, and puts `new`, which is on no queue and has
    /// the same priority, behind the others. Returns the task that is first now.
    #[inline]
    pub(crate) fn succeed(&self, tasks: &TaskTable<M>, old: TaskRef<'_, M>, new: TaskRef<'_, M>) -> TaskId {
        let list = self.list(tasks, new.prio());
        let first = match old.run_list.next() {
            None => {
                list.replace_only(&old.run_list, new.id, &new.run_list);
                new.id
            }
            Some(first) => {
                list.remove(old.id);
                list.push_back(new.id);
                first
            }
        };
        old.on_list.set(0);
        old.on_rq.set(0);
        new.on_list.set(1);
        new.on_rq.set(1);
        let (before, after) = (old.round_robin(), new.round_robin());
        if before != after {
            self.rr_nr_running.set(self.rr_nr_running.get() - before + after);
        }
        first
    }

    /// Moves `id`, which is queued, behind or before the tasks of its priority.
    pub(crate) fn requeue(&self, tasks: &TaskTable<M>, id: TaskId, at_head: bool) {
        let list = self.list(tasks, tasks.get(id).prio());
        list.remove(id);
        if at_head {
            list.push_front(id);
        } else {
            list.push_back(id);
        }
    }

    /// Returns the most urgent priority queued here: exact under the lock, else a hint.
    #[track_caller]
    pub(crate) fn highest(&self) -> Prio {
        Prio(self.highest_prio_curr.peek())
    }

    /// Records that a task of `prio` has come. Returns true when the queue is more urgent now.
    pub(crate) fn raise(&self, prio: Prio) -> bool {
        let is_raised = prio < self.highest();
        if is_raised {
            self.highest_prio_curr.set(prio.0);
        }
        is_raised
    }

    /// Records that a task of `prio` has gone. Returns the queue's priority if it is less urgent
    /// now.
    pub(crate) fn lower(&self, prio: Prio) -> Option<Prio> {
        let before = self.highest();
        if self.rt_nr_running.get() == 0 {
            self.highest_prio_curr.set(Prio::NONE.0);
        } else if prio == before {
            let first = self.first_active().expect("tasks are queued");
            self.highest_prio_curr.set(first.0);
        }
        let now = self.highest();
        (now != before).then_some(now)
    }
}
