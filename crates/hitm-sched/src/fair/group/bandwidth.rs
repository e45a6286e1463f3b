//! CPU bandwidth limits: a group that has used up its quota of a period does not run before the
//! next period.
//!
//! **Claim.** In each period the tasks of a group, on all CPUs and in all groups below, together
//! run for at most its quota. Two things come on top: a remainder of earlier periods, at most one
//! slice per CPU, and the time until a CPU notices that nothing is left. The CPU that has waited
//! longest is the first to get runtime of the next period.
//!
//! **Origin.** Paul Turner, Bharata B Rao and Nikhil Rao, "CPU bandwidth control for CFS", 2010, as
//! Linux has it since v5.4: slices of 5 ms that do not expire, whole queues that are throttled, and
//! a remainder beyond 1 ms that goes back when a queue becomes empty. Differences: the group has no
//! timer; each CPU on which it waits looks when the period ends. A CPU that takes a slice after the
//! period's end first refills the [pool](super::pool). A wakeup never throttles; the switch after
//! it does. Load continues to decay meanwhile. Throttles are counted, not the periods with
//! throttles. There are no bursts.
//!
//! **Protocol.** Under the CPU's lock, unless stated otherwise. The remaining runtime of a queue is
//! what it *got* since the limit was set, minus what it is charged anyway. (1) *Look*: a tick
//! charges the running task. A group above it without runtime takes a slice; if there is none, the
//! CPU is asked to reschedule. (2) *Throttle*: a switch that would run a task of such a group puts
//! the running members back into their queues, dequeues the group's entity from the queue above,
//! subtracts its tasks from all counts there, and puts the CPU into the pool's line. (3) *Held*:
//! the tasks of a throttled queue, or of a queue below it, stay queued and are in no count of a
//! queue above. They come, go and change inside. A running task that joins them waits in the tree,
//! and its CPU is asked to reschedule. (4) *Watch*: the CPU [looks again](super::watch) when the
//! period ends. (5) *Refill*: without a lock, the first CPU of the line gets what it lacks, under
//! its own lock, then the next one. (6) *Unthrottle*: the reverse of (2). A task that still runs
//! because its CPU has not switched yet is counted as running again.
//!
//! A CPU that goes offline throttles nothing any more, and unthrottles what was throttled there. A
//! queue of held tasks is no work that another CPU could pull.
//!
//! **Invariants.** When nothing is in flight: (1) no task in a throttled queue, or below it, runs,
//! and the group's entity is on no queue; (2) a throttled queue is in the pool's line, and its CPU
//! looks at the latest when the period ends; (3) a queue has at most one slice left; (4) an offline
//! CPU has no throttled queue.
//!
//! **Locks.** One change of a limit is made at a time: its lock is taken before those of run
//! queues, and the pool's lock after them.
//!
//! **Roles.** This file has a queue's runtime and the changes of limits.
//! [`throttle`](crate::fair::throttle) moves a throttled group's entity off the queue above and
//! back, which may be the CPU's own.
//!
//! **Memory ordering.** None: words belong to a CPU or to the pool, under its lock.
//!
//! **Cost.** Nothing until the first group gets a limit. For groups without a limit: one look
//! outside the shared memory per level. With a limit: a tick and a switch read one line of the
//! group per CPU and level. 5 ms of runtime take one lock on a line that all CPUs share, and so
//! does a sleep that leaves a queue empty with more than 1 ms. A throttle and its end cost the
//! queues above what one sleep and one wakeup cost, and three times the lock. A limit takes 2 lines
//! per group, and one line per CPU.
//!
//! **Limits.** Time that a task runs with a real-time priority, its own or a lent one, is not
//! charged: [`real_time`](super::real_time) has a limit for that, which the same looks serve. Nor
//! is the time of a task that was moved into a throttled group until its CPU switches. On a CPU
//! that does not look, because its task does not check, a group runs on; it owes that time later.

