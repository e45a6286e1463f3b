//! The operations of the class at each level: from a task upwards, and from the CPU downwards.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::class::Fair;
use crate::base::fair_words::{FairQueue, FairTask, Kind, Member, member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::{Arrival, TaskOrder, Timeline, nanos};

/// What comes to a queue.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    pub(super) member: Member,
    /// Its number of tasks.
    pub(super) tasks: u32,
    pub(super) arrival: Arrival,
}

impl<P: Platform> Fair<P> {
    /// Returns the queue of a group on a CPU; without a group, the CPU's own.
    #[inline]
    pub(in crate::fair) fn queue_at(&self, cpu: CpuId, group: Option<GroupId>) -> &FairQueue<P> {
        match group {
            None => self.fair_queue(cpu),
            Some(id) => &self.groups.group_on(id, cpu).queue,
        }
    }

    /// Returns the virtual time of a group's queue on a CPU; without a group, of the CPU's own.
    #[inline]
    pub(in crate::fair) fn level<'a>(
        &'a self,
        state: &'a State<P>,
        cpu: CpuId,
        group: Option<GroupId>,
    ) -> Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>> {
        Timeline::new(
            self.queue_at(cpu, group),
            move |member| self.groups.words_of(state, member, cpu),
            self.groups.slices(cpu, group, self.class().slice),
            if group.is_some_and(|group| self.groups.is_by_deadline(group)) {
                TaskOrder::Deadline
            } else {
                TaskOrder::Weight
            },
            self.has_lists,
        )
    }

    /// Enqueues `id` on the CPU of `rq`.
    pub(in crate::fair) fn enqueue_levels(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        id: TaskId,
        arrival: Arrival,
        now: Time,
    ) {
        let member = Member::task(id);
        if !self.groups.are_used() {
            let ended = self.timeline(state, rq.cpu).enqueue(member, arrival, now);
            if ended && self.has_lists {
                // The tick that was to find it has nothing left to charge.
                state.resched(rq);
            }
            return;
        }
        if arrival == Arrival::Runs {
            // The task that ran last at each level may be on another way down.
            self.put_levels(state, rq.cpu, None, now);
        }
        let group = self.groups.group_of(state, id);
        if let Some(own) = group {
            self.groups.make_group_on(state, own, rq.cpu, now);
        }
        self.come_levels(state, rq, Coming { member, tasks: 1, arrival }, group, now);
    }

    /// Enqueues what comes to the queue of `group`, and the groups above where they are not queued.
    /// Above a [throttled](super::throttle) group nothing changes.
    pub(super) fn come_levels(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        coming: Coming,
        mut group: Option<GroupId>,
        now: Time,
    ) {
        let Coming { mut member, tasks, arrival } = coming;
        let mut comes = true;
        loop {
            if let Some(own) = group {
                // A member that slept here with little load is still attached, and the queue may
                // have left the list meanwhile.
                self.groups.list_leaf(rq.cpu, own);
            }
            self.update_level(state, rq, group, member, now);
            let line = self.level(state, rq.cpu, group);
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
            let Some(own) = group.filter(|&own| !self.groups.is_throttled(rq.cpu, own)) else { return };
            comes &= was_empty;
            (member, group) = (Member::group(own), self.groups.above(own, rq.cpu));
        }
    }

    /// Dequeues `id` from the CPU of `rq`.
    pub(in crate::fair) fn dequeue_levels(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        id: TaskId,
        sleeps: bool,
        now: Time,
    ) {
        self.go_levels(state, rq, Member::task(id), 1, sleeps, now);
        if !sleeps && self.groups.are_used() && rq.curr() == Some(id) {
            // It runs on in another class; its groups do not.
            self.put_levels(state, rq.cpu, None, now);
        }
    }

    /// Dequeues `member`, with its number of tasks, and the groups above that have become empty.
    /// Returns false where one is throttled: nothing above changes.
    pub(super) fn go_levels(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        mut member: Member,
        tasks: u32,
        sleeps: bool,
        now: Time,
    ) -> bool {
        let mut group = match member.kind() {
            Kind::Task(id) => self.groups.group_of(state, id),
            Kind::Group(id) => self.groups.above(id, rq.cpu),
        };
        let mut goes = true;
        loop {
            if let Some(own) = group {
                self.groups.update_load(state, rq.cpu, own, member, nanos(now));
            }
            let line = self.level(state, rq.cpu, group);
            if goes {
                line.dequeue(member, sleeps, now);
                if tasks > 1 {
                    line.count_tasks(1 - tasks as i32);
                }
            } else {
                line.count_tasks(-(tasks as i32));
            }
            if let Some(below) = member.as_group() {
                self.update_share(state, rq, below);
            }
            let Some(own) = group else { return true };
            if self.groups.is_throttled(rq.cpu, own) {
                return false;
            }
            goes &= line.is_empty();
            if goes {
                self.groups.give_back(rq, own, now);
            }
            (member, group) = (Member::group(own), self.groups.above(own, rq.cpu));
        }
    }

    /// Brings the load of `member` on the queue of `group` up to date, and reweighs it by its own
    /// queue's load.
    fn update_level(&self, state: &State<P>, rq: &RqGuard<'_, P>, group: Option<GroupId>, member: Member, now: Time) {
        if let Some(own) = group {
            self.groups.update_load(state, rq.cpu, own, member, nanos(now));
        }
        if let Some(below) = member.as_group() {
            self.update_share(state, rq, below);
        }
    }

    /// As [`update_level`](Self::update_level), for everything that runs.
    pub(in crate::fair) fn tick_levels(&self, state: &State<P>, rq: &RqGuard<'_, P>, now: Time) {
        let Some(id) = self.running_fair(rq.cpu) else { return };
        let (mut member, mut group) = (Member::task(id), self.groups.group_of(state, id));
        loop {
            self.update_level(state, rq, group, member, now);
            let Some(own) = group else { return };
            (member, group) = (Member::group(own), self.groups.above(own, rq.cpu));
        }
    }

    /// Gives `id` another deadline in its group; `None` for none. Returns false outside a group in
    /// the order of deadlines: then nothing changes. The caller holds the lock of the task's queue.
    pub(crate) fn set_deadline(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        id: TaskId,
        deadline: Option<Time>,
    ) -> bool {
        let Some(group) = self.groups.group_of(state, id).filter(|&group| self.groups.is_by_deadline(group)) else {
            return false;
        };
        if state.tasks.get(id).on_rq.get() != 0 && self.is_fair(state, id) {
            self.level(state, rq.cpu, Some(group)).set_deadline(Member::task(id), deadline);
        } else {
            state.tasks.fair(id).set_given_deadline(deadline);
        }
        true
    }

    /// Ends the run of the running members, from the queue of `group` downwards.
    pub(super) fn put_levels(&self, state: &State<P>, cpu: CpuId, mut group: Option<GroupId>, now: Time) {
        loop {
            let line = self.level(state, cpu, group);
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
    pub(crate) fn put_groups(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        if self.groups.are_used() {
            self.put_levels(state, rq.cpu, None, P::moment());
        }
    }

    /// `member`, which waits on the queue of `group` or runs there, runs from now on, and so do the
    /// groups above.
    pub(in crate::fair) fn begin_levels(
        &self,
        state: &State<P>,
        cpu: CpuId,
        group: Option<GroupId>,
        member: Member,
        now: Time,
    ) {
        if let Some(own) = group {
            self.begin_levels(state, cpu, self.groups.above(own, cpu), Member::group(own), now);
        }
        let line = self.level(state, cpu, group);
        let curr = line.curr();
        if curr == Some(member) {
            return;
        }
        if let Some(left) = curr.and_then(Member::as_group) {
            self.put_levels(state, cpu, Some(left), now);
        }
        line.put(now);
        line.begin(member, now);
    }

    /// Charges the running member at each level. Returns true when a slice has ended for which
    /// another member waits.
    pub(in crate::fair) fn charge_levels(&self, state: &State<P>, cpu: CpuId, now: Time) -> bool {
        let mut group = None;
        let mut ended = false;
        loop {
            let line = self.level(state, cpu, group);
            let used_up = line.charge(now);
            ended |= used_up && line.has_waiting();
            group = match line.curr().and_then(Member::as_group) {
                Some(below) => Some(below),
                None => return ended,
            };
        }
    }

    /// A tick: ends the turn of a running member for a waiting one with a shorter slice. Returns
    /// whether it did.
    pub(in crate::fair) fn cut_turns(&self, state: &State<P>, cpu: CpuId) -> bool {
        let cuts = |group| self.level(state, cpu, group).cut_turn();
        self.groups.has_slices() && self.running_levels(cpu).any(cuts)
    }

    /// Returns whether a waiting member with a shorter slice has ended the turn of a running one.
    pub(in crate::fair) fn is_cut(&self, state: &State<P>, cpu: CpuId) -> bool {
        let is_cut = |group| self.level(state, cpu, group).is_cut();
        self.groups.has_slices() && self.running_levels(cpu).any(is_cut)
    }

    /// Returns the fair task that should run on `cpu`, other than `goes`.
    pub(in crate::fair) fn pick_levels(
        &self,
        state: &State<P>,
        cpu: CpuId,
        goes: Option<TaskId>,
        now: Time,
    ) -> Option<TaskId> {
        let mut group = None;
        loop {
            let line = self.level(state, cpu, group);
            line.charge(now);
            match line.pick(self.passed_over(state, cpu, group, goes))?.kind() {
                Kind::Task(id) => return Some(id),
                Kind::Group(below) => group = Some(below),
            }
        }
    }

    /// Returns the member to skip on the queue of `group`, so that `goes` is not picked.
    fn passed_over(
        &self,
        state: &State<P>,
        cpu: CpuId,
        group: Option<GroupId>,
        goes: Option<TaskId>,
    ) -> Option<Member> {
        if !self.groups.are_used() {
            return goes.map(Member::task);
        }
        let id = goes.filter(|&id| self.is_fair(state, id))?;
        let (mut member, mut at) = (Member::task(id), self.groups.group_of(state, id));
        while at != group {
            // Where it is held, the way down does not reach it.
            let own = at.filter(|&own| !self.groups.is_throttled(cpu, own))?;
            if self.queue_at(cpu, at).nr_queued.get() > 1 {
                // Another task of the group may run.
                return None;
            }
            (member, at) = (Member::group(own), self.groups.above(own, cpu));
        }
        Some(member)
    }

    /// Returns the first end of a slice, or of a quota, of the running members at any level. Read
    /// without the lock, by the CPU that runs them.
    pub(in crate::fair) fn slice_ends(&self, state: &State<P>, cpu: CpuId) -> Option<Time> {
        let mut first = self.timeline(state, cpu).slice_ends();
        if self.groups.are_used() {
            let mut group = self.running_group(cpu, None);
            while let Some(own) = group {
                for ends in [self.level(state, cpu, group).slice_ends(), self.groups.runtime_ends(cpu, own)] {
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

    /// Returns the queues with a running member, from the CPU's own downwards.
    fn running_levels(&self, cpu: CpuId) -> impl Iterator<Item = Option<GroupId>> {
        std::iter::successors(Some(None), move |&group| self.running_group(cpu, group).map(Some))
    }

    /// Returns the first waiting fair task on `cpu` that is `wanted`: by deadline. The tasks of a
    /// waiting group come at the group's deadline, and those of the running group come last.
    pub(in crate::fair) fn find_waiting(
        &self,
        state: &State<P>,
        cpu: CpuId,
        group: Option<GroupId>,
        wanted: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<TaskId> {
        let mut found = None;
        self.level(state, cpu, group).members().find(|member| {
            found = match member.kind() {
                Kind::Task(id) => wanted(id).then_some(id),
                Kind::Group(below) => self.find_waiting(state, cpu, Some(below), wanted),
            };
            found.is_some()
        });
        if found.is_some() || !self.groups.are_used() {
            return found;
        }
        self.find_waiting(state, cpu, Some(self.running_group(cpu, group)?), wanted)
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
