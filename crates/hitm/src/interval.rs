//! [`Interval`]: ticks at equal distances.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hitm_memory::{Platform, Span, Time};

use crate::runtime::Handle;
use crate::time::Sleep;

/// What an interval does with ticks that passed while no task waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTicks {
    /// They come one after another, at once: the number of ticks is kept.
    #[default]
    Burst,
    /// They are left out: the next tick is the next multiple of the period.
    Skip,
    /// They are left out: the next tick is a whole period after the late one.
    Delay,
}

/// Ticks at equal distances: see [`Handle::interval`].
pub struct Interval<P: Platform> {
    runtime: Handle<P>,
    period: Span,
    /// Ends at the next tick.
    next: Sleep<P>,
    missed: MissedTicks,
}

impl<P: Platform> Handle<P> {
    /// Makes ticks every `period`, the first one at once. By default, ticks that passed while no
    /// task waited for them come at once: see [`Interval::on_missed`].
    ///
    /// ```
    /// use std::time::Duration;
    /// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// let mut ticks = handle.interval(Duration::from_micros(200));
    /// let first = ticks.tick().await;
    /// let second = ticks.tick().await;
    /// assert_eq!(Duration::from(second.since(first)), Duration::from_micros(200));
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// When `period` is zero.
    #[must_use]
    #[track_caller]
    pub fn interval(&self, period: impl Into<Span>) -> Interval<P> {
        self.interval_at(self.now(), period)
    }

    /// As [`Handle::interval`], but the first tick comes at `start`.
    ///
    /// # Panics
    /// When `period` is zero.
    #[must_use]
    #[track_caller]
    pub fn interval_at(&self, start: Time, period: impl Into<Span>) -> Interval<P> {
        let period = period.into();
        assert!(!period.is_zero(), "the period of an interval is above zero");
        Interval { runtime: self.clone(), period, next: self.sleep_until(start), missed: MissedTicks::default() }
    }
}

impl<P: Platform> Interval<P> {
    /// Changes what becomes of missed ticks.
    #[must_use]
    pub fn on_missed(self, missed: MissedTicks) -> Self {
        Self { missed, ..self }
    }

    /// Waits for the next tick and returns the time at which it was due.
    ///
    /// # Cancel safety
    /// A dropped wait takes no tick: the next call waits for the same one.
    pub async fn tick(&mut self) -> Time {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// Polls for the next tick: see [`Interval::tick`].
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Time> {
        ready!(Pin::new(&mut self.next).poll(context));
        let due = self.next.deadline();
        self.next.reset(next_tick(due, self.runtime.now(), self.period, self.missed));
        Poll::Ready(due)
    }

    /// Lets the next tick come a whole period from now.
    pub fn reset(&mut self) {
        self.next.reset(self.runtime.now() + self.period);
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Span {
        self.period
    }
}

/// Returns the tick after the one that was due at `due` and was taken at `now`.
fn next_tick(due: Time, now: Time, period: Span, missed: MissedTicks) -> Time {
    let next = due + period;
    if next > now || missed == MissedTicks::Burst {
        return next;
    }
    match missed {
        MissedTicks::Delay => now + period,
        _ => {
            let periods = now.since(due).as_picos() / period.as_picos() + 1;
            due + Span::from_picos(periods.saturating_mul(period.as_picos()))
        }
    }
}

impl<P: Platform> fmt::Debug for Interval<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("period", &self.period)
            .field("next", &self.next.deadline())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks() {
        let at = |micros| Time::START + Span::from_micros(micros);
        let period = Span::from_micros(10);
        let check = |now, missed, expected| assert_eq!(next_tick(at(100), at(now), period, missed), at(expected));
        for missed in [MissedTicks::Burst, MissedTicks::Skip, MissedTicks::Delay] {
            check(103, missed, 110);
        }
        check(135, MissedTicks::Burst, 110);
        check(135, MissedTicks::Skip, 140);
        check(140, MissedTicks::Skip, 150);
        check(135, MissedTicks::Delay, 145);
    }
}
