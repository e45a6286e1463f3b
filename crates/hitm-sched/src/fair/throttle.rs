//! Throttled groups of fair tasks: how their queues leave a CPU's queues, and return.
//!
//! These are the steps *throttle*, *refill* and *unthrottle* of a group's
//! [limit](super::group::bandwidth), whose documentation has the protocol.

use hitm_memory::{PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::class::Fair;
use super::group::quota::GroupQuota;
use super::levels::Coming;
use crate::base::fair_words::Member;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::Arrival;
use crate::base::upcalls::Upcalls;
use crate::linux::root_domain::RootDomain;

impl<P: Platform> Fair<P> {
    /// Returns the held fair tasks of a CPU.
    pub(crate) fn held(&self, state: &State<P>, cpu: CpuId) -> Vec<TaskId> {
        let mut held = Vec::new();
        for id in self.groups.watched(cpu) {
            if self.groups.peek_throttled(cpu, id) {
                self.find_waiting(state, cpu, Some(id), &mut |task| {
                    held.push(task);
                    false
                });
            }
        }
        held
    }

    /// A tick has charged the running task of the CPU of `rq`.
    pub(in crate::fair) fn tick_limits(&self, state: &State<P>, rq: &RqGuard<'_, P>, now: Time) {
        if self.groups.has_limits()
            && let Some(running) = self.running_fair(rq.cpu)
            && self.groups.used_up(rq, self.groups.group_of(state, running), now).is_some()
        {
            state.resched(rq);
        }
    }

    /// Throttles `id`, which is queued on the CPU of `rq` without runtime, unless the pool has some
    /// after all.
    pub(in crate::fair) fn throttle(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
        let Some(tasks) = self.groups.throttle(rq, id, now) else { return };
        self.put_levels(state, rq.cpu, Some(id), now);
        if self.go_levels(state, rq, Member::group(id), tasks, true, now) {
            rq.nr_running.set(rq.nr_running.get() - tasks);
            self.fair_queue(rq.cpu).end_service_if_none();
        }
    }

    /// Ends the throttle of the queue of `id` on the CPU of `rq`.
    fn unthrottle(&self, state: &State<P>, rd: &RootDomain<P>, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
        let (cpu, tasks) = (rq.cpu, self.groups.unthrottle(rq.cpu, id, now));
        if tasks == 0 {
            return;
        }
        let above = self.groups.above(id, cpu);
        let counts = !self.groups.is_held_in(cpu, above);
        if counts {
            Self::count_running(rd, rq, tasks);
            self.begin_if_first(state, rq, true, now);
        }
        let comes = Coming { member: Member::group(id), tasks, arrival: Arrival::Waits };
        self.come_levels(state, rq, comes, above, now);
        if counts {
            self.resume(state, rq, now);
        }
    }

    /// Held tasks may run again on the CPU of `rq`; so may the running task, if it was one of them.
    fn resume(&self, state: &State<P>, rq: &RqGuard<'_, P>, now: Time) {
        let Some(curr) = rq.curr() else {
            state.resched(rq);
            return;
        };
        if !self.is_fair(state, curr) {
            return;
        }
        let is_queued = state.tasks.get(curr).on_rq.get() != 0;
        if is_queued && !self.groups.is_held(state, rq.cpu, curr) && self.running_fair(rq.cpu) != Some(curr) {
            self.begin_levels(state, rq.cpu, self.groups.group_of(state, curr), Member::task(curr), now);
        }
        if !rq.needs_resched() && self.pick_levels(state, rq.cpu, None, now) != Some(curr) {
            state.resched(rq);
        }
    }

    /// Ends all throttles of the CPU of `rq`, which is offline.
    pub(crate) fn unthrottle_all(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        up: &impl Upcalls<P>,
        rq: &RqGuard<'_, P>,
    ) {
        self.groups.unthrottle_all(state, up, rq, &|rq, id, now| self.unthrottle(state, rd, rq, id, now));
    }

    /// Refills the groups that have used up their quota, if their next period has begun.
    pub(crate) fn refill(&self, state: &State<P>, rd: &RootDomain<P>, up: &impl Upcalls<P>) {
        self.groups.refill(state, up, &|rq, id, now| self.unthrottle(state, rd, rq, id, now));
    }

    /// Limits the run time of a kept group.
    pub(crate) fn set_group_quota(&self, state: &State<P>, rd: &RootDomain<P>, id: GroupId, quota: Option<GroupQuota>) {
        self.groups.set_group_quota(state, id, quota, &|rq, id, now| self.unthrottle(state, rd, rq, id, now));
    }

    /// `id`, whose last reference is gone, has no limit.
    pub(crate) fn end_limit(&self, state: &State<P>, rd: &RootDomain<P>, up: &impl Upcalls<P>, id: GroupId) {
        self.groups.end_limit(state, up, id, &|rq, id, now| self.unthrottle(state, rd, rq, id, now));
    }
}
