//! The invariants of a CPU's fair queues when nothing is in flight, checked on plain data.

use std::mem::take;

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use super::class::Fair;
use crate::base::fair_words::{Kind, Member, member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::state::State;
use crate::base::timeline::TaskOrder;
use crate::base::weight::Nice;

/// A queued task or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// The member.
    pub member: Member,
    /// Its share, as queues have it.
    pub weight: u32,
    /// The weight that its nice level gives, or the largest weight of its group's entities.
    pub due_weight: u32,
    /// Its virtual runtime, nanoseconds; in the order of deadlines, when it came or had its turn.
    pub vruntime: i64,
    /// Its virtual deadline, nanoseconds; in the order of deadlines, the given one.
    pub deadline: i64,
}

/// A queue of fair tasks and groups: a CPU's own, or a group's on that CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSnapshot {
    /// Its group; `None` for the CPU's own queue.
    pub group: Option<GroupId>,
    /// The group above.
    pub above: Option<GroupId>,
    /// The order in which it serves its members.
    pub order: TaskOrder,
    /// Whether it is throttled: then nothing of it is on the queues above.
    pub throttled: bool,
    /// The running member, as the class has it.
    pub running: Option<MemberSnapshot>,
    /// The members of the tree, in its order.
    pub waiting: Vec<MemberSnapshot>,
    /// The tasks in the ring of the CPU that count here.
    pub offered: Vec<MemberSnapshot>,
    /// The word with the number of tasks, including those in groups below.
    pub nr_queued: u32,
    /// The word with the weight of the tree's members and of the offered tasks.
    pub load: u64,
    /// The virtual runtime that `sum` counts from.
    pub base: i64,
    /// Their virtual runtimes minus `base`, each times its weight.
    pub sum: i64,
    /// The broken invariant of the tree, if there is one.
    pub broken: Option<String>,
}

/// A CPU's fair queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairSnapshot {
    /// The CPU's own queue, then the queues of the living groups that were used there.
    pub levels: Vec<LevelSnapshot>,
    /// Whether fair tasks go before real-time tasks.
    pub served: bool,
}

impl<P: Platform> Fair<P> {
    /// The tasks of the CPU's ring that count are `offered`.
    pub(crate) fn fair_snapshot(
        &self,
        state: &State<P>,
        cpu: CpuId,
        offered: Option<Vec<TaskId>>,
    ) -> Option<FairSnapshot> {
        if !self.is_used() {
            return None;
        }
        let groups = self.groups.living();
        let used = groups.filter(|&group| self.groups.is_on(group, cpu)).map(Some);
        let mut offered = offered.unwrap_or_default();
        // They count on the first level, that of no group.
        let snapshot = |group| self.level_snapshot(state, cpu, group, take(&mut offered));
        let levels = [None].into_iter().chain(used).map(snapshot).collect();
        Some(FairSnapshot { levels, served: self.fair_queue(cpu).served.peek() != 0 })
    }

    fn level_snapshot(
        &self,
        state: &State<P>,
        cpu: CpuId,
        group: Option<GroupId>,
        offered: Vec<TaskId>,
    ) -> LevelSnapshot {
        let queue = self.queue_at(cpu, group);
        let words = |member| self.groups.words_of(state, member, cpu);
        let of = |member: Member| {
            let own = words(member);
            let due_weight = match member.kind() {
                Kind::Task(_) => Nice::new(own.nice.peek() as i8).fine_weight(),
                Kind::Group(id) => self.groups.group_shares(id),
            };
            let (weight, vruntime, deadline) = (own.weight.peek(), own.vruntime.peek(), own.deadline.peek());
            MemberSnapshot { member, weight, due_weight, vruntime, deadline }
        };
        LevelSnapshot {
            group,
            above: group.and_then(|id| self.groups.group_above(id)),
            order: self.level(state, cpu, group).order(),
            throttled: group.is_some_and(|id| self.groups.peek_throttled(cpu, id)),
            running: member(queue.curr.peek()).map(of),
            waiting: self.level(state, cpu, group).members().collect().into_iter().map(of).collect(),
            offered: offered.into_iter().map(Member::task).map(of).collect(),
            nr_queued: queue.nr_queued.peek(),
            load: queue.load.peek(),
            base: queue.base.peek(),
            sum: queue.sum.peek(),
            broken: self.level(state, cpu, group).members().broken(),
        }
    }
}

