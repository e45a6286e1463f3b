//! A scheduler wrapper that counts calls and the branches that they took, and records the time of
//! the last call.
//!
//! **An operation** is a call that takes, or may take, a lock of the scheduler: making, enqueuing
//! or waking a task; picking the next task (the same one or another); the end of a turn; a change
//! of priority or CPU set; a CPU that goes offline or online; push work. Reading a hint is not an
//! operation.
//!
//! All words here belong to the host and cost the simulated machine no time. A task settles before
//! it accesses them, so that they change in the order of simulated time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hitm_memory::{CpuSet, Interrupts, Platform, Time};
use hitm_sched::{Attributes, Count, MapId, Policy, Prio, Scheduler, Scheduling, SwitchReason, TaskId, WakeHint};
use hitm_topology::CpuId;

use crate::defects::Flaw;

/// Relaxed: one host thread runs a machine, so no ordering is needed.
const ORDER: Ordering = Ordering::Relaxed;

/// The outcomes of calls that the scheduler itself does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Branch {
    /// A wakeup of a task that was awake.
    AwakeAlready,
    /// A pick that kept the CPU's task.
    SameTask,
    /// A pick that found no task.
    Idle,
    /// The end of a turn with tasks of the same priority waiting.
    Rotated,
    /// A task's priority was raised or lowered.
    Raised,
    Lowered,
    /// A CPU went offline with queued tasks, which were enqueued on other CPUs.
    LeftTasks,
    /// The last CPU was asked to go offline, and stayed online.
    LastStays,
    /// The number of completed push works.
    PushWork,
}

impl Branch {
    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::AwakeAlready, "awake_already"),
        (Self::SameTask, "same_task"),
        (Self::Idle, "idle"),
        (Self::Rotated, "rotated"),
        (Self::Raised, "raised"),
        (Self::Lowered, "lowered"),
        (Self::LeftTasks, "offline_moves"),
        (Self::LastStays, "last_cpu_stays"),
        (Self::PushWork, "push_work"),
    ];
}

/// The last known place of a task: a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Asleep,
    Queued,
    Running,
}

pub(crate) struct Counted<P: Platform> {
    inner: Arc<Scheduler<P>>,
    flaw: Flaw,
    operations: AtomicU64,
    /// Operations that concerned more than the controller.
    of_others: AtomicU64,
    /// When the last of those ended, in picoseconds.
    last: AtomicU64,
    /// The controller's id plus 1; 0 before it is known.
    controller: AtomicU64,
    branches: [AtomicU64; Branch::ALL.len()],
    /// The number of times that a defect could have shown.
    chances: AtomicU64,
    places: Mutex<Places>,
    /// The maps of tasks so far, for a defect.
    maps: Mutex<BTreeSet<MapId>>,
}

#[derive(Default)]
struct Places {
    /// By task id.
    tasks: Vec<Option<Place>>,
    /// By CPU.
    running: Vec<Option<TaskId>>,
}

impl<P: Platform> Counted<P> {
    pub(crate) fn new(inner: Arc<Scheduler<P>>, flaw: Flaw) -> Arc<Self> {
        let running = vec![None; inner.topology().cpus()];
        Arc::new(Self {
            inner,
            flaw,
            operations: AtomicU64::new(0),
            of_others: AtomicU64::new(0),
            last: AtomicU64::new(0),
            controller: AtomicU64::new(0),
            branches: Default::default(),
            chances: AtomicU64::new(0),
            places: Mutex::new(Places { running, ..Places::default() }),
            maps: Mutex::default(),
        })
    }

    /// Returns the number of operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(ORDER)
    }

    /// Returns the number of operations so far that concerned more than the controller.
    pub(crate) fn of_others(&self) -> u64 {
        self.of_others.load(ORDER)
    }

    /// Declares the calling task the controller.
    pub(crate) fn set_controller(&self, task: TaskId) {
        self.controller.store(u64::from(task.0) + 1, ORDER);
    }

    fn is_controller(&self, task: TaskId) -> bool {
        self.controller.load(ORDER) == u64::from(task.0) + 1
    }

    /// Returns when the last operation ended that concerned more than the controller.
    pub(crate) fn last(&self) -> Time {
        Time::from_picos(self.last.load(ORDER))
    }

    pub(crate) fn branch(&self, branch: Branch) -> u64 {
        self.branches[branch as usize].load(ORDER)
    }

    /// Returns the last known place of a task; `None` before the task was made.
    pub(crate) fn place(&self, task: TaskId) -> Option<Place> {
        self.places().tasks.get(task.0 as usize).copied()?
    }

    /// Returns whether `flaw` is the run's defect and shows this time, which it does at random.
    pub(crate) fn slips(&self, flaw: Flaw, one_in: u64) -> bool {
        self.flaw == flaw && self.chances.fetch_add(1, ORDER) % one_in == one_in - 1
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a map of earlier tasks other than `map`, and remembers `map`.
    fn other_map(&self, map: MapId) -> Option<MapId> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.insert(map);
        maps.iter().copied().find(|&other| other != map)
    }

    fn see(&self, task: TaskId, place: Place) {
        let mut places = self.places();
        let count = places.tasks.len().max(task.0 as usize + 1);
        places.tasks.resize(count, None);
        places.tasks[task.0 as usize] = Some(place);
    }

    fn reached(&self, branch: Branch) {
        self.branches[branch as usize].fetch_add(1, ORDER);
    }

    /// Sets the priority of `task`. Returns false when the defect drops the change.
    fn heeds_change(&self, task: TaskId, prio: Prio) -> bool {
        let before = self.inner.prio_of(task);
        P::settle();
        if before < prio && self.slips(Flaw::KeepsWhatWasLent, 8) {
            return false;
        }
        match prio.cmp(&before) {
            std::cmp::Ordering::Less => self.reached(Branch::Raised),
            std::cmp::Ordering::Greater => self.reached(Branch::Lowered),
            std::cmp::Ordering::Equal => {}
        }
        true
    }

    /// Counts one operation around a call.
    fn counted<R>(&self, f: impl FnOnce(&Scheduler<P>) -> R) -> R {
        self.begins();
        let result = f(&*self.inner);
        P::settle();
        self.is_of_others();
        result
    }

    /// Begins an operation.
    fn begins(&self) {
        P::settle();
        self.operations.fetch_add(1, ORDER);
    }

    /// Records that the operation that just ended concerned more than the controller.
    fn is_of_others(&self) {
        self.of_others.fetch_add(1, ORDER);
        self.last.fetch_max(P::now().as_picos(), ORDER);
    }
}

