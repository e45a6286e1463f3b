//! Concurrency ids: small numbers that distinguish the running tasks of a map, so that they can
//! index data as CPU numbers do.
//!
//! A map is shared by the tasks of one program: Linux's memory map, or a tenant of our runtime. Its
//! ids are dense, unlike CPU numbers: a map of two tasks on a machine of 400 CPUs needs two slots,
//! not 400.
//!
//! **Claims** of every variant. The random runs of `hitm`'s `tests/it/tenants.rs` check them, and
//! loom checks their orderings:
//!
//! 1. Two tasks of a map that run at the same time never have the same id.
//! 2. An id is below the number of CPUs. An id that [`Recent`](Variant::Recent) allocates is below
//!    the number of CPUs that the map's tasks may use. An id that [`Shipped`](Variant::Shipped)
//!    allocates is below the lesser of that number and the number of tasks at that time.
//! 3. In a quiescent state the number of taken ids is the number of held ids.
//!
//! There are no other promises. A task may have another id after every switch. It belongs to one
//! map for life: there is no exec.
//!
//! | variant | where | owner of an id |
//! |---|---|---|
//! | [`Baseline`](Variant::Baseline) | [`per_cpu`], Linux v6.4 to v6.12 | the CPU, until it has not used the id for 100 ms |
//! | [`Recent`](Variant::Recent) | [`per_cpu`], Linux v6.13 to v6.18 | as above, and the CPU asks for the same id again |
//! | [`Owned`](Variant::Owned) | [`owned`], Linux v6.19 and later | the task while tasks do not outnumber ids, else the CPU |
//! | [`Shipped`](Variant::Shipped) | [`shipped`], our own | its last user, until another task needs the id |

use std::fmt::Debug;

use hitm_memory::{CpuSet, Described, Field, Memory, Native, PlainWord, described};
use hitm_topology::CpuId;

use crate::task::TaskId;

mod bits;
mod hooks;
mod owned;
mod per_cpu;
mod running;
mod shipped;
mod table;

#[cfg(test)]
mod loom;

pub use table::MAPS_MAX;
pub(crate) use table::Maps;

/// How ids are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The lowest free id. The CPU keeps it for 100 ms.
    #[default]
    Baseline,
    /// The CPU's previous id, if it is free.
    Recent,
    /// The task's own id while tasks do not outnumber ids, else the CPU's.
    Owned,
    /// The CPU's previous id, unless another task has needed it.
    Shipped,
}

/// Returns the size and the fields of an object of this module, if `object` is one.
pub(crate) fn layout(object: &str) -> Option<(usize, Vec<Field>)> {
    fn of<T: Described>() -> Option<(usize, Vec<Field>)> {
        Some((size_of::<T>(), T::fields()))
    }
    match object {
        "mm" => of::<per_cpu::MapWords<Native>>(),
        "mm_cid" => of::<per_cpu::Entry<Native>>(),
        "mm_mm_cid" => of::<owned::OwnedWords<Native>>(),
        "cid_map" => of::<shipped::CidMap<Native>>(),
        _ => None,
    }
}

/// The number of a map. A freed map's number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u32);

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
    /// The number of CPUs that the tasks may use. It is 0 for [`Baseline`](Variant::Baseline),
    /// which does not keep it.
    pub allowed: u32,
    /// The bound of the ids that are allocated now.
    pub bound: u32,
}
