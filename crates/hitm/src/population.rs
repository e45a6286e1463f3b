//! How many tasks live, and whether more may come, in one word: no task slips in behind the last one.
//!
//! **State.** Bit 0: the runtime stops. Above it: how many tasks live. All transitions are read-modify-writes.
//!
//! | word | meaning |
//! |---|---|
//! | even | tasks come and go |
//! | odd, above 1 | tasks go |
//! | 1 | the last has gone: the CPUs leave |

use std::sync::atomic::{AtomicUsize, Ordering};

const STOPPING: usize = 1;
const ONE: usize = 2;

/// What [`Population::stop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Stop {
    /// It had been called before.
    Again,
    /// Nobody lives.
    Empty,
    /// Who lives has to be told.
    Inhabited,
}

/// The tasks that live.
#[derive(Debug, Default)]
pub(crate) struct Population(AtomicUsize);

impl Population {
    /// Counts a task in; false when the runtime stops.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let more = |word: usize| (word & STOPPING == 0).then_some(word + ONE);
        // AcqRel: pairs with `stop`. Relaxed on failure: the caller leaves.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Counts a task out; true when it was the last and no more come.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // AcqRel: the last one has seen all that the others did.
        let before = self.0.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert!(before >= ONE, "more tasks left than came");
        before == ONE | STOPPING
    }

    /// No task comes from now on.
    pub(crate) fn stop(&self) -> Stop {
        // AcqRel: pairs with `enter`.
        match self.0.fetch_or(STOPPING, Ordering::AcqRel) {
            0 => Stop::Empty,
            before if before & STOPPING != 0 => Stop::Again,
            _ => Stop::Inhabited,
        }
    }

    /// Whether no more tasks come.
    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire: pairs with `stop`.
        self.0.load(Ordering::Acquire) & STOPPING != 0
    }

    /// How many live.
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
        let population = Population::default();
        assert!(population.enter() && population.enter());
        assert!(!population.leave(), "more may come");
        assert_eq!(population.stop(), Stop::Inhabited);
        assert_eq!(population.stop(), Stop::Again);
        assert!(!population.enter());
        assert_eq!(population.count(), 1);
        assert!(population.leave());
    }

    #[test]
    fn an_empty_runtime_stops_at_once() {
        let population = Population::default();
        assert!(population.enter());
        assert!(!population.leave());
        assert_eq!(population.stop(), Stop::Empty);
        assert!(population.is_stopping());
    }
}
