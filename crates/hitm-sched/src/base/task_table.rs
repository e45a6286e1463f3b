//! The table of all tasks.

use std::ops::Deref;
use std::sync::OnceLock;

use hitm_memory::{CpuMask, CpuSet, Memory, Placed, PlacedOnce, PlainWord};
use hitm_topology::{CpuId, Topology};

use crate::base::attributes::Attributes;
use crate::base::fair_words::FairTask;
use crate::base::id_allocator::{A_LINE, IdAllocator, Numbered};
use crate::base::numbers::{TASKS_MAX, TaskId};
use crate::base::task::Task;
use crate::base::weight::Nice;

/// Numbers per chunk of the table.
const CHUNK: usize = 1_024;

fn new_places<T: Default>() -> Box<[T; CHUNK]> {
    let places: Box<[T]> = (0..CHUNK).map(|_| T::default()).collect();
    places.try_into().unwrap_or_else(|_| unreachable!("as many as a chunk has"))
}

/// A part of the table: what there is by number, each made at its first need. It is never freed,
/// but used again. A look-up wants one of the three, and is among the most frequent operations of
/// the scheduler: tasks and fair words are a pointer each, side by side with those of other tasks.
#[derive(Debug)]
struct Chunk<M: Memory> {
    tasks: Box<[PlacedOnce<M, Task<M>>; CHUNK]>,
    /// Of numbers that a task has had which does not share its mask.
    allowed: OnceLock<Box<[OnceLock<CpuMask<M>>; CHUNK]>>,
    /// Of numbers that a fair task has had.
    fair: Box<[PlacedOnce<M, FairTask<M>>; CHUNK]>,
}

impl<M: Memory> Chunk<M> {
    fn new() -> Self {
        Self { tasks: new_places(), allowed: OnceLock::new(), fair: new_places() }
    }
}

/// The table of all tasks.
#[derive(Debug)]
pub(crate) struct TaskTable<M: Memory> {
    /// The first numbers. They are given out first, so nearly all look-ups end here.
    first: Chunk<M>,
    /// The others, by chunk. The first of these chunks is never made.
    chunks: Box<[OnceLock<Chunk<M>>]>,
    all_cpus: CpuSet,
    /// All CPUs, where tasks that may run everywhere have no mask of their own. In the original
    /// each task has one.
    everywhere: Option<CpuMask<M>>,
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

/// A task that was looked up: its number, and its words.
pub(crate) struct TaskRef<'a, M: Memory> {
    pub(crate) id: TaskId,
    task: &'a Task<M>,
}

impl<M: Memory> Clone for TaskRef<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for TaskRef<'_, M> {}

impl<M: Memory> Deref for TaskRef<'_, M> {
    type Target = Task<M>;

    fn deref(&self) -> &Task<M> {
        self.task
    }
}

impl<M: Memory> TaskTable<M> {
    /// Creates a table without tasks. Those that may run everywhere share a mask, or do not.
    pub(crate) fn new(topology: &Topology, shares_mask: bool) -> Self {
        let chunks = (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        let all_cpus = topology.cpu_ids().collect();
        let everywhere = shares_mask.then(|| CpuMask::new("all_cpus_mask", None, topology, &all_cpus));
        Self { first: Chunk::new(), chunks, all_cpus, everywhere, numbers: IdAllocator::new(topology) }
    }

    /// Returns what `find` finds in the chunk of `id`, at the place there, if the chunk was made.
    #[inline]
    fn at<'a, T>(&'a self, id: TaskId, find: impl Fn(&'a Chunk<M>, usize) -> Option<T>) -> Option<T> {
        let index = id.0 as usize;
        if index < CHUNK { find(&self.first, index) } else { find(self.later(index)?, index % CHUNK) }
    }

    /// Returns the chunk of a number that is not among the first. Not inlined: a look-up stays
    /// short where it is.
    #[inline(never)]
    fn later(&self, index: usize) -> Option<&Chunk<M>> {
        self.chunks[index / CHUNK].get()
    }

    #[inline]
    fn get_if_made(&self, id: TaskId) -> Option<&Task<M>> {
        self.at(id, |chunk, place| chunk.tasks[place].get())
    }

    #[inline]
    pub(crate) fn get(&self, id: TaskId) -> &Task<M> {
        self.get_if_made(id).expect("a task that was made")
    }

    /// Looks up `id` for an operation that uses its words often.
    #[inline]
    pub(crate) fn look_up(&self, id: TaskId) -> TaskRef<'_, M> {
        TaskRef { id, task: self.get(id) }
    }

    /// Returns the CPUs where `id` may run.
    #[inline]
    pub(crate) fn allowed(&self, id: TaskId) -> &CpuMask<M> {
        self.own_allowed(id).or(self.everywhere.as_ref()).expect("a task that was made")
    }

