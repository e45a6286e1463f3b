//! Tasks, as the scheduler sees them, and the table that they live in.
//!
//! **State.** A task's `state` word, all of whose transitions are read-modify-writes:
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | none | runnable or running | | |
//! | `SLEEPING` | waits to be woken | `TaskState::transition_to_sleeping`, under its run queue's lock | the waker |
//! | `WOKEN` | a wakeup came while it ran, or is being carried out | any waker | the task, before it looks at what it waits for |
//! | `DEAD` | has ended, or has not begun | itself | a new life of its slot |
//!
//! The waker that finds `SLEEPING` without `WOKEN` is the one that puts the task on a queue; all others leave it to that one.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | waker, fetch-or `WOKEN` AcqRel | task, `transition_to_running` Acquire | what the waker did before it woke the task |
//! | task, `transition_to_sleeping` Release | waker, fetch-or AcqRel | that a CPU has it: `on_cpu`, for which the waker waits |
//! | maker, `transition_to_born` Release | waker, fetch-or AcqRel | what the task was made with |
//! | CPU that leaves a task, `on_cpu` store Release | waker, `on_cpu` load Acquire | all that the task's poll did |
//!
//! Since all transitions are read-modify-writes, each hands on what the ones before it have published, Relaxed or not: a wakeup
//! that comes before `transition_to_runnable` is heard by the poll that follows. What a slot's last life did is ordered
//! before the next one by the locks of the slots' [`Numbers`].

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuMask, CpuSet, LineStart, Memory, Placed, PlainWord, RawSpinLock, described};
use hitm_topology::{CpuId, Topology};

use crate::cid::{MapId, TaskIds};
use crate::fair::group::GroupId;
use crate::fair::weight::Nice;
use crate::fair::words::FairTask;
use crate::list::Links;
use crate::numbers::{A_LINE, Numbered, Numbers};
use crate::prio::Prio;

/// A task's number. Numbers are used again after a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How tasks of one priority share a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A task runs until it waits or something more urgent comes.
    #[default]
    Fifo,
    /// As `Fifo`, and tasks of one priority take turns.
    RoundRobin,
    /// Shares what real-time tasks leave, by weight. Its priority is [`Prio::NONE`] unless it is lent one.
    Fair(Nice),
}

impl Policy {
    /// The nice level of a fair task.
    #[must_use]
    pub const fn nice(self) -> Option<Nice> {
        match self {
            Self::Fair(nice) => Some(nice),
            Self::Fifo | Self::RoundRobin => None,
        }
    }
}

/// What a task is created with.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// How urgent it is: a real-time priority, or [`Prio::NONE`] of a fair task that is lent none.
    pub prio: Prio,
    /// How it shares its CPU with equals.
    pub policy: Policy,
    /// Where it may run.
    pub allowed: CpuSet,
    /// Whose concurrency ids it has; none for none. Made by [`Scheduling::make_map`](crate::scheduler::Scheduling::make_map).
    pub map: Option<MapId>,
    /// With whom it shares as one; none for none. Made by [`Scheduling::make_group`](crate::scheduler::Scheduling::make_group).
    pub group: Option<GroupId>,
}

/// In `round_robin`: it takes turns with its equals.
const ROUND_ROBIN: u32 = 1;
/// In `round_robin`: its priority is lent.
const LENT: u32 = 1 << 1;

const SLEEPING: u32 = 1;
const WOKEN: u32 = 1 << 1;
const DEAD: u32 = 1 << 2;

