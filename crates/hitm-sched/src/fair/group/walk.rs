//! A CPU's queues from a task up and from the CPU down: what the class does at each level.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::GroupId;
use super::average::nanos;
use crate::fair::timeline::{Arrival, Timeline};
use crate::fair::words::{FairQueue, FairTask, Kind, Member, member};
use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::task::TaskId;

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// The group of a task that is fair, or was.
    #[track_caller]
    pub(crate) fn group_of(&self, id: TaskId) -> Option<GroupId> {
        self.groups()?;
        GroupId::of_link(self.tasks.fair(id).group.get())
    }

    /// As [`group_of`](Self::group_of), of any task, without a lock.
    pub(crate) fn group_hint(&self, id: TaskId) -> Option<GroupId> {
        self.groups()?;
        GroupId::of_link(self.tasks.fair_if_made(id)?.group.peek())
    }

    /// The group above, as `id` has it on `cpu`.
    #[track_caller]
    pub(super) fn above(&self, id: GroupId, cpu: CpuId) -> Option<GroupId> {
        GroupId::of_link(self.group_on(id, cpu).entity.group.get())
    }

    /// The queue of a group on a CPU; of none, the CPU's.
    pub(in crate::fair) fn queue_at(&self, cpu: CpuId, group: Option<GroupId>) -> &FairQueue<P> {
        match group {
            None => self.fair_queue(cpu),
            Some(id) => &self.group_on(id, cpu).queue,
        }
    }

    /// The words of what is queued on `cpu`.
    pub(in crate::fair) fn words_of(&self, member: Member, cpu: CpuId) -> &FairTask<P> {
        match member.kind() {
            Kind::Task(id) => self.tasks.fair(id),
            Kind::Group(id) => &self.group_on(id, cpu).entity,
        }
    }

    /// Virtual time on the queue of a group on a CPU; of none, the CPU's.
    pub(in crate::fair) fn level<'a>(
        &'a self,
        cpu: CpuId,
        group: Option<GroupId>,
    ) -> Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>> {
        Timeline::new(self.queue_at(cpu, group), move |member| self.words_of(member, cpu), self.fair().slice)
    }

    /// Puts `id` on the queues of the CPU of `rq`.
    pub(in crate::fair) fn enqueue_levels(&self, rq: &RqGuard<'_, P>, id: TaskId, arrival: Arrival, now: Time) {
        let member = Member::task(id);
        if self.groups().is_none() {
            return self.timeline(rq.cpu).enqueue(member, arrival, now);
        }
        if arrival == Arrival::Runs {
            // What ran here last at each level may be on another way down.
            self.put_levels(rq.cpu, None, now);
        }
        let group = self.group_of(id);
        if let Some(own) = group {
            self.make_group_on(own, rq.cpu, now);
        }
        self.come_levels(rq, member, group, 1, arrival, now);
    }

    /// Puts `member`, with so many tasks, on the queue of `group`, and the groups above on theirs
    /// as far as they are not there. Where one is [throttled](super::bandwidth), nothing above
    /// changes.
    pub(super) fn come_levels(
        &self,
        rq: &RqGuard<'_, P>,
        mut member: Member,
        mut group: Option<GroupId>,
        tasks: u32,
        arrival: Arrival,
        now: Time,
    ) {
        let mut comes = true;
        loop {
            if let Some(own) = group {
                // Who slept here with hardly any load is still attached, and the queue may have
                // left the list meanwhile.
                self.list_leaf(rq.cpu, own);
            }
            self.update_level(rq, group, member, now);
            let line = self.level(rq.cpu, group);
            let was_empty = line.is_empty();
            if comes {
                line.enqueue(member, arrival, now);
                if tasks > 1 {
                    line.count_tasks(tasks as i32 - 1);
                }
            } else {
                line.count_tasks(tasks as i32);
                if arrival == Arrival::Runs {
                    line.begin(member, now);
                }
            }
            let Some(own) = group.filter(|&own| !self.is_throttled(rq.cpu, own)) else { return };
            comes &= was_empty;
            (member, group) = (Member::group(own), self.above(own, rq.cpu));
        }
    }

    /// Takes `id` off the queues of the CPU of `rq`.
    pub(in crate::fair) fn dequeue_levels(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool, now: Time) {
        self.go_levels(rq, Member::task(id), 1, sleeps, now);
        if !sleeps && self.groups().is_some() && rq.curr() == Some(id) {
            // It runs on as something else: its groups do not.
            self.put_levels(rq.cpu, None, now);
        }
    }

    /// Takes `member`, with so many tasks, off the queue that it stands on, and the groups above
    /// that have become empty off theirs. False where one is throttled: nothing above changes.
    pub(super) fn go_levels(
        &self,
        rq: &RqGuard<'_, P>,
        mut member: Member,
        tasks: u32,
        sleeps: bool,
        now: Time,
    ) -> bool {
        let mut group = match member.kind() {
            Kind::Task(id) => self.group_of(id),
            Kind::Group(id) => self.above(id, rq.cpu),
        };
        let mut goes = true;
        loop {
            if let Some(own) = group {
                self.update_load(rq.cpu, own, member, nanos(now));
            }
            let line = self.level(rq.cpu, group);
            if goes {
                line.dequeue(member, sleeps, now);
                if tasks > 1 {
                    line.count_tasks(1 - tasks as i32);
                }
            } else {
                line.count_tasks(-(tasks as i32));
            }
            if let Some(below) = member.as_group() {
                self.update_share(rq, below);
            }
            let Some(own) = group else { return true };
            if self.is_throttled(rq.cpu, own) {
                return false;
            }
            goes &= line.is_empty();
            if goes {
                self.give_back(rq, own, now);
            }
            (member, group) = (Member::group(own), self.above(own, rq.cpu));
        }
    }

    /// What `member` has on the queue of `group` is summed up, and what it weighs there follows
    /// from what its own queue has.
    fn update_level(&self, rq: &RqGuard<'_, P>, group: Option<GroupId>, member: Member, now: Time) {
        if let Some(own) = group {
            self.update_load(rq.cpu, own, member, nanos(now));
        }
        if let Some(below) = member.as_group() {
            self.update_share(rq, below);
        }
    }

    /// As [`update_level`](Self::update_level), of all that runs.
    pub(in crate::fair) fn tick_levels(&self, rq: &RqGuard<'_, P>, now: Time) {
        let Some(id) = self.running_fair(rq.cpu) else { return };
        let (mut member, mut group) = (Member::task(id), self.group_of(id));
        loop {
            self.update_level(rq, group, member, now);
            let Some(own) = group else { return };
            (member, group) = (Member::group(own), self.above(own, rq.cpu));
        }
    }

    /// What runs stops to run, from the queue of `group` on down.
    pub(super) fn put_levels(&self, cpu: CpuId, mut group: Option<GroupId>, now: Time) {
        loop {
            let line = self.level(cpu, group);
            let curr = line.curr();
            line.put(now);
            group = match curr.and_then(Member::as_group) {
                Some(below) => Some(below),
                None => return,
            };
        }
    }

    /// The CPU of `rq` runs `next`, which is not a fair task, or nothing, from now on. Groups whose
    /// task has left may still run, as it were.
    pub(crate) fn put_groups(&self, rq: &RqGuard<'_, P>) {
        if self.groups().is_some() {
            self.put_levels(rq.cpu, None, P::now());
        }
    }

    /// `member`, which waits on the queue of `group` or runs there, runs from now on, and so does
    /// the group above.
    pub(in crate::fair) fn begin_levels(&self, cpu: CpuId, group: Option<GroupId>, member: Member, now: Time) {
        if let Some(own) = group {
            self.begin_levels(cpu, self.above(own, cpu), Member::group(own), now);
        }
        let line = self.level(cpu, group);
        let curr = line.curr();
        if curr == Some(member) {
            return;
        }
        if let Some(left) = curr.and_then(Member::as_group) {
            self.put_levels(cpu, Some(left), now);
        }
        line.put(now);
        line.begin(member, now);
    }

    /// Charges what runs at each level; true when that has ended a slice for which another waits.
    pub(in crate::fair) fn charge_levels(&self, cpu: CpuId, now: Time) -> bool {
        let mut group = None;
        let mut ended = false;
        loop {
            let line = self.level(cpu, group);
            let used_up = line.charge(now);
            ended |= used_up && line.has_waiting();
            group = match line.curr().and_then(Member::as_group) {
                Some(below) => Some(below),
                None => return ended,
            };
        }
    }

    /// Who should run on `cpu`, of all fair tasks but `goes`.
    pub(in crate::fair) fn pick_levels(&self, cpu: CpuId, goes: Option<TaskId>, now: Time) -> Option<TaskId> {
        let mut group = None;
        loop {
            let line = self.level(cpu, group);
            line.charge(now);
            match line.pick(self.passed_over(cpu, group, goes))?.kind() {
                Kind::Task(id) => return Some(id),
                Kind::Group(below) => group = Some(below),
            }
        }
    }

    /// Who is not to be picked on the queue of `group`, so that `goes` is not.
    fn passed_over(&self, cpu: CpuId, group: Option<GroupId>, goes: Option<TaskId>) -> Option<Member> {
        if self.groups().is_none() {
            return goes.map(Member::task);
        }
        let id = goes.filter(|&id| self.is_fair(id))?;
        let (mut member, mut at) = (Member::task(id), self.group_of(id));
        while at != group {
            // It is not found on the way down where it is held.
            let own = at.filter(|&own| !self.is_throttled(cpu, own))?;
            if self.queue_at(cpu, at).nr_queued.get() > 1 {
                // Another task of it may run.
                return None;
            }
            (member, at) = (Member::group(own), self.above(own, cpu));
        }
        Some(member)
    }

    /// The first end of a slice of what runs, or of what it has left of a quota, at any level. A
    /// look without the lock, of the CPU that runs it.
    pub(in crate::fair) fn slice_ends(&self, cpu: CpuId) -> Option<Time> {
        let mut first = self.timeline(cpu).slice_ends();
        if self.groups().is_some() {
            let mut group = self.running_group(cpu, None);
            while let Some(own) = group {
                for ends in [self.level(cpu, group).slice_ends(), self.runtime_ends(cpu, own)] {
                    first = first.min(ends).or(first).or(ends);
                }
                group = self.running_group(cpu, Some(own));
            }
        }
        first
    }

    /// The group that runs on the queue of `group`, if one does: a look without the lock.
    fn running_group(&self, cpu: CpuId, group: Option<GroupId>) -> Option<GroupId> {
        member(self.queue_at(cpu, group).curr.peek()).and_then(Member::as_group)
    }

    /// The first fair task on `cpu` that is `wanted` of those that wait: by deadline, a group's
    /// where the group stands, those of what runs last.
    pub(in crate::fair) fn find_waiting(
        &self,
        cpu: CpuId,
        group: Option<GroupId>,
        wanted: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<TaskId> {
        let mut found = None;
        self.level(cpu, group).tree().find(|member| {
            found = match member.kind() {
                Kind::Task(id) => wanted(id).then_some(id),
                Kind::Group(below) => self.find_waiting(cpu, Some(below), wanted),
            };
            found.is_some()
        });
        if found.is_some() || self.groups().is_none() {
            return found;
        }
        self.find_waiting(cpu, Some(self.running_group(cpu, group)?), wanted)
    }

    /// The fair task that runs on `cpu`, as the class has it: a look without the lock.
    pub(in crate::fair) fn running_fair(&self, cpu: CpuId) -> Option<TaskId> {
        let mut group = None;
        loop {
            match member(self.queue_at(cpu, group).curr.peek())?.kind() {
                Kind::Task(id) => return Some(id),
                Kind::Group(below) => group = Some(below),
            }
        }
    }
}
