//! The invariants of groups' real-time limits when nothing is in flight, checked on plain data.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use crate::base::numbers::GroupId;
use crate::base::state::State;
use crate::base::timeline::PICOS;
use crate::fair::group::Groups;

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
