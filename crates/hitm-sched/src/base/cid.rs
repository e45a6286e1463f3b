//! Concurrency ids: the words of a task, and what an allocator of ids is. [`cid`](crate::cid) has
//! the claims and the choice of an allocator.

use std::fmt::Debug;

use hitm_memory::{CpuSet, Memory, PlainWord, described};
use hitm_topology::CpuId;

use crate::base::numbers::{MapId, TaskId};

/// The value for no id, no map or no CPU.
pub(crate) const NONE: u32 = u32::MAX;

described! {
    /// A task's id words. They are under the lock of the task's queue, or under the task's own lock
    /// while it is on no queue.
    pub struct TaskIds<M: Memory> as "task_ids" {
        /// The map, counted from 1; 0 for none. Written when the task is made.
        pub(crate) map: M::Plain<u32>,
        /// The id while it runs. Read by the task itself.
        pub(crate) cid: M::Plain<u32>,
        /// The id that it had last, or owns: the allocator's.
        pub(crate) last_cid: M::Plain<u32>,
        /// The CPU that it has left for another one and has not arrived from.
        pub(crate) migrate_from: M::Plain<u32>,
    }
}

impl<M: Memory> TaskIds<M> {
    pub(crate) fn new() -> Self {
        Self {
            map: M::Plain::new(0),
            cid: M::Plain::new(NONE),
            last_cid: M::Plain::new(NONE),
            migrate_from: M::Plain::new(NONE),
        }
    }

    /// Begins the life of a new task, in `map`.
    pub(crate) fn begin(&self, map: Option<MapId>) {
        self.map.set(map.map_or(0, |map| map.0 + 1));
        self.cid.set(NONE);
        self.last_cid.set(NONE);
        self.migrate_from.set(NONE);
    }

    /// Returns the map.
    #[track_caller]
    pub(crate) fn map(&self) -> Option<MapId> {
        self.map.peek().checked_sub(1).map(MapId)
    }
}

/// The running maps of CPUs, for an allocator that checks other CPUs.
pub(crate) trait Runs {
    /// Returns whether a task of `map` runs on `cpu`.
    fn runs(&self, cpu: CpuId, map: MapId) -> bool;
}

/// Visits to other tasks and CPUs, one at a time, under the lock of their queue. The caller holds
/// no queue's lock.
pub(crate) trait Walk<M: Memory> {
    /// Calls `f` with the id words of `task`, the CPU of its queue, and whether it runs there.
    fn with_task(&self, task: TaskId, f: &mut dyn FnMut(&TaskIds<M>, CpuId, bool));

    /// Calls `f` with the id words of the task that runs on `cpu`, if it belongs to `map`.
    fn with_cpu(&self, cpu: CpuId, map: MapId, f: &mut dyn FnMut(Option<&TaskIds<M>>));
}

/// The ids of one map. Unless stated otherwise, `cpu` is the calling CPU and its queue's lock is
/// held.
pub(crate) trait Allocator<M: Memory>: Debug + Send + Sync {
    /// Task `id`, which may use `allowed`, joins. It does not run yet. No queue's lock is held.
    fn join(&self, id: TaskId, task: &TaskIds<M>, allowed: &CpuSet, walk: &dyn Walk<M>);

    /// Task `id`, which does not run, leaves. No queue's lock is held.
    fn leave(&self, id: TaskId, task: &TaskIds<M>, walk: &dyn Walk<M>);

    /// Adds `allowed` to the CPUs that the tasks may use.
    fn allow(&self, allowed: &CpuSet);

    /// `task` stops running. With `ends` it will not run again. Other CPUs already see that.
    fn switch_out(&self, cpu: CpuId, task: &TaskIds<M>, ends: bool);

    /// `task` runs from now on, and other CPUs already see that.
    fn switch_in(&self, cpu: CpuId, task: &TaskIds<M>);

    /// `task`, which does not run, was queued on `cpu` and was on `from` before. The lock of
    /// `cpu`'s queue is held. The task may use `task_cpus` CPUs. An allocator whose ids do not move
    /// with tasks does nothing.
    fn arrive(&self, _cpu: CpuId, _from: CpuId, _task: &TaskIds<M>, _task_cpus: u32, _runs: &dyn Runs) {}

    /// Handles a tick of a CPU that runs a task of the map. Returns whether that task must call
    /// [`Allocator::scan`] before it goes on. An allocator without scans always returns false.
    fn tick(&self) -> bool {
        false
    }

    /// Does the periodic cleanup, without any lock. The task that the tick interrupted calls it.
    fn scan(&self, _runs: &dyn Runs) {}

    /// Takes away the id that `cpu` keeps, as the first remote clear of a scan would.
    #[cfg(test)]
    fn take_away(&self, _cpu: CpuId, _runs: &dyn Runs) {}

    /// Resets all state when no task is left. No queue's lock is held.
    fn reset(&self, walk: &dyn Walk<M>);

    /// Returns the state, for checkers.
    fn snapshot(&self, walk: &dyn Walk<M>) -> MapSnapshot;
}

/// The state of a map when nothing is in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSnapshot {
    /// The ids that are taken.
    pub taken: Vec<u32>,
    /// The ids that CPUs or tasks hold, ascending.
    pub held: Vec<u32>,
    /// The number of tasks.
    pub users: u32,
    /// The number of CPUs that the tasks may use. It is 0 for
    /// [`Baseline`](crate::cid::Variant::Baseline), which does not keep it.
    pub allowed: u32,
    /// The bound of the ids that are allocated now.
    pub bound: u32,
}