described! {
    /// The words of a task that other CPUs touch.
    pub struct Task<M: Memory> as "task" {
        /// See the module's documentation. Written by the task and its wakers.
        state: M::Atomic<u32>,
        /// 1 while a CPU runs it or has not yet left it. Written by that CPU, read by wakers.
        on_cpu: M::Atomic<u32>,
        /// Serialises wakeups with changes of priority and affinity.
        pub(crate) pi_lock: RawSpinLock<M>,
        /// The CPU whose queue it is or was on. Written under that queue's lock, or by the waker while it sleeps.
        pub(crate) cpu: M::Plain<u32>,
        /// 1 while it is queued. Under the queue's lock.
        pub(crate) on_rq: M::Plain<u32>,
        /// How urgent it is. Under the queue's lock; peeked at by whoever compares with the running task.
        pub(crate) prio: M::Plain<i32>,
        /// In how many CPUs it may run. As `prio`.
        pub(crate) cpus_allowed_count: M::Plain<u32>,
        /// Bits: 1 for round-robin, 2 while its priority is lent. Under the queue's lock.
        round_robin: M::Plain<u32>,
        /// The queue's own line begins.
        rt_entity: LineStart,
        /// Its place in its priority's list.
        pub(crate) run_list: Links<M> = described,
        /// 1 while it is in a priority's list. A real-time task that is queued and in none is held: see
        /// [`real_time`](crate::fair::group::real_time).
        pub(crate) on_list: M::Plain<u32>,
        /// Its concurrency id.
        pub(crate) ids: TaskIds<M> = described,
        /// The pushable list's own line begins.
        pushable: LineStart,
        /// The priority at which it was put into the pushable list.
        pub(crate) pushable_prio: M::Plain<i32>,
        /// How it is announced as waiting: see [`Announced`](crate::announce::Announced).
        pub(crate) announced: M::Plain<u32>,
        /// Its place among the first nodes of each priority.
        pub(crate) prio_list: Links<M> = described,
        /// Its place in the pushable list.
        pub(crate) node_list: Links<M> = described,
    }
}

/// What [`TaskState::wake`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// It slept; the caller must queue it.
    Slept,
    /// It runs, or another waker is at work: nothing is left to do.
    Noted,
    /// It has ended.
    Dead,
}

impl<M: Memory> Task<M> {
    fn new() -> Self {
        Self {
            state: M::Atomic::new(DEAD),
            on_cpu: M::Atomic::new(0),
            pi_lock: RawSpinLock::new(),
            cpu: M::Plain::new(0),
            on_rq: M::Plain::new(0),
            prio: M::Plain::new(Prio::NONE.0),
            cpus_allowed_count: M::Plain::new(0),
            round_robin: M::Plain::new(0),
            rt_entity: LineStart,
            run_list: Links::unlinked(),
            on_list: M::Plain::new(0),
            ids: TaskIds::new(),
            pushable: LineStart,
            pushable_prio: M::Plain::new(0),
            announced: M::Plain::new(0),
            prio_list: Links::unlinked(),
            node_list: Links::unlinked(),
        }
    }

    /// Before a poll: wakeups up to now have been heard, later ones count.
    #[track_caller]
    pub(crate) fn transition_to_running(&self) {
        // Acquire: sees what wakers did before they set `WOKEN`. Pairs with `wake`.
        self.state.swap(0, Ordering::Acquire);
    }

    /// The task has nothing to do. False when it was woken meanwhile, and must look again.
    #[must_use]
    #[track_caller]
    pub(crate) fn transition_to_sleeping(&self) -> bool {
        // Release: publishes `on_cpu` to the next waker, which must not take the task from under this CPU. Pairs with `wake`.
        // Relaxed on failure: `transition_to_running` comes before the next look.
        self.state.compare_exchange(0, SLEEPING, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The task, which was made and not started, sleeps from now on.
    #[track_caller]
    pub(crate) fn transition_to_born(&self) {
        // Release: publishes what the task was made with to whoever wakes it, be it for the sake of the number's last owner.
        // Pairs with `wake`.
        self.state.swap(SLEEPING, Ordering::Release);
    }

    /// The task has ended.
    #[track_caller]
    pub(crate) fn transition_to_dead(&self) {
        // Relaxed: late wakers see that it is over, and nothing else of it.
        self.state.swap(DEAD, Ordering::Relaxed);
    }

    /// The task, which slept or begins, is about to be queued.
    #[track_caller]
    pub(crate) fn transition_to_runnable(&self) {
        // Relaxed: `WOKEN` stays, so that the task looks at what it was woken for. The waker's own publication is handed on
        // to `transition_to_running`.
        self.state.swap(WOKEN, Ordering::Relaxed);
    }

    /// Somebody wakes it.
    #[track_caller]
    pub(crate) fn wake(&self) -> Wake {
        // AcqRel: publishes what the waker did; of a task that sleeps, sees what it was made with and that a CPU may still
        // have it. Pairs with the transitions above.
        let before = self.state.fetch_or(WOKEN, Ordering::AcqRel);
        match before {
            _ if before & DEAD != 0 => Wake::Dead,
            SLEEPING => Wake::Slept,
            _ => Wake::Noted,
        }
    }

    /// Whether it sleeps and nobody has begun to wake it, for checkers.
    #[track_caller]
    pub(crate) fn is_sleeping(&self) -> bool {
        // Relaxed: checkers look when nothing is in flight.
        self.state.load(Ordering::Relaxed) == SLEEPING
    }

    /// Whether its slot is free, for checkers.
    #[track_caller]
    pub(crate) fn is_dead(&self) -> bool {
        // Relaxed: as above.
        self.state.load(Ordering::Relaxed) & DEAD != 0
    }

    /// A CPU begins to run it.
    #[track_caller]
    pub(crate) fn set_on_cpu(&self) {
        // Relaxed: under the run queue lock. Published by the task's next sleep.
        self.on_cpu.store(1, Ordering::Relaxed);
    }

    /// The CPU that ran it has left it for good.
    #[track_caller]
    pub(crate) fn clear_on_cpu(&self) {
        // Release: publishes all that its poll did. Pairs with the Acquire in `wait_off_cpu`.
        self.on_cpu.store(0, Ordering::Release);
    }

    /// Whether a CPU runs it: a look under the lock of the queue that it is on.
    #[track_caller]
    pub(crate) fn is_on_cpu(&self) -> bool {
        // Relaxed: set under that lock; a stale 1 makes the caller leave it where it is.
        self.on_cpu.load(Ordering::Relaxed) != 0
    }

    /// Waits until the CPU that ran it has left it.
    #[track_caller]
    pub(crate) fn wait_off_cpu(&self) {
        // Acquire inside: pairs with the Release in `clear_on_cpu`.
        M::spin_while(&self.on_cpu, |on_cpu| on_cpu != 0);
    }

    /// Its priority: exact under the queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn prio(&self) -> Prio {
        Prio(self.prio.peek())
    }

    /// Whether it takes turns with its equals: exact under the queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn is_round_robin(&self) -> bool {
        self.round_robin.peek() & ROUND_ROBIN != 0
    }