    /// Returns the CPUs where `id` may run, if it ever was restricted to some.
    #[inline]
    pub(crate) fn own_allowed(&self, id: TaskId) -> Option<&CpuMask<M>> {
        self.at(id, |chunk, place| chunk.allowed.get()?[place].get())
    }

    /// Returns the CPUs that a new task is to have.
    pub(crate) fn wanted<'a>(&'a self, attributes: &'a Attributes) -> &'a CpuSet {
        attributes.allowed.as_ref().unwrap_or(&self.all_cpus)
    }

    /// Sets the CPUs where `id` may run; there are `count`. The caller owns the number alone or
    /// holds the task's `pi_lock`. A CPU that reads meanwhile gets the old or the new set.
    #[track_caller]
    pub(crate) fn allow(&self, topology: &Topology, id: TaskId, allowed: &CpuSet, count: usize) {
        let (chunk, place) = self.chunk(id);
        let own = chunk.allowed.get().and_then(|masks| masks[place].get());
        if let Some(own) = own {
            own.store(allowed);
        } else if self.everywhere.is_none() || count < topology.cpus() {
            // With its CPUs from the beginning: others read the mask as soon as it is there.
            let mask = CpuMask::new("task_cpus_mask", Some(id.0 as usize), topology, allowed);
            let own = chunk.allowed.get_or_init(new_places)[place].get_or_init(|| mask);
            own.store(allowed);
        }
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
        let task = chunk.tasks[place].get_or_make(|| Placed::new(Task::new(), number, Some(topology.cpu(cpu).node)));
        let count = attributes.allowed.as_ref().map_or(topology.cpus(), CpuSet::len);
        self.allow(topology, id, self.wanted(attributes), count);
        task.cpu.set(cpu.0);
        task.prio.set(attributes.prio.0);
        task.cpus_allowed_count.set(count as u32);
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
        let node = || topology.cpu(self.get(id).cpu()).node;
        chunk.fair[place].get_or_make(|| Placed::new(FairTask::new(nice), Some(id.0 as usize), Some(node())))
    }

    /// Returns the fair class's words of `id`, which is or was a fair task.
    #[inline]
    pub(crate) fn fair(&self, id: TaskId) -> &FairTask<M> {
        self.fair_if_made(id).expect("a fair task has its words")
    }

    /// Returns the fair class's words of `id`, if a task of that number was ever fair.
    #[inline]
    pub(crate) fn fair_if_made(&self, id: TaskId) -> Option<&FairTask<M>> {
        self.at(id, |chunk, place| chunk.fair[place].get())
    }

    /// Frees a number from `here`. The task has ended and no CPU runs it.
    pub(crate) fn free(&self, id: TaskId, here: CpuId) {
        self.numbers.give_back(id.0, here);
    }

    /// Returns the numbers that were ever used, for checkers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TaskId> {
        (0..self.numbers.fresh()).map(TaskId).filter(|&id| self.get_if_made(id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::{Native, NativeWorkers};

    use super::*;
    use crate::base::attributes::Policy;
    use crate::base::prio::Prio;

    #[test]
    fn tasks_that_may_run_everywhere_share_a_mask_until_one_may_not() {
        let topology = hitm_topology::parse("core:4 pu:1").expect("a machine");
        let all: CpuSet = topology.cpu_ids().collect();
        let narrow = CpuSet::from_iter([CpuId(2)]);
        NativeWorkers::new(4, false).visit(CpuId(0), || {
            for shares in [false, true] {
                let table = TaskTable::<Native>::new(&topology, shares);
                let attributes = |allowed: &CpuSet| Attributes {
                    prio: Prio::ORDINARY,
                    policy: Policy::Fifo,
                    allowed: Some(allowed.clone()),
                    map: None,
                    group: None,
                };
                let create = |allowed: &CpuSet| table.create(&topology, &attributes(allowed), CpuId(0), CpuId(0));
                let [wide, other, bound] = [&all, &all, &narrow].map(|allowed| create(allowed).expect("a number"));
                let masks = [wide, other, bound].map(|id| table.allowed(id));
                assert_eq!(std::ptr::eq(masks[0], masks[1]), shares);
                table.allow(&topology, wide, &narrow, narrow.len());
                table.allow(&topology, bound, &all, all.len());
                let found = [wide, other, bound].map(|id| table.allowed(id).load());
                assert_eq!(found, [narrow.clone(), all.clone(), all.clone()]);
                table.allow(&topology, wide, &all, all.len());
                assert_eq!(table.allowed(wide).load(), all);
            }
        });
    }
}
