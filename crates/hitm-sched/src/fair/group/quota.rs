//! How much time of the CPUs a group may use, and what is known of one that has used it up.

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

/// What a group's limit has done to it, since its maker made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupThrottling {
    /// Periods at whose beginning there was somebody to give the quota to.
    pub periods: u64,
    /// How often a CPU stopped to run the group because nothing was left for it.
    pub throttles: u64,
    /// For how long CPUs have not run it, those together that do so now again.
    pub throttled: Span,
}