    /// 1 if it takes turns with its equals, else 0: under the queue's lock.
    #[track_caller]
    pub(crate) fn round_robin(&self) -> u32 {
        self.round_robin.get() & ROUND_ROBIN
    }

    /// Whether its priority, if that is a real-time one, is lent by who waits for it: exact under the queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn is_lent(&self) -> bool {
        self.round_robin.peek() & LENT != 0
    }

    /// How it shares its CPU with equals, and whether its priority is lent. That of a fair task is, if it has one.
    #[track_caller]
    pub(crate) fn set_policy(&self, policy: Policy, is_lent: bool) {
        let turns = if policy == Policy::RoundRobin { ROUND_ROBIN } else { 0 };
        let lent = if is_lent || policy.nice().is_some() { LENT } else { 0 };
        self.round_robin.set(turns | lent);
    }

    /// The CPU that it is on: exact under the queue's or its own lock, else a hint.
    #[track_caller]
    pub(crate) fn cpu(&self) -> CpuId {
        CpuId(self.cpu.peek())
    }

    /// Whether it may run on more than one CPU.
    #[track_caller]
    pub(crate) fn can_move(&self) -> bool {
        self.cpus_allowed_count.peek() > 1
    }
}

/// A task's words and its affinity.
#[derive(Debug)]
pub(crate) struct Slot<M: Memory> {
    task: Placed<M, Task<M>>,
    allowed: CpuMask<M>,
    /// Made when a task of this number first is a fair one.
    fair: OnceLock<Placed<M, FairTask<M>>>,
}

impl<M: Memory> fmt::Debug for Task<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("state", &self.state).field("prio", &self.prio).finish_non_exhaustive()
    }
}

/// Slots in a chunk of the table.
const CHUNK: usize = 256;

/// The most tasks that can live at once.
pub const TASKS_MAX: usize = 1 << 20;

type Chunk<M> = Box<[OnceLock<Slot<M>>]>;

/// All tasks. Slots are made when first needed, never freed, and used again.
#[derive(Debug)]
pub(crate) struct TaskTable<M: Memory> {
    chunks: Box<[OnceLock<Chunk<M>>]>,
    slots: Numbers<M, Slots>,
}

#[derive(Debug)]
enum Slots {}

impl Numbered for Slots {
    const OBJECT: &'static str = "task_table";
    const LOCK: &'static str = "taken when the free numbers of an LLC run out or become many";
    const PLURAL: &'static str = "tasks";
    const MAX: usize = TASKS_MAX;
    const STASHED: usize = A_LINE;
}

