//! Throttled real-time queues of groups, and the changes of their limits: the steps *throttle*,
//! *refill* and *unthrottle* of [`real_time`](super).

use std::sync::atomic::Ordering;

use hitm_memory::{Interrupts, Platform};
use hitm_topology::CpuId;

use super::RealTimeClock;
use super::queue::{RealTimeLimit, RealTimeQueue};
use crate::base::numbers::GroupId;
use crate::base::rq::{BALANCE_PULL, BALANCE_PUSH, RqGuard};
use crate::base::state::State;
use crate::base::timeline::nanos;
use crate::base::upcalls::Upcalls;
use crate::cid::Ids;
use crate::fair::group::Groups;
use crate::fair::group::quota::{GroupThrottling, QuotaRefused, RealTimeQuota};

impl<P: Platform> Groups<P> {
    /// Throttles `id`, which has used up its runtime, on the CPU of `rq`: from now on its real-time
    /// tasks run there only with a lent priority.
    pub(crate) fn throttle_real_time(
        &self,
        state: &State<P>,
        ids: &Ids<P>,
        up: &impl Upcalls<P>,
        rq: &RqGuard<'_, P>,
        id: GroupId,
    ) {
        let limit = self.real_time_limit_of(id).expect("it has used it up");
        let queue = limit.on(rq.cpu).expect("it has used it up");
        let ends = queue.throttle(nanos(P::now()));
        limit.mark(rq.cpu, true);
        self.watch(rq.cpu, id, self.limit_of(id).expect("it has one").on(rq.cpu), ends);
        for task in rq.rt.queued(&state.tasks) {
            if let Some(holder) = self.holder(state, rq.cpu, task) {
                up.dequeue(rq, task, false);
                self.hold(state, ids, rq, task, holder);
            }
        }
        // As on a CPU that has left a task: other CPUs may have more urgent tasks than the rest
        // here.
        rq.request_balance(BALANCE_PULL);
    }

    /// Ends the throttle of the queue of `id` on the CPU of `rq`.
    pub(in crate::fair::group) fn unthrottle_real_time(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        rq: &RqGuard<'_, P>,
        id: GroupId,
    ) {
        let limit = self.real_time_limit_of(id).expect("it is throttled");
        let queue = limit.on(rq.cpu).expect("it is throttled");
        let tasks = self.held_by(state, queue);
        let mut held = Vec::new();
        while let Some(task) = tasks.first() {
            self.let_go_of(state, rq, task);
            held.push(task);
        }
        queue.unthrottle(nanos(P::now()));
        limit.mark(rq.cpu, false);
        for task in held {
            up.enqueue(rq, task, false);
            if rq.curr() != Some(task) {
                up.preempt_for(rq, task);
            }
        }
    }

    /// A queue of the CPU of `rq` was unthrottled: its waiting tasks may run elsewhere, and tasks
    /// that wait elsewhere may run here.
    fn balance_after_refill(&self, up: &impl Upcalls<P>, rq: &mut RqGuard<'_, P>) {
        // SeqCst: between the set of throttled CPUs and the look at advertised tasks. Pairs with
        // the fence in `where_held`.
        P::fence(Ordering::SeqCst);
        rq.request_balance(BALANCE_PUSH | BALANCE_PULL);
        up.run_balance(rq);
    }

    /// Refills these groups on the CPU of `rq`, and ends the throttle of those with runtime.
    pub(in crate::fair::group) fn refill_real_time(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        rq: &mut RqGuard<'_, P>,
        groups: &[GroupId],
    ) {
        if !self.has_real_time_limits() {
            return;
        }
        self.charge_real_time(state, rq);
        let now = nanos(P::now());
        let mut any = false;
        for &id in groups.iter().filter(|&&id| self.is_throttled_real_time(rq.cpu, id)) {
            let queue = self.real_time_queue(state, rq, id, now).expect("it is throttled");
            queue.pass(None, now);
            if !queue.is_used_up() {
                self.unthrottle_real_time(state, up, rq, id);
                any = true;
            }
        }
        if any {
            self.balance_after_refill(up, rq);
        }
    }

