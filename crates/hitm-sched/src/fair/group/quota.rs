//! How much time of the CPUs a group may use, and what is known of one that has used it up.

use std::fmt;

use hitm_memory::Span;

/// A limit: the time that all tasks of a group together, on all CPUs together, may run in each period.
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

    /// The largest quota: more than ten thousand CPUs in the longest period.
    pub const QUOTA_MAX: Span = Span::from_micros(1 << 34);

    /// So much in each period.
    ///
    /// # Panics
    /// When `quota` is not 1 ms to [`GroupQuota::QUOTA_MAX`], or `period` not 1 ms to 1 s.
    #[must_use]
    pub const fn new(quota: Span, period: Span) -> Self {
        let (least, picos) = (Self::LEAST.as_picos(), quota.as_picos());
        assert!(picos >= least && picos <= Self::QUOTA_MAX.as_picos(), "a group's quota is 1 ms at least, 4 h at most");
        let picos = period.as_picos();
        assert!(picos >= least && picos <= Self::PERIOD_MAX.as_picos(), "the period of a quota is 1 ms to 1 s");
        Self { quota, period }
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

/// A limit for real-time tasks: the time that those of a group together may run on each CPU in each period.
///
/// Of that the groups in it may have parts, which together are not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeQuota {
    runtime: Span,
    period: Span,
}

impl RealTimeQuota {
    /// The period that is usual: Linux's default.
    pub const PERIOD: Span = Span::from_micros(1_000_000);

    /// The shortest period.
    pub const PERIOD_LEAST: Span = Span::from_micros(1_000);

    /// The least that a group may be given: what is not meant to run at all need not be real-time.
    pub const RUNTIME_LEAST: Span = Span::from_micros(100);

    /// A whole CPU, as [`RealTimeQuota::part`] says it: Linux's.
    pub(super) const WHOLE: u64 = 1 << 20;

    /// So much in each period.
    ///
    /// # Panics
    /// When `period` is not 1 ms to 1 s, or `runtime` less than 100 us or more than the period.
    #[must_use]
    pub const fn new(runtime: Span, period: Span) -> Self {
        let (least, picos) = (Self::PERIOD_LEAST.as_picos(), period.as_picos());
        assert!(picos >= least && picos <= Self::PERIOD.as_picos(), "the period of real-time tasks is 1 ms to 1 s");
        let (least, most) = (Self::RUNTIME_LEAST.as_picos(), picos);
        let picos = runtime.as_picos();
        assert!(
            picos >= least && picos <= most,
            "the runtime of real-time tasks is 100 us at least, and no more than the period"
        );
        Self { runtime, period }
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

/// Why a group may not have a limit for its real-time tasks. All are in thousandths of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRefused {
    /// Less is left of what the group above may run, or the CPU has.
    TooMuch {
        /// What was wanted.
        wanted: u64,
        /// What is left.
        left: u64,
    },
    /// The groups in it may run more.
    TooLittle {
        /// What was wanted.
        wanted: u64,
        /// What they may run.
        below: u64,
    },
}

impl fmt::Display for QuotaRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

/// What a limit has done to a group, since its maker made it: that of all its tasks, or that of its real-time ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupThrottling {
    /// Periods at whose beginning there was somebody to give the quota to; for real-time tasks, where something was used, a CPU's each.
    pub periods: u64,
    /// How often a CPU stopped to run the group because nothing was left for it.
    pub throttles: u64,
    /// For how long CPUs have not run it, those together that do so now again.
    pub throttled: Span,
}
