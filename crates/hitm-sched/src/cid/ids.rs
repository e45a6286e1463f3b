//! The scheduler's calls to a map's allocator.
//!
//! **Protocol.** A switch, under the queue's lock: (1) the CPU publishes its running map, unless
//! both tasks belong to one map; (2) the previous task gives up its id, if it must; (3) the next
//! task gets its id. A task belongs to its map from its creation until its number is freed.

use std::sync::Arc;

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::{CpuId, Topology};

use super::Variant;
use super::table::Maps;
use crate::base::cid::{Allocator, MapSnapshot, NONE, Runs, TaskIds, Walk};
use crate::base::numbers::{MapId, TaskId};
use crate::base::operation;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::linux::cid::running;

impl<P: Platform> Runs for State<P> {
    #[track_caller]
    fn runs(&self, cpu: CpuId, map: MapId) -> bool {
        running::is::<P>(&self.rqs[cpu].curr_map, map)
    }
}

impl<P: Platform> Walk<P> for State<P> {
    fn with_task(&self, id: TaskId, f: &mut dyn FnMut(&TaskIds<P>, CpuId, bool)) {
        let task = self.tasks.get(id);
        let _pi = task.pi_lock.lock();
        let rq = self.lock_queue_of(id);
        f(&task.ids, rq.cpu, rq.curr() == Some(id));
    }

    fn with_cpu(&self, cpu: CpuId, map: MapId, f: &mut dyn FnMut(Option<&TaskIds<P>>)) {
        let rq = self.lock(cpu);
        let running = rq.curr().map(|id| &self.tasks.get(id).ids);
        f(running.filter(|task| task.map() == Some(map)));
    }
}

/// The maps of a scheduler, and the ids of their tasks.
#[derive(Debug)]
pub(crate) struct Ids<P: Platform> {
    maps: Maps<P>,
}

impl<P: Platform> Ids<P> {
    pub(crate) fn new(variant: Variant, topology: Arc<Topology>) -> Self {
        Self { maps: Maps::new(variant, topology) }
    }

    /// Creates a map. See [`Maps::make`].
    pub(crate) fn make(&self) -> MapId {
        self.maps.make()
    }

    /// Frees a map that has no task left.
    pub(crate) fn free(&self, state: &State<P>, map: MapId) {
        self.maps.give_back(map, state);
    }

    /// See [`Maps::are_swept`].
    pub(crate) fn are_swept(&self) -> bool {
        self.maps.are_swept()
    }

    /// Returns a task's id words, its map and the map's allocator, or `None` if it has no map.
    fn ids_of<'a>(&'a self, state: &'a State<P>, id: TaskId) -> Option<(&'a TaskIds<P>, MapId, &'a dyn Allocator<P>)> {
        let task = &state.tasks.get(id).ids;
        let map = task.map()?;
        Some((task, map, self.maps.get(map)))
    }

    /// Lets a new task join `map`.
    pub(crate) fn join(&self, state: &State<P>, id: TaskId, map: Option<MapId>, allowed: &CpuSet) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used() {
            state.tasks.get(id).ids.begin(map);
            if let Some(map) = map {
                self.maps.get(map).join(id, &state.tasks.get(id).ids, allowed, state);
            }
        }
    }

    /// Lets a task whose number is about to be freed leave its map.
    pub(crate) fn leave(&self, state: &State<P>, id: TaskId) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used()
            && let Some((task, _, map)) = self.ids_of(state, id)
        {
            map.leave(id, task, state);
        }
    }

    /// Switches ids when the CPU of `rq` leaves `prev` for `next`.
    #[inline]
    pub(crate) fn switch(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        prev: Option<TaskId>,
        ends: bool,
        next: Option<TaskId>,
    ) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used() {
            self.switch_used(state, rq, prev, ends, next);
        }
    }

    /// Does this where a task may have a map.
    fn switch_used(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        prev: Option<TaskId>,
        ends: bool,
        next: Option<TaskId>,
    ) {
        let [prev, next] = [prev, next].map(|task| task.and_then(|id| self.ids_of(state, id)));
        let [before, after] = [prev, next].map(|ids| ids.map(|(_, map, _)| map));
        if before != after && self.maps.are_swept() {
            running::set::<P>(&rq.curr_map, after);
        }
        if let Some((task, _, map)) = prev {
            map.switch_out(rq.cpu, task, ends);
        }
        if let Some((task, _, map)) = next {
            map.switch_in(rq.cpu, task);
        }
    }

    /// Records that `id`, which is on no queue, leaves `from` for another CPU.
    pub(crate) fn leave_cpu(&self, state: &State<P>, id: TaskId, from: CpuId) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used() && self.ids_of(state, id).is_some() {
            state.tasks.get(id).ids.migrate_from.set(from.0);
        }
    }

    /// Handles the arrival of `id` on the queue `rq`.
    #[inline]
    pub(crate) fn arrive(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used() {
            self.arrive_used(state, rq, id);
        }
    }

    /// Does this where a task may have a map.
    fn arrive_used(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        let Some((task, _, map)) = self.ids_of(state, id) else { return };
        let from = task.migrate_from.get();
        if from != NONE {
            task.migrate_from.set(NONE);
            let task_cpus = state.tasks.get(id).cpus_allowed_count.get();
            map.arrive(rq.cpu, CpuId(from), task, task_cpus, state);
        }
    }

    /// Adds `allowed` to the CPUs of the map of `id`. It is the task's affinity, or a CPU outside
    /// an affinity that is ignored.
    pub(crate) fn allow(&self, state: &State<P>, id: TaskId, allowed: &CpuSet) {
        let _ids = operation::IDS.begin::<P>();
        if self.maps.are_used()
            && let Some((_, _, map)) = self.ids_of(state, id)
        {
            map.allow(allowed);
        }
    }

    /// Returns the concurrency id of the running task, or `None` when it has no map. The id may
    /// change at every switch.
    pub(crate) fn current(&self, state: &State<P>) -> Option<u32> {
        let _ids = operation::IDS.begin::<P>();
        let curr = state.rqs[P::current_cpu()].curr()?;
        let (task, ..) = self.ids_of(state, curr)?;
        Some(task.cid.get()).filter(|&id| id != NONE)
    }

    /// Handles a tick of the calling CPU.
    pub(crate) fn tick(&self, state: &State<P>) {
        let _ids = operation::IDS.begin::<P>();
        if !self.maps.are_used() {
            return;
        }
        let curr = state.rqs[P::current_cpu()].curr();
        if let Some((_, _, map)) = curr.and_then(|id| self.ids_of(state, id))
            && map.tick()
        {
            map.scan(state);
        }
    }

    /// Returns the ids of a map, for checkers. Call it only in a quiescent state.
    pub(crate) fn snapshot(&self, state: &State<P>, map: MapId) -> MapSnapshot {
        self.maps.get(map).snapshot(state)
    }
}
