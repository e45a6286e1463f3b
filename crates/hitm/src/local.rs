//! Per-CPU state of the runtime beside the scheduler's: the task that the CPU polls, and the CPU's
//! timer.
//!
//! **Protocol** of the timer. The timer is set to the earliest of these: the sleeps that began on
//! this CPU, the end of a round-robin task's turn, the next tick while concurrency ids or fair
//! tasks need ticks, the next period of a group that has used up a quota, and the next
//! [look](crate::watch) at the sleeps of other CPUs. When one of these is cancelled, the timer
//! stays set. It then expires once without work and is set again. A turn that ends early therefore
//! costs nothing. Where CPUs keep wakeups, a tick stays set from task to task.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hitm_memory::{Platform, Time};
use hitm_sched::{TaskId, WakeHint};

use crate::time::Timers;

/// The state of one CPU. The CPU writes it on every poll, so it is alone on two cache lines, since
/// prefetchers fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Local {
    /// The id of the polled task plus 1; 0 between polls.
    running: AtomicU32,
    /// The address of the polled task's cell; null between polls.
    polled: AtomicPtr<()>,
    /// When the running task's turn ends.
    turn_ends: AtomicU64,
    /// When the next tick is due.
    tick: AtomicU64,
    /// The last periodic tick that was found.
    periodic: AtomicU64,
    /// When groups that have used up a quota get their next period's quota.
    refill: AtomicU64,
    /// Whether the polled task has a tenant.
    has_map: AtomicBool,
    /// Whether the running task's wakeups are sync wakeups.
    is_sync: AtomicBool,
    /// Whether another CPU has marked tasks as aborted and asks this one to wake those that sleep
    /// here.
    wakes_aborted: AtomicBool,
    /// The earliest deadline that this CPU has published.
    published: AtomicU64,
    /// When this CPU looks at the sleeps of others.
    next_look: AtomicU64,
    /// Whether another CPU asks this one to look at its sleeps.
    asked_to_look: AtomicBool,
    /// Whether a thread that is no CPU has put a sleep into `timers`.
    asked_to_arm: AtomicBool,
    /// The time that the timer is set to.
    armed: AtomicU64,
    /// The number of tasks that cannot leave this CPU.
    bound: BoundTasks,
    /// The sleeps that began here. Other CPUs remove sleeps that are dropped there.
    pub(crate) timers: Timers,
}

/// The number of tasks that cannot leave a CPU: each of them holds a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundTasks(Arc<AtomicUsize>);

impl BoundTasks {
    /// Counts a task in, until the result is dropped.
    pub(crate) fn enter(&self) -> BoundTask {
        // Relaxed: a CPU goes offline for a task that runs on it; a task that is bound later finds
        // the CPU online again or is moved, as `local_task` says.
        self.0.fetch_add(1, Ordering::Relaxed);
        BoundTask(self.clone())
    }

