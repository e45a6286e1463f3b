//! The scheduler's operations on a fair task, and the ticks of its CPU.
//!
//! **Protocol.** The scheduler's files ask this one where the two classes differ. A switch charges
//! the task that it leaves, then takes the first real-time task, or the
//! [next](crate::base::timeline) fair task if there is none or if fair tasks are
//! [served](super::server).
//!
//! **Cost.** Without any fair task: a look at a word outside the shared memory. With fair tasks: a
//! switch reads one line of its own, and from there one line per task on the way down the tree.

use std::fmt;
use std::sync::OnceLock;

use hitm_memory::{Interrupts, PerCpu, PlainWord, Platform, Span, Time};
use hitm_topology::{CpuId, Topology};

use super::group::Groups;
use crate::base::fair_words::{FairQueue, FairTask, Member};
use crate::base::idle::sched_domains::{Kept, SchedDomains};
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::timeline::{Arrival, Timeline};
use crate::scheduler::Scheduler;

/// A slice on one CPU, in nanoseconds: Linux's since v6.15 (Zihan Zhou, "Reduce the default slice
/// to avoid tasks getting an extra tick", 2025).
const BASE_SLICE: i64 = 700_000;

/// A slice grows with the binary logarithm of the number of CPUs, up to this number: Linux's.
const SLICE_CPUS_MAX: usize = 8;

/// The rank of a served fair task: above all real-time tasks, like the deadline class.
const ABOVE_REAL_TIME: Prio = Prio(-1);

/// The class: one queue per CPU.
pub(crate) struct Fair<P: Platform> {
    pub(crate) queues: PerCpu<P, FairQueue<P>>,
    pub(crate) sched_domains: SchedDomains<P>,
    pub(super) slice: i64,
    /// Made with the first group.
    pub(super) groups: OnceLock<Groups<P>>,
}

impl<P: Platform> Fair<P> {
    fn new(topology: &Topology, kept: Kept<P>) -> Self {
        let slice = BASE_SLICE * i64::from(1 + topology.cpus().min(SLICE_CPUS_MAX).ilog2());
        Self {
            queues: PerCpu::new(topology, |_| FairQueue::new()),
            sched_domains: SchedDomains::new(topology, kept),
            slice,
            groups: OnceLock::new(),
        }
    }
}

/// Returns the next multiple of a period: all CPUs tick at the same times, as Linux's do by
/// default.
fn next_multiple(now: Time, period: Span) -> Time {
    let period = period.as_picos();
    Time::from_picos((now.as_picos() / period + 1) * period)
}

impl<P: Platform> Scheduler<P> {
    /// Fair tasks may exist from now on.
    pub(crate) fn make_fair(&self) {
        if self.fair.get().is_none() {
            // Placed before it is set: a simulated CPU may be suspended here, and another may come.
            // The first wins.
            let _came_later = self.fair.set(Fair::new(&self.state.topology, self.keep_idleness()));
        }
    }