use hitm_memory::{PlainWord, Platform, Span, Time};
use hitm_topology::CpuId;

use super::Groups;
use super::check::{LimitOnCpuSnapshot, LimitSnapshot};
use super::pool::{GroupLimit, LimitOnCpu, SLICE};
use super::quota::{GroupQuota, GroupThrottling};
use super::watch::Limits;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::{PICOS, nanos};
use crate::base::upcalls::Upcalls;

/// The runtime that an empty queue keeps, in nanoseconds: Linux's.
const KEPT: i64 = 1_000_000;

impl<P: Platform> Groups<P> {
    /// Returns the limit of `id`, if it ever had one.
    pub(super) fn limit_of(&self, id: GroupId) -> Option<&GroupLimit<P>> {
        self.group(id).limit.get()
    }

    // ---- held tasks ----

    /// Returns whether the queue of `id` itself is throttled on `cpu`, whose lock the caller holds.
    pub(in crate::fair) fn is_throttled(&self, cpu: CpuId, id: GroupId) -> bool {
        self.limit_of(id).is_some_and(|limit| limit.on(cpu).is_throttled.get() != 0)
    }

    /// As [`is_throttled`](Self::is_throttled), without the lock: a hint.
    pub(in crate::fair) fn peek_throttled(&self, cpu: CpuId, id: GroupId) -> bool {
        self.limit_of(id).is_some_and(|limit| limit.on(cpu).is_throttled.peek() != 0)
    }

    /// Returns whether `id` is held. A fair task is held if its group, or a group above, is
    /// throttled on `cpu`, whether the task is queued there or not. A real-time task is held if it
    /// is on the list of a throttled queue. Exact under the CPU's lock, else a hint.
    #[inline]
    pub(crate) fn is_held(&self, state: &State<P>, cpu: CpuId, id: TaskId) -> bool {
        if !self.has_limits() {
            return false;
        }
        if state.tasks.get(id).prio().is_real_time() {
            self.is_held_real_time(state, id)
        } else {
            self.is_held_in(cpu, self.group_hint(state, id))
        }
    }

    /// Returns whether `group`, or a group above it, is throttled on `cpu`: then its members are
    /// held.
    pub(in crate::fair) fn is_held_in(&self, cpu: CpuId, mut group: Option<GroupId>) -> bool {
        while let Some(own) = group {
            if self.peek_throttled(cpu, own) {
                return true;
            }
            group = self.above_on(own, cpu);
        }
        false
    }

    /// Returns the group above `id`, from the words of the CPU if they exist: their line is read
    /// anyway.
    pub(super) fn above_on(&self, id: GroupId, cpu: CpuId) -> Option<GroupId> {
        let slot = self.group(id);
        slot.on(cpu).map_or_else(|| slot.parent(), |on| GroupId::of_link(on.entity.group.peek()))
    }

    // ---- runtime ----

    /// Returns the remaining runtime of the queue of `id` on the CPU of `rq`, in nanoseconds.
    fn left(&self, rq: &RqGuard<'_, P>, id: GroupId, on: &LimitOnCpu<P>) -> i64 {
        let used = self.group_on(id, rq.cpu).queue.period_used.get();
        on.from.get() as i64 + on.got.get() - used as i64
    }

    /// Returns whether the limit of `id` lets its tasks run on the CPU of `rq`. Takes a slice if it
    /// must.
    fn has_runtime(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) -> bool {
        let Some(limit) = self.limit_of(id) else { return true };
        let on = limit.on(rq.cpu);
        if on.is_limited.get() == 0 {
            return true;
        }
        let left = self.left(rq, id, on);
        if left > 0 {
            return true;
        }
        let got = limit.take(SLICE - left, nanos(now));
        on.got.set(on.got.get() + got);
        left + got > 0
    }

