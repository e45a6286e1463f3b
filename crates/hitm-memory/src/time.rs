//! Time as integers: picoseconds, so that a cycle at any clock and a tenth of a nanosecond are both
//! exact enough.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::time::Duration;

/// A point in time, in picoseconds since the machine started. `u64` picoseconds last 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// When the machine started.
    pub const START: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// `picos` picoseconds after the start.
    #[must_use]
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Picoseconds since the start.
    #[must_use]
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Seconds since the start, for reports.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The time since `earlier`, or nothing if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `picos` picoseconds.
    #[must_use]
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * 1_000)
    }

    /// `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000_000)
    }

    /// `nanos` nanoseconds, rounded to a picosecond; negative and not-a-number become zero.
    #[must_use]
    pub fn from_nanos_f64(nanos: f64) -> Self {
        // `as` saturates and maps NaN to zero, which is what the contract says.
        Self((nanos * 1e3).round() as u64)
    }

    /// Picoseconds.
    #[must_use]
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// Nanoseconds, for reports and native clocks.
    #[must_use]
    pub fn as_nanos_f64(self) -> f64 {
        self.0 as f64 * 1e-3
    }

    /// Seconds, for reports.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// Whether this is no time at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This span less `other`, or nothing if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This span times `factor`, rounded to a picosecond.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl From<Duration> for Span {
    /// Durations beyond 213 days, the longest span, become that.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000))
    }
}

impl From<Span> for Duration {
    /// Rounds down to a nanosecond.
    fn from(span: Span) -> Self {
        Self::from_nanos(span.as_picos() / 1_000)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        self + Span::from(span)
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, count: u64) -> Self {
        Self(self.0 * count)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => write!(f, "{} ps", self.0),
            10_000..10_000_000 => write!(f, "{:.1} ns", self.0 as f64 * 1e-3),
            10_000_000..10_000_000_000 => write!(f, "{:.1} us", self.0 as f64 * 1e-6),
            10_000_000_000..10_000_000_000_000 => write!(f, "{:.1} ms", self.0 as f64 * 1e-9),
            _ => write!(f, "{:.2} s", self.0 as f64 * 1e-12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree() {
        assert_eq!(Span::from_nanos(3), Span::from_picos(3_000));
        assert_eq!(Span::from_micros(2), Span::from_nanos(2_000));
        assert_eq!(Span::from_nanos_f64(5.5), Span::from_picos(5_500));
        assert_eq!(Span::from_nanos_f64(f64::NAN), Span::ZERO);
        assert_eq!(Time::START + Span::from_nanos(1), Time::from_picos(1_000));
        assert_eq!(Time::NEVER + Span::from_nanos(1), Time::NEVER);
        assert_eq!(Time::START.since(Time::from_picos(9)), Span::ZERO);
    }

    #[test]
    fn spans_print_in_a_readable_unit() {
        let printed: Vec<String> =
            [7, 12_345, 12_345_678, 12_345_678_901, 1 << 60].map(|picos| Span::from_picos(picos).to_string()).into();
        assert_eq!(printed, ["7 ps", "12.3 ns", "12.3 us", "12.3 ms", "1152921.50 s"]);
    }
}
