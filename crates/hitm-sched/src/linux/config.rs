//! [`RootDomainConfig`]: the choices of the replica's root domain, as values.

use hitm_memory::{Form, Memory, RecordLayout};

use super::cpupri_vecs::{CpupriOrder, PACKED};
use super::root_domain_words::{BASELINE, RootDomainOrder};
use crate::base::prio::Level;

/// The scopes of the parts that are split, and the choices of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootDomainConfig {
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
    /// [`push_token`](super::push_token).
    pub keeps_requests: bool,
}

impl RootDomainConfig {
    /// Returns the layout of the root domain.
    pub(crate) fn layout<M: Memory>(&self) -> RecordLayout {
        self.order.layout::<M>(self.cpupri, Level::COUNT)
    }
}

impl Default for RootDomainConfig {
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
        }
    }
}
