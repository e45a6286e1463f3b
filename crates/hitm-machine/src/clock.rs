//! [`Clock`]: the time of a machine, for other host threads.

use std::sync::atomic::{AtomicU64, Ordering};

use hitm_memory::Time;

/// The time of a machine, which any host thread can read while the machine runs: see
/// [`Machine::with_clock`](crate::Machine::with_clock).
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Returns the time that the machine has reached.
    pub fn now(&self) -> Time {
        // Relaxed: a number for people; nothing is read because of it.
        Time::from_picos(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time, in picoseconds.
    #[doc(hidden)]
    pub fn set(&self, picos: u64) {
        // Relaxed: as in `now`.
        self.0.store(picos, Ordering::Relaxed);
    }
}
