//! The searches for an idle core, an idle CPU or an idle sibling, by which a waking fair task
//! [is placed](super::select).
//!
//! | file | contents |
//! |---|---|
//! | [`two_passes`] | Linux up to v5.11, and what was posted for it |
//! | [`one_pass`] | Linux since v5.12 |
//! | [`buddy`] | Linux v3.6's |
//! | [`claims`] | sched_ext's |
//! | [`hints`] | hitm's |
//! | [`search`] | what every search says of itself |
//! | [`view`] | what a search may read and write |
//!
//! A new search is one file, its name in `searches!` below, and one row in the [table of
//! mitigations](crate::mitigation::TABLE).

use hitm_memory::Platform;
use hitm_topology::{CpuId, Scope};

use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::sched_domains::Kept;
use crate::base::idle::search::{Search, searches};
use crate::base::idle::view::View;
use crate::linux::idle::buddy::Buddy;
use crate::linux::idle::claims::Claims;
use crate::linux::idle::one_pass::OnePass;
use crate::linux::idle::two_passes::{self, TwoPasses};
use crate::shipped::hints::{self, Hints};

searches!(TwoPasses, OnePass, Claims, Hints, Buddy);

impl IdleSearch {
    /// Linux v5.10's.
    pub(crate) const BASELINE: Self = Self::TwoPasses(two_passes::BASELINE);

    /// hitm's.
    pub(crate) const SHIPPED: Self = Self::Hints(hints::SHIPPED);
}
