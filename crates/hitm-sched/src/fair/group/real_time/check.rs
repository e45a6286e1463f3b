//! The invariants of groups' real-time limits when nothing is in flight, checked on plain data.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use crate::base::numbers::GroupId;
use crate::base::state::State;
use crate::base::timeline::PICOS;
use crate::fair::group::Groups;
use crate::fair::group::check::GroupSnapshot;
use crate::fair::group::quota::RealTimeQuota;

/// The real-time queue of a group on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeQueueSnapshot {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it takes part.
    pub online: bool,
    /// The runtime per period, in nanoseconds; 0 while there is no limit.
    pub runtime: u64,
    /// The used time that is not subtracted yet.
    pub used: u64,
    /// When the period ends.
    pub ends: Time,
    /// Whether it is throttled.
    pub throttled: bool,
    /// Whether it is in the set of CPUs that searches read.
    pub marked: bool,
    /// Whether the CPU watches it.
    pub watched: bool,
    /// When that CPU looks next.
    pub due: Time,
}

/// A group's limit for real-time tasks, or what remains of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealTimeSnapshot {
    /// Its part of a CPU, in units of 2^-20; `None` while there is no limit.
    pub share: Option<u64>,
    /// The CPUs where it was used.
    pub on: Vec<RealTimeQueueSnapshot>,
}

impl<P: Platform> Groups<P> {
    pub(in crate::fair::group) fn real_time_snapshot(&self, state: &State<P>, id: GroupId) -> Option<RealTimeSnapshot> {
        let limit = self.real_time_limit_of(id)?;
        let (marked, limits) = (limit.throttled_on(), self.limits().expect("one has a limit"));
        let on = |cpu: CpuId| {
            let on = limit.on(cpu)?;
            let (used, runtime, ends) = on.peek();
            Some(RealTimeQueueSnapshot {
                cpu,
                online: state.rqs[cpu].online.peek() != 0,
                runtime,
                used,
                ends: Time::from_picos(ends * PICOS),
                throttled: on.peek_throttled(),
                marked: marked.contains(cpu),
                watched: self.watched(cpu).contains(&id),
                due: limits.due(cpu),
            })
        };
        Some(RealTimeSnapshot { share: limit.share(), on: state.topology.cpu_ids().filter_map(on).collect() })
    }
}

impl RealTimeSnapshot {
    pub(in crate::fair::group) fn check(&self, lives: bool, fail: &mut dyn FnMut(String)) {
        for on in &self.on {
            let is_limited = self.share.is_some() && lives && on.runtime != 0 && on.online;
            if on.throttled && (!is_limited || !on.watched || on.due > on.ends) {
                fail(format!("throttles real-time tasks, share {:?}, and: {on:?}", self.share));
            }
            if on.throttled != on.marked {
                fail(format!("throttles real-time tasks or not, and searches know otherwise: {on:?}"));
            }
            if self.share.is_some() != (on.runtime != 0) {
                fail(format!("real-time tasks may run {:?}, and: {on:?}", self.share));
            }
        }
    }
}

impl GroupSnapshot {
    fn real_time_share(&self) -> Option<u64> {
        self.real_time.as_ref()?.share
    }

    /// Returns whether its real-time tasks are held on `cpu`.
    fn holds_on(&self, cpu: CpuId) -> bool {
        self.real_time.as_ref().is_some_and(|limit| limit.on.iter().any(|on| on.cpu == cpu && on.throttled))
    }
}

/// Returns the groups from `from` upwards.
fn upward(groups: &[GroupSnapshot], from: Option<GroupId>) -> impl Iterator<Item = &GroupSnapshot> {
    let find = |id: GroupId| groups.iter().find(|group| group.id == id);
    std::iter::successors(from.and_then(find), move |group| group.parent.and_then(find))
}

/// Returns the group that holds the real-time tasks of `group` on `cpu`: the nearest one that is
/// throttled there.
pub(crate) fn holder_of(groups: &[GroupSnapshot], cpu: CpuId, group: Option<GroupId>) -> Option<GroupId> {
    upward(groups, group).find(|group| group.holds_on(cpu)).map(|group| group.id)
}

/// Reports the groups whose limits do not fit into those around them.
pub(crate) fn check_shares(groups: &[GroupSnapshot], fail: &mut dyn FnMut(String)) {
    let of = |above: Option<GroupId>| -> u64 {
        let limited = groups.iter().filter(|group| group.real_time_share().is_some());
        let next = |group: &GroupSnapshot| {
            upward(groups, group.parent).find(|above| above.real_time_share().is_some()).map(|above| above.id)
        };
        limited.filter(|group| next(group) == above).filter_map(GroupSnapshot::real_time_share).sum()
    };
    for group in groups {
        if let Some(share) = group.real_time_share().filter(|&share| of(Some(group.id)) > share) {
            fail(format!("group {} has a real-time part of {share}, its groups {}", group.id, of(Some(group.id))));
        }
    }
    if of(None) > RealTimeQuota::WHOLE {
        fail(format!("groups have a real-time part of {}, which is more than a CPU", of(None)));
    }
}
