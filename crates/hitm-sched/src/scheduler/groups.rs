//! Groups, as a runtime makes, changes and ends them.
//!
//! **Roles.** [`Groups`](crate::fair::group::Groups) has what a group is. The
//! [fair class](crate::fair) shares and limits the time of its fair tasks. A task that changes its
//! group is dequeued and enqueued here, like any task that [changes](super::change).

use hitm_memory::{PlainWord, Platform, Time};

use crate::base::fair_words::FairTask;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::{BALANCE_PULL, RqGuard};
use crate::base::timeline::TaskOrder;
use crate::base::weight::Nice;
use crate::fair::group::GroupWeight;
use crate::fair::group::quota::{GroupQuota, GroupThrottling, QuotaRefused, RealTimeQuota};
use crate::fair::group::slice::GroupSlice;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Creates an empty group and keeps it for the caller. Its parent is `parent`, which must be a
    /// kept group, or the root for `None`.
    ///
    /// # Panics
    /// When [`GROUPS_MAX`](crate::GROUPS_MAX) groups live, or when `parent` is in the order of
    /// deadlines.
    #[must_use]
    pub fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight, order: TaskOrder) -> GroupId {
        self.fair.make_fair(&self.state);
        self.fair.groups.make_group(&self.state, parent, weight, order)
    }

    /// Changes the weight of a group.
    pub fn set_group_weight(&self, id: GroupId, weight: GroupWeight) {
        self.fair.set_group_weight(&self.state, id, weight);
    }

    /// Gives a kept group a slice of its own. On each CPU it has it from its next slice on.
    pub fn set_group_slice(&self, id: GroupId, slice: GroupSlice) {
        self.fair.groups.set_slice(&self.state, id, slice);
    }

    /// Releases the caller's hold on a group. The group ends and its number becomes free when it
    /// has no task and no child group either.
    pub fn free_group(&self, id: GroupId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.fair.groups.group(id);
            if !group.let_go() {
                return;
            }
            next = group.parent();
            self.fair.end_limit(&self.state, &self.rd, self, id);
            self.fair.end_load(&self.state, id);
            self.fair.groups.give_back_number(id);
        }
    }

    /// Returns the group of a task. The answer is a hint.
    #[must_use]
    pub fn group_of(&self, id: TaskId) -> Option<GroupId> {
        self.fair.groups.group_hint(&self.state, id)
    }

    /// Returns the group of a task, if it has one, and keeps the group until
    /// [`free_group`](Self::free_group) is called for it.
    #[must_use]
    pub fn hold_group_of(&self, id: TaskId) -> Option<GroupId> {
        self.group_of(id)?;
        // The task holds its group, and leaves it under this lock.
        let _pi = self.state.tasks.get(id).pi_lock.lock();
        let group = self.group_of(id)?;
        self.fair.groups.group(group).hold();
        Some(group)
    }

    /// Moves a task to a kept group, or to no group. A real-time task has no share in its group,
    /// but its group's limit applies. It takes part in the sharing when it becomes fair again.
    pub fn set_group(&self, id: TaskId, group: Option<GroupId>) {
        if !self.fair.groups.are_used() {
            return;
        }
        if let Some(group) = group {
            self.fair.groups.group(group).hold();
        }
        let task = self.state.tasks.get(id);
        let pi = task.pi_lock.lock();
        let mut rq = self.state.lock_queue_of(id);
        let words: &FairTask<P> = self.state.tasks.make_fair(&self.state.topology, id, Nice::DEFAULT);
        let before = GroupId::of_link(words.group.get());
        let cpu = rq.cpu;
        let change = || {
            self.fair.groups.detach_load(&self.state, cpu, id);
            words.group.set(GroupId::link(group));
            group.into_iter().for_each(|group| self.fair.groups.begin_order(words, group));
            if before.is_none() {
                words.begin_load(self.fair.groups.weight_of(words));
            }
            self.fair.groups.follow_group(&self.state, id, cpu);
        };
        if self.fair.is_fair(&self.state, id) || self.fair.groups.has_real_time_limits() {
            self.fair.groups.charge_real_time(&self.state, &rq);
            let highest = self.fair.groups.has_real_time_limits().then(|| rq.highest());
            self.bracket(&rq, id, false, change);
            if rq.curr() == Some(id) {
                self.state.resched(&rq);
            } else if task.on_rq.get() != 0 {
                self.preempt_for(&rq, id);
            }
            if highest.is_some_and(|highest| highest < rq.highest()) {
                rq.request_balance(BALANCE_PULL);
            }
        } else {
            change();
        }
        self.run_balance(&mut rq);
        drop(rq);
        drop(pi);
        before.into_iter().for_each(|before| self.free_group(before));
    }

    /// Gives a task a deadline among the tasks of its group, or takes it away with `None`. The task
    /// keeps it until this is called again or the task leaves the group. Does nothing for a task
    /// that is in no group in the [order of deadlines](TaskOrder::Deadline). While the task has a
    /// real-time priority, its own or a lent one, the deadline has no effect. A deadline is kept in
    /// whole nanoseconds; [`Time::NEVER`] is none.
    pub fn set_deadline(&self, id: TaskId, deadline: Option<Time>) {
        if !self.fair.groups.has_deadlines() {
            return;
        }
        let _pi = self.state.tasks.get(id).pi_lock.lock();
        let rq = self.state.lock_queue_of(id);
        // A task that was in no group has no words of the class.
        let is_in_one = self.fair.groups.group_hint(&self.state, id).is_some();
        if is_in_one && self.fair.set_deadline(&self.state, &rq, id, deadline) {
            self.look_after_deadline(&rq, id);
        }
    }

    /// The deadline of `id`, which is on `rq`, has changed.
    fn look_after_deadline(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.state.tasks.get(id).on_rq.get() == 0 || !self.fair.is_fair(&self.state, id) {
            return;
        }
        if rq.curr() != Some(id) {
            self.preempt_for(rq, id);
        } else if self.fair.has_another_first(&self.state, rq, id) {
            self.state.resched(rq);
        }
    }

    /// Returns the deadline that a task has in its group; `None` for none. A hint, unless the
    /// caller is the task.
    #[must_use]
    pub fn deadline_of(&self, id: TaskId) -> Option<Time> {
        let group = self.fair.groups.group_hint(&self.state, id)?;
        self.fair.groups.is_by_deadline(group).then(|| self.state.tasks.fair(id).given_deadline())?
    }

    /// Limits the run time of a kept group per period, over all CPUs together. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period, and
    /// throttled tasks may run again.
    pub fn set_group_quota(&self, id: GroupId, quota: Option<GroupQuota>) {
        self.fair.set_group_quota(&self.state, &self.rd, id, quota);
    }

    /// Limits the run time of a kept group's real-time tasks per CPU and period. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period. Tasks
    /// with a lent priority are counted, but are not throttled.
    ///
    /// # Errors
    /// When the parent group or the CPU has too little left, or when groups below have more. Then
    /// nothing changes.
    pub fn set_group_real_time(&self, id: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused> {
        self.fair.groups.set_group_real_time(&self.state, self, id, quota)
    }

    /// Returns how often and how long its limit has throttled a kept group.
    #[must_use]
    pub fn group_throttling(&self, id: GroupId) -> GroupThrottling {
        self.fair.groups.group_throttling(id)
    }

    /// Returns how often and how long its limit has throttled the real-time tasks of a kept group.
    #[must_use]
    pub fn group_real_time_throttling(&self, id: GroupId) -> GroupThrottling {
        self.fair.groups.group_real_time_throttling(&self.state, id)
    }

    /// Returns the time at which this CPU must next call [`refill`](Scheduler::refill) if it is
    /// idle, or [`Time::NEVER`]. The time may change at every switch.
    #[must_use]
    pub fn next_refill(&self) -> Time {
        self.fair.groups.next_refill()
    }

    /// Refills the groups that have used up their quota, if their next period has begun. A tick
    /// does the same.
    pub fn refill(&self) {
        self.fair.refill(&self.state, &self.rd, self);
    }
}
