//! Per-CPU state of the runtime beside the scheduler's: the task that the CPU polls, and the CPU's
//! timer.
//!
//! **Protocol** of the timer. The timer is set to the earliest of these: the sleeps that began on
//! this CPU, the end of a round-robin task's turn, the next tick while concurrency ids or fair
//! tasks need ticks, and the next period of a group that has used up a quota. When one of these is
//! cancelled, the timer stays set. It then expires once without work and is set again. A turn that
//! ends early therefore costs nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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
    /// When the running task's turn ends.
    turn_ends: AtomicU64,
    /// When the next tick is due.
    tick: AtomicU64,
    /// When groups that have used up a quota get their next period's quota.
    refill: AtomicU64,
    /// Whether the polled task has a tenant.
    has_map: AtomicBool,
    /// Whether the running task's wakeups are sync wakeups.
    is_sync: AtomicBool,
    /// The time that the timer is set to.
    armed: AtomicU64,
    /// The sleeps that began here. Other CPUs remove sleeps that are dropped there.
    pub(crate) timers: Timers,
}

/// Relaxed: only the owning CPU writes and reads these words.
const OWN: Ordering = Ordering::Relaxed;

impl Local {
    pub(crate) fn new() -> Self {
        Self {
            running: AtomicU32::new(0),
            turn_ends: AtomicU64::new(Time::NEVER.as_picos()),
            tick: AtomicU64::new(Time::NEVER.as_picos()),
            refill: AtomicU64::new(Time::NEVER.as_picos()),
            has_map: AtomicBool::new(false),
            is_sync: AtomicBool::new(false),
            armed: AtomicU64::new(Time::NEVER.as_picos()),
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
    pub(crate) fn hint(&self) -> WakeHint {
        if self.is_sync.load(OWN) { WakeHint::WakerSleeps } else { WakeHint::None }
    }

    /// Sets whether the polled task's wakeups are sync wakeups; returns the previous value.
    pub(crate) fn set_about_to_wait(&self, is_so: bool) -> bool {
        self.is_sync.swap(is_so, OWN)
    }

    /// Sets the timer to the earliest deadline, unless it expires earlier already.
    pub(crate) fn arm<P: Platform>(&self) {
        P::settle();
        let wanted = self.timers.next().min(self.turn_ends()).min(self.tick()).min(self.refill());
        if wanted.as_picos() < self.armed.load(OWN) {
            self.armed.store(wanted.as_picos(), OWN);
            P::set_timer(wanted);
        }
    }

    /// Records that the timer has expired.
    pub(crate) fn disarm(&self) {
        self.armed.store(Time::NEVER.as_picos(), OWN);
    }
}
