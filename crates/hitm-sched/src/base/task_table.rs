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

/// Numbers per chunk of the table.
const CHUNK: usize = 256;

fn new_places<T>() -> Box<[OnceLock<T>; CHUNK]> {
    let places: Box<[OnceLock<T>]> = (0..CHUNK).map(|_| OnceLock::new()).collect();
    places.try_into().unwrap_or_else(|_| unreachable!("as many as a chunk has"))
}

/// A part of the table: what there is by number, each made at its first need. It is never freed,
/// but used again. A look-up wants one of the three, and is among the most frequent operations of
/// the scheduler: each is a word and a pointer, side by side with those of other tasks.
#[expect(clippy::type_complexity, reason = "the seam's test looks for words in the types of fields")]
#[derive(Debug)]
struct Chunk<M: Memory> {
    tasks: Box<[OnceLock<Placed<M, Task<M>>>; CHUNK]>,
    allowed: Box<[OnceLock<CpuMask<M>>; CHUNK]>,
    /// Of numbers that a fair task has had.
    fair: Box<[OnceLock<Placed<M, FairTask<M>>>; CHUNK]>,
}

impl<M: Memory> Chunk<M> {
    fn new() -> Self {
        Self { tasks: new_places(), allowed: new_places(), fair: new_places() }
    }
}

/// The table of all tasks.
#[derive(Debug)]
pub(crate) struct TaskTable<M: Memory> {
    /// The first numbers. They are given out first, so nearly all look-ups end here.
    first: Chunk<M>,
    /// The others, by chunk. The first of these chunks is never made.
    chunks: Box<[OnceLock<Chunk<M>>]>,
    numbers: IdAllocator<M, Numbers>,
}

#[derive(Debug)]
enum Numbers {}

impl Numbered for Numbers {
    const OBJECT: &'static str = "task_table";
    const LOCK: &'static str = "taken when the free numbers of an LLC run out or become many";
    const PLURAL: &'static str = "tasks";
    const MAX: usize = TASKS_MAX;
    const IN_MAGAZINE: usize = A_LINE;
}

impl<M: Memory> TaskTable<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        let chunks = (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        Self { first: Chunk::new(), chunks, numbers: IdAllocator::new(topology) }
    }

    /// Returns what `id` has in one part of its chunk, if it was made.
    #[inline]
    fn made<'a, T>(&'a self, id: TaskId, part: impl Fn(&'a Chunk<M>) -> &'a [OnceLock<T>; CHUNK]) -> Option<&'a T> {
        let index = id.0 as usize;
        if index < CHUNK {
            return part(&self.first)[index].get();
        }
        part(self.chunks[index / CHUNK].get()?)[index % CHUNK].get()
    }

    #[inline]
    pub(crate) fn get(&self, id: TaskId) -> &Task<M> {
        self.made(id, |chunk| &chunk.tasks).expect("a task that was made")
    }

    /// Returns the CPUs where `id` may run.
    #[inline]
    pub(crate) fn allowed(&self, id: TaskId) -> &CpuMask<M> {
        self.made(id, |chunk| &chunk.allowed).expect("a task that was made")
    }

    /// Returns the chunk of a number, which is made if there is none, and its place there.
    fn chunk(&self, id: TaskId) -> (&Chunk<M>, usize) {
        let index = id.0 as usize;
        let chunk = if index < CHUNK { &self.first } else { self.chunks[index / CHUNK].get_or_init(Chunk::new) };
        (chunk, index % CHUNK)
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
        let id = TaskId(self.numbers.try_take(here)?);
        let (number, (chunk, place)) = (Some(id.0 as usize), self.chunk(id));
        let task = chunk.tasks[place].get_or_init(|| Placed::new(Task::new(), number, Some(topology.cpu(cpu).node)));
        let allowed =
            chunk.allowed[place].get_or_init(|| CpuMask::new("task_cpus_mask", number, topology, &CpuSet::new()));
        allowed.store(&attributes.allowed);
        task.cpu.set(cpu.0);
        task.prio.set(attributes.prio.0);
        task.cpus_allowed_count.set(attributes.allowed.len() as u32);
        task.set_policy(attributes.policy, false);
        if let Some(nice) = attributes.policy.nice() {
            self.make_fair(topology, id, nice).begin(nice);
        } else if let Some(fair) = chunk.fair[place].get() {
            fair.begin(Nice::DEFAULT);
        }
        Some(id)
    }

    /// Lowers the maximum number of tasks that live at once.
    pub(crate) fn limit(&self, max: usize) {
        self.numbers.limit(max);
    }

    /// Returns the fair class's words of `id`, and creates them with `nice` if there are none. The
    /// caller owns the number alone or holds the task's `pi_lock`.
    pub(crate) fn make_fair(&self, topology: &Topology, id: TaskId, nice: Nice) -> &FairTask<M> {
        let (chunk, place) = self.chunk(id);
        if chunk.fair[place].get().is_none() {
            // Not while the place is being filled: a simulated CPU may be suspended at its words.
            let node = topology.cpu(self.get(id).cpu()).node;
            let _first = chunk.fair[place].set(Placed::new(FairTask::new(nice), Some(id.0 as usize), Some(node)));
        }
        self.fair(id)
    }

    /// Returns the fair class's words of `id`, which is or was a fair task.
    #[inline]
    pub(crate) fn fair(&self, id: TaskId) -> &FairTask<M> {
        self.fair_if_made(id).expect("a fair task has its words")
    }

    /// Returns the fair class's words of `id`, if a task of that number was ever fair.
    #[inline]
    pub(crate) fn fair_if_made(&self, id: TaskId) -> Option<&FairTask<M>> {
        self.made(id, |chunk| &chunk.fair).map(|fair| &**fair)
    }

    /// Frees a number from `here`. The task has ended and no CPU runs it.
    pub(crate) fn free(&self, id: TaskId, here: CpuId) {
        self.numbers.give_back(id.0, here);
    }

    /// Returns the numbers that were ever used, for checkers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TaskId> {
        (0..self.numbers.fresh()).map(TaskId).filter(|&id| self.made(id, |chunk| &chunk.allowed).is_some())
    }
}
