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
//! and its CPU is asked to reschedule. (4) *Watch*: the CPU looks again when the period ends, at a
//! tick or, if it idles, at a timer ([`next_refill`](crate::scheduler::Scheduler::next_refill)).
//! (5) *Refill*: without a lock, the first CPU of the line gets what it lacks, under its own lock,
//! then the next one. (6) *Unthrottle*: the reverse of (2). A task that still runs because its CPU
//! has not switched yet is counted as running again.
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
//! **Memory ordering.** None of its own: words belong to a CPU or to the pool, under its lock. A
//! CPU peeks at the time of its own next look without the lock. Another CPU that makes the time
//! earlier, by moving the last task of a group away, delays that look and nothing else.
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

use std::sync::OnceLock;

use hitm_memory::{PerCpu, Placed, PlainWord, Platform, RawSpinLock, Span, Time, described};
use hitm_topology::{CpuId, Topology};

use super::average::nanos;
use super::check::{LimitOnCpuSnapshot, LimitSnapshot};
use super::pool::{GroupLimit, LimitOnCpu, SLICE};
use super::quota::{GroupQuota, GroupThrottling};
use super::real_time::RealTimeClock;
use crate::base::fair_words::Member;
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::timeline::{Arrival, PICOS};
use crate::scheduler::Scheduler;

/// The runtime that an empty queue keeps, in nanoseconds: Linux's.
const KEPT: i64 = 1_000_000;

described! {
    /// The groups that a CPU watches.
    pub(crate) struct GroupWatch<M: Memory> as "group_watch" {
        /// The first group, counted from 1; 0 for none.
        first: M::Plain<u32>,
        /// The time of the next look, in picoseconds. Peeked at by the CPU.
        due: M::Plain<u64>,
    }
}

described! {
    /// The lock for changes of limits.
    pub(crate) struct LimitChange<M: Memory> as "group_limit_change" {
        /// Held during a change.
        pub(super) lock: RawSpinLock<M>,
    }
}

/// Everything that exists once one group has a limit.
#[derive(Debug)]
pub(crate) struct Limits<P: hitm_memory::Memory> {
    pub(super) change: Placed<P, LimitChange<P>>,
    watches: PerCpu<P, GroupWatch<P>>,
    /// Made with the first limit of real-time tasks.
    pub(super) clocks: OnceLock<PerCpu<P, RealTimeClock<P>>>,
}

impl<M: hitm_memory::Memory> Limits<M> {
    fn new(topology: &Topology) -> Self {
        let watch = |_| GroupWatch { first: M::Plain::new(0), due: M::Plain::new(Time::NEVER.as_picos()) };
        Self {
            change: Placed::new(LimitChange { lock: RawSpinLock::new() }, None, None),
            watches: PerCpu::new(topology, watch),
            clocks: OnceLock::new(),
        }
    }

    /// Returns the time of the next look of `cpu`, which reads it without the lock.
    pub(super) fn due(&self, cpu: CpuId) -> Time {
        Time::from_picos(self.watches[cpu].due.peek())
    }
}

impl<P: Platform> Scheduler<P> {
    /// Returns the state of limits, if a group ever had one.
    pub(super) fn limits(&self) -> Option<&Limits<P>> {
        self.groups()?.limits.get()
    }