    /// Returns the end of the period of `id` on `cpu`, if it is throttled there.
    pub(in crate::fair::group) fn throttled_until(&self, cpu: CpuId, id: GroupId) -> Option<u64> {
        let queue = self.real_time_limit_of(id)?.on(cpu)?;
        queue.is_throttled().then(|| queue.ends())
    }

    /// Ends the throttle of the queue of `id`, if there is one, on the CPU of `rq`, which is
    /// offline.
    pub(in crate::fair::group) fn unthrottle_offline(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        rq: &RqGuard<'_, P>,
        id: GroupId,
    ) {
        if self.is_throttled_real_time(rq.cpu, id) {
            self.unthrottle_real_time(state, up, rq, id);
        }
    }

    // ---- changes ----

    /// Limits the run time of a kept group's real-time tasks per CPU and period. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period. Tasks
    /// with a lent priority are counted, but are not throttled.
    ///
    /// # Errors
    /// When the parent group or the CPU has too little left, or when groups below have more. Then
    /// nothing changes.
    pub(crate) fn set_group_real_time(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        id: GroupId,
        quota: Option<RealTimeQuota>,
    ) -> Result<(), QuotaRefused> {
        let Some(limits) = self.begin_limit(state, id, quota.is_some()) else { return Ok(()) };
        let slot = self.limit_of(id).expect("just made");
        if slot.real_time.get().is_none() {
            if quota.is_none() {
                return Ok(());
            }
            // Placed before they are set: as in `begin_limit`.
            if limits.clocks.get().is_none() {
                let _came_later = limits.clocks.set(RealTimeClock::all(&state.topology, P::now()));
            }
            let _came_later = slot.real_time.set(RealTimeLimit::new(&state.topology, id.0 as usize));
        }
        let limit = slot.real_time.get().expect("just made");
        let _one_at_a_time = limits.change.lock.lock();
        quota.map_or(Ok(()), |quota| self.admit(id, quota))?;
        limit.set(quota, nanos(P::now()));
        for cpu in state.topology.cpu_ids() {
            let mut rq = state.lock(cpu);
            self.charge_real_time(state, &rq);
            limit.begin_on(cpu, nanos(P::now()));
            if self.is_throttled_real_time(cpu, id) {
                self.unthrottle_real_time(state, up, &rq, id);
                self.balance_after_refill(up, &mut rq);
            }
            if self.runs_limited(state, cpu) {
                // The CPU no longer has to tick, or has to tick later.
                P::interrupt(cpu, Interrupts::CONTROL);
            }
        }
        Ok(())
    }

    /// `id`, whose last reference is gone, has no limit.
    pub(in crate::fair::group) fn end_real_time_limit(&self, state: &State<P>, up: &impl Upcalls<P>, id: GroupId) {
        let Some(limit) = self.real_time_limit_of(id) else { return };
        self.set_group_real_time(state, up, id, None).expect("none is never refused");
        for cpu in state.topology.cpu_ids() {
            let _rq = state.lock(cpu);
            limit.on(cpu).into_iter().for_each(RealTimeQueue::forget_counts);
        }
    }

    /// Returns how often and how long that limit has throttled the real-time tasks of a kept group.
    #[must_use]
    pub(crate) fn group_real_time_throttling(&self, state: &State<P>, id: GroupId) -> GroupThrottling {
        let mut sum = GroupThrottling::default();
        let Some(limit) = self.real_time_limit_of(id) else { return sum };
        for cpu in state.topology.cpu_ids() {
            let _rq = state.lock(cpu);
            let Some(on) = limit.on(cpu).map(RealTimeQueue::throttling) else { continue };
            sum.periods += on.periods;
            sum.throttles += on.throttles;
            sum.throttled += on.throttled;
        }
        sum
    }
}
