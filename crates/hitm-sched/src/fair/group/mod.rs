//! Task groups: tasks that share CPU time as one unit.
//!
//! **Claim.** On a CPU, the tasks of a group together get the share that the group's weight gives
//! it among the members of the queue that contains the group, however many tasks it has. Within the
//! group they share by their own weights, unless it has another order. Groups can contain groups.
//!
//! **Origin.** Linux's task groups (Srivatsa Vaddagiri and Peter Zijlstra, 2007), as of v6.4 and
//! v6.12. On each CPU a group has a queue of its own, and an entity that is queued on the queue of
//! the group above, or on the CPU's queue. The rules of [`timeline`](crate::base::timeline) hold at
//! every level.
//!
//! **Protocol.** Under the CPU's lock. *Enqueue* ([`levels`](super::levels)): from the task
//! upwards, a group's entity is queued when the group's queue gets its first task. *Dequeue*: from
//! the task upwards, the entity is dequeued when the queue has lost its last task. *Pick*: from the
//! CPU's queue downwards, the next member at each level. *Switch*: the previous task and its groups
//! stop at each level that the next task does not share.
//!
//! A link in a queue's tree names a task or a group: a [`Member`](crate::base::fair_words::Member).
//! A group's entity on a CPU is only ever on queues of that CPU, so the group's number is enough.
//!
//! **Load.** The weight of a group's entity depends on how the group's load is spread over the CPUs
//! ([`share`]). Each queue has an [average] of the weights that were queued there, and one word
//! that all CPUs share holds the sum over the group's queues ([`words`], [`variant`]).
//! [`leaf_list`] decays the load of CPUs on which nothing is queued.
//!
//! **Order.** A group may serve its tasks by their deadlines instead of sharing its time among
//! them: [`TaskOrder`](crate::TaskOrder). Its own share does not depend on that, so a deadline has
//! no effect outside the group.
//!
//! **Turns.** A group may have a [slice](mod@slice) of its own. Shorter turns come sooner, longer
//! ones later.
//!
//! **Life** ([`change`]). A group has references: one of its maker, one per task, one per group in
//! it. When the last is dropped, the group ends and its number is free. A group whose maker drops
//! it while its tasks sleep lives until the last task has left, and the tasks keep their share.
//!
//! **Limits** ([`bandwidth`]). A group may have a [quota] of CPU time per period. It is taken from
//! a [pool]; when the pool is empty, the group's queues are throttled until it is refilled. The
//! group's real-time tasks may have a limit per CPU ([`real_time`]).
//!
//! **Locks.** A group's words on a CPU are protected by that CPU's queue lock, and made under it
//! when a task of the group is first queued there. A task changes its group under its `pi_lock` and
//! the lock of its queue.
//!
//! **Memory ordering.** A reference is taken with Acquire, which sees how the group was made. It is
//! dropped with AcqRel: the CPU that drops the last one sees everything done under the others.
//!
//! **Cost.** Nothing until the first group is made. Then, per level, the cost of an operation on a
//! queue plus that of [`share`]. As in the original, a migration of a grouped task reads the
//! group's pointers to its queues and entities, of both classes. Memory: per group 16 bytes per CPU
//! outside the shared memory, and the original's pointers, 32 bytes per CPU, where they are read;
//! 448 bytes per group and CPU in use, made at the first use.
//!
//! **What is left out.** Entities of real-time groups, apart from the loads that they cost a
//! migration: real-time tasks share nothing, and tasks that a limit holds back are on lists. Bursts
//! beyond a quota. Idle groups. Averages of the CPU's own queue, which nothing here reads. A task
//! that comes from no group counts as a task that was always queued.
//!
//! **Limits.** Virtual time has 64 bits of nanoseconds. It passes fastest for an entity of the
//! least weight, 2, which the smallest share on a thousand CPUs gives. If such an entity runs alone
//! on its CPU for five hours, its virtual time overflows.