    /// Returns the topmost of the groups from `group` upwards that has no runtime on the CPU of
    /// `rq`.
    pub(in crate::fair) fn used_up(&self, rq: &RqGuard<'_, P>, group: Option<GroupId>, now: Time) -> Option<GroupId> {
        let own = group.filter(|_| rq.online.get() != 0)?;
        self.used_up(rq, self.above(own, rq.cpu), now).or_else(|| (!self.has_runtime(rq, own, now)).then_some(own))
    }

    /// Returns when the running task will have used up the runtime of the queue of `id`. Read
    /// without the lock, by the CPU that runs it.
    pub(in crate::fair) fn runtime_ends(&self, cpu: CpuId, id: GroupId) -> Option<Time> {
        let on = self.limit_of(id)?.on(cpu);
        let queue = &self.group_on(id, cpu).queue;
        let left = on.from.peek() as i64 + on.got.peek() - queue.period_used.peek() as i64;
        let is_limited = on.is_limited.peek() != 0 && left > 0;
        is_limited.then(|| Time::from_picos(queue.charged.peek() + left as u64 * PICOS))
    }

    /// The queue of `id` on the CPU of `rq` has become empty: returns its runtime to the pool.
    pub(in crate::fair) fn give_back(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
        let Some(limit) = self.limit_of(id) else { return };
        let on = limit.on(rq.cpu);
        if on.is_limited.get() == 0 {
            return;
        }
        let spare = self.left(rq, id, on) - KEPT;
        if spare > 0 {
            on.got.set(on.got.get() - spare);
            if let Some(at) = limit.give_back(spare, nanos(now)) {
                self.watch(rq.cpu, id, on, at);
            }
        }
    }

    // ---- throttle, unthrottle ----

    // ---- changes ----

    /// Returns the state of limits with the words of `id`, if it ever had a limit or now `gets`
    /// one.
    pub(super) fn begin_limit(&self, state: &State<P>, id: GroupId, gets: bool) -> Option<&Limits<P>> {
        let groups = self.table.get().expect("made with the first group");
        let slot = groups.get(id);
        if slot.limit.get().is_none() {
            if !gets {
                return None;
            }
            // Placed before they are set: a simulated CPU may be suspended here, and another may
            // come. The first wins.
            if groups.limits.get().is_none() {
                let _came_later = groups.limits.set(Limits::new(&state.topology));
            }
            let _came_later = slot.limit.set(GroupLimit::new(&state.topology, id.0 as usize));
        }
        self.limits()
    }

    /// Returns the state of the limit of `id`, for checkers.
    pub(super) fn limit_snapshot(&self, state: &State<P>, id: GroupId) -> Option<LimitSnapshot> {
        let limit = self.limit_of(id)?;
        let limits = self.limits().expect("one has a limit");
        let on = |cpu: CpuId| {
            let on = limit.on(cpu);
            let used = self.group(id).on(cpu).map_or(0, |on| on.queue.period_used.peek());
            LimitOnCpuSnapshot {
                cpu,
                online: state.rqs[cpu].online.peek() != 0,
                got: on.got.peek(),
                left: on.from.peek() as i64 + on.got.peek() - used as i64,
                throttled: on.is_throttled.peek() != 0,
                watched: self.watched(cpu).contains(&id),
                due: limits.due(cpu),
            }
        };
        let (runtime, given, quota) = limit.peek();
        Some(LimitSnapshot {
            quota: Span::from_nanos(quota),
            runtime,
            given,
            ends: Time::from_picos(limit.ends() * PICOS),
            line: limit.line(),
            on: state.topology.cpu_ids().map(on).collect(),
        })
    }

    /// Returns how often and how long its limit has throttled a kept group.
    #[must_use]
    pub(crate) fn group_throttling(&self, id: GroupId) -> GroupThrottling {
        self.limit_of(id).map(GroupLimit::throttling).unwrap_or_default()
    }

