//! Completed work over time: a warm-up that does not count, then batches of equal length.

use std::sync::atomic::{AtomicU64, Ordering};

use hitm::{Handle, Priority};
use hitm_memory::{Platform, Span, Time};

/// The time window in which a run is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The length of the warm-up. Work completed in it does not count.
    pub warm_up: Span,
    /// The length of the measurement.
    pub measured: Span,
}

impl Window {
    /// Returns when the measurement starts.
    #[must_use]
    pub fn start(&self) -> Time {
        Time::START + self.warm_up
    }

    /// Returns when the measurement ends.
    #[must_use]
    pub fn end(&self) -> Time {
        self.start() + self.measured
    }

    /// Returns the batch of [`BATCHES`] that `now` falls into; `None` outside the window.
    pub(crate) fn batch(self, now: Time) -> Option<usize> {
        let since = now.since(self.start());
        let batch = since.as_picos() / (self.measured.as_picos() / BATCHES as u64).max(1);
        (now >= self.start() && batch < BATCHES as u64).then_some(batch as usize)
    }

    /// Counts events by role from the start to the end of the window.
    pub(crate) fn count_roles<P: Platform>(self, runtime: &Handle<P>) {
        if let Some(roles) = runtime.roles() {
            roles.count_between(self.start(), self.end());
        }
    }

    /// Counts as [`count_roles`](Self::count_roles) does, and spawns a task of `priority` that
    /// shuts the runtime down at the end.
    pub(crate) fn open<P: Platform>(self, runtime: &Handle<P>, priority: Priority) {
        self.count_roles(runtime);
        let clock = runtime.clone();
        runtime.spawn(priority, async move {
            clock.sleep_until(self.end()).await;
            clock.shutdown();
        });
    }
}

/// The number of batches per run: enough for a confidence interval.
pub const BATCHES: usize = 10;

/// Counts units of work per batch.
#[derive(Debug)]
pub struct Meter {
    window: Window,
    batches: [AtomicU64; BATCHES],
}

impl Meter {
    /// Makes a meter with zero counts.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self { window, batches: [const { AtomicU64::new(0) }; BATCHES] }
    }

    /// Counts `units` that a task of `runtime` has just completed.
    pub fn add<P: Platform>(&self, runtime: &Handle<P>, units: u64) {
        P::progress();
        self.add_at(runtime.now(), units);
    }

    /// Counts `units` that were completed at `now`.
    pub(crate) fn add_at(&self, now: Time, units: u64) {
        if let Some(batch) = self.window.batch(now) {
            // Relaxed: a statistic.
            self.batches[batch].fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Returns the units per second of each batch.
    #[must_use]
    pub fn rates(&self) -> [f64; BATCHES] {
        let seconds = self.window.measured.as_secs_f64() / BATCHES as f64;
        // Relaxed: a statistic.
        std::array::from_fn(|batch| self.batches[batch].load(Ordering::Relaxed) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fall_into_their_batches() {
        let window = Window { warm_up: Span::from_micros(10), measured: Span::from_micros(100) };
        let meter = Meter::new(window);
        let at = |micros| Time::START + Span::from_micros(micros);
        for micros in [0, 9, 10, 19, 20, 109, 110, 500] {
            meter.add_at(at(micros), 1);
        }
        let counts = meter.rates().map(|rate| (rate * 1e-5).round() as u64);
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(window.end(), at(110));
    }
}
