//! What the fair class keeps in shared memory: of a queue, and of a task.
//!
//! **Layout.** A task's words stand apart from [`Task`](crate::task::Task), on two lines of their own that are made when it first is a
//! fair task, so a real-time task is as large as ever. A queue's are one line, beside the run queue.

use std::fmt;
use std::mem::offset_of;

use hitm_memory::{LINE, LineStart, Memory, Native, PlainWord, described};

use super::weight::{NICE_0_WEIGHT, Nice};
use crate::task::TaskId;

described! {
    /// A task's part of the fair class.
    pub struct FairTask<M: Memory> as "fair_task" {
        /// The subtree of those with earlier deadlines: a task, counted from 1; 0 for none. Under the queue's lock, as all here.
        pub(crate) left: M::Plain<u64>,
        /// The subtree of those with later deadlines.
        pub(crate) right: M::Plain<u64>,
        /// The longest way down from here, in tasks; 0 while it is in no tree.
        pub(crate) height: M::Plain<u32>,
        /// Its share.
        pub(crate) weight: M::Plain<u32>,
        /// The least virtual runtime of the subtree that begins here.
        pub(crate) least_vruntime: M::Plain<i64>,
        /// Its virtual deadline, nanoseconds of virtual time, like all times here.
        pub(crate) deadline: M::Plain<i64>,
        /// Its virtual runtime.
        pub(crate) vruntime: M::Plain<i64>,
        other_line: LineStart,
        /// How far it was behind the average when it left its queue.
        pub(crate) lag: M::Plain<i64>,
        /// How far its deadline was then, if it left in the middle of its slice; 0 for a new slice.
        pub(crate) left_of_slice: M::Plain<i64>,
        /// Its nice level.
        pub(crate) nice: M::Plain<i32>,
        /// 1 until it is queued for the first time.
        pub(crate) is_new: M::Plain<u32>,
        /// Where its partners were woken last, a CPU counted from 1; 0 for nowhere. Without a lock.
        pub(crate) recent_cpu: M::Plain<u32>,
    }
}

described! {
    /// A CPU's fair tasks.
    pub struct FairQueue<M: Memory> as "fair_rq" {
        /// The tree of those that wait: the task at its root, counted from 1; 0 for none.
        pub(crate) root: M::Plain<u64>,
        /// The one that runs, which is not in the tree, counted from 1; 0 for none.
        pub(crate) curr: M::Plain<u64>,
        /// The weights of those in the tree.
        pub(crate) load: M::Plain<u64>,
        /// The virtual runtime from which `sum` counts: about the average.
        pub(crate) base: M::Plain<i64>,
        /// Of those in the tree, each one's virtual runtime less `base`, times its weight.
        pub(crate) sum: M::Plain<i64>,
        /// Until when the one that runs was charged, picoseconds.
        pub(crate) charged: M::Plain<u64>,
        /// The deadline with which it was chosen: while it has that, it is not preempted by a waking task.
        pub(crate) chosen_deadline: M::Plain<i64>,
        /// How many there are, the running one included. Peeked at by who balances.
        pub(crate) nr_queued: M::Plain<u32>,
        /// 1 while they go before real-time tasks. Peeked at by who looks for a place.
        pub(crate) served: M::Plain<u32>,
        server_line: LineStart,
        /// When the server's present period began, picoseconds.
        pub(crate) period_start: M::Plain<u64>,
        /// What the fair tasks have had of it, nanoseconds.
        pub(crate) period_used: M::Plain<u64>,
        /// When each domain is balanced next, smallest first, picoseconds.
        pub(crate) next_balance: [M::Plain<u64>; 4] = words of u64,
    }
}

const _: () = assert!(offset_of!(FairTask<Native>, other_line) == LINE, "what a pick reads of a task is one line");
const _: () = assert!(offset_of!(FairQueue<Native>, server_line) == LINE, "what a pick reads of a queue is one line");

/// A task as a link.
pub(crate) fn link(task: Option<TaskId>) -> u64 {
    task.map_or(0, |task| u64::from(task.0) + 1)
}

/// The task of a link.
pub(crate) fn task(link: u64) -> Option<TaskId> {
    link.checked_sub(1).map(|task| TaskId(task as u32))
}

impl<M: Memory> FairTask<M> {
    pub(crate) fn new(nice: Nice) -> Self {
        Self {
            left: M::Plain::new(0),
            right: M::Plain::new(0),
            height: M::Plain::new(0),
            weight: M::Plain::new(nice.weight()),
            least_vruntime: M::Plain::new(0),
            deadline: M::Plain::new(0),
            vruntime: M::Plain::new(0),
            other_line: LineStart,
            lag: M::Plain::new(0),
            left_of_slice: M::Plain::new(0),
            nice: M::Plain::new(i32::from(nice.get())),
            is_new: M::Plain::new(1),
            recent_cpu: M::Plain::new(0),
        }
    }

    /// As new: another task has the number.
    pub(crate) fn begin(&self, nice: Nice) {
        self.weight.set(nice.weight());
        self.nice.set(i32::from(nice.get()));
        self.lag.set(0);
        self.left_of_slice.set(0);
        self.is_new.set(1);
    }

    /// Changes the nice level of a task that is on no queue. What it is owed, as time of the CPU, stays the same.
    pub(crate) fn set_nice(&self, nice: Nice) {
        let (old, new) = (i64::from(self.weight.get()), i64::from(nice.weight()));
        if old == new {
            return;
        }
        self.weight.set(nice.weight());
        self.nice.set(i32::from(nice.get()));
        self.lag.set(self.lag.get() * old / new);
        self.left_of_slice.set(self.left_of_slice.get() * old / new);
    }

    /// `span`, of the CPU's time, as virtual time of this task.
    pub(crate) fn to_virtual(&self, span: i64) -> i64 {
        span * i64::from(NICE_0_WEIGHT) / i64::from(self.weight.get())
    }
}

impl<M: Memory> FairQueue<M> {
    pub(crate) fn new() -> Self {
        Self {
            root: M::Plain::new(0),
            curr: M::Plain::new(0),
            load: M::Plain::new(0),
            base: M::Plain::new(0),
            sum: M::Plain::new(0),
            charged: M::Plain::new(0),
            chosen_deadline: M::Plain::new(0),
            nr_queued: M::Plain::new(0),
            served: M::Plain::new(0),
            server_line: LineStart,
            period_start: M::Plain::new(0),
            period_used: M::Plain::new(0),
            next_balance: std::array::from_fn(|_| M::Plain::new(0)),
        }
    }
}

impl<M: Memory> fmt::Debug for FairTask<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairTask").field("vruntime", &self.vruntime).finish_non_exhaustive()
    }
}

impl<M: Memory> fmt::Debug for FairQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue").field("nr_queued", &self.nr_queued).finish_non_exhaustive()
    }
}
