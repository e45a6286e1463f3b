//! What a CPU keeps for itself beside the scheduler's words: the task that it polls, and its timer.
//!
//! **Protocol** of the timer. It is set to the earliest of what waits for it: sleeps that began here, the end of a
//! round-robin task's turn, the next tick while concurrency ids or fair tasks want some, and the next period of a group that has used up a quota. What ceases to wait leaves it set; it then expires for nothing, once, and is set anew. So a turn
//! that ends early costs nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hitm_memory::{Platform, Time};
use hitm_sched::scheduler::WakeHint;
use hitm_sched::task::TaskId;

use crate::time::Timers;

/// One CPU's own state. On two lines of its own, since prefetchers pull pairs: every poll writes it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Local {
    /// The task that it polls, counted from 1; 0 between polls.
    running: AtomicU32,
    /// When the present task's turn is over.
    turn_ends: AtomicU64,
    /// When the next tick is due.
    tick: AtomicU64,
    /// When groups that have used up a quota have some of the next period.
    refill: AtomicU64,
    /// Whether the task that it polls has a tenant.
    has_map: AtomicBool,
    /// Whether what the task wakes it wakes before it sleeps.
    about_to_wait: AtomicBool,
    /// What the timer is set to.
    armed: AtomicU64,
    /// The sleeps that began here. Others take theirs out.
    pub(crate) timers: Timers,
}

/// Relaxed: all words here are written and read by their own CPU alone.
const OWN: Ordering = Ordering::Relaxed;

impl Local {
    pub(crate) fn new() -> Self {
        Self {
            running: AtomicU32::new(0),
            turn_ends: AtomicU64::new(Time::NEVER.as_picos()),
            tick: AtomicU64::new(Time::NEVER.as_picos()),
            refill: AtomicU64::new(Time::NEVER.as_picos()),
            has_map: AtomicBool::new(false),
            about_to_wait: AtomicBool::new(false),
            armed: AtomicU64::new(Time::NEVER.as_picos()),
            timers: Timers::default(),
        }
    }

    /// The task that this CPU polls.
    pub(crate) fn running(&self) -> Option<TaskId> {
        self.running.load(OWN).checked_sub(1).map(TaskId)
    }

    /// Sets the task that this CPU polls.
    pub(crate) fn set_running(&self, id: Option<TaskId>) {
        self.running.store(id.map_or(0, |id| id.0 + 1), OWN);
    }

    /// When the present task's turn is over.
    pub(crate) fn turn_ends(&self) -> Time {
        Time::from_picos(self.turn_ends.load(OWN))
    }

    /// Sets when the present task's turn is over. The caller arms the timer.
    pub(crate) fn set_turn_ends(&self, at: Time) {
        self.turn_ends.store(at.as_picos(), OWN);
    }

    /// When the next tick is due.
    pub(crate) fn tick(&self) -> Time {
        Time::from_picos(self.tick.load(OWN))
    }

    /// Sets when the next tick is due. The caller arms the timer.
    pub(crate) fn set_tick(&self, at: Time) {
        self.tick.store(at.as_picos(), OWN);
    }

    /// When groups that have used up a quota have some of the next period.
    pub(crate) fn refill(&self) -> Time {
        Time::from_picos(self.refill.load(OWN))
    }

    /// Sets when groups that have used up a quota have some of the next period. The caller arms the timer.
    pub(crate) fn set_refill(&self, at: Time) {
        self.refill.store(at.as_picos(), OWN);
    }

    /// Whether the task that this CPU polls has a tenant.
    pub(crate) fn has_map(&self) -> bool {
        self.has_map.load(OWN)
    }

    /// Sets whether the task that this CPU polls has a tenant.
    pub(crate) fn set_has_map(&self, has_map: bool) {
        self.has_map.store(has_map, OWN);
    }

    /// What wakeups by the task that this CPU polls know of it.
    pub(crate) fn hint(&self) -> WakeHint {
        if self.about_to_wait.load(OWN) { WakeHint::WakerSleeps } else { WakeHint::None }
    }

    /// Sets whether the task that this CPU polls is about to wait; returns what was set before.
    pub(crate) fn set_about_to_wait(&self, is_so: bool) -> bool {
        self.about_to_wait.swap(is_so, OWN)
    }

    /// Sets the timer to the earliest of what waits for it, unless it expires before that anyway.
    pub(crate) fn arm<P: Platform>(&self) {
        P::settle();
        let wanted = self.timers.next().min(self.turn_ends()).min(self.tick()).min(self.refill());
        if wanted.as_picos() < self.armed.load(OWN) {
            self.armed.store(wanted.as_picos(), OWN);
            P::set_timer(wanted);
        }
    }

    /// The timer has expired.
    pub(crate) fn disarm(&self) {
        self.armed.store(Time::NEVER.as_picos(), OWN);
    }
}
