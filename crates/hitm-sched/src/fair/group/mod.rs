//! Groups: tasks that share as one what they have with others.
//!
//! **Claim.** On a CPU, the tasks of a group together get what the group's weight says against the other members of the queue that the
//! group stands on, however many they are; among themselves they share that by their own weights. Groups stand in groups.
//!
//! **Origin.** Linux's task groups (Srivatsa Vaddagiri and Peter Zijlstra, 2007), as v6.4 and v6.12 have them: a group has on each CPU a
//! queue of its own, and an entity that stands on the queue of the group above, or on the CPU's. What [`timeline`](super::timeline) says of a
//! queue holds at every level.
//!
//! **Protocol.** Under the CPU's lock. *Come* ([`walk`]): up from the task, a group's entity is queued when its queue gets its first task.
//! *Go*: up from the task, a group's entity leaves when its queue has lost its last one. *Pick*: down from the CPU's queue, who is next at
//! each level. *Switch*: what ran stops to run at each level that is not also on the way to what runs next.
//!
//! A link in a queue's tree names a task or a group: a [`Member`](super::words::Member). A group's entity on a CPU stands only on queues of that CPU, so
//! its number is enough.
//!
//! **Life** ([`change`]). A group has references: its maker's, one a task, one a group in it. With the last it ends and its number is free. So
//! a group that is given back while tasks of it sleep stays until the last of them has gone, and they keep their share.
//!
//! **Locks.** A group's words on a CPU are under that CPU's queue lock, and made under it when a task of the group is first queued there. A
//! task's group changes under its `pi_lock` and the lock of its queue.
//!
//! **Memory ordering.** References are counted Relaxed up, since who counts one has another, and AcqRel down: who takes the last sees all that
//! was done under the others.
//!
//! **Cost.** Nothing until the first group is made. Then, at each level, what an operation costs on a queue. Per group 8 or 16 bytes a CPU outside
//! the shared memory; per group and CPU in use the words of a queue and of a task.

pub(super) mod change;
pub(super) mod walk;

use std::fmt;
use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LINE, Memory, Native, Placed, PlainWord, Platform, described};
use hitm_topology::{CpuId, Topology};

use super::weight::{FINE_BITS, NICE_0_WEIGHT};
use super::words::{FairQueue, FairTask};
use crate::numbers::{Numbered, Numbers};
use crate::root_domain::RootDomainWords;
use crate::scheduler::Scheduler;

/// A group's number. Numbers are used again after a group has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl GroupId {
    /// As a word: counted from 1, 0 for none.
    pub(crate) fn link(group: Option<Self>) -> u32 {
        group.map_or(0, |group| group.0 + 1)
    }

    /// The group of a word.
    pub(crate) fn of_link(link: u32) -> Option<Self> {
        link.checked_sub(1).map(Self)
    }
}

/// How much a group gets against the other members of the queue that it stands on: 1 to 10,000, where 100 is as much as a task of nice 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupWeight(u32);

impl GroupWeight {
    /// What a group has that says nothing.
    pub const DEFAULT: Self = Self(100);

    /// The most.
    pub const MAX: u32 = 10_000;

    /// A weight.
    ///
    /// # Panics
    /// When it is not 1 to [`GroupWeight::MAX`].
    #[must_use]
    pub const fn new(weight: u32) -> Self {
        assert!(weight >= 1 && weight <= Self::MAX, "a group's weight is 1 to 10000");
        Self(weight)
    }

    /// The number that it was made of.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// As queues have it, rounded to Linux's: what it converts its own `cpu.weight` to.
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

described! {
    /// What a group has for all CPUs.
    pub struct TaskGroup<M: Memory> as "task_group" {
        /// What keeps it. Written when a task or a group comes to it or leaves it for good.
        references: M::Atomic<u64>,
        /// Its weight, as queues have it. Written by who changes it, read by who weighs its entities.
        shares: M::Atomic<u64>,
        /// The group above, counted from 1; 0 for none. Written when it is made.
        parent: M::Atomic<u64>,
    }
}

described! {
    /// A group on one CPU.
    pub struct GroupOnCpu<M: Memory> as "group_rq" {
        /// Its queue. The words that belong to a CPU's queue alone are not used.
        pub(crate) queue: FairQueue<M> = described,
        /// What stands for it on the queue above. The words that belong to tasks alone are not used, but `group`: the group above.
        pub(crate) entity: FairTask<M> = described,
    }
}

const _: () = assert!(offset_of!(GroupOnCpu<Native>, entity) == 2 * LINE, "a queue's lines are its own");

/// Made when first used.
type OnCpu<M> = OnceLock<Placed<M, GroupOnCpu<M>>>;

/// A group.
#[derive(Debug)]
pub(crate) struct Group<M: Memory> {
    words: Placed<M, TaskGroup<M>>,
    /// By CPU, made when first used there.
    on: Box<[OnCpu<M>]>,
}

impl<M: Memory> GroupOnCpu<M> {
    fn new(parent: Option<GroupId>, shares: u32) -> Self {
        Self { queue: FairQueue::new(), entity: FairTask::of_group(shares, parent) }
    }

