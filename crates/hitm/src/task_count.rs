//! The task count, and whether tasks may still be spawned, in one word: no task can enter after the
//! last one has left.
//!
//! **State.** Bit 0: the runtime is stopping. Bits 1 and up: the number of live tasks. All
//! transitions are RMW operations.
//!
//! | word | meaning |
//! |---|---|
//! | even | tasks enter and leave |
//! | odd, above 1 | tasks only leave |
//! | 1 | the last task has left: the CPUs leave |

use std::sync::atomic::{AtomicUsize, Ordering};

const STOPPING: usize = 1;
const ONE: usize = 2;

/// The state that [`TaskCount::stop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Stop {
    /// An earlier call had stopped the runtime.
    Again,
    /// No task is alive.
    Empty,
    /// Tasks are alive; the caller must abort them.
    Inhabited,
}

/// The number of live tasks and the stop flag.
#[derive(Debug, Default)]
pub(crate) struct TaskCount(AtomicUsize);

impl TaskCount {
    /// Counts a task in; returns false when the runtime is stopping.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let more = |word: usize| (word & STOPPING == 0).then_some(word + ONE);
        // AcqRel: pairs with `stop`. Relaxed on failure: the caller leaves.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Counts a task out; returns true when it was the last one and no more can come.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // AcqRel: the last task to leave sees all that the other tasks did.
        let before = self.0.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert!(before >= ONE, "more tasks left than came");
        before == ONE | STOPPING
    }

    /// Stops the runtime: no task enters from now on.
    pub(crate) fn stop(&self) -> Stop {
        // AcqRel: pairs with `enter`.
        match self.0.fetch_or(STOPPING, Ordering::AcqRel) {
            0 => Stop::Empty,
            before if before & STOPPING != 0 => Stop::Again,
            _ => Stop::Inhabited,
        }
    }

    /// Returns whether the runtime is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire: pairs with `stop`.
        self.0.load(Ordering::Acquire) & STOPPING != 0
    }

    /// Returns the number of live tasks.
    pub(crate) fn count(&self) -> usize {
        // Relaxed: a statistic.
        self.0.load(Ordering::Relaxed) / ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_leave_is_told_once() {
        let task_count = TaskCount::default();
        assert!(task_count.enter() && task_count.enter());
        assert!(!task_count.leave(), "more may come");
        assert_eq!(task_count.stop(), Stop::Inhabited);
        assert_eq!(task_count.stop(), Stop::Again);
        assert!(!task_count.enter());
        assert_eq!(task_count.count(), 1);
        assert!(task_count.leave());
    }

    #[test]
    fn an_empty_runtime_stops_at_once() {
        let task_count = TaskCount::default();
        assert!(task_count.enter());
        assert!(!task_count.leave());
        assert_eq!(task_count.stop(), Stop::Empty);
        assert!(task_count.is_stopping());
    }
}
