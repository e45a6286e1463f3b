//! Admission of limits for real-time tasks: the groups in a group together get at most what the
//! group has.
//!
//! **Claim.** A limit is a part of a CPU. The sum over the limited groups whose next limited group
//! above is the same one is at most that group's part; without a limited group above, it is at most
//! one CPU.
//!
//! **Origin.** Linux's rule. There a group without a limit has no real-time tasks, and all limits
//! together are below the machine's, 95 %. Here a group without a limit is transparent, and the
//! [server](crate::fair::server) guards the time of fair tasks.
//!
//! **Locks.** The caller has the lock for changes of limits.

use hitm_memory::Platform;

use crate::base::numbers::GroupId;
use crate::fair::group::Groups;
use crate::fair::group::quota::{QuotaRefused, RealTimeQuota};

/// Returns a part of a CPU in thousandths.
fn thousandths(part: u64) -> u64 {
    (part * 1_000 + RealTimeQuota::WHOLE / 2) / RealTimeQuota::WHOLE
}

impl<P: Platform> Groups<P> {
    /// Returns the part of a CPU that the real-time tasks of `id` may use, if they have a limit.
    pub(super) fn share_of(&self, id: GroupId) -> Option<u64> {
        self.real_time_limit_of(id)?.share()
    }

    /// Returns the next group above `id` that has a limit, or is `own`.
    fn limited_above(&self, id: GroupId, own: GroupId) -> Option<GroupId> {
        let above = |&id: &GroupId| self.group(id).parent();
        std::iter::successors(above(&id), above).find(|&above| above == own || self.share_of(above).is_some())
    }

    /// Checks whether `id` may have this limit.
    pub(super) fn admit(&self, id: GroupId, quota: RealTimeQuota) -> Result<(), QuotaRefused> {
        let wanted = RealTimeQuota::part(quota.runtime().as_picos(), quota.period().as_picos());
        let above = self.limited_above(id, id);
        let (mut left, mut below) = (above.and_then(|above| self.share_of(above)).unwrap_or(RealTimeQuota::WHOLE), 0);
        for other in self.ever_made().filter(|&other| other != id) {
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
