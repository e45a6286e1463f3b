//! The invariants of groups and their load when nothing is in flight, checked on plain data.

use std::collections::BTreeMap;

use hitm_memory::{PlainWord, Platform, Span, Time};
use hitm_topology::CpuId;

use super::pool::SLICE;
use super::quota::RealTimeQuota;
use super::real_time::check::RealTimeSnapshot;
use super::variant::PostRate;
use super::words::Loaded;
use crate::base::fair_words::{FairTask, Member};
use crate::base::numbers::GroupId;
use crate::base::state::State;
use crate::base::timeline::PICOS;
use crate::fair::group::Groups;

/// The rounding error of a sum, for a weight of 1: less than 3 per period, of which half decays
/// in 32 periods. A sum is up to 12 million.
const VALUE_ROUNDS_OFF: u64 = 3 * 47;

/// The largest total weight of members that have left a queue, but whose rounding error has not
/// decayed.
const LEFT_WEIGH: u64 = 1 << 20;

/// The members that are attached to a group's queue, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// How many there are.
    pub members: u64,
    /// Their sums, each times its weight, as of the queue's last update.
    pub value: u64,
    /// Their weight.
    pub weight: u64,
}

/// A group on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOnCpuSnapshot {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it takes part.
    pub online: bool,
    /// Its contribution to the group's load.
    pub contribution: i64,
    /// The queue's average.
    pub average: u64,
    /// The sum of that average.
    pub value: u64,
    /// The load of sleeping tasks that have left, as of the last update.
    pub removed: u64,
    /// The sum over its members.
    pub attached: Attached,
    /// Whether it is listed.
    pub listed: bool,
    /// The tasks on its queue, including those in groups below.
    pub nr_queued: u32,
    /// The weight of its entity, as queues have it.
    pub weight: u32,
    /// Its slice, in nanoseconds; 0 for none of its own.
    pub slice: u32,
    /// How long its tasks ran here, nanoseconds.
    pub ran: u64,
}

/// A group with a limit on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOnCpuSnapshot {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it takes part.
    pub online: bool,
    /// The runtime that the queue has got since the limit was set, in nanoseconds.
    pub got: i64,
    /// The part of it that is left; negative for an overrun.
    pub left: i64,
    /// Whether the queue is throttled.
    pub throttled: bool,
    /// Whether the CPU watches it.
    pub watched: bool,
    /// When that CPU looks next.
    pub due: Time,
}

/// A group's limit, or what remains of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSnapshot {
    /// The quota per period; zero while there is no limit.
    pub quota: Span,
    /// The part of it that is left for all CPUs, in nanoseconds.
    pub runtime: i64,
    /// The runtime that the CPUs have got, of this and earlier periods.
    pub given: i64,
    /// When the period ends.
    pub ends: Time,
    /// The waiting CPUs, the longest wait first.
    pub line: Vec<CpuId>,
    /// The state of each CPU.
    pub on: Vec<LimitOnCpuSnapshot>,
}

/// A group, or one that has ended and whose number is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// Its number.
    pub id: GroupId,
    /// Whether the group has a reference.
    pub lives: bool,
    /// The group above.
    pub parent: Option<GroupId>,
    /// The largest weight of its entities, as queues have it.
    pub shares: u32,
    /// The slice that it has on each CPU, in nanoseconds; 0 for none of its own.
    pub slice: u32,
    /// The word with its load.
    pub load_avg: i64,
    /// Whether a queue without load may have left a contribution in that word.
    pub leaks: bool,
    /// Bits of weights that loads have beyond Linux's.
    pub load_bits: u32,
    /// The CPUs where it was ever used.
    pub on: Vec<GroupOnCpuSnapshot>,
    /// Its limit, if it, or another group of its number, ever had one.
    pub limit: Option<LimitSnapshot>,
    /// The limit of its real-time tasks.
    pub real_time: Option<RealTimeSnapshot>,
}

impl<P: Platform> Groups<P> {
    /// Returns the sums over the attached members of each queue, by group and CPU.
    fn attached(&self, state: &State<P>) -> BTreeMap<(GroupId, CpuId), Attached> {
        let mut found: BTreeMap<(GroupId, CpuId), Attached> = BTreeMap::new();
        let mut count = |group: Option<GroupId>, cpu: CpuId, member: Member, words: &FairTask<P>| {
            let Some(group) = group.filter(|_| words.load_updated.peek() != 0) else { return };
            let on = self.group_on(group, cpu);
            let queued =
                words.height.peek() != 0 || crate::base::fair_words::member(on.queue.curr.peek()) == Some(member);
            let weight = self.config.coarse(u64::from(words.weight.peek()));
            let mut sum = words.peek_sum();
            sum.advance(on.load.updated.peek(), u64::from(queued));
            let own = found.entry((group, cpu)).or_default();
            own.members += 1;
            own.value += weight * sum.value;
            own.weight += weight;
        };
        for id in state.tasks.ids() {
            if let Some(words) = state.tasks.fair_if_made(id) {
                count(self.group_hint(state, id), state.tasks.get(id).cpu(), Member::task(id), words);
            }
        }
        for id in self.ever_made() {
            for cpu in state.topology.cpu_ids() {
                if let Some(on) = self.group(id).on(cpu) {
                    count(GroupId::of_link(on.entity.group.peek()), cpu, Member::group(id), &on.entity);
                }
            }
        }
        found
    }