impl FairSnapshot {
    /// Returns the queue of a group.
    #[must_use]
    pub fn level(&self, group: Option<GroupId>) -> Option<&LevelSnapshot> {
        self.levels.iter().find(|level| level.group == group)
    }

    /// Returns the running task, as the class has it.
    fn running(&self) -> Option<TaskId> {
        let mut level = self.level(None)?;
        loop {
            match level.running?.member.kind() {
                Kind::Task(id) => return Some(id),
                Kind::Group(id) => level = self.level(Some(id))?,
            }
        }
    }

    /// Returns whether `level`, or a level above it, is throttled.
    fn is_held(&self, level: &LevelSnapshot) -> bool {
        let above = level.above.and_then(|above| self.level(Some(above)));
        level.throttled || above.is_some_and(|above| self.is_held(above))
    }

    /// Reports every invariant that does not hold. The CPU runs `running`.
    pub(crate) fn check(&self, running: Option<TaskId>, fail: &mut dyn FnMut(String)) {
        let runs = self.levels.iter().any(|level| level.running.is_some());
        if runs && self.running() != running {
            fail(format!("fair: {:?} runs, the queues say {:?}", running, self.running()));
        }
        for level in &self.levels {
            let name = level.group.map_or("fair".to_owned(), |group| format!("fair group {group}"));
            let mut fail = |what: String| fail(format!("{name}: {what}"));
            level.check(&mut fail);
            let tasks = |member: &MemberSnapshot| match member.member.kind() {
                Kind::Task(_) => 1,
                Kind::Group(id) => self.level(Some(id)).map_or(0, |level| level.nr_queued),
            };
            let count: u32 = level.members().map(tasks).sum();
            if level.nr_queued != count {
                fail(format!("nr_queued is {}, the tree says {count}", level.nr_queued));
            }
            let Some(group) = level.group else { continue };
            let stands = |other: &&LevelSnapshot| other.members().any(|own| own.member == Member::group(group));
            let stands: Vec<Option<GroupId>> = self.levels.iter().filter(stands).map(|other| other.group).collect();
            let should = if level.nr_queued > 0 && !level.throttled { vec![level.above] } else { Vec::new() };
            if stands != should {
                let LevelSnapshot { nr_queued, throttled, .. } = level;
                fail(format!(
                    "is on the queues of {stands:?}, its {nr_queued} tasks say {should:?}, throttled is {throttled}"
                ));
            }
            if level.running.is_some() && self.is_held(level) {
                fail(format!("{:?} runs in a throttled queue", level.running));
            }
        }
    }
}

impl LevelSnapshot {
    fn members(&self) -> impl Iterator<Item = &MemberSnapshot> {
        self.running.iter().chain(&self.waiting)
    }

    fn check(&self, fail: &mut dyn FnMut(String)) {
        if let Some(broken) = &self.broken {
            fail(broken.clone());
        }
        let counted = || self.waiting.iter().chain(&self.offered);
        let load: u64 = counted().map(|member| u64::from(member.weight)).sum();
        if self.load != load {
            fail(format!("load is {}, its members say {load}", self.load));
        }
        let from_base = |own: &MemberSnapshot| i128::from(own.vruntime - self.base) * i128::from(own.weight);
        let by_deadline = self.order == TaskOrder::Deadline;
        let sum: i128 = if by_deadline { 0 } else { counted().map(from_base).sum() };
        if i128::from(self.sum) != sum {
            fail(format!("sum is {}, its members say {sum}", self.sum));
        }
        let key = |own: &MemberSnapshot| (own.deadline, if by_deadline { own.vruntime } else { 0 });
        if !self.waiting.is_sorted_by_key(key) {
            fail(format!("deadlines do not ascend in {:?}", self.waiting));
        }
        for own in self.members().chain(&self.offered) {
            if by_deadline && own.member.as_group().is_some() {
                fail(format!("{} is in a group in the order of deadlines", own.member));
            }
            let is_right = match own.member.kind() {
                Kind::Task(_) => own.weight == own.due_weight,
                Kind::Group(_) => (1..=own.due_weight).contains(&own.weight),
            };
            if !is_right {
                fail(format!("{} weighs {}, it is due {}", own.member, own.weight, own.due_weight));
            }
        }
    }
}
