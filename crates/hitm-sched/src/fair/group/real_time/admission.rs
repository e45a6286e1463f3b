//! Who may have a limit for real-time tasks: the groups in a group together no more than the group
//! itself.
//!
//! **Claim.** What groups may run of a CPU, as parts of it, is added up over those whose next
//! limited group above is the same one, or none: the sum is not more than what that may run, or
//! than the CPU.
//!
//! **Origin.** Linux's rule. There a group has no real-time task unless it has a limit, and all are
//! below the machine's own, 95 %; here a group without a limit is as if it were not there, and what
//! all leave to others is the [server's](crate::fair::server) affair.
//!
//! **Locks.** The caller changes a limit, and nobody else does so.

use hitm_memory::Platform;

use crate::fair::group::GroupId;
use crate::fair::group::quota::{QuotaRefused, RealTimeQuota};
use crate::root_domain::RootDomainWords;
use crate::scheduler::Scheduler;

/// A part of a CPU, in thousandths.
fn thousandths(part: u64) -> u64 {
    (part * 1_000 + RealTimeQuota::WHOLE / 2) / RealTimeQuota::WHOLE
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// What part of a CPU the real-time tasks of `id` may run, if they have a limit.
    pub(super) fn share_of(&self, id: GroupId) -> Option<u64> {
        self.real_time_limit_of(id)?.share()
    }

    /// The next group above `id` that has a limit, or is `own`.
    fn limited_above(&self, id: GroupId, own: GroupId) -> Option<GroupId> {
        let above = |&id: &GroupId| self.group(id).parent();
        std::iter::successors(above(&id), above).find(|&above| above == own || self.share_of(above).is_some())
    }

    /// Whether `id` may have that limit.
    pub(super) fn admit(&self, id: GroupId, quota: RealTimeQuota) -> Result<(), QuotaRefused> {
        let wanted = RealTimeQuota::part(quota.runtime().as_picos(), quota.period().as_picos());
        let above = self.limited_above(id, id);
        let (mut left, mut below) = (above.and_then(|above| self.share_of(above)).unwrap_or(RealTimeQuota::WHOLE), 0);
        for other in self.groups().expect("one is to be limited").ever_made().filter(|&other| other != id) {
            let Some(share) = self.share_of(other) else { continue };
            let counts_for = self.limited_above(other, id);
            if counts_for == Some(id) {
                below += share;
            } else if counts_for == above {
                left -= share;
            }
        }
        if wanted > left {
            return Err(QuotaRefused::TooMuch { wanted: thousandths(wanted), left: thousandths(left) });
        }
        if wanted < below {
            return Err(QuotaRefused::TooLittle { wanted: thousandths(wanted), below: thousandths(below) });
        }
        Ok(())
    }
}
