//! A group in shared memory: the words for all CPUs, in several orders, and the words on each CPU.
//!
//! **Origin.** Linux's `struct task_group` of v6.4, with fair and real-time group scheduling, and
//! Deng Pan, "[PATCH v3] sched/task_group: Re-layout structure to reduce false sharing", LKML,
//! 2023-08-14, not merged. Fields that our scheduler does not use are padding of their size, under
//! their names. The fields after `autogroup` are cut off at the end of its line.
//!
//! **Layout.** Lines count from 0. The contended one is 4:
//!
//! | line | written by | read by |
//! |---|---|---|
//! | 3 | the maker of a group, and a change of its weight | `se`, `cfs_rq`: every migration of a task; `shares`: every enqueue, dequeue and tick |
//! | 4 | `load_avg`: enqueues, dequeues, ticks, and both sides of a migration | `load_avg`: every enqueue, dequeue and tick; [`V6_4`]: `rt_se` and `rt_rq`: every migration |
//! | 5 | no word here is written | [`REORDERED`]: `rt_se`, `rt_rq`, and `parent`: a queue that gets load again |
//!
//! A group's words on a CPU belong to that CPU alone. One line of them, for removed load, is
//! written by other CPUs. Linux has queue and entity in separate objects; here each begins a line,
//! which has the same effect.

use std::fmt;
use std::mem::offset_of;

use hitm_memory::{
    AtomicWord, Entry, LINE, LineStart, Memory, Native, PlainWord, RawSpinLock, Record, RecordLayout, described, record,
};

use crate::base::fair_words::{FairQueue, FairTask};
use crate::base::numbers::GroupId;
use crate::fair::group::load::Sum;

record! {
    /// The words of a group.
    pub struct TaskGroupWords<M: Memory> from TaskGroupInitial {
        /// The count of references. Written when a task or a group joins or leaves for good.
        references: M::Atomic<u64>,
        /// Pointer to its entities by CPU. Read by every migration.
        se: M::Atomic<u64>,
        /// Pointer to its queues by CPU. Read by every migration.
        cfs_rq: M::Atomic<u64>,
        /// Its weight, as queues have it. Written by a change of the weight, read by every reweigh.
        shares: M::Atomic<u64>,
        /// The load of all its queues. CPUs add to it when their queue's load has changed, and read
        /// it when they reweigh.
        load_avg: M::Atomic<i64>,
        /// Pointer to its real-time entities by CPU. Read by every migration, also of fair tasks.
        rt_se: M::Atomic<u64>,
        /// Pointer to its real-time queues by CPU. As `rt_se`.
        rt_rq: M::Atomic<u64>,
        /// The group above, counted from 1; 0 for none. Read when a queue gets load that had none.
        parent: M::Atomic<u64>,
    }
}

/// The order of v6.4.
pub(super) static V6_4: &[Entry] = &[
    Entry::Word("references"),
    Entry::Pad("css", 8, 24),
    Entry::Word("se"),
    Entry::Word("cfs_rq"),
    Entry::Word("shares"),
    Entry::Pad("idle", 4, 1),
    Entry::Line,
    Entry::Word("load_avg"),
    Entry::Word("rt_se"),
    Entry::Word("rt_rq"),
    Entry::Pad("rt_bandwidth", 8, 12),
    Entry::Pad("rcu", 8, 2),
    Entry::Pad("list", 8, 2),
    Entry::Word("parent"),
    Entry::Pad("siblings", 8, 2),
    Entry::Pad("children", 8, 2),
    Entry::Pad("autogroup", 8, 1),
    Entry::Pad("cfs_bandwidth", 8, 7),
];

