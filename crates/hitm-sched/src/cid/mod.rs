//! Concurrency ids: small numbers that tell the running tasks of a map apart, so that data can be indexed by them as by CPUs.
//!
//! A map is what tasks of one program share: Linux's memory map, a tenant of our runtime. Its ids are dense where CPUs are not: a map of
//! two tasks on a machine of 400 CPUs needs two slots, not 400.
//!
//! **Claims**, of every variant, checked by the random runs of `hitm`'s `tests/it/tenants.rs` and, for their orderings, by loom:
//!
//! 1. Two tasks of a map that run at the same time never have the same id.
//! 2. An id is below the number of CPUs. Of [`Recent`](Variant::Recent) one that is handed out is below the number of CPUs that the map's
//!    tasks may use; of [`Shipped`](Variant::Shipped) below the lesser of that and of the tasks, as they were at that time.
//! 3. At rest as many ids are taken as are held by somebody.
//!
//! Nothing else is promised. A task may have another id after every switch. It is of one map for life: there is no exec.
//!
//! | variant | where | who owns an id |
//! |---|---|---|
//! | [`Baseline`](Variant::Baseline) | [`per_cpu`], Linux v6.4 to v6.12 | the CPU, until it has not used it for 100 ms |
//! | [`Recent`](Variant::Recent) | [`per_cpu`], Linux v6.13 to v6.18 | as above, and the CPU asks for the same one again |
//! | [`Owned`](Variant::Owned) | [`owned`], Linux v6.19 onward | the task while there are no more of them than ids, the CPU beyond |
//! | [`Shipped`](Variant::Shipped) | [`shipped`], our own | whoever used it last, until somebody else needs it |

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

/// How ids are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The lowest free one, kept by the CPU for 100 ms.
    #[default]
    Baseline,
    /// The one that the CPU had before, if it can.
    Recent,
    /// The task's own while there are no more tasks than ids, the CPU's beyond.
    Owned,
    /// The one that the CPU had before, unless somebody needed it.
    Shipped,
}

/// The size and the fields of an object of this module, if it is one.
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

/// A map's number. Numbers are used again after a map was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u32);

/// No id, no map, no CPU.
pub(crate) const NONE: u32 = u32::MAX;

described! {
    /// A task's part: under the lock of the queue that it is on, or its own while it is on none.
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

    /// A new life, in `map`.
    pub(crate) fn begin(&self, map: Option<MapId>) {
        self.map.set(map.map_or(0, |map| map.0 + 1));
        self.cid.set(NONE);
        self.last_cid.set(NONE);
        self.migrate_from.set(NONE);
    }

    /// The map.
    #[track_caller]
    pub(crate) fn map(&self) -> Option<MapId> {
        self.map.peek().checked_sub(1).map(MapId)
    }
}

/// What runs where, as an allocator that looks at other CPUs sees it.
pub(crate) trait Runs {
    /// Whether a task of `map` runs on `cpu`.
    fn runs(&self, cpu: CpuId, map: MapId) -> bool;
}

/// Other tasks and CPUs, one at a time, under the lock of their queue. The caller holds no queue's lock.
pub(crate) trait Walk<M: Memory> {
    /// Calls `f` with the part of `task`, the CPU whose queue it is on, and whether it runs there.
    fn with_task(&self, task: TaskId, f: &mut dyn FnMut(&TaskIds<M>, CpuId, bool));

    /// Calls `f` with the part of the task that runs on `cpu`, if it is of `map`.
    fn with_cpu(&self, cpu: CpuId, map: MapId, f: &mut dyn FnMut(Option<&TaskIds<M>>));
}

/// One map's ids. `cpu` is the one that calls unless said otherwise, and its queue's lock is held.
pub(crate) trait Allocator<M: Memory>: Debug + Send + Sync {
    /// Task `id`, which may use `allowed`, joins; it does not run yet. No queue's lock is held.
    fn join(&self, id: TaskId, task: &TaskIds<M>, allowed: &CpuSet, walk: &dyn Walk<M>);

    /// Task `id`, which does not run, leaves. No queue's lock is held.
    fn leave(&self, id: TaskId, task: &TaskIds<M>, walk: &dyn Walk<M>);

    /// The tasks may use `allowed` too.
    fn allow(&self, allowed: &CpuSet);

    /// `task` ceases to run. `ends`: it will not run again; others see so already.
    fn switch_out(&self, cpu: CpuId, task: &TaskIds<M>, ends: bool);

    /// `task` runs from now on, and others see so already.
    fn switch_in(&self, cpu: CpuId, task: &TaskIds<M>);

    /// `task`, which does not run, was queued on `cpu`, whose queue's lock is held, and was on `from` before. It
    /// may use `task_cpus` CPUs. An allocator whose ids do not move with tasks does nothing.
    fn arrive(&self, _cpu: CpuId, _from: CpuId, _task: &TaskIds<M>, _task_cpus: u32, _runs: &dyn Runs) {}

    /// A tick of a CPU that runs a task of the map: whether that task is to call [`Allocator::scan`] before it goes on.
    /// Never, of an allocator that does not sweep.
    fn tick(&self) -> bool {
        false
    }

    /// What is done now and then, without any lock, by the task that was hit by the tick.
    fn scan(&self, _runs: &dyn Runs) {}

    /// Takes away what `cpu` keeps, as the first remote clear of a scan would.
    #[cfg(test)]
    fn take_away(&self, _cpu: CpuId, _runs: &dyn Runs) {}

    /// Forgets everything: no task is left. No queue's lock is held.
    fn reset(&self, walk: &dyn Walk<M>);

    /// What there is, for checkers.
    fn snapshot(&self, walk: &dyn Walk<M>) -> MapSnapshot;
}

/// A map as it is when nothing is in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSnapshot {
    /// The ids that are taken.
    pub taken: Vec<u32>,
    /// Who holds which: by CPU, or by task where tasks hold them.
    pub held: Vec<u32>,
    /// Tasks.
    pub users: u32,
    /// CPUs that they may use; 0 of [`Baseline`](Variant::Baseline), which does not keep that.
    pub allowed: u32,
    /// What an id that is handed out now is below.
    pub bound: u32,
}
