//! Groups: tasks that share as one what they have with others.
//!
//! **Claim.** On a CPU, the tasks of a group together get what the group's weight says against the
//! other members of the queue that the group stands on, however many they are; among themselves
//! they share that by their own weights. Groups stand in groups.
//!
//! **Origin.** Linux's task groups (Srivatsa Vaddagiri and Peter Zijlstra, 2007), as v6.4 and v6.12
//! have them: a group has on each CPU a queue of its own, and an entity that stands on the queue of
//! the group above, or on the CPU's. What [`timeline`](super::timeline) says of a queue holds at
//! every level.
//!
//! **Protocol.** Under the CPU's lock. *Come* ([`walk`]): up from the task, a group's entity is
//! queued when its queue gets its first task. *Go*: up from the task, a group's entity leaves when
//! its queue has lost its last one. *Pick*: down from the CPU's queue, who is next at each level.
//! *Switch*: what ran stops to run at each level that is not also on the way to what runs next.
//!
//! A link in a queue's tree names a task or a group: a [`Member`](super::words::Member). A group's
//! entity on a CPU stands only on queues of that CPU, so its number is enough.
//!
//! **Load.** What a group's entities weigh follows from where its load is ([`share`]): each queue
//! has an [average] of what was queued there, and what the group's queues have is added up in a
//! word that all CPUs share ([`words`], [`variant`]). CPUs whose load only fades are seen to
//! ([`leaves`]).
//!
//! **Life** ([`change`]). A group has references: its maker's, one a task, one a group in it. With
//! the last it ends and its number is free. So a group that is given back while tasks of it sleep
//! stays until the last of them has gone, and they keep their share.
//!
//! **Limits** ([`bandwidth`]). A group may have a [quota] of the CPUs' time in each period. It
//! comes out of a [pool], and when that is empty the group's queues are throttled until it is
//! filled anew. Its real-time tasks may have a limit of their own, on each CPU ([`real_time`]).
//!
//! **Locks.** A group's words on a CPU are under that CPU's queue lock, and made under it when a
//! task of the group is first queued there. A task's group changes under its `pi_lock` and the lock
//! of its queue.
//!
//! **Memory ordering.** References are counted Acquire up, which sees what the group was made with,
//! and AcqRel down: who takes the last sees all that was done under the others.
//!
//! **Cost.** Nothing until the first group is made. Then, at each level, what an operation costs on
//! a queue, and what [`share`] says. A change of CPU of a task that is in a group reads, as the
//! original's, where the group's queues and entities of both classes are. Per group 16 bytes a CPU
//! outside the shared memory, and the original's pointers, 32, where they are read; per group and
//! CPU in use 448 bytes, made when first used.
//!
//! **What is left out.** Entities of real-time groups, but for the loads that they cost a change of
//! CPU: real-time tasks share nothing, and what limits hold back stands in lists; bursts beyond a
//! quota; idle groups; averages of the CPU's own queue, which nothing here reads. A task that comes
//! from no group counts as one that was always queued.
//!
//! **Limits.** Virtual time is 64 bits of nanoseconds. It passes fastest for a group's entity of
//! the least weight, 2, which is had with the least shares on a thousand CPUs: if that runs alone
//! on its CPU for five hours, its virtual time overflows.

mod average;
mod bandwidth;
mod change;
pub mod check;
mod leaves;
mod pool;
pub mod quota;
pub mod real_time;
mod share;
pub mod variant;
mod walk;
pub mod words;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Field, Memory, PerCpu, Placed, PlacedSlice, PlainWord, Platform};
use hitm_topology::{CpuId, Topology};

use self::bandwidth::Limits;
use self::leaves::IdleLoad;
use self::pool::GroupLimit;
use self::variant::{GroupConfig, Parts, Words};
use self::words::{GroupOnCpu, GroupsOnCpu};
use super::weight::{FINE_BITS, NICE_0_WEIGHT};
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

/// How much a group gets against the other members of the queue that it stands on: 1 to 10,000,
/// where 100 is as much as a task of nice 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupWeight(u32);

impl GroupWeight {
    /// What a group has that says nothing.
    pub const DEFAULT: Self = Self(100);