    /// Whether `id` is a fair task now: exact under its queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn is_fair(&self, id: TaskId) -> bool {
        self.fair.get().is_some() && !self.state.tasks.get(id).prio().is_real_time()
    }

    /// Returns the class, of which a task exists.
    pub(super) fn fair(&self) -> &Fair<P> {
        self.fair.get().expect("made before its first task")
    }

    pub(crate) fn fair_queue(&self, cpu: CpuId) -> &FairQueue<P> {
        &self.fair().queues[cpu]
    }

    /// Returns the virtual time of the CPU's own queue.
    pub(crate) fn timeline<'a>(&'a self, cpu: CpuId) -> Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>> {
        self.level(cpu, None)
    }

    /// Returns the rank of `curr`, which the CPU of `rq` runs.
    #[track_caller]
    pub(crate) fn rank(&self, rq: &RqGuard<'_, P>, curr: TaskId) -> Prio {
        self.rank_on(rq.cpu, curr)
    }

    /// As [`rank`](Self::rank), without the lock: a hint.
    #[track_caller]
    pub(crate) fn rank_on(&self, cpu: CpuId, curr: TaskId) -> Prio {
        let prio = self.state.tasks.get(curr).prio();
        let is_served = || self.fair.get().is_some_and(|fair| fair.queues[cpu].served.peek() != 0);
        if !prio.is_real_time() && is_served() { ABOVE_REAL_TIME } else { prio }
    }

    pub(crate) fn enqueue_fair(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let task = self.state.tasks.get(id);
        task.on_rq.set(1);
        self.ids.arrive(&self.state, rq, id);
        let is_held = self.is_held(rq.cpu, id);
        if !is_held {
            self.count_running(rq, 1);
        }
        let runs = rq.curr() == Some(id);
        let now = P::now();
        if !is_held {
            self.begin_if_first(rq, !runs, now);
        } else if runs {
            self.state.resched(rq);
        }
        let arrival = if runs && !is_held { Arrival::Runs } else { Arrival::Waits };
        self.enqueue_levels(rq, id, arrival, now);
    }

    /// Counts `tasks` more that may run on the CPU of `rq`.
    pub(super) fn count_running(&self, rq: &RqGuard<'_, P>, tasks: u32) {
        let before = rq.nr_running.get();
        rq.nr_running.set(before + tasks);
        self.tell_of_two(before, before + tasks);
    }

    /// Fair tasks are about to come to the CPU of `rq`: to wait, or as the running task.
    pub(super) fn begin_if_first(&self, rq: &RqGuard<'_, P>, wait: bool, now: Time) {
        if self.fair_queue(rq.cpu).nr_queued.get() != 0 {
            return;
        }
        self.begin_period(rq, now);
        let curr = rq.curr().filter(|_| wait);
        if curr.is_some_and(|curr| self.state.tasks.get(curr).prio().is_real_time()) {
            // The CPU runs a real-time task and did not have to tick: now it must.
            P::interrupt(rq.cpu, Interrupts::CONTROL);
        }
    }

    pub(crate) fn dequeue_fair(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool) {
        self.state.tasks.get(id).on_rq.set(0);
        if !self.is_held(rq.cpu, id) {
            rq.nr_running.set(rq.nr_running.get() - 1);
        }
        self.dequeue_levels(rq, id, sleeps, P::now());
        self.end_service_if_none(rq);
    }

    /// The running task yields.
    pub(crate) fn let_go_fair(&self, rq: &RqGuard<'_, P>) {
        let group = if self.groups().is_some() { rq.curr().and_then(|curr| self.group_of(curr)) } else { None };
        self.level(rq.cpu, group).let_go(P::now());
    }

    /// The running task stays queued while something else runs.
    pub(crate) fn put_fair(&self, rq: &RqGuard<'_, P>) {
        // With groups, the next task decides at which levels.
        if self.groups().is_none() {
            self.timeline(rq.cpu).put(P::now());
        }
    }

    /// `next` runs from now on.
    pub(crate) fn begin_fair(&self, rq: &RqGuard<'_, P>, next: TaskId) {
        let member = Member::task(next);
        if self.groups().is_some() {
            return self.begin_levels(rq.cpu, self.group_of(next), member, P::now());
        }
        let timeline = self.timeline(rq.cpu);
        if timeline.curr() != Some(member) {
            timeline.begin(member, P::now());
        }
    }

    /// Returns the next task: `next`, the first real-time task, or a fair task other than `goes`.
    pub(crate) fn pick_fair(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>, goes: Option<TaskId>) -> Option<TaskId> {
        let Some(fair) = self.fair.get() else { return next };
        let queue = &fair.queues[rq.cpu];
        if next.is_some() && queue.served.get() == 0 {
            return next;
        }
        loop {
            let now = P::now();
            let picked = self.pick_levels(rq.cpu, goes, now);
            let of = picked.filter(|_| self.has_limits()).and_then(|picked| self.group_of(picked));
            match self.used_up(rq, of, now) {
                None => return picked.or(next),
                Some(group) => self.throttle(rq, group, now),
            }
        }
    }

    /// `id`, a fair task, was queued beside a running task of rank `running`: returns whether it
    /// should preempt.
    pub(crate) fn preempt_for_fair(&self, rq: &RqGuard<'_, P>, id: TaskId, running: Prio) {
        if running.is_real_time() || rq.needs_resched() {
            return;
        }
        if self.pick_levels(rq.cpu, None, P::now()) == Some(id) {
            self.state.resched(rq);
        }
    }

    /// Returns the fair tasks of a queue: the running one, then the others by deadline.
    pub(crate) fn queued_fair(&self, cpu: CpuId) -> Vec<TaskId> {
        if self.fair.get().is_none() {
            return Vec::new();
        }
        let mut queued: Vec<TaskId> = self.running_fair(cpu).into_iter().collect();
        self.find_waiting(cpu, None, &mut |id| {
            queued.push(id);
            false
        });
        queued
    }

    /// A tick of the calling CPU.
    pub(crate) fn tick_fair(&self) {
        self.refill();
        self.tick_real_time();
        let here = P::current_cpu();
        if self.fair.get().is_none_or(|fair| fair.queues[here].nr_queued.peek() == 0) {
            return;
        }
        let mut rq = self.state.lock(here);
        let now = P::now();
        let ended = if self.groups().is_some() {
            self.charge_levels(here, now)
        } else {
            self.timeline(here).charge(now) && self.fair_queue(here).nr_queued.get() > 1
        };
        if ended {
            self.state.resched(&rq);
        }
        if self.groups().is_some() {
            self.tick_levels(&rq, now);
            self.tick_limits(&rq, now);
        }
        self.tick_server(&rq, now);
        self.balance_at_tick(&mut rq, now);
        drop(rq);
        self.update_idle_load(now);
    }

    /// Returns the time of the calling CPU's next tick, where ids need a tick or fair tasks may
    /// exist.
    pub(crate) fn next_tick_of(&self, ids_want_one: bool, now: Time) -> Time {
        let here = P::current_cpu();
        let any = self.fair.get().is_some_and(|fair| fair.queues[here].nr_queued.peek() > 0);
        let refill = self.next_refill().min(self.real_time_ends());
        if !ids_want_one && !any {
            return refill;
        }
        let tick = next_multiple(now, self.config.tick).min(refill);
        let slice = if any { self.slice_ends(here) } else { None };
        slice.map_or(tick, |slice| slice.min(tick))
    }
}

impl<P: Platform> fmt::Debug for Fair<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fair").field("slice", &self.slice).finish_non_exhaustive()
    }
}
