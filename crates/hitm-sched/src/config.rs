//! [`SchedulerConfig`]: all choices that a mitigation makes, as values.

use hitm_memory::Span;

use crate::cid::Variant;
use crate::fair::group::variant::GroupConfig;
use crate::fair::idle::IdleSearch;
use crate::linux::config::RootDomainConfig;
use crate::linux::cpupri_vecs::COMPACT;

/// The choices of each part of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerConfig {
    /// The root domain. With `shipped` only its count of busy queues and its active CPUs are used.
    pub root_domain: RootDomainConfig,
    /// Whether real-time tasks are placed by our own scheduler, [`shipped`](crate::shipped),
    /// instead of Linux's.
    pub shipped: bool,
    /// Whether a CPU keeps the tasks that its own task wakes: see `scheduler::spare`.
    pub keeps_wakeups: bool,
    /// How concurrency ids are allocated.
    pub cids: Variant,
    /// How a waking fair task finds an idle CPU.
    pub idle: IdleSearch,
    /// How the load of groups is kept.
    pub groups: GroupConfig,
    /// The tick period, where ids or fair tasks need ticks.
    pub tick: Span,
}

/// 250 ticks per second, as in Debian's and Ubuntu's kernels up to 2024.
const TICK: Span = Span::from_micros(4_000);

impl SchedulerConfig {
    /// Our own choices: see [`Mitigation::shipped`](crate::Mitigation::shipped).
    pub(crate) fn shipped() -> Self {
        Self {
            root_domain: RootDomainConfig { cpupri: &COMPACT, ..RootDomainConfig::default() },
            shipped: true,
            cids: Variant::Shipped,
            idle: IdleSearch::SHIPPED,
            groups: GroupConfig::SHIPPED,
            ..Self::default()
        }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            root_domain: RootDomainConfig::default(),
            shipped: false,
            keeps_wakeups: false,
            cids: Variant::Baseline,
            idle: IdleSearch::BASELINE,
            groups: GroupConfig::default(),
            tick: TICK,
        }
    }
}