/// The posted order: words that are read often are on the line after that of `load_avg`.
pub(super) static REORDERED: &[Entry] = &[
    Entry::Word("references"),
    Entry::Pad("css", 8, 24),
    Entry::Word("se"),
    Entry::Word("cfs_rq"),
    Entry::Word("shares"),
    Entry::Pad("idle", 4, 1),
    Entry::Line,
    Entry::Word("load_avg"),
    Entry::Pad("rcu", 8, 2),
    Entry::Pad("list", 8, 2),
    Entry::Pad("siblings", 8, 2),
    Entry::Pad("children", 8, 2),
    Entry::Word("parent"),
    Entry::Word("rt_se"),
    Entry::Word("rt_rq"),
    Entry::Pad("rt_bandwidth", 8, 12),
    Entry::Pad("autogroup", 8, 1),
    Entry::Pad("cfs_bandwidth", 8, 7),
];

/// `load_avg` alone on its line, whatever else is edited.
pub(super) static ISOLATED: &[Entry] = &[
    Entry::Word("references"),
    Entry::Pad("css", 8, 24),
    Entry::Word("se"),
    Entry::Word("cfs_rq"),
    Entry::Word("shares"),
    Entry::Pad("idle", 4, 1),
    Entry::Line,
    Entry::Word("load_avg"),
    Entry::Line,
    Entry::Word("parent"),
    Entry::Word("rt_se"),
    Entry::Word("rt_rq"),
    Entry::Pad("rt_bandwidth", 8, 12),
    Entry::Pad("rcu", 8, 2),
    Entry::Pad("list", 8, 2),
    Entry::Pad("siblings", 8, 2),
    Entry::Pad("children", 8, 2),
    Entry::Pad("autogroup", 8, 1),
    Entry::Pad("cfs_bandwidth", 8, 7),
];

impl<M: Memory> TaskGroupWords<M> {
    /// Places the words of group `number`. `pointers` are those to its entities and queues: `se`,
    /// `cfs_rq`, `rt_se`, `rt_rq`.
    pub(super) fn new(order: &[Entry], number: usize, pointers: [u64; 4]) -> Self {
        let layout = RecordLayout::new(order, &Self::members());
        let [se, cfs_rq, rt_se, rt_rq] = pointers.map(M::Atomic::new);
        let initial = TaskGroupInitial {
            references: M::Atomic::new(0),
            se,
            cfs_rq,
            shares: M::Atomic::new(0),
            load_avg: M::Atomic::new(0),
            rt_se,
            rt_rq,
            parent: M::Atomic::new(0),
        };
        Self::put(&mut Record::new("task_group", Some(number), None, layout), initial)
    }
}

/// A sum's words: its time, its value, and the part of the period that has passed.
type SumWords<'a, M> = (&'a <M as Memory>::Plain<u64>, &'a <M as Memory>::Plain<u64>, &'a <M as Memory>::Plain<u32>);

/// The load of a member or of a queue: see [`load`](crate::fair::group::load).
pub(crate) trait Loaded<M: Memory> {
    /// The words.
    fn words(&self) -> SumWords<'_, M>;

    fn sum(&self) -> Sum {
        let (updated, value, passed) = self.words();
        Sum { updated: updated.get(), value: value.get(), passed: passed.get() }
    }

    fn set_sum(&self, sum: Sum) {
        let (updated, value, passed) = self.words();
        updated.set(sum.updated);
        value.set(sum.value);
        passed.set(sum.passed);
    }

    /// As `sum`, without the lock.
    fn peek_sum(&self) -> Sum {
        let (updated, value, passed) = self.words();
        Sum { updated: updated.peek(), value: value.peek(), passed: passed.peek() }
    }
}