    /// Marks the queue of `id` on the CPU of `rq`, which is queued there without runtime, as
    /// throttled. Returns its number of tasks, or `None` if the pool had runtime after all.
    pub(in crate::fair) fn throttle(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) -> Option<u32> {
        let (cpu, limit) = (rq.cpu, self.limit_of(id).expect("it has used it up"));
        let on = limit.on(cpu);
        let lacks = 1 - self.left(rq, id, on);
        if limit.wait(cpu, lacks, nanos(now)) {
            on.got.set(on.got.get() + lacks);
            return None;
        }
        on.is_throttled.set(1);
        on.since.set(nanos(now));
        self.watch(cpu, id, on, limit.ends());
        Some(self.group_on(id, cpu).queue.nr_queued.get())
    }

    /// Marks the queue of `id` on `cpu` as throttled no more. Returns its number of tasks.
    pub(in crate::fair) fn unthrottle(&self, cpu: CpuId, id: GroupId, now: Time) -> u32 {
        let limit = self.limit_of(id).expect("it is throttled");
        let on = limit.on(cpu);
        on.is_throttled.set(0);
        limit.leave(cpu, nanos(now).saturating_sub(on.since.get()));
        self.group_on(id, cpu).queue.nr_queued.get()
    }

    /// Ends all throttles of the CPU of `rq`, which is offline. `unthrottle` ends that of a group's
    /// fair tasks, here as below.
    pub(in crate::fair) fn unthrottle_all(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        rq: &RqGuard<'_, P>,
        unthrottle: &impl Fn(&RqGuard<'_, P>, GroupId, Time),
    ) {
        for id in self.watched(rq.cpu) {
            if self.is_throttled(rq.cpu, id) {
                unthrottle(rq, id, P::now());
            }
            self.unthrottle_offline(state, up, rq, id);
        }
    }

    /// Gives the CPUs that wait for runtime of `id` what they lack, while it lasts.
    pub(super) fn serve_line(
        &self,
        state: &State<P>,
        id: GroupId,
        unthrottle: &impl Fn(&RqGuard<'_, P>, GroupId, Time),
    ) {
        let limit = self.limit_of(id).expect("it is watched");
        while let Some(cpu) = limit.first_to_serve(nanos(P::now())) {
            let (rq, now) = (state.lock(cpu), P::now());
            let on = limit.on(cpu);
            if on.is_throttled.get() == 0 {
                // Another CPU was faster.
                continue;
            }
            let lacks = 1 - self.left(&rq, id, on);
            let got = limit.take(lacks, nanos(now));
            on.got.set(on.got.get() + got);
            if got < lacks {
                return;
            }
            unthrottle(&rq, id, now);
        }
    }

    /// Limits the run time of a kept group per period, over all CPUs together. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period, and
    /// throttled tasks may run again.
    pub(in crate::fair) fn set_group_quota(
        &self,
        state: &State<P>,
        id: GroupId,
        quota: Option<GroupQuota>,
        unthrottle: &impl Fn(&RqGuard<'_, P>, GroupId, Time),
    ) {
        let Some(limits) = self.begin_limit(state, id, quota.is_some()) else { return };
        let (slot, limit) = (self.group(id), self.limit_of(id).expect("just made"));
        let _one_at_a_time = limits.change.lock.lock();
        limit.set(quota, nanos(P::now()));
        for cpu in state.topology.cpu_ids() {
            let (rq, on) = (state.lock(cpu), limit.on(cpu));
            on.is_limited.set(u8::from(quota.is_some()));
            limit.forget(on.got.get());
            on.got.set(0);
            on.from.set(slot.on(cpu).map_or(0, |on| on.queue.period_used.get()));
            if on.is_throttled.get() != 0 {
                unthrottle(&rq, id, P::now());
            }
        }
    }

    /// `id`, whose last reference is gone, has no limit.
    pub(in crate::fair) fn end_limit(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        id: GroupId,
        unthrottle: &impl Fn(&RqGuard<'_, P>, GroupId, Time),
    ) {
        if self.limit_of(id).is_some() {
            self.set_group_quota(state, id, None, unthrottle);
            self.end_real_time_limit(state, up, id);
        }
    }
}