    /// Returns whether a group ever had a limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits().is_some()
    }

    /// Returns the limit of `id`, if it ever had one.
    pub(super) fn limit_of(&self, id: GroupId) -> Option<&GroupLimit<P>> {
        self.group(id).limit.get()
    }

    // ---- held tasks ----

    /// Returns whether the queue of `id` itself is throttled on `cpu`, whose lock the caller holds.
    pub(super) fn is_throttled(&self, cpu: CpuId, id: GroupId) -> bool {
        self.limit_of(id).is_some_and(|limit| limit.on(cpu).is_throttled.get() != 0)
    }

    /// As [`is_throttled`](Self::is_throttled), without the lock: a hint.
    pub(in crate::fair) fn peek_throttled(&self, cpu: CpuId, id: GroupId) -> bool {
        self.limit_of(id).is_some_and(|limit| limit.on(cpu).is_throttled.peek() != 0)
    }

    /// Returns whether `id` is held. A fair task is held if its group, or a group above, is
    /// throttled on `cpu`, whether the task is queued there or not. A real-time task is held if it
    /// is on the list of a throttled queue. Exact under the CPU's lock, else a hint.
    pub(crate) fn is_held(&self, cpu: CpuId, id: TaskId) -> bool {
        if !self.has_limits() {
            return false;
        }
        if self.is_fair(id) { self.is_held_in(cpu, self.group_hint(id)) } else { self.is_held_real_time(id) }
    }

    /// Returns whether `group`, or a group above it, is throttled on `cpu`: then its members are
    /// held.
    fn is_held_in(&self, cpu: CpuId, mut group: Option<GroupId>) -> bool {
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

    /// Returns the held fair tasks of a CPU.
    pub(crate) fn held(&self, cpu: CpuId) -> Vec<TaskId> {
        let mut held = Vec::new();
        for id in self.watched(cpu) {
            if self.peek_throttled(cpu, id) {
                self.find_waiting(cpu, Some(id), &mut |task| {
                    held.push(task);
                    false
                });
            }
        }
        held
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

    /// A tick has charged the running task of the CPU of `rq`.
    pub(in crate::fair) fn tick_limits(&self, rq: &RqGuard<'_, P>, now: Time) {
        if self.has_limits()
            && let Some(running) = self.running_fair(rq.cpu)
            && self.used_up(rq, self.group_of(running), now).is_some()
        {
            self.state.resched(rq);
        }
    }

    /// Returns when the running task will have used up the runtime of the queue of `id`. Read
    /// without the lock, by the CPU that runs it.
    pub(super) fn runtime_ends(&self, cpu: CpuId, id: GroupId) -> Option<Time> {
        let on = self.limit_of(id)?.on(cpu);
        let queue = &self.group_on(id, cpu).queue;
        let left = on.from.peek() as i64 + on.got.peek() - queue.period_used.peek() as i64;
        let is_limited = on.is_limited.peek() != 0 && left > 0;
        is_limited.then(|| Time::from_picos(queue.charged.peek() + left as u64 * PICOS))
    }

    /// The queue of `id` on the CPU of `rq` has become empty: returns its runtime to the pool.
    pub(super) fn give_back(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
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

    /// Throttles `id`, which is queued on the CPU of `rq` without runtime, unless the pool has some
    /// after all.
    pub(in crate::fair) fn throttle(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
        let (cpu, limit) = (rq.cpu, self.limit_of(id).expect("it has used it up"));
        let on = limit.on(cpu);
        let lacks = 1 - self.left(rq, id, on);
        if limit.wait(cpu, lacks, nanos(now)) {
            on.got.set(on.got.get() + lacks);
            return;
        }
        on.is_throttled.set(1);
        on.since.set(nanos(now));
        self.watch(cpu, id, on, limit.ends());
        let tasks = self.group_on(id, cpu).queue.nr_queued.get();
        self.put_levels(cpu, Some(id), now);
        if self.go_levels(rq, Member::group(id), tasks, true, now) {
            rq.nr_running.set(rq.nr_running.get() - tasks);
            self.end_service_if_none(rq);
        }
    }

    /// Ends the throttle of the queue of `id` on the CPU of `rq`.
    fn unthrottle(&self, rq: &RqGuard<'_, P>, id: GroupId, now: Time) {
        let (cpu, limit) = (rq.cpu, self.limit_of(id).expect("it is throttled"));
        let on = limit.on(cpu);
        on.is_throttled.set(0);
        limit.leave(cpu, nanos(now).saturating_sub(on.since.get()));
        let tasks = self.group_on(id, cpu).queue.nr_queued.get();
        if tasks == 0 {
            return;
        }
        let above = self.above(id, cpu);
        let counts = !self.is_held_in(cpu, above);
        if counts {
            self.count_running(rq, tasks);
            self.begin_if_first(rq, true, now);
        }
        self.come_levels(rq, Member::group(id), above, tasks, Arrival::Waits, now);
        if counts {
            self.resume(rq, now);
        }
    }

    /// Held tasks may run again on the CPU of `rq`; so may the running task, if it was one of them.
    fn resume(&self, rq: &RqGuard<'_, P>, now: Time) {
        let Some(curr) = rq.curr() else {
            self.state.resched(rq);
            return;
        };
        if !self.is_fair(curr) {
            return;
        }
        let is_queued = self.state.tasks.get(curr).on_rq.get() != 0;
        if is_queued && !self.is_held(rq.cpu, curr) && self.running_fair(rq.cpu) != Some(curr) {
            self.begin_levels(rq.cpu, self.group_of(curr), Member::task(curr), now);
        }
        if !rq.needs_resched() && self.pick_levels(rq.cpu, None, now) != Some(curr) {
            self.state.resched(rq);
        }
    }

    /// Ends all throttles of the CPU of `rq`, which is offline.
    pub(crate) fn unthrottle_all(&self, rq: &RqGuard<'_, P>) {
        for id in self.watched(rq.cpu) {
            if self.is_throttled(rq.cpu, id) {
                self.unthrottle(rq, id, P::now());
            }
            self.unthrottle_offline(rq, id);
        }
    }

    // ---- looks ----

    /// `cpu` looks at `at` for runtime of `id`.
    pub(super) fn watch(&self, cpu: CpuId, id: GroupId, on: &LimitOnCpu<P>, at: u64) {
        let watch = &self.limits().expect("one has a limit").watches[cpu];
        if on.is_watched.get() == 0 {
            on.is_watched.set(1);
            on.look_at.set(at);
            on.next_watched.set(watch.first.get());
            watch.first.set(GroupId::link(Some(id)));
        }
        on.look_at.set(on.look_at.get().min(at));
        watch.due.set(watch.due.get().min(at * PICOS));
    }

    /// Returns the groups that a CPU watches.
    pub(super) fn watched(&self, cpu: CpuId) -> Vec<GroupId> {
        let Some(limits) = self.limits() else { return Vec::new() };
        let mut watched = Vec::new();
        let mut next = GroupId::of_link(limits.watches[cpu].first.peek());
        while let Some(id) = next {
            watched.push(id);
            next = GroupId::of_link(self.limit_of(id).expect("it is watched").on(cpu).next_watched.peek());
        }
        watched
    }

    /// Returns the time at which this CPU must next call [`refill`](Scheduler::refill) if it is
    /// idle, or [`Time::NEVER`]. The time may change at every switch.
    #[must_use]
    pub fn next_refill(&self) -> Time {
        self.limits().map_or(Time::NEVER, |limits| limits.due(P::current_cpu()))
    }

    /// Refills the groups that have used up their quota, if their next period has begun. A tick
    /// does the same.
    pub fn refill(&self) {
        if !self.has_limits() {
            return;
        }
        let now = P::now();
        if now < self.next_refill() {
            return;
        }
        let here = P::current_cpu();
        let watched = {
            let _rq = self.state.lock(here);
            self.watched(here)
        };
        watched.iter().for_each(|&id| self.serve_line(id));
        let mut rq = self.state.lock(here);
        self.refill_real_time(&mut rq, &watched);
        self.watch_on(here, nanos(now));
    }

    /// Gives the CPUs that wait for runtime of `id` what they lack, while it lasts.
    fn serve_line(&self, id: GroupId) {
        let limit = self.limit_of(id).expect("it is watched");
        while let Some(cpu) = limit.first_to_serve(nanos(P::now())) {
            let (rq, now) = (self.state.lock(cpu), P::now());
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
            self.unthrottle(&rq, id, now);
        }
    }

    /// `cpu` has looked at `now`: computes what it watches from now on.
    fn watch_on(&self, cpu: CpuId, now: u64) {
        let watched = self.watched(cpu);
        let watch = &self.limits().expect("something was due").watches[cpu];
        watch.first.set(0);
        watch.due.set(Time::NEVER.as_picos());
        for id in watched {
            let limit = self.limit_of(id).expect("it is watched");
            let on = limit.on(cpu);
            on.is_watched.set(0);
            let later = Some(on.look_at.get()).filter(|&at| at > now);
            let ends = (on.is_throttled.get() != 0).then(|| limit.ends());
            if let Some(at) = later.into_iter().chain(ends).chain(self.throttled_until(cpu, id)).min() {
                self.watch(cpu, id, on, at);
            }
        }
    }

    // ---- changes ----

    /// Returns the state of limits with the words of `id`, if it ever had a limit or now `gets`
    /// one.
    pub(super) fn begin_limit(&self, id: GroupId, gets: bool) -> Option<&Limits<P>> {
        let groups = self.groups().expect("made with the first group");
        let slot = groups.get(id);
        if slot.limit.get().is_none() {
            if !gets {
                return None;
            }
            // Placed before they are set: a simulated CPU may be suspended here, and another may
            // come. The first wins.
            if groups.limits.get().is_none() {
                let _came_later = groups.limits.set(Limits::new(&self.state.topology));
            }
            let _came_later = slot.limit.set(GroupLimit::new(&self.state.topology, id.0 as usize));
        }
        self.limits()
    }

    /// Limits the run time of a kept group per period, over all CPUs together. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period, and
    /// throttled tasks may run again.
    pub fn set_group_quota(&self, id: GroupId, quota: Option<GroupQuota>) {
        let Some(limits) = self.begin_limit(id, quota.is_some()) else { return };
        let (slot, limit) = (self.group(id), self.limit_of(id).expect("just made"));
        let _one_at_a_time = limits.change.lock.lock();
        limit.set(quota, nanos(P::now()));
        for cpu in self.state.topology.cpu_ids() {
            let (rq, on) = (self.state.lock(cpu), limit.on(cpu));
            on.is_limited.set(u8::from(quota.is_some()));
            limit.forget(on.got.get());
            on.got.set(0);
            on.from.set(slot.on(cpu).map_or(0, |on| on.queue.period_used.get()));
            if on.is_throttled.get() != 0 {
                self.unthrottle(&rq, id, P::now());
            }
        }
    }

    /// `id`, whose last reference is gone, has no limit.
    pub(super) fn end_limit(&self, id: GroupId) {
        if self.limit_of(id).is_some() {
            self.set_group_quota(id, None);
            self.end_real_time_limit(id);
        }
    }

    /// Returns the state of the limit of `id`, for checkers.
    pub(super) fn limit_snapshot(&self, id: GroupId) -> Option<LimitSnapshot> {
        let limit = self.limit_of(id)?;
        let limits = self.limits().expect("one has a limit");
        let on = |cpu: CpuId| {
            let on = limit.on(cpu);
            let used = self.group(id).on(cpu).map_or(0, |on| on.queue.period_used.peek());
            LimitOnCpuSnapshot {
                cpu,
                online: self.state.rqs[cpu].online.peek() != 0,
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
            on: self.state.topology.cpu_ids().map(on).collect(),
        })
    }

    /// Returns how often and how long its limit has throttled a kept group.
    #[must_use]
    pub fn group_throttling(&self, id: GroupId) -> GroupThrottling {
        self.limit_of(id).map(GroupLimit::throttling).unwrap_or_default()
    }
}

impl<M: hitm_memory::Memory> std::fmt::Debug for GroupWatch<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupWatch").field("due", &self.due).finish_non_exhaustive()
    }
}

impl<M: hitm_memory::Memory> std::fmt::Debug for LimitChange<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitChange").finish_non_exhaustive()
    }
}