described! {
    /// The load of a group's queue.
    pub struct GroupLoad<M: Memory> as "group_load" {
        /// The time of the sum, in nanoseconds. Peeked at by a CPU that removes a sleeping task.
        pub(crate) updated: M::Plain<u64>,
        /// The queued weight, over time.
        pub(crate) value: M::Plain<u64>,
        /// Their average: Linux's `load_avg` of the queue. It is of the last end of a period, or of
        /// the last change of members.
        pub(crate) average: M::Plain<u64>,
        /// The part of it that is counted in the group's `load_avg`: Linux's `tg_load_avg_contrib`.
        pub(crate) contribution: M::Plain<i64>,
        /// The time of the last change of that, in nanoseconds: Linux's `last_update_tg_load_avg`.
        pub(crate) posted: M::Plain<u64>,
        /// What it gained or lost and has not propagated to the queue above.
        pub(crate) to_tell: M::Plain<i64>,
        /// The part of the present period that has passed, in units.
        pub(crate) passed: M::Plain<u32>,
        /// 1 while `to_tell` must be propagated.
        pub(crate) tells: M::Plain<u32>,
        /// The next group with load on this CPU, counted from 1; 0 for none.
        pub(crate) next: M::Plain<u32>,
        /// 1 while it is on that list.
        pub(crate) is_listed: M::Plain<u32>,
        removed_line: LineStart,
        /// Protects the words after it.
        pub(crate) removed_lock: RawSpinLock<M>,
        /// The number of sleeping tasks that have left. Peeked at by the CPU.
        pub(crate) removed_count: M::Plain<u32>,
        /// The part of a period that had passed at `removed_updated`, in units.
        pub(crate) removed_passed: M::Plain<u32>,
        /// The time of the removed sums, in nanoseconds: the queue may have been updated since.
        pub(crate) removed_updated: M::Plain<u64>,
        /// Their sums, each times its weight. Linux derives these from the averages.
        pub(crate) removed_weighed: M::Plain<u64>,
        /// Their sums.
        pub(crate) removed_value: M::Plain<u64>,
        rest_line: LineStart,
        /// The number of groups in this one that are listed.
        pub(crate) listed_below: M::Plain<u32>,
        /// The load of other CPUs in the group's `load_avg` at this CPU's last look, where looks
        /// are limited.
        pub(crate) others: M::Plain<i64>,
        /// The time of that look, in nanoseconds.
        pub(crate) looked: M::Plain<u64>,
    }
}

const _: () = assert!(offset_of!(GroupLoad<Native>, removed_line) == LINE, "an update touches one line");

described! {
    /// A group on one CPU.
    pub struct GroupOnCpu<M: Memory> as "group_rq" {
        /// Its queue. The words that only a CPU's own queue needs are not used.
        pub(crate) queue: FairQueue<M> = described,
        /// Its entity on the queue above. The words that only tasks need are not used, except
        /// `group`: the group above.
        pub(crate) entity: FairTask<M> = described,
        /// Its load.
        pub(crate) load: GroupLoad<M> = described,
    }
}

const _: () = assert!(offset_of!(GroupOnCpu<Native>, entity) == 2 * LINE, "a queue's lines are its own");
const _: () = assert!(offset_of!(GroupOnCpu<Native>, load) == 4 * LINE, "an entity's lines are its own");
const _: () = assert!(size_of::<GroupOnCpu<Native>>() == 448, "the size of a group on a CPU");

described! {
    /// A CPU's groups.
    pub struct GroupsOnCpu<M: Memory> as "group_leaves" {
        /// The first group with load on this CPU, counted from 1; 0 for none. A group comes before
        /// the groups that contain it. Peeked at by the CPU that updates idle CPUs.
        pub(crate) first: M::Plain<u32>,
    }
}

impl<M: Memory> Loaded<M> for GroupLoad<M> {
    fn words(&self) -> SumWords<'_, M> {
        (&self.updated, &self.value, &self.passed)
    }
}

impl<M: Memory> Loaded<M> for FairTask<M> {
    fn words(&self) -> SumWords<'_, M> {
        (&self.load_updated, &self.load_value, &self.load_passed)
    }
}