mod average;
mod bandwidth;
mod change;
pub(crate) mod check;
mod leaf_list;
mod load;
mod pool;
pub(crate) mod quota;
pub(crate) mod real_time;
mod share;
pub(crate) mod slice;
pub(crate) mod variant;
mod watch;
pub(crate) mod words;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hitm_memory::{AtomicWord, Field, Memory, PerCpu, Placed, PlacedSlice, PlainWord, Platform};
use hitm_topology::{CpuId, Topology};

use self::leaf_list::IdleLoad;
use self::pool::GroupLimit;
use self::variant::{GroupConfig, Parts};
use self::watch::Limits;
use self::words::{GroupOnCpu, GroupsOnCpu, TaskGroupWords};
use crate::base::fair_words::{FairTask, Kind, Member};
use crate::base::id_allocator::{IdAllocator, Numbered};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::state::State;
use crate::base::weight::{FINE_BITS, NICE_0_WEIGHT};

/// The weight of a group among the members of its queue: 1 to 10,000, where 100 is the weight of a
/// task of nice 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupWeight(u32);

impl GroupWeight {
    /// The default.
    pub const DEFAULT: Self = Self(100);

    /// The largest weight.
    pub const MAX: u32 = 10_000;

    /// Returns the weight of a number.
    ///
    /// # Errors
    /// When `weight` is not 1 to [`GroupWeight::MAX`].
    pub const fn new(weight: u32) -> Result<Self, WeightRefused> {
        match weight {
            1..=Self::MAX => Ok(Self(weight)),
            _ => Err(WeightRefused { wanted: weight }),
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the weight as queues have it, rounded as Linux rounds its `cpu.weight`.
    #[must_use]
    pub const fn shares(self) -> u32 {
        ((self.0 * NICE_0_WEIGHT + 50) / 100) << FINE_BITS
    }
}

impl Default for GroupWeight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The error for a number that is not 1 to [`GroupWeight::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightRefused {
    /// The requested weight.
    pub wanted: u32,
}

impl fmt::Display for WeightRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a group's weight is 1 to {}, not {}", GroupWeight::MAX, self.wanted)
    }
}

impl std::error::Error for WeightRefused {}

/// Made at the first use.
type OnCpu<M> = OnceLock<Placed<M, GroupOnCpu<M>>>;

/// One word per CPU in the place of a pointer, for the same reads: 0 for none.
type Pointers<M> = PlacedSlice<M, <M as Memory>::Atomic<u64>>;

/// A group.
#[derive(Debug)]
pub(crate) struct Group<M: Memory> {
    words: TaskGroupWords<M>,
    /// Its load, if it is split.
    parts: Option<Parts<M>>,
    /// The targets of the words' pointers, if they are read: entities and queues, and those of the
    /// real-time class.
    pointers: Option<[Pointers<M>; 4]>,
    /// By CPU, made at the first use there.
    on: Box<[OnCpu<M>]>,
    /// Made with the first limit.
    limit: OnceLock<GroupLimit<M>>,
    /// Whether it is in the order of deadlines. Written when a group is made with its number.
    by_deadline: AtomicBool,
    /// Its slice in nanoseconds, for CPUs where it is not used yet; 0 for none of its own.
    slice: AtomicU32,
}

impl<M: Memory> Group<M> {
    fn new(number: usize, topology: &Topology, config: GroupConfig) -> Self {
        let cpus = topology.cpus();
        let array = |(object, made): (&str, u64)| {
            let fields = || vec![Field { count: cpus, ..Field::word("pointer", 0, size_of::<u64>(), "that of a CPU") }];
            PlacedSlice::new(object, Some(number), None, cpus, &fields, |_| M::Atomic::new(made))
        };
        // The words of the fair class per CPU are made at the first use.
        let pointers =
            [("task_group_se", 0), ("task_group_cfs_rq", 0), ("task_group_rt_se", 1), ("task_group_rt_rq", 1)];
        let pointers = config.pointers.then(|| pointers.map(array));
        let lead_to =
            pointers.as_ref().map_or([0; 4], |arrays| arrays.each_ref().map(|own| own.as_ptr().addr() as u64));
        Self {
            words: TaskGroupWords::new(config.order.entries(), number, lead_to),
            parts: Parts::new(topology, config.scope),
            pointers,
            on: topology.cpu_ids().map(|_| OnceLock::new()).collect(),
            limit: OnceLock::new(),
            by_deadline: AtomicBool::new(false),
            slice: AtomicU32::new(0),
        }
    }

    /// Reads the pointers to its queues and entities on `cpu`, as a task that migrates there does.
    #[track_caller]
    pub(super) fn follow(&self, cpu: CpuId) {
        let Some(arrays) = &self.pointers else { return };
        let words = [&*self.words.cfs_rq, &*self.words.se, &*self.words.rt_rq, &*self.words.rt_se];
        let [se, cfs_rq, rt_se, rt_rq] = arrays;
        for (word, array) in words.into_iter().zip([cfs_rq, se, rt_rq, rt_se]) {
            // Relaxed: written when it was made.
            word.load(Ordering::Relaxed);
            // Relaxed: a hint; what it points to is found under the CPU's lock.
            array[cpu.index()].load(Ordering::Relaxed);
        }
    }

    /// Returns its words on `cpu`, if it was ever used there.
    pub(super) fn on(&self, cpu: CpuId) -> Option<&GroupOnCpu<M>> {
        self.on[cpu.index()].get().map(|on| &**on)
    }

    /// Returns its weight, as queues have it.
    #[track_caller]
    pub(super) fn shares(&self) -> u32 {
        // Relaxed: a number by itself; its writer visits each CPU's queue afterwards.
        self.words.shares.load(Ordering::Relaxed) as u32
    }

    /// The group above.
    #[track_caller]
    pub(crate) fn parent(&self) -> Option<GroupId> {
        // Relaxed: written before the group was known to the caller.
        GroupId::of_link(self.words.parent.load(Ordering::Relaxed) as u32)
    }
}

/// Groups per chunk of the table.
const CHUNK: usize = 256;

type Chunk<M> = Box<[OnceLock<Group<M>>]>;

/// The largest number of living groups.
pub const GROUPS_MAX: usize = 1 << 16;

#[derive(Debug)]
enum GroupNumbers {}

impl Numbered for GroupNumbers {
    const OBJECT: &'static str = "group_table";
    const LOCK: &'static str = "taken when a group is made and when it ends";
    const PLURAL: &'static str = "groups";
    const MAX: usize = GROUPS_MAX;
    const IN_MAGAZINE: usize = 0;
}

/// Everything that exists once there was a group. Slots are made at the first use, never freed, and
/// reused.
#[derive(Debug)]
struct Table<M: Memory> {
    chunks: Box<[OnceLock<Chunk<M>>]>,
    numbers: IdAllocator<M, GroupNumbers>,
    /// By CPU, the list of the groups with load there.
    leaf_lists: PerCpu<M, GroupsOnCpu<M>>,
    idle_load: Placed<M, IdleLoad<M>>,
    /// Made with the first limit.
    limits: OnceLock<Limits<M>>,
    /// Set with the first group in the order of deadlines.
    has_deadlines: OnceLock<()>,
    /// Set with the first slice of a group.
    has_slices: OnceLock<()>,
}

impl<M: Memory> Table<M> {
    fn new(topology: &Topology) -> Self {
        Self {
            chunks: (0..GROUPS_MAX / CHUNK).map(|_| OnceLock::new()).collect(),
            numbers: IdAllocator::new(topology),
            leaf_lists: PerCpu::new(topology, |_| GroupsOnCpu { first: M::Plain::new(0) }),
            idle_load: Placed::new(IdleLoad { next: M::Atomic::new(0) }, None, None),
            limits: OnceLock::new(),
            has_deadlines: OnceLock::new(),
            has_slices: OnceLock::new(),
        }
    }

    /// Returns the slot of a number, if a group ever had it.
    fn made(&self, id: GroupId) -> Option<&Group<M>> {
        let index = id.0 as usize;
        self.chunks[index / CHUNK].get()?[index % CHUNK].get()
    }

    fn get(&self, id: GroupId) -> &Group<M> {
        self.made(id).expect("a group that was made")
    }

    /// Returns the groups that live or have lived, for checkers.
    fn ever_made(&self) -> impl Iterator<Item = GroupId> {
        (0..self.numbers.fresh()).map(GroupId).filter(|&id| self.made(id).is_some())
    }
}

impl<M: Memory> fmt::Debug for GroupsOnCpu<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupsOnCpu").field("first", &self.first).finish()
    }
}

impl<M: Memory> fmt::Debug for IdleLoad<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleLoad").field("next", &self.next).finish()
    }
}

/// The groups of a scheduler, and what they are of each task. It knows the queues of groups, not a
/// CPU's own.
#[derive(Debug)]
pub(crate) struct Groups<P: Platform> {
    config: GroupConfig,
    /// Made with the first group.
    table: OnceLock<Table<P>>,
}

impl<P: Platform> Groups<P> {
    pub(super) fn new(config: GroupConfig) -> Self {
        Self { config, table: OnceLock::new() }
    }

    /// Returns whether there ever was a group.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.table.get().is_some()
    }

    /// Returns whether a group is in the order of deadlines.
    #[inline]
    pub(crate) fn is_by_deadline(&self, id: GroupId) -> bool {
        // Relaxed: written before the group was known to the caller.
        self.has_deadlines() && self.group(id).by_deadline.load(Ordering::Relaxed)
    }

    /// Returns whether there ever was a group in the order of deadlines: a hint, and exact for
    /// whoever knows such a group.
    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        self.table.get().is_some_and(|table| table.has_deadlines.get().is_some())
    }

    /// Returns how the load of groups is kept.
    pub(super) fn config(&self) -> GroupConfig {
        self.config
    }

    /// Returns the group of a number that was given.
    #[inline]
    pub(crate) fn group(&self, id: GroupId) -> &Group<P> {
        self.table.get().expect("made with the first group").get(id)
    }

    /// Returns the groups that live or have lived, for checkers.
    fn ever_made(&self) -> impl Iterator<Item = GroupId> {
        self.table.get().into_iter().flat_map(Table::ever_made)
    }

    /// Returns the living groups, for checkers.
    pub(super) fn living(&self) -> impl Iterator<Item = GroupId> {
        self.ever_made().filter(|&id| self.group(id).is_alive())
    }

    /// Returns a group's words on `cpu`, where it was used.
    #[inline]
    pub(super) fn group_on(&self, id: GroupId, cpu: CpuId) -> &GroupOnCpu<P> {
        self.group(id).on(cpu).expect("made before a task of it was queued there")
    }

    /// Returns the group of a task that is fair, or was.
    #[track_caller]
    pub(crate) fn group_of(&self, state: &State<P>, id: TaskId) -> Option<GroupId> {
        self.table.get()?;
        GroupId::of_link(state.tasks.fair(id).group.get())
    }

    /// As [`group_of`](Self::group_of), of any task, without a lock.
    pub(crate) fn group_hint(&self, state: &State<P>, id: TaskId) -> Option<GroupId> {
        self.table.get()?;
        GroupId::of_link(state.tasks.fair_if_made(id)?.group.peek())
    }

    /// Returns the group above, as `id` has it on `cpu`.
    #[track_caller]
    pub(super) fn above(&self, id: GroupId, cpu: CpuId) -> Option<GroupId> {
        GroupId::of_link(self.group_on(id, cpu).entity.group.get())
    }

    /// Returns the words of a member that is queued on `cpu`.
    #[inline]
    pub(super) fn words_of<'a>(&'a self, state: &'a State<P>, member: Member, cpu: CpuId) -> &'a FairTask<P> {
        match member.kind() {
            Kind::Task(id) => state.tasks.fair(id),
            Kind::Group(id) => &self.group_on(id, cpu).entity,
        }
    }
}
