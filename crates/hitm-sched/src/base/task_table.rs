//! The table of all tasks.

use std::sync::OnceLock;

use hitm_memory::{CpuMask, CpuSet, Memory, Placed, PlainWord};
use hitm_topology::{CpuId, Topology};

use crate::base::attributes::Attributes;
use crate::base::fair_words::FairTask;
use crate::base::id_allocator::{A_LINE, IdAllocator, Numbered};
use crate::base::numbers::{TASKS_MAX, TaskId};
use crate::base::task::Task;
use crate::base::weight::Nice;

/// A task's words and its affinity.
#[derive(Debug)]
struct Slot<M: Memory> {
    task: Placed<M, Task<M>>,
    allowed: CpuMask<M>,
    /// Created when a task of this number is fair for the first time.
    fair: OnceLock<Placed<M, FairTask<M>>>,
}

/// Slots per chunk of the table.
const CHUNK: usize = 256;

type Chunk<M> = Box<[OnceLock<Slot<M>>; CHUNK]>;

fn new_chunk<M: Memory>() -> Chunk<M> {
    let slots: Box<[OnceLock<Slot<M>>]> = (0..CHUNK).map(|_| OnceLock::new()).collect();
    slots.try_into().expect("as many as a chunk has")
}

/// The table of all tasks. A slot is created when it is first needed. It is never freed, but used
/// again.
#[derive(Debug)]
pub(crate) struct TaskTable<M: Memory> {
    /// The slots of the first numbers. They are given out first, so nearly all look-ups end here.
    first: Chunk<M>,
    /// The others, by chunk. The first of these chunks is never made.
    chunks: Box<[OnceLock<Chunk<M>>]>,
    slots: IdAllocator<M, Slots>,
}

#[derive(Debug)]
enum Slots {}

impl Numbered for Slots {
    const OBJECT: &'static str = "task_table";
    const LOCK: &'static str = "taken when the free numbers of an LLC run out or become many";
    const PLURAL: &'static str = "tasks";
    const MAX: usize = TASKS_MAX;
    const IN_MAGAZINE: usize = A_LINE;
}

impl<M: Memory> TaskTable<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        let chunks = (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Self { first: new_chunk(), chunks, slots: IdAllocator::new(topology) }
    }

    #[inline]
    fn slot(&self, id: TaskId) -> &Slot<M> {
        self.made(id).expect("a task that was made")
    }

    /// Returns the slot of `id`, if a task of that number ever existed.
    #[inline]
    fn made(&self, id: TaskId) -> Option<&Slot<M>> {
        let index = id.0 as usize;
        match self.first.get(index) {
            Some(slot) => slot.get(),
            None => self.chunks[index / CHUNK].get()?[index % CHUNK].get(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: TaskId) -> &Task<M> {
        &self.slot(id).task
    }

    /// Returns the CPUs where `id` may run.
    #[inline]
    pub(crate) fn allowed(&self, id: TaskId) -> &CpuMask<M> {
        &self.slot(id).allowed
    }

    /// Creates a task that is on no queue, as if it slept on `cpu`, and that cannot be woken yet.
    /// The caller runs on `here`. Returns `None` when [`TASKS_MAX`] tasks live.
    pub(crate) fn create(
        &self,
        topology: &Topology,
        attributes: &Attributes,
        cpu: CpuId,
        here: CpuId,
    ) -> Option<TaskId> {
        let id = TaskId(self.slots.try_take(here)?);
        let index = id.0 as usize;
        let place = match self.first.get(index) {
            Some(place) => place,
            None => &self.chunks[index / CHUNK].get_or_init(new_chunk)[index % CHUNK],
        };
        let slot = place.get_or_init(|| Slot {
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
        Some(id)
    }

    /// Lowers the maximum number of tasks that live at once.
    pub(crate) fn limit(&self, max: usize) {
        self.slots.limit(max);
    }

    /// Returns the fair class's words of `id`, and creates them with `nice` if there are none. The
    /// caller owns the number alone or holds the task's `pi_lock`.
    pub(crate) fn make_fair(&self, topology: &Topology, id: TaskId, nice: Nice) -> &FairTask<M> {
        let slot = self.slot(id);
        if slot.fair.get().is_none() {
            let node = topology.cpu(slot.task.cpu()).node;
            let _first = slot.fair.set(Placed::new(FairTask::new(nice), Some(id.0 as usize), Some(node)));
        }
        self.fair(id)
    }

    /// Returns the fair class's words of `id`, which is or was a fair task.
    #[inline]
    pub(crate) fn fair(&self, id: TaskId) -> &FairTask<M> {
        self.slot(id).fair.get().expect("a fair task has its words")
    }

    /// Returns the fair class's words of `id`, if a task of that number was ever fair.
    pub(crate) fn fair_if_made(&self, id: TaskId) -> Option<&FairTask<M>> {
        self.slot(id).fair.get().map(|fair| &**fair)
    }

    /// Frees a slot from `here`. The task has ended and no CPU runs it.
    pub(crate) fn free(&self, id: TaskId, here: CpuId) {
        self.slots.give_back(id.0, here);
    }

    /// Returns the slots that were ever used, for checkers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TaskId> {
        (0..self.slots.fresh()).map(TaskId).filter(|&id| self.made(id).is_some())
    }
}
