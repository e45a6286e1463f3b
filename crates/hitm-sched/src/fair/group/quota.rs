//! How much time of the CPUs a group may use, and what is known of one that has used it up.

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
    /// The period that is usual: Linux's default.
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

    /// The time that may be used in a period.
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

/// A limit for real-time tasks: the time that those of a group together may run on each CPU in each
/// period.
///
/// Of that the groups in it may have parts, which together are not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeQuota {
    runtime: Span,
    period: Span,
}

impl RealTimeQuota {
    /// The period that is usual: Linux's default.
    pub const PERIOD: Span = GroupQuota::PERIOD_MAX;

    /// The shortest period.
    pub const PERIOD_LEAST: Span = GroupQuota::LEAST;

    /// The least that a group may be given: what is not meant to run at all need not be real-time.
    pub const RUNTIME_LEAST: Span = Span::from_micros(100);

    /// A whole CPU, as [`RealTimeQuota::part`] says it: Linux's.
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

    /// The time that may be run in a period.
    #[must_use]
    pub const fn runtime(self) -> Span {
        self.runtime
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Span {
        self.period
    }

    /// What part of a CPU that much in each period is, rounded down.
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
    /// The enclosing group with a real-time limit, or the CPU, has less left.
    TooMuch {
        /// The requested part of a CPU, in thousandths.
        wanted: u64,
        /// The part that is left, in thousandths of a CPU.
        left: u64,
    },
    /// The groups in the group have more.
    TooLittle {
        /// The requested part of a CPU, in thousandths.
        wanted: u64,
        /// The sum of the parts of the groups in the group, in thousandths of a CPU.
        below: u64,
    },
}

/// Returns the span in milliseconds, so that a message has the limit and the request in one unit.
fn millis(span: Span) -> f64 {
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
                "{wanted} thousandths of a CPU are wanted for real-time tasks: {left} are left of what the group above, or the CPU, has"
            ),
            Self::TooLittle { wanted, below } => write!(
                f,
                "{wanted} thousandths of a CPU are wanted for real-time tasks: the groups in this one have {below}"
            ),
        }
    }
}

impl std::error::Error for QuotaRefused {}

/// What a limit has done to a group, since its maker made it: that of all its tasks, or that of its
/// real-time ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupThrottling {
    /// Periods at whose start a CPU waited for the quota. For real-time tasks: periods in which
    /// something was used, counted per CPU.
    pub periods: u64,
    /// How often a CPU stopped to run the group because nothing was left for it.
    pub throttles: u64,
    /// For how long CPUs have not run it, those together that do so now again.
    pub throttled: Span,
}