    /// As new: another group has the number.
    fn begin(&self, parent: Option<GroupId>, shares: u32) {
        self.entity.weight.set(shares);
        self.entity.lag.set(0);
        self.entity.left_of_slice.set(0);
        self.entity.group.set(GroupId::link(parent));
    }
}

impl<M: Memory> fmt::Debug for GroupOnCpu<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupOnCpu").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<M: Memory> fmt::Debug for TaskGroup<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup").field("shares", &self.shares).finish_non_exhaustive()
    }
}

impl<M: Memory> Group<M> {
    fn new(number: usize, topology: &Topology) -> Self {
        let words = TaskGroup { references: M::Atomic::new(0), shares: M::Atomic::new(0), parent: M::Atomic::new(0) };
        Self {
            words: Placed::new(words, Some(number), None),
            on: topology.cpu_ids().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Its words on `cpu`, if it was ever used there.
    pub(super) fn on(&self, cpu: CpuId) -> Option<&GroupOnCpu<M>> {
        self.on[cpu.index()].get().map(|on| &**on)
    }

    /// Its weight, as queues have it.
    #[track_caller]
    pub(super) fn shares(&self) -> u32 {
        // Relaxed: a number by itself; who changes it visits each CPU's queue afterwards.
        self.words.shares.load(Ordering::Relaxed) as u32
    }

    /// The group above.
    #[track_caller]
    pub(super) fn parent(&self) -> Option<GroupId> {
        // Relaxed: written before the group was known to the caller.
        GroupId::of_link(self.words.parent.load(Ordering::Relaxed) as u32)
    }
}

/// Groups in a chunk of the table.
const CHUNK: usize = 256;

type Chunk<M> = Box<[OnceLock<Group<M>>]>;

/// The most groups that can live at once.
pub const GROUPS_MAX: usize = 1 << 16;

#[derive(Debug)]
enum GroupNumbers {}

impl Numbered for GroupNumbers {
    const OBJECT: &'static str = "group_table";
    const LOCK: &'static str = "taken when a group is made and when it ends";
    const PLURAL: &'static str = "groups";
    const MAX: usize = GROUPS_MAX;
    const STASHED: usize = 0;
}

/// All groups. Slots are made when first needed, never freed, and used again.
#[derive(Debug)]
pub(crate) struct Groups<M: Memory> {
    chunks: Box<[OnceLock<Chunk<M>>]>,
    numbers: Numbers<M, GroupNumbers>,
}

impl<M: Memory> Groups<M> {
    fn new(topology: &Topology) -> Self {
        Self { chunks: (0..GROUPS_MAX / CHUNK).map(|_| OnceLock::new()).collect(), numbers: Numbers::new(topology) }
    }

    /// The slot of a number, if a group ever had it.
    fn made(&self, id: GroupId) -> Option<&Group<M>> {
        let index = id.0 as usize;
        self.chunks[index / CHUNK].get()?[index % CHUNK].get()
    }

    pub(super) fn get(&self, id: GroupId) -> &Group<M> {
        self.made(id).expect("a group that was made")
    }

    /// Those that live, for checkers.
    pub(crate) fn living(&self) -> impl Iterator<Item = GroupId> {
        let lives = |&id: &GroupId| self.made(id).is_some_and(Group::is_alive);
        (0..self.numbers.fresh()).map(GroupId).filter(lives)
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// All groups, if there ever was one.
    pub(crate) fn groups(&self) -> Option<&Groups<P>> {
        self.fair.get()?.groups.get()
    }

    pub(super) fn group(&self, id: GroupId) -> &Group<P> {
        self.groups().expect("made with the first group").get(id)
    }

    /// A group's words on `cpu`, where it was used.
    pub(super) fn group_on(&self, id: GroupId, cpu: CpuId) -> &GroupOnCpu<P> {
        self.group(id).on(cpu).expect("made before a task of it was queued there")
    }
}