impl<M: Memory> TaskTable<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self { chunks: (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect(), slots: Numbers::new(topology) }
    }

    fn slot(&self, id: TaskId) -> &Slot<M> {
        self.made(id).expect("a task that was made")
    }

    /// The slot of `id`, if a task of that number was ever made.
    fn made(&self, id: TaskId) -> Option<&Slot<M>> {
        let index = id.0 as usize;
        self.chunks[index / CHUNK].get()?[index % CHUNK].get()
    }

    pub(crate) fn get(&self, id: TaskId) -> &Task<M> {
        &self.slot(id).task
    }

    /// Where `id` may run.
    pub(crate) fn allowed(&self, id: TaskId) -> &CpuMask<M> {
        &self.slot(id).allowed
    }

    /// Makes a task that is on no queue, as if it slept on `cpu`, and that nobody can wake yet. The caller is on `here`.
    ///
    /// # Panics
    /// When [`TASKS_MAX`] tasks live.
    pub(crate) fn create(&self, topology: &Topology, attributes: &Attributes, cpu: CpuId, here: CpuId) -> TaskId {
        let id = TaskId(self.slots.take(here));
        let index = id.0 as usize;
        let chunk = self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let slot = chunk[index % CHUNK].get_or_init(|| Slot {
            task: Placed::new(Task::new(), Some(index), Some(topology.cpu(cpu).node)),
            allowed: CpuMask::new("task_cpus_mask", Some(index), topology, &CpuSet::new()),
            fair: OnceLock::new(),
        });
        let task = &slot.task;
        slot.allowed.store(&attributes.allowed);
        task.cpu.set(cpu.0);
        task.prio.set(attributes.prio.0);
        task.cpus_allowed_count.set(attributes.allowed.len() as u32);
        task.set_policy(attributes.policy, false);
        if let Some(nice) = attributes.policy.nice() {
            self.make_fair(topology, id, nice).begin(nice);
        } else if let Some(fair) = slot.fair.get() {
            fair.begin(Nice::DEFAULT);
        }
        id
    }

    /// The fair class's words of `id`; new ones of `nice` if it has none. The caller has the number for itself, or holds the task's
    /// `pi_lock`.
    pub(crate) fn make_fair(&self, topology: &Topology, id: TaskId, nice: Nice) -> &FairTask<M> {
        let slot = self.slot(id);
        if slot.fair.get().is_none() {
            let node = topology.cpu(slot.task.cpu()).node;
            let _first = slot.fair.set(Placed::new(FairTask::new(nice), Some(id.0 as usize), Some(node)));
        }
        self.fair(id)
    }

    /// The fair class's words of `id`, which is a fair task or was one.
    pub(crate) fn fair(&self, id: TaskId) -> &FairTask<M> {
        self.slot(id).fair.get().expect("a fair task has its words")
    }

    /// The fair class's words of `id`, if a task of that number ever was fair.
    pub(crate) fn fair_if_made(&self, id: TaskId) -> Option<&FairTask<M>> {
        self.slot(id).fair.get().map(|fair| &**fair)
    }

    /// Gives a slot back, from `here`. The task has ended and no CPU runs it.
    pub(crate) fn free(&self, id: TaskId, here: CpuId) {
        self.slots.give_back(id.0, here);
    }

    /// The slots that were ever used, for checkers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TaskId> {
        (0..self.slots.fresh()).map(TaskId).filter(|&id| self.made(id).is_some())
    }
}

#[cfg(test)]
mod loom;

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn one_waker_queues_a_sleeper() {
        let task = Task::<Native>::new();
        task.state.swap(SLEEPING, Ordering::AcqRel);
        assert_eq!(task.wake(), Wake::Slept);
        assert_eq!(task.wake(), Wake::Noted);
        task.transition_to_runnable();
        assert_eq!(task.wake(), Wake::Noted);
        task.transition_to_running();
        assert!(task.transition_to_sleeping());
        assert!(task.is_sleeping());
    }

    #[test]
    fn a_wakeup_during_a_poll_is_not_lost() {
        let task = Task::<Native>::new();
        task.transition_to_running();
        assert_eq!(task.wake(), Wake::Noted);
        assert!(!task.transition_to_sleeping());
        task.transition_to_dead();
        assert_eq!(task.wake(), Wake::Dead);
    }
}