impl<P: Platform> Scheduling<P> for Counted<P> {
    fn prepare(&self, attributes: &Attributes) -> Option<TaskId> {
        let other = attributes.map.and_then(|map| self.other_map(map));
        let id = if attributes.map.is_some() && self.slips(Flaw::MixesTenants, 10) {
            self.counted(|inner| inner.prepare(&Attributes { map: other, ..attributes.clone() }))
        } else {
            self.counted(|inner| inner.prepare(attributes))
        };
        id.inspect(|&id| self.see(id, Place::Asleep))
    }

    fn start(&self, task: TaskId, hint: WakeHint) {
        P::settle();
        self.see(task, Place::Queued);
        self.counted(|inner| inner.start(task, hint));
    }

    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool {
        self.begins();
        if self.slips(Flaw::LosesWakeups, 150) {
            return false;
        }
        let before = self.place(task);
        if before == Some(Place::Asleep) {
            self.see(task, Place::Queued);
        }
        let woke = self.inner.wake_with(task, hint);
        P::settle();
        if !self.is_controller(task) {
            self.is_of_others();
        }
        if !woke {
            self.reached(Branch::AwakeAlready);
        }
        woke
    }

    fn switch(&self, why: SwitchReason) -> Option<TaskId> {
        self.begins();
        let cpu = P::current_cpu();
        let left = self.places().running[cpu.index()].take();
        if let Some(left) = left {
            let place =
                if matches!(why, SwitchReason::Yield | SwitchReason::Preempt) { Place::Queued } else { Place::Asleep };
            self.see(left, place);
        }
        let next = self.inner.switch(why);
        P::settle();
        let mut involved = left.iter().chain(&next);
        if involved.clone().next().is_none() || involved.any(|&task| !self.is_controller(task)) {
            self.is_of_others();
        }
        match next {
            None => self.reached(Branch::Idle),
            Some(next) => {
                if left == Some(next) {
                    self.reached(Branch::SameTask);
                }
                self.see(next, Place::Running);
                self.places().running[cpu.index()] = Some(next);
            }
        }
        next
    }

    fn spare(&self) {
        self.counted(|inner| inner.spare());
    }

    fn handle(&self, interrupts: Interrupts) {
        if interrupts.contains(Interrupts::PUSH) {
            self.counted(|inner| inner.handle(interrupts));
            self.reached(Branch::PushWork);
        } else {
            self.inner.handle(interrupts);
        }
    }

    fn end_of_slice(&self) -> bool {
        let rotated = self.counted(|inner| inner.end_of_slice());
        if rotated {
            self.reached(Branch::Rotated);
        }
        rotated
    }

    fn set_prio(&self, task: TaskId, prio: Prio, policy: Policy) {
        if self.heeds_change(task, prio) {
            self.counted(|inner| inner.set_prio(task, prio, policy));
        }
    }

    fn lend_prio(&self, task: TaskId, prio: Prio, policy: Policy) {
        if self.heeds_change(task, prio) {
            self.counted(|inner| inner.lend_prio(task, prio, policy));
        }
    }

    fn set_allowed(&self, task: TaskId, allowed: &CpuSet) {
        self.counted(|inner| inner.set_allowed(task, allowed));
    }

    fn set_offline(&self, cpu: CpuId) -> bool {
        // Only in this call does this CPU enqueue a task on another CPU: it takes no interrupt
        // meanwhile.
        let moved = || self.inner.stats().on(P::current_cpu(), Count::Migration);
        let before = moved();
        let gone = self.counted(|inner| inner.set_offline(cpu));
        if moved() > before {
            self.reached(Branch::LeftTasks);
        }
        if !gone {
            self.reached(Branch::LastStays);
        }
        gone
    }

    fn set_online(&self, cpu: CpuId) {
        self.counted(|inner| inner.set_online(cpu));
    }
}

impl<P: Platform> Counted<P> {
    /// Returns the scheduler's own counts.
    pub(crate) fn sums(&self) -> Vec<(Count, u64)> {
        self.inner.stats().sums()
    }
}

impl<P: Platform> fmt::Debug for Counted<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("operations", &self.operations()).finish_non_exhaustive()
    }
}