    pub(crate) fn group_snapshots(&self, state: &State<P>) -> Vec<GroupSnapshot> {
        if !self.are_used() {
            return Vec::new();
        }
        let attached = self.attached(state);
        let snapshot = |id: GroupId| {
            let group = self.group(id);
            let on = |cpu: CpuId| {
                let on = group.on(cpu)?;
                Some(GroupOnCpuSnapshot {
                    cpu,
                    online: state.rqs[cpu].online.peek() != 0,
                    contribution: on.load.contribution.peek(),
                    average: on.load.average.peek(),
                    value: on.load.value.peek(),
                    removed: on.peek_removed(),
                    attached: attached.get(&(id, cpu)).copied().unwrap_or_default(),
                    listed: on.load.is_listed.peek() != 0,
                    nr_queued: on.queue.nr_queued.peek(),
                    weight: on.entity.weight.peek(),
                    slice: on.entity.slice.peek(),
                    ran: on.queue.period_used.peek(),
                })
            };
            GroupSnapshot {
                id,
                lives: group.is_alive(),
                parent: group.parent(),
                shares: group.shares(),
                slice: group.own_slice(),
                load_avg: self.load_of_group(group),
                leaks: self.config.rate == PostRate::LimitedWithLeak,
                load_bits: self.config.load_bits,
                on: state.topology.cpu_ids().filter_map(on).collect(),
                limit: self.limit_snapshot(state, id),
                real_time: self.real_time_snapshot(state, id),
            }
        };
        self.ever_made().map(snapshot).collect()
    }
}

impl GroupSnapshot {
    /// Reports every invariant that does not hold.
    pub(crate) fn check(&self, fail: &mut dyn FnMut(String)) {
        let sum: i64 = self.on.iter().map(|on| on.contribution).sum();
        if self.load_avg != sum {
            fail(format!("load_avg is {}, its contributions {sum}", self.load_avg));
        }
        if !self.lives && (self.load_avg != 0 || self.on.iter().any(|on| on.nr_queued != 0 || on.average != 0)) {
            fail(format!("has ended, and has load: {self:?}"));
        }
        for on in &self.on {
            on.check(self, &mut |what| fail(format!("on cpu {}: {what}", on.cpu)));
        }
        if let Some(limit) = &self.limit {
            limit.check(self.lives, fail);
        }
        if let Some(limit) = &self.real_time {
            limit.check(self.lives, fail);
        }
    }
}

impl LimitSnapshot {
    fn check(&self, lives: bool, fail: &mut dyn FnMut(String)) {
        let (quota, given) = ((self.quota.as_picos() / PICOS) as i64, self.on.iter().map(|on| on.got).sum::<i64>());
        if !(0..=quota).contains(&self.runtime) || self.given != given {
            fail(format!("has {} of {quota} ns left and gave {}, the CPUs say {given}", self.runtime, self.given));
        }
        let mut waits = self.line.clone();
        waits.sort_unstable();
        let throttled: Vec<CpuId> = self.on.iter().filter(|on| on.throttled).map(|on| on.cpu).collect();
        if waits != throttled || (!throttled.is_empty() && (quota == 0 || !lives)) {
            fail(format!("is throttled on {throttled:?}, in line are {waits:?}, its quota is {quota} ns"));
        }
        for on in &self.on {
            if on.throttled && (!on.online || on.left > 0 || !on.watched || on.due > self.ends) {
                fail(format!("is throttled until {:?}, and: {on:?}", self.ends));
            }
            if quota != 0 && on.left > SLICE {
                fail(format!("has more than a slice left: {on:?}"));
            }
        }
    }
}

impl GroupOnCpuSnapshot {
    fn check(&self, group: &GroupSnapshot, fail: &mut dyn FnMut(String)) {
        if self.contribution < 0 || (!self.online && self.contribution != 0) {
            fail(format!("contributes {}, and online is {}", self.contribution, self.online));
        }
        let Attached { members, value, weight } = self.attached;
        let differ = self.value.abs_diff(value + self.removed);
        if differ > VALUE_ROUNDS_OFF * (weight + (LEFT_WEIGH << group.load_bits)) {
            let removed = self.removed;
            fail(format!(
                "has a sum of {}, its {members} members of weight {weight} {value}, removed is {removed}",
                self.value
            ));
        }
        if self.slice != group.slice {
            fail(format!("has a slice of {} ns, its group {}", self.slice, group.slice));
        }
        if !self.listed && (self.average != 0 || self.nr_queued != 0 || (self.contribution != 0 && !group.leaks)) {
            fail(format!("is not listed: {self:?}"));
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
