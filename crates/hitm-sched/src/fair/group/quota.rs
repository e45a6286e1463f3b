//! The limits of a group's CPU time, and the counts of their effects.

use std::fmt;

use hitm_memory::Span;

/// A limit: the time that all tasks of a group together, on all CPUs together, may run in each
/// period.
///
/// Half a CPU is 50 ms of each 100, two CPUs are 200 of each 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupQuota {
    quota: Span,
    period: Span,
}

impl GroupQuota {
    /// The usual period: Linux's default.
    pub const PERIOD: Span = Span::from_micros(100_000);

    /// The shortest period, and the smallest quota: Linux's.
    pub const LEAST: Span = Span::from_micros(1_000);

    /// The longest period: Linux's.
    pub const PERIOD_MAX: Span = Span::from_micros(1_000_000);

    /// The largest quota, 4.77 hours: more than ten thousand CPUs in the longest period.
    pub const QUOTA_MAX: Span = Span::from_micros(1 << 34);

    /// Returns the limit of `quota` per `period`.
    ///
    /// # Errors
    /// When `quota` is not [`GroupQuota::LEAST`] to [`GroupQuota::QUOTA_MAX`], or `period` is not
    /// [`GroupQuota::LEAST`] to [`GroupQuota::PERIOD_MAX`].
    pub fn new(quota: Span, period: Span) -> Result<Self, QuotaRefused> {
        check_period(period)?;
        if !(Self::LEAST..=Self::QUOTA_MAX).contains(&quota) {
            return Err(QuotaRefused::Quota { wanted: quota });
        }
        Ok(Self { quota, period })
    }

    /// Returns the time that may be used in a period.
    #[must_use]
    pub const fn quota(self) -> Span {
        self.quota
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Span {
        self.period
    }
}

/// Checks the period of a limit. Limits of fair tasks and of real-time tasks allow the same
/// periods.
fn check_period(period: Span) -> Result<(), QuotaRefused> {
    let allowed = (GroupQuota::LEAST..=GroupQuota::PERIOD_MAX).contains(&period);
    allowed.then_some(()).ok_or(QuotaRefused::Period { wanted: period })
}

/// A limit for real-time tasks: the time that the real-time tasks of a group together may run on
/// each CPU in each period.
///
/// The groups in it may have parts of that time. The sum of the parts is at most the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeQuota {
    runtime: Span,
    period: Span,
}

impl RealTimeQuota {
    /// The usual period: Linux's default.
    pub const PERIOD: Span = GroupQuota::PERIOD_MAX;

    /// The shortest period.
    pub const PERIOD_LEAST: Span = GroupQuota::LEAST;

    /// The smallest runtime: tasks that are not meant to run at all need no real-time priority.
    pub const RUNTIME_LEAST: Span = Span::from_micros(100);

    /// A whole CPU in the unit of [`RealTimeQuota::part`]: Linux's.
    pub(super) const WHOLE: u64 = 1 << 20;

    /// Returns the limit of `runtime` per `period`.
    ///
    /// # Errors
    /// When `period` is not [`RealTimeQuota::PERIOD_LEAST`] to [`RealTimeQuota::PERIOD`], or
    /// `runtime` is not [`RealTimeQuota::RUNTIME_LEAST`] to `period`.
    pub fn new(runtime: Span, period: Span) -> Result<Self, QuotaRefused> {
        check_period(period)?;
        if !(Self::RUNTIME_LEAST..=period).contains(&runtime) {
            return Err(QuotaRefused::Runtime { wanted: runtime, period });
        }
        Ok(Self { runtime, period })
    }

    /// Returns the time that may be used in a period.
    #[must_use]
    pub const fn runtime(self) -> Span {
        self.runtime
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Span {
        self.period
    }

    /// Returns `runtime` per `period` as a part of a CPU, rounded down.
    pub(super) const fn part(runtime: u64, period: u64) -> u64 {
        (runtime as u128 * Self::WHOLE as u128 / period as u128) as u64
    }
}

/// The reason why a group cannot have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRefused {
    /// The quota is shorter than [`GroupQuota::LEAST`] or longer than [`GroupQuota::QUOTA_MAX`].
    Quota {
        /// The requested quota.
        wanted: Span,
    },
    /// The period is shorter than [`GroupQuota::LEAST`] or longer than [`GroupQuota::PERIOD_MAX`].
    Period {
        /// The requested period.
        wanted: Span,
    },
    /// The runtime is shorter than [`RealTimeQuota::RUNTIME_LEAST`] or longer than its period.
    Runtime {
        /// The requested runtime.
        wanted: Span,
        /// The requested period.
        period: Span,
    },
    /// The next group above with a real-time limit, or the CPU if there is none, has less left.
    TooMuch {
        /// The requested part of a CPU, in thousandths.
        wanted: u64,
        /// The part that is left, in thousandths of a CPU.
        left: u64,
    },
    /// The groups in the group together have more.
    TooLittle {
        /// The requested part of a CPU, in thousandths.
        wanted: u64,
        /// The sum of the parts of the groups in the group, in thousandths of a CPU.
        below: u64,
    },
}

/// Returns the span in milliseconds, so that a message has the limit and the request in one unit.
pub(super) fn millis(span: Span) -> f64 {
    span.as_picos() as f64 / 1e9
}

impl fmt::Display for QuotaRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { wanted } => {
                let [least, most, wanted] = [GroupQuota::LEAST, GroupQuota::QUOTA_MAX, *wanted].map(millis);
                write!(f, "a group's quota is {least} ms to {most} ms, not {wanted} ms")
            }
            Self::Period { wanted } => {
                let [least, most, wanted] = [GroupQuota::LEAST, GroupQuota::PERIOD_MAX, *wanted].map(millis);
                write!(f, "the period of a group's limit is {least} ms to {most} ms, not {wanted} ms")
            }
            Self::Runtime { wanted, period } => {
                let [least, period, wanted] = [RealTimeQuota::RUNTIME_LEAST, *period, *wanted].map(millis);
                write!(
                    f,
                    "a group's runtime for real-time tasks is {least} ms to its period of {period} ms, not {wanted} ms"
                )
            }
            Self::TooMuch { wanted, left } => write!(
                f,
                "{wanted} thousandths of a CPU are wanted for real-time tasks: the group above, or the CPU, has {left} left"
            ),
            Self::TooLittle { wanted, below } => write!(
                f,
                "{wanted} thousandths of a CPU are wanted for real-time tasks: the groups in this one have {below}"
            ),
        }
    }
}

impl std::error::Error for QuotaRefused {}

/// The effects of a limit on a group since the group was made: the limit of all its tasks, or that
/// of its real-time tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupThrottling {
    /// Periods at whose start a CPU waited for the quota. For real-time tasks: periods in which
    /// something was used, counted per CPU.
    pub periods: u64,
    /// How often a CPU stopped running the group because it had no runtime left.
    pub throttles: u64,
    /// The sum over all CPUs of the finished times in which they did not run it.
    pub throttled: Span,
}
