//! [`SchedulerConfig`]: all choices that a mitigation makes, as values.

use hitm_memory::{Form, Memory, RecordLayout, Span};

use crate::base::prio::Level;
use crate::cid::Variant;
use crate::fair::group::variant::GroupConfig;
use crate::fair::idle::IdleSearch;
use crate::linux::cpupri_vecs::{COMPACT, CpupriOrder, PACKED};
use crate::linux::idle::two_passes;
use crate::linux::root_domain::{BASELINE, RootDomainOrder};
use crate::shipped::hints;

/// The scopes of the parts that are split, and the choices of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The order of the root domain's words.
    pub order: &'static RootDomainOrder,
    /// Where cpupri's counts and pointers are.
    pub cpupri: &'static CpupriOrder,
    /// cpupri's sets of CPUs.
    pub cpupri_mask: Form,
    /// cpupri's counts of CPUs.
    pub cpupri_count: Form,
    /// The set of overloaded CPUs.
    pub rto_mask: Form,
    /// The count of overloaded CPUs.
    pub rto_count: Form,
    /// Whether a puller asks the overloaded CPUs to push, by a chain of interrupts, instead of
    /// taking their locks.
    pub push_by_interrupt: bool,
    /// Whether no push request is lost. In the original one can be lost: see
    /// [`push_token`](crate::linux::push_token).
    pub keeps_requests: bool,
    /// Whether only waiting tasks are advertised: see [`waiting`](crate::shipped::waiting).
    pub shipped: bool,
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
    /// Our own choices: see [`Mitigation::shipped`](crate::mitigation::Mitigation::shipped).
    pub(crate) fn shipped() -> Self {
        Self {
            cpupri: &COMPACT,
            shipped: true,
            cids: Variant::Shipped,
            idle: hints::SHIPPED,
            groups: GroupConfig::SHIPPED,
            ..Self::default()
        }
    }

    /// Returns the layout of the root domain.
    pub(crate) fn root_domain_layout<M: Memory>(&self) -> RecordLayout {
        self.order.layout::<M>(self.cpupri, Level::COUNT)
    }

    /// Returns whether a pull takes other queues' locks, so that the puller's own lock may be
    /// released meanwhile.
    pub(crate) fn lets_go_to_pull(&self) -> bool {
        self.shipped || !self.push_by_interrupt
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            order: &BASELINE,
            cpupri: &PACKED,
            cpupri_mask: Form::WHOLE,
            cpupri_count: Form::WHOLE,
            rto_mask: Form::WHOLE,
            rto_count: Form::WHOLE,
            push_by_interrupt: true,
            keeps_requests: false,
            shipped: false,
            cids: Variant::Baseline,
            idle: two_passes::BASELINE,
            groups: GroupConfig::default(),
            tick: TICK,
        }
    }
}