impl<M: Memory> GroupLoad<M> {
    /// No load, from `now` on.
    fn new(now: u64) -> Self {
        Self {
            updated: M::Plain::new(now),
            value: M::Plain::new(0),
            average: M::Plain::new(0),
            contribution: M::Plain::new(0),
            posted: M::Plain::new(0),
            to_tell: M::Plain::new(0),
            passed: M::Plain::new(0),
            tells: M::Plain::new(0),
            next: M::Plain::new(0),
            is_listed: M::Plain::new(0),
            removed_line: LineStart,
            removed_lock: RawSpinLock::new(),
            removed_count: M::Plain::new(0),
            removed_passed: M::Plain::new(0),
            removed_updated: M::Plain::new(0),
            removed_weighed: M::Plain::new(0),
            removed_value: M::Plain::new(0),
            rest_line: LineStart,
            listed_below: M::Plain::new(0),
            others: M::Plain::new(0),
            looked: M::Plain::new(0),
        }
    }
}

impl<M: Memory> GroupOnCpu<M> {
    /// A group with these shares and this slice, in the group `above`.
    pub(super) fn new(above: Option<GroupId>, shares: u32, slice: u32, now: u64) -> Self {
        let entity = FairTask::of_group(shares, slice, above);
        Self { queue: FairQueue::new(), entity, load: GroupLoad::new(now) }
    }

    /// Starts again: another group has the number. The last one has left nothing.
    pub(super) fn begin(&self, above: Option<GroupId>, shares: u32) {
        self.entity.weight.set(shares);
        self.entity.lag.set(0);
        self.entity.left_of_slice.set(0);
        self.entity.group.set(GroupId::link(above));
        self.load.posted.set(0);
        self.load.looked.set(0);
    }

    /// The group has ended: clears the words.
    pub(super) fn end(&self) {
        for word in [&self.load.value, &self.load.average, &self.entity.load_value, &self.entity.load_average] {
            word.set(0);
        }
        self.load.to_tell.set(0);
        self.load.tells.set(0);
        self.entity.load_updated.set(0);
    }
}

impl<M: Memory> fmt::Debug for GroupOnCpu<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOnCpu").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 6.1 and 6.3 of the reference.
    #[test]
    fn orders_are_the_originals() {
        let offset = |order: &[Entry], word: &str| {
            let layout = RecordLayout::new(order, &TaskGroupWords::<Native>::members());
            layout.locate(word).map(|(offset, ..)| offset)
        };
        let check = |order, offsets: &[(&str, usize)]| {
            for &(word, expect) in offsets {
                assert_eq!(offset(order, word), Some(expect), "{word}");
            }
        };
        check(
            V6_4,
            &[
                ("se", 200),
                ("cfs_rq", 208),
                ("shares", 216),
                ("idle", 224),
                ("load_avg", 256),
                ("rt_se", 264),
                ("rt_rq", 272),
                ("rt_bandwidth", 280),
                ("rcu", 376),
                ("list", 392),
                ("parent", 408),
                ("siblings", 416),
                ("children", 432),
                ("autogroup", 448),
                ("cfs_bandwidth", 456),
            ],
        );
        check(
            REORDERED,
            &[
                ("se", 200),
                ("cfs_rq", 208),
                ("shares", 216),
                ("idle", 224),
                ("load_avg", 256),
                ("rcu", 264),
                ("list", 280),
                ("siblings", 296),
                ("children", 312),
                ("parent", 328),
                ("rt_se", 336),
                ("rt_rq", 344),
                ("rt_bandwidth", 352),
                ("autogroup", 448),
                ("cfs_bandwidth", 456),
            ],
        );
        check(
            ISOLATED,
            &[
                ("se", 200),
                ("cfs_rq", 208),
                ("shares", 216),
                ("load_avg", 256),
                ("parent", 320),
                ("rt_se", 328),
                ("rt_rq", 336),
            ],
        );
        let line = |word| offset(ISOLATED, word).map(|offset| offset / LINE);
        assert!(
            line("load_avg") != line("shares") && line("load_avg") != line("parent"),
            "no other word shares the line of `load_avg`",
        );
    }
}
