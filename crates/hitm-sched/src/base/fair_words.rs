//! The fair class's words in shared memory: of a queue, and of a task. A
//! [group](crate::fair::group) has both on each CPU.
//!
//! **Layout.** A task's words are apart from [`Task`](super::task::Task), on two lines that are
//! made when it first is a fair task, so a task that was always real-time has no such lines. A
//! queue's words are one line beside the run queue.

use std::fmt;
use std::mem::offset_of;

use hitm_memory::{LINE, LineStart, Memory, Native, PlainWord, described};

use crate::base::numbers::{GroupId, TASKS_MAX, TaskId};
use crate::base::weight::{FINE_NICE_0_WEIGHT, Nice};

described! {
    /// The fair part of a task, or of a group on a CPU.
    pub struct FairTask<M: Memory> as "fair_task" {
        /// The subtree of earlier deadlines, or the one before in the [list](super::members): a
        /// [`Member`], counted from 1; 0 for none. Under the queue's lock, as all words here.
        pub(crate) left: M::Plain<u64>,
        /// The subtree of later deadlines, or the next one in the list.
        pub(crate) right: M::Plain<u64>,
        /// The longest way down from here, in members; 0 for a member that does not wait.
        pub(crate) height: M::Plain<u32>,
        /// Its weight, with [ten more bits](super::weight::FINE_BITS).
        pub(crate) weight: M::Plain<u32>,
        /// The least virtual runtime of its subtree.
        pub(crate) least_vruntime: M::Plain<i64>,
        /// Its virtual deadline, in nanoseconds of virtual time, as all times here; in the order of
        /// deadlines, the time that it was given.
        pub(crate) deadline: M::Plain<i64>,
        /// Its virtual runtime; in the order of deadlines, the time of its place among equals.
        pub(crate) vruntime: M::Plain<i64>,
        other_line: LineStart,
        /// Its distance behind the average when it left its queue.
        pub(crate) lag: M::Plain<i64>,
        /// The distance of its deadline then, if it left in the middle of its slice; 0 for a new
        /// slice. In the order of deadlines, what is left of its turn while it is queued.
        pub(crate) left_of_slice: M::Plain<i64>,
        /// Its nice level.
        pub(crate) nice: M::Plain<i32>,
        /// 1 until it is queued for the first time.
        pub(crate) is_new: M::Plain<u32>,
        /// The CPU where its partners were last woken, counted from 1; 0 for none. Without a lock.
        pub(crate) recent_cpu: M::Plain<u32>,
        /// Its group, counted from 1; 0 for none. Not written before groups exist.
        pub(crate) group: M::Plain<u32>,
        /// The time of its load, in nanoseconds; 0 while its group does not count it. Not written
        /// before groups exist, as the words after it.
        pub(crate) load_updated: M::Plain<u64>,
        /// How long it was queued recently.
        pub(crate) load_value: M::Plain<u64>,
        /// Its weight over that time, when it was last counted nowhere: Linux's `load_avg`.
        pub(crate) load_average: M::Plain<u64>,
        /// The part of the present period that has passed, in units.
        pub(crate) load_passed: M::Plain<u32>,
        /// The slice of a group, in nanoseconds of CPU time; 0 for that of its queue. Neither read
        /// nor written before a group has a slice of its own.
        pub(crate) slice: M::Plain<u32>,
    }
}

described! {
    /// A CPU's fair tasks.
    pub struct FairQueue<M: Memory> as "fair_rq" {
        /// The root of the tree of waiting members, all or some: a [`Member`], counted from 1; 0
        /// for none.
        pub(crate) root: M::Plain<u64>,
        /// The running member, which does not wait, counted from 1; 0 for none.
        pub(crate) curr: M::Plain<u64>,
        /// The weight of the waiting members, and of tasks in the ring that [count], as in `sum`
        /// and `nr_weighted`.
        ///
        /// [count]: crate::fair::offered
        pub(crate) load: M::Plain<u64>,
        /// The virtual runtime from which `sum` counts: close to the average.
        pub(crate) base: M::Plain<i64>,
        /// The sum over the waiting members: virtual runtime minus `base`, times weight.
        pub(crate) sum: M::Plain<i64>,
        /// The time up to which the running member is charged, in picoseconds.
        pub(crate) charged: M::Plain<u64>,
        /// The deadline with which the running member was picked. While it has that deadline and is
        /// eligible, a waking member does not preempt it; in the order of deadlines, no equal does.
        /// It has another value once the turn has ended.
        pub(crate) chosen_deadline: M::Plain<i64>,
        /// The number of tasks, in groups too, with the running one. Peeked at by balance.
        pub(crate) nr_queued: M::Plain<u32>,
        /// 1 while fair tasks go before real-time tasks. Peeked at by searches for a CPU.
        pub(crate) served: M::Plain<u32>,
        server_line: LineStart,
        /// The start of the server's present period, in picoseconds.
        pub(crate) period_start: M::Plain<u64>,
        /// The time that fair tasks have had in it, in nanoseconds.
        pub(crate) period_used: M::Plain<u64>,
        /// The next balance of each domain, smallest domain first, in picoseconds.
        pub(crate) next_balance: [M::Plain<u64>; 4] = words,
        /// The first member of the list of waiting members, counted from 1; 0 for none. Neither
        /// read nor written in a replica, as the words after it.
        pub(crate) first: M::Plain<u32>,
        /// The last one.
        pub(crate) last: M::Plain<u32>,
        /// The number of members in the list.
        pub(crate) nr_listed: M::Plain<u32>,
        /// The number of waiting members whose weight is not that of nice 0.
        pub(crate) nr_weighted: M::Plain<u32>,
    }
}

