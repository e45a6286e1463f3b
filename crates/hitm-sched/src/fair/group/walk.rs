//! The operations of the class at each level: from a task upwards, and from the CPU downwards.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::average::nanos;
use crate::base::fair_words::{FairQueue, FairTask, Kind, Member, member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::timeline::{Arrival, Timeline};
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Returns the group of a task that is fair, or was.
    #[track_caller]
    pub(crate) fn group_of(&self, id: TaskId) -> Option<GroupId> {
        self.groups()?;
        GroupId::of_link(self.state.tasks.fair(id).group.get())
    }

    /// As [`group_of`](Self::group_of), of any task, without a lock.
    pub(crate) fn group_hint(&self, id: TaskId) -> Option<GroupId> {
        self.groups()?;
        GroupId::of_link(self.state.tasks.fair_if_made(id)?.group.peek())
    }

    /// Returns the group above, as `id` has it on `cpu`.
    #[track_caller]
    pub(super) fn above(&self, id: GroupId, cpu: CpuId) -> Option<GroupId> {
        GroupId::of_link(self.group_on(id, cpu).entity.group.get())
    }

    /// Returns the queue of a group on a CPU; without a group, the CPU's own.
    pub(in crate::fair) fn queue_at(&self, cpu: CpuId, group: Option<GroupId>) -> &FairQueue<P> {
        match group {
            None => self.fair_queue(cpu),
            Some(id) => &self.group_on(id, cpu).queue,
        }
    }

    /// Returns the words of a member that is queued on `cpu`.
    pub(in crate::fair) fn words_of(&self, member: Member, cpu: CpuId) -> &FairTask<P> {
        match member.kind() {
            Kind::Task(id) => self.state.tasks.fair(id),
            Kind::Group(id) => &self.group_on(id, cpu).entity,
        }
    }

    /// Returns the virtual time of a group's queue on a CPU; without a group, of the CPU's own.
    pub(in crate::fair) fn level<'a>(
        &'a self,
        cpu: CpuId,
        group: Option<GroupId>,
    ) -> Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>> {
        Timeline::new(self.queue_at(cpu, group), move |member| self.words_of(member, cpu), self.fair().slice)
    }

    /// Enqueues `id` on the CPU of `rq`.
    pub(in crate::fair) fn enqueue_levels(&self, rq: &RqGuard<'_, P>, id: TaskId, arrival: Arrival, now: Time) {
        let member = Member::task(id);
        if self.groups().is_none() {
            return self.timeline(rq.cpu).enqueue(member, arrival, now);
        }
        if arrival == Arrival::Runs {
            // The task that ran last at each level may be on another way down.
            self.put_levels(rq.cpu, None, now);
        }
        let group = self.group_of(id);
        if let Some(own) = group {
            self.make_group_on(own, rq.cpu, now);
        }
        self.come_levels(rq, member, group, 1, arrival, now);
    }

    /// Enqueues `member`, with its number of tasks, on the queue of `group`, and the groups above
    /// where they are not queued. Above a [throttled](super::bandwidth) group nothing changes.
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
                // A member that slept here with little load is still attached, and the queue may
                // have left the list meanwhile.
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

    /// Dequeues `id` from the CPU of `rq`.
    pub(in crate::fair) fn dequeue_levels(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool, now: Time) {
        self.go_levels(rq, Member::task(id), 1, sleeps, now);
        if !sleeps && self.groups().is_some() && rq.curr() == Some(id) {
            // It runs on in another class; its groups do not.
            self.put_levels(rq.cpu, None, now);
        }
    }

    /// Dequeues `member`, with its number of tasks, and the groups above that have become empty.
    /// Returns false where one is throttled: nothing above changes.
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

    /// Brings the load of `member` on the queue of `group` up to date, and reweighs it by its own
    /// queue's load.
    fn update_level(&self, rq: &RqGuard<'_, P>, group: Option<GroupId>, member: Member, now: Time) {
        if let Some(own) = group {
            self.update_load(rq.cpu, own, member, nanos(now));
        }
        if let Some(below) = member.as_group() {
            self.update_share(rq, below);
        }
    }

    /// As [`update_level`](Self::update_level), for everything that runs.
    pub(in crate::fair) fn tick_levels(&self, rq: &RqGuard<'_, P>, now: Time) {
        let Some(id) = self.running_fair(rq.cpu) else { return };
        let (mut member, mut group) = (Member::task(id), self.group_of(id));
        loop {
            self.update_level(rq, group, member, now);
            let Some(own) = group else { return };
            (member, group) = (Member::group(own), self.above(own, rq.cpu));
        }
    }

    /// Ends the run of the running members, from the queue of `group` downwards.
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

    /// The CPU of `rq` now runs `next`, which is no fair task, or nothing. Groups whose task has
    /// left may still count as running.
    pub(crate) fn put_groups(&self, rq: &RqGuard<'_, P>) {
        if self.groups().is_some() {
            self.put_levels(rq.cpu, None, P::now());
        }
    }

    /// `member`, which waits on the queue of `group` or runs there, runs from now on, and so do the
    /// groups above.
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

    /// Charges the running member at each level. Returns true when a slice has ended for which
    /// another member waits.
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

    /// Returns the fair task that should run on `cpu`, other than `goes`.
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

    /// Returns the member to skip on the queue of `group`, so that `goes` is not picked.
    fn passed_over(&self, cpu: CpuId, group: Option<GroupId>, goes: Option<TaskId>) -> Option<Member> {
        if self.groups().is_none() {
            return goes.map(Member::task);
        }
        let id = goes.filter(|&id| self.is_fair(id))?;
        let (mut member, mut at) = (Member::task(id), self.group_of(id));
        while at != group {
            // Where it is held, the way down does not reach it.
            let own = at.filter(|&own| !self.is_throttled(cpu, own))?;
            if self.queue_at(cpu, at).nr_queued.get() > 1 {
                // Another task of the group may run.
                return None;
            }
            (member, at) = (Member::group(own), self.above(own, cpu));
        }
        Some(member)
    }

    /// Returns the first end of a slice, or of a quota, of the running members at any level. Read
    /// without the lock, by the CPU that runs them.
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

    /// Returns the running group on the queue of `group`, if there is one. Read without the lock.
    fn running_group(&self, cpu: CpuId, group: Option<GroupId>) -> Option<GroupId> {
        member(self.queue_at(cpu, group).curr.peek()).and_then(Member::as_group)
    }

    /// Returns the first waiting fair task on `cpu` that is `wanted`: by deadline. The tasks of a
    /// waiting group come at the group's deadline, and those of the running group come last.
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

    /// Returns the running fair task of `cpu`, as the class has it. Read without the lock.
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
