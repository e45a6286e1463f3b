//! Operations on groups: they are created, weighted, limited and freed, and tasks move between
//! them.
//!
//! A CPU that uses a group keeps it meanwhile. Only unused groups are freed, whether they have
//! tasks or not.

use std::sync::{Mutex, PoisonError};

use hitm_machine::Random;
use hitm_memory::{Platform, Span, Time};
use hitm_sched::{GroupId, GroupQuota, GroupSlice, GroupWeight, RealTimeQuota, TaskOrder};

use crate::run::driver::{Cpu, Driver};

/// The number of groups that are kept at once.
const GROUPS_KEPT: usize = 8;

/// A group that the driver keeps.
#[derive(Debug)]
struct KeptGroup {
    id: GroupId,
    /// How many of the driver's CPUs use it.
    users: u32,
    order: TaskOrder,
}

/// The groups that the driver keeps.
#[derive(Debug, Default)]
pub(crate) struct GroupsKept(Mutex<Vec<KeptGroup>>);

impl GroupsKept {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<KeptGroup>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns one of them, or none, and marks it as used until [`GroupsKept::done`].
    pub(crate) fn any(&self, random: &mut Random) -> Option<GroupId> {
        self.with(|groups| {
            let at = random.below(groups.len() as u64 + 1) as usize;
            let group = groups.get_mut(at)?;
            group.users += 1;
            Some(group.id)
        })
    }

    /// As [`GroupsKept::any`]: one that may contain groups.
    fn any_parent(&self, random: &mut Random) -> Option<GroupId> {
        let group = self.any(random)?;
        let may = self.with(|groups| groups.iter().any(|own| own.id == group && own.order == TaskOrder::Weight));
        if !may {
            self.done(Some(group));
        }
        may.then_some(group)
    }

    /// Ends the use of `group`.
    pub(crate) fn done(&self, group: Option<GroupId>) {
        self.with(|groups| {
            groups.iter_mut().filter(|own| Some(own.id) == group).for_each(|own| own.users -= 1);
        });
    }

    /// Returns whether another group may be created.
    pub(crate) fn has_room(&self) -> bool {
        self.with(|groups| groups.len() < GROUPS_KEPT)
    }

    /// Adds a new group.
    pub(crate) fn add(&self, id: GroupId, order: TaskOrder) {
        self.with(|groups| groups.push(KeptGroup { id, users: 0, order }));
    }

    /// Removes and returns an unused group.
    pub(crate) fn take(&self, random: &mut Random) -> Option<GroupId> {
        self.with(|groups| {
            let at = random.below(groups.len().max(1) as u64) as usize;
            let is_free = groups.get(at).is_some_and(|own| own.users == 0);
            is_free.then(|| groups.remove(at).id)
        })
    }

    /// Removes and returns all groups.
    pub(crate) fn take_all(&self) -> Vec<GroupId> {
        self.with(|groups| groups.drain(..).map(|own| own.id).collect())
    }
}

/// Returns a limit with a short period, so that many periods pass, or none.
pub(crate) fn quota(random: &mut Random) -> Option<GroupQuota> {
    let period = [1, 2, 5][random.below(3) as usize];
    let quota = 1 + random.below(2) * random.below(period);
    let millis = |count: u64| Span::from_micros(count * 1_000);
    (random.below(4) > 0).then(|| GroupQuota::new(millis(quota), millis(period)).expect("a limit"))
}

/// Returns a limit of real-time tasks, or none. Mostly several groups may have one.
pub(crate) fn real_time_quota(random: &mut Random) -> Option<RealTimeQuota> {
    let period = [1_000, 2_000, 5_000][random.below(3) as usize];
    let runtime = period / [10, 4, 2, 1][random.below(4) as usize];
    let quota = RealTimeQuota::new(Span::from_micros(runtime), Span::from_micros(period)).expect("a limit");
    (random.below(5) > 0).then_some(quota)
}

/// Returns a weight, sometimes an extreme one.
pub(crate) fn weight(random: &mut Random) -> GroupWeight {
    GroupWeight::new(match random.below(6) {
        0 => 1,
        1 => GroupWeight::MAX,
        _ => 1 + random.below(400) as u32,
    })
    .expect("a weight")
}

/// Returns a slice, sometimes an extreme one.
fn slice(random: &mut Random) -> GroupSlice {
    let span = [GroupSlice::LEAST, Span::from_micros(500), Span::from_micros(5_000), GroupSlice::MOST];
    GroupSlice::new(span[random.below(4) as usize]).expect("a slice")
}

impl<P: Platform> Driver<P> {
    pub(super) fn change_groups(&self, cpu: &mut Cpu) {
        P::settle();
        let new = weight(&mut cpu.random);
        if cpu.random.below(3) == 0 && self.groups.has_room() {
            let parent = self.groups.any_parent(&mut cpu.random);
            let by_deadline = self.plan.deadlines && cpu.random.below(2) == 0;
            let order = if by_deadline { TaskOrder::Deadline } else { TaskOrder::Weight };
            let group = self.sched.make_group(parent, new, order);
            P::settle();
            self.groups.done(parent);
            self.groups.add(group, order);
        } else if cpu.random.below(2) == 0 {
            let group = self.groups.any(&mut cpu.random);
            if self.plan.slices && cpu.random.below(2) == 0 {
                let new = slice(&mut cpu.random);
                group.into_iter().for_each(|group| self.sched.set_group_slice(group, new));
            } else {
                group.into_iter().for_each(|group| self.sched.set_group_weight(group, new));
            }
            P::settle();
            self.groups.done(group);
        } else if let Some(group) = self.groups.take(&mut cpu.random) {
            self.sched.free_group(group);
        }
    }

    pub(super) fn limit(&self, cpu: &mut Cpu) {
        P::settle();
        let group = self.groups.any(&mut cpu.random);
        let new = quota(&mut cpu.random);
        group.into_iter().for_each(|group| self.sched.set_group_quota(group, new));
        P::settle();
        self.groups.done(group);
    }

    pub(super) fn limit_real_time(&self, cpu: &mut Cpu) {
        P::settle();
        let group = self.groups.any(&mut cpu.random);
        let new = real_time_quota(&mut cpu.random);
        // A limit that does not fit is refused.
        group.into_iter().for_each(|group| _ = self.sched.set_group_real_time(group, new));
        P::settle();
        self.groups.done(group);
    }

    /// Gives a task one of a few deadlines, some of which have passed, or none.
    pub(super) fn set_deadline(&self, cpu: &mut Cpu) {
        let Some(id) = self.any_changeable(cpu) else { return };
        let due = Time::START + Span::from_micros(100 * (1 + cpu.random.below(20)));
        let due = (cpu.random.below(5) > 0).then_some(due);
        if self.ledger.begin_deadline(id) {
            self.sched.set_deadline(id, due);
            P::settle();
            self.ledger.end_change(id);
        }
    }

    pub(super) fn regroup(&self, cpu: &mut Cpu) {
        let Some(id) = self.any_changeable(cpu) else { return };
        let group = self.groups.any(&mut cpu.random);
        if self.ledger.begin_group(id, group) {
            self.sched.set_group(id, group);
            P::settle();
            self.ledger.end_change(id);
        }
        self.groups.done(group);
    }
}