const _: () = assert!(offset_of!(FairTask<Native>, other_line) == LINE, "a pick reads one line of a task");
const _: () =
    assert!(size_of::<FairTask<Native>>() == 2 * LINE, "the load of a task that is in no group takes no room");
const _: () = assert!(offset_of!(FairQueue<Native>, server_line) == LINE, "a pick reads one line of a queue");

/// A queued member: a task, or a group on the CPU of the queue. Tasks come before groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub(crate) u32);

/// The kinds of [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A task.
    Task(TaskId),
    /// A group.
    Group(GroupId),
}

/// The bit of members that are groups.
const GROUP: u32 = 1 << 31;

const _: () = assert!(TASKS_MAX <= GROUP as usize, "a bit tells groups from tasks");

impl Member {
    /// A task.
    #[must_use]
    pub const fn task(id: TaskId) -> Self {
        Self(id.0)
    }

    /// A group.
    #[must_use]
    pub const fn group(id: GroupId) -> Self {
        Self(id.0 | GROUP)
    }

    /// Returns the kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        if self.0 & GROUP == 0 { Kind::Task(TaskId(self.0)) } else { Kind::Group(GroupId(self.0 & !GROUP)) }
    }

    /// Returns the group, if it is one.
    pub(crate) const fn as_group(self) -> Option<GroupId> {
        match self.kind() {
            Kind::Task(_) => None,
            Kind::Group(id) => Some(id),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Kind::Task(id) => write!(f, "task {id}"),
            Kind::Group(id) => write!(f, "group {id}"),
        }
    }
}

/// Returns the link of a member.
pub(crate) fn link(member: Option<Member>) -> u64 {
    member.map_or(0, |member| u64::from(member.0) + 1)
}

/// Returns the member of a link.
pub(crate) fn member(link: u64) -> Option<Member> {
    link.checked_sub(1).map(|member| Member(member as u32))
}

/// The longest time that is charged at once, in nanoseconds: more than two hours.
const SPAN_MAX: i64 = i64::MAX / FINE_NICE_0_WEIGHT as i64;

impl<M: Memory> FairTask<M> {
    pub(crate) fn new(nice: Nice) -> Self {
        Self {
            nice: M::Plain::new(i32::from(nice.get())),
            is_new: M::Plain::new(1),
            ..Self::of_group(nice.fine_weight(), 0, None)
        }
    }

    /// The words of a group on a CPU, in the group `above`; a `slice` of 0 is none of its own.
    pub(crate) fn of_group(weight: u32, slice: u32, above: Option<GroupId>) -> Self {
        Self {
            left: M::Plain::new(0),
            right: M::Plain::new(0),
            height: M::Plain::new(0),
            weight: M::Plain::new(weight),
            least_vruntime: M::Plain::new(0),
            deadline: M::Plain::new(0),
            vruntime: M::Plain::new(0),
            other_line: LineStart,
            lag: M::Plain::new(0),
            left_of_slice: M::Plain::new(0),
            nice: M::Plain::new(0),
            is_new: M::Plain::new(0),
            recent_cpu: M::Plain::new(0),
            group: M::Plain::new(GroupId::link(above)),
            load_updated: M::Plain::new(0),
            load_value: M::Plain::new(0),
            load_average: M::Plain::new(0),
            load_passed: M::Plain::new(0),
            slice: M::Plain::new(slice),
        }
    }

    /// Starts again: another task has the number.
    pub(crate) fn begin(&self, nice: Nice) {
        self.weight.set(nice.fine_weight());
        self.nice.set(i32::from(nice.get()));
        self.lag.set(0);
        self.left_of_slice.set(0);
        self.is_new.set(1);
    }

    /// Counts the task in a group from now on, with the average of a task that was always queued.
    pub(crate) fn begin_load(&self, average: u64) {
        self.load_updated.set(0);
        self.load_average.set(average);
    }

    /// Changes the nice level of a task that is on no queue. Its lag stays the same in CPU time.
    pub(crate) fn set_nice(&self, nice: Nice) {
        let (old, new) = (self.weight.get(), nice.fine_weight());
        if old == new {
            return;
        }
        self.weight.set(new);
        self.nice.set(i32::from(nice.get()));
        self.rescale(old, new);
    }

    /// As `set_nice`, for a group.
    pub(crate) fn set_weight(&self, new: u32) {
        let old = self.weight.get();
        self.weight.set(new);
        self.rescale(old, new);
    }

    fn rescale(&self, old: u32, new: u32) {
        for word in [&self.lag, &self.left_of_slice] {
            word.set((i128::from(word.get()) * i128::from(old) / i128::from(new)) as i64);
        }
    }

    /// Returns `span`, in CPU time, as virtual time of this task.
    pub(crate) fn to_virtual(&self, span: i64) -> i64 {
        let (span, weight) = (span.min(SPAN_MAX), self.weight.get());
        // Most tasks have the weight by which virtual time is defined.
        if weight == FINE_NICE_0_WEIGHT { span } else { span * i64::from(FINE_NICE_0_WEIGHT) / i64::from(weight) }
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
            first: M::Plain::new(0),
            last: M::Plain::new(0),
            nr_listed: M::Plain::new(0),
            nr_weighted: M::Plain::new(0),
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