    /// The most.
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

/// Made when first used.
type OnCpu<M> = OnceLock<Placed<M, GroupOnCpu<M>>>;

/// By CPU, a pointer, as far as who reads it can tell: 0 for none.
type Pointers<M> = PlacedSlice<M, <M as Memory>::Atomic<u64>>;

/// A group.
#[derive(Debug)]
pub(crate) struct Group<M: Memory> {
    words: Words<M>,
    /// Its load, where that is split.
    parts: Option<Parts<M>>,
    /// Where the words' pointers lead to, if anybody follows them: entities, queues, and both of
    /// the real-time class.
    pointers: Option<[Pointers<M>; 4]>,
    /// By CPU, made when first used there.
    on: Box<[OnCpu<M>]>,
    /// Made when it first gets one.
    limit: OnceLock<GroupLimit<M>>,
}

impl<M: Memory> Group<M> {
    fn new(number: usize, topology: &Topology, config: GroupConfig) -> Self {
        let cpus = topology.cpus();
        let array = |(object, made): (&str, u64)| {
            let fields = || vec![Field { count: cpus, ..Field::word("pointer", 0, size_of::<u64>(), "that of a CPU") }];
            PlacedSlice::new(object, Some(number), None, cpus, &fields, |_| M::Atomic::new(made))
        };
        // Of the fair class what a CPU has is made when first used.
        let pointers =
            [("task_group_se", 0), ("task_group_cfs_rq", 0), ("task_group_rt_se", 1), ("task_group_rt_rq", 1)];
        let pointers = config.pointers.then(|| pointers.map(array));
        let lead_to =
            pointers.as_ref().map_or([0; 4], |arrays| arrays.each_ref().map(|own| own.as_ptr().addr() as u64));
        Self {
            words: Words::new(config.order, number, lead_to),
            parts: Parts::new(topology, config.scope),
            pointers,
            on: topology.cpu_ids().map(|_| OnceLock::new()).collect(),
            limit: OnceLock::new(),
        }
    }

    /// Reads where its queues and entities on `cpu` are, as a task that goes there does.
    #[track_caller]
    pub(super) fn follow(&self, cpu: CpuId) {
        let Some(arrays) = &self.pointers else { return };
        let words = [self.words.cfs_rq(), self.words.se(), self.words.rt_rq(), self.words.rt_se()];
        let [se, cfs_rq, rt_se, rt_rq] = arrays;
        for (word, array) in words.into_iter().zip([cfs_rq, se, rt_rq, rt_se]) {
            // Relaxed: written when it was made.
            word.load(Ordering::Relaxed);
            // Relaxed: a hint; what is there is found under the CPU's lock.
            array[cpu.index()].load(Ordering::Relaxed);
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
        self.words.shares().load(Ordering::Relaxed) as u32
    }

    /// The group above.
    #[track_caller]
    pub(super) fn parent(&self) -> Option<GroupId> {
        // Relaxed: written before the group was known to the caller.
        GroupId::of_link(self.words.parent().load(Ordering::Relaxed) as u32)
    }
}

/// The least that a group's entity weighs, as queues have it: Linux's.
const WEIGHT_LEAST: u64 = 2;

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
    /// By CPU, the list of those that have load there.
    leaves: PerCpu<M, GroupsOnCpu<M>>,
    idle_load: Placed<M, IdleLoad<M>>,
    /// Made with the first limit.
    limits: OnceLock<Limits<M>>,
    config: GroupConfig,
}

impl<M: Memory> Groups<M> {
    fn new(topology: &Topology, config: GroupConfig) -> Self {
        Self {
            chunks: (0..GROUPS_MAX / CHUNK).map(|_| OnceLock::new()).collect(),
            numbers: Numbers::new(topology),
            leaves: PerCpu::new(topology, |_| GroupsOnCpu { first: M::Plain::new(0) }),
            idle_load: Placed::new(IdleLoad { next: M::Atomic::new(0) }, None, None),
            limits: OnceLock::new(),
            config,
        }
    }

    /// The slot of a number, if a group ever had it.
    fn made(&self, id: GroupId) -> Option<&Group<M>> {
        let index = id.0 as usize;
        self.chunks[index / CHUNK].get()?[index % CHUNK].get()
    }

    pub(super) fn get(&self, id: GroupId) -> &Group<M> {
        self.made(id).expect("a group that was made")
    }

    /// Those that live or did, for checkers.
    pub(super) fn ever_made(&self) -> impl Iterator<Item = GroupId> {
        (0..self.numbers.fresh()).map(GroupId).filter(|&id| self.made(id).is_some())
    }

    /// Those that live, for checkers.
    pub(crate) fn living(&self) -> impl Iterator<Item = GroupId> {
        self.ever_made().filter(|&id| self.get(id).is_alive())
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