    pub(crate) fn has_any(&self) -> bool {
        // Relaxed: as in `enter`.
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// A task that is counted in.
#[derive(Debug)]
pub(crate) struct BoundTask(BoundTasks);

impl Drop for BoundTask {
    fn drop(&mut self) {
        // Relaxed: as in `enter`.
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Relaxed: only the owning CPU writes and reads these words.
const OWN: Ordering = Ordering::Relaxed;

impl Local {
    pub(crate) fn new() -> Self {
        Self {
            running: AtomicU32::new(0),
            polled: AtomicPtr::new(null_mut()),
            turn_ends: AtomicU64::new(Time::NEVER.as_picos()),
            tick: AtomicU64::new(Time::NEVER.as_picos()),
            periodic: AtomicU64::new(Time::NEVER.as_picos()),
            refill: AtomicU64::new(Time::NEVER.as_picos()),
            has_map: AtomicBool::new(false),
            is_sync: AtomicBool::new(false),
            wakes_aborted: AtomicBool::new(false),
            published: AtomicU64::new(Time::NEVER.as_picos()),
            next_look: AtomicU64::new(Time::NEVER.as_picos()),
            asked_to_look: AtomicBool::new(false),
            asked_to_arm: AtomicBool::new(false),
            armed: AtomicU64::new(Time::NEVER.as_picos()),
            bound: BoundTasks::default(),
            timers: Timers::default(),
        }
    }

    /// Returns the task that this CPU polls.
    pub(crate) fn running(&self) -> Option<TaskId> {
        self.running.load(OWN).checked_sub(1).map(TaskId)
    }

    /// Sets the task that this CPU polls.
    pub(crate) fn set_running(&self, id: Option<TaskId>) {
        self.running.store(id.map_or(0, |id| id.0 + 1), OWN);
    }

    /// Returns the address of the polled task's cell; null between polls.
    pub(crate) fn polled(&self) -> *const () {
        self.polled.load(OWN)
    }

    /// Sets the address of the polled task's cell.
    pub(crate) fn set_polled(&self, cell: *const ()) {
        self.polled.store(cell.cast_mut(), OWN);
    }

    /// Returns when the running task's turn ends.
    pub(crate) fn turn_ends(&self) -> Time {
        Time::from_picos(self.turn_ends.load(OWN))
    }

    /// Sets when the running task's turn ends. The caller arms the timer.
    pub(crate) fn set_turn_ends(&self, at: Time) {
        self.turn_ends.store(at.as_picos(), OWN);
    }

    /// Returns when the next tick is due.
    pub(crate) fn tick(&self) -> Time {
        Time::from_picos(self.tick.load(OWN))
    }

    /// Sets when the next tick is due. The caller arms the timer.
    pub(crate) fn set_tick(&self, at: Time) {
        self.tick.store(at.as_picos(), OWN);
    }

    /// Runs `f` with the last periodic tick that was found, which `f` may replace.
    pub(crate) fn with_periodic<R>(&self, f: impl FnOnce(&Cell<Time>) -> R) -> R {
        let periodic = Cell::new(Time::from_picos(self.periodic.load(OWN)));
        let result = f(&periodic);
        self.periodic.store(periodic.get().as_picos(), OWN);
        result
    }

    /// Returns when groups that have used up a quota get their next period's quota.
    pub(crate) fn refill(&self) -> Time {
        Time::from_picos(self.refill.load(OWN))
    }

    /// Sets when groups that have used up a quota get their next period's quota. The caller arms
    /// the timer.
    pub(crate) fn set_refill(&self, at: Time) {
        self.refill.store(at.as_picos(), OWN);
    }

    /// Returns whether the polled task has a tenant.
    pub(crate) fn has_map(&self) -> bool {
        self.has_map.load(OWN)
    }

    /// Sets whether the polled task has a tenant.
    pub(crate) fn set_has_map(&self, has_map: bool) {
        self.has_map.store(has_map, OWN);
    }

    /// Returns the hint for wakeups by the polled task.
    pub(crate) fn hint(&self, keeps_wakeups: bool) -> WakeHint {
        match () {
            () if keeps_wakeups && self.running.load(OWN) != 0 => WakeHint::Polled,
            () if self.is_sync.load(OWN) => WakeHint::WakerSleeps,
            () => WakeHint::None,
        }
    }

    /// Sets whether the polled task's wakeups are sync wakeups; returns the previous value.
    pub(crate) fn set_about_to_wait(&self, is_so: bool) -> bool {
        self.is_sync.swap(is_so, OWN)
    }

    /// Asks this CPU to wake its aborted tasks. The caller interrupts it after.
    pub(crate) fn ask_to_wake_aborted(&self) {
        // Release: the CPU sees the marks. Pairs with `is_asked_to_wake_aborted`.
        self.wakes_aborted.store(true, Ordering::Release);
    }

    /// Returns whether this CPU was asked to wake its aborted tasks, and answers for it.
    pub(crate) fn is_asked_to_wake_aborted(&self) -> bool {
        // Acquire: pairs with the Release in `ask_to_wake_aborted`.
        self.wakes_aborted.swap(false, Ordering::Acquire)
    }

    /// Returns the earliest deadline that this CPU has published.
    pub(crate) fn published(&self) -> Time {
        Time::from_picos(self.published.load(OWN))
    }

    /// Notes the earliest deadline that this CPU publishes; returns the previous one.
    pub(crate) fn set_published(&self, at: Time) -> Time {
        let before = self.published();
        self.published.store(at.as_picos(), OWN);
        before
    }

    /// Returns when this CPU looks at the sleeps of others.
    pub(crate) fn next_look(&self) -> Time {
        Time::from_picos(self.next_look.load(OWN))
    }

    /// Sets when this CPU looks at the sleeps of others. The caller arms the timer.
    pub(crate) fn set_next_look(&self, at: Time) {
        self.next_look.store(at.as_picos(), OWN);
    }

    /// Asks this CPU to look at the caller's sleeps. The caller interrupts it after.
    pub(crate) fn ask_to_look(&self) {
        // Release: the CPU sees the caller's deadline. Pairs with `is_asked_to_look`.
        self.asked_to_look.store(true, Ordering::Release);
    }

    /// Returns whether this CPU was asked to look, and answers for it.
    pub(crate) fn is_asked_to_look(&self) -> bool {
        // Relaxed: a hint that saves the swap; who asks interrupts after. Acquire: pairs with the
        // Release in `ask_to_look`.
        self.asked_to_look.load(Ordering::Relaxed) && self.asked_to_look.swap(false, Ordering::Acquire)
    }

    /// Asks this CPU to set its timer: the caller, which is no CPU, has added a sleep. The caller
    /// interrupts this CPU after.
    pub(crate) fn ask_to_arm(&self) {
        // Release: the CPU sees the sleep. Pairs with `is_asked_to_arm`.
        self.asked_to_arm.store(true, Ordering::Release);
    }

    /// Returns whether this CPU has yet to set its timer to a sleep from outside.
    pub(crate) fn is_to_arm(&self) -> bool {
        // Acquire: the caller sees the sleep. Pairs with the Release in `ask_to_arm`.
        self.asked_to_arm.load(Ordering::Acquire)
    }

    /// Returns whether this CPU was asked to set its timer, and answers for it.
    pub(crate) fn is_asked_to_arm(&self) -> bool {
        // Relaxed: a hint that saves the swap; who asks interrupts after. Acquire: pairs with the
        // Release in `ask_to_arm`.
        self.asked_to_arm.load(Ordering::Relaxed) && self.asked_to_arm.swap(false, Ordering::Acquire)
    }

    /// Sets the timer to the earliest deadline, unless it expires earlier already.
    pub(crate) fn arm<P: Platform>(&self) {
        P::settle();
        let own = self.timers.next().min(self.turn_ends());
        let wanted = own.min(self.tick()).min(self.refill()).min(self.next_look());
        self.arm_at::<P>(wanted);
    }

    /// Lets the timer expire at `at` too, once.
    pub(crate) fn arm_at<P: Platform>(&self, at: Time) {
        if at.as_picos() < self.armed.load(OWN) {
            self.armed.store(at.as_picos(), OWN);
            P::set_timer(at);
        }
    }

    /// Returns the number of tasks that cannot leave this CPU.
    pub(crate) fn bound_tasks(&self) -> &BoundTasks {
        &self.bound
    }

    /// Records that the timer has expired.
    pub(crate) fn disarm(&self) {
        self.armed.store(Time::NEVER.as_picos(), OWN);
    }
}
