//! Groups, as a runtime makes, changes and ends them.
//!
//! **Roles.** [`Groups`](crate::fair::group::Groups) has what a group is. The
//! [fair class](crate::fair) shares and limits the time of its fair tasks. A task that changes its
//! group is dequeued and enqueued here, like any task that [changes](super::change).

use hitm_memory::{PlainWord, Platform, Time};

use crate::base::fair_words::FairTask;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::BALANCE_PULL;
use crate::base::weight::Nice;
use crate::fair::group::GroupWeight;
use crate::fair::group::quota::{GroupQuota, GroupThrottling, QuotaRefused, RealTimeQuota};
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Creates an empty group and keeps it for the caller. Its parent is `parent`, which must be a
    /// kept group, or the root for `None`.
    ///
    /// # Panics
    /// When [`GROUPS_MAX`](crate::GROUPS_MAX) groups live.
    #[must_use]
    pub fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId {
        self.fair.make_fair(&self.state);
        self.fair.groups.make_group(&self.state, parent, weight)
    }

    /// Changes the weight of a group.
    pub fn set_group_weight(&self, id: GroupId, weight: GroupWeight) {
        self.fair.set_group_weight(&self.state, id, weight);
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
