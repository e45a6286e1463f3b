//! The scheduler's operations on a fair task, and the ticks of its CPU.
//!
//! **Protocol.** The scheduler's files ask this one where the two classes differ. A switch charges
//! the task that it leaves, then takes the first real-time task, or the
//! [next](crate::base::timeline) fair task if there is none or if fair tasks are
//! [served](super::server).
//!
//! **Cost.** Without any fair task: a look at a word outside the shared memory. With fair tasks: a
//! switch reads one line of its own, and from there one line per task on the way down the tree.

use std::cell::Cell;
use std::sync::OnceLock;

use hitm_memory::{Interrupts, PerCpu, PlainWord, Platform, Span, Time};
use hitm_topology::{CpuId, Topology};

use super::group::Groups;
use super::group::variant::GroupConfig;
use super::idle::IdleSearch;
use crate::base::fair_words::{FairQueue, FairTask, Member};
use crate::base::idle::sched_domains::{Kept, SchedDomains};
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::task::Task;
use crate::base::timeline::{Arrival, Timeline};
use crate::base::upcalls::Upcalls;
use crate::cid::Ids;
use crate::linux::root_domain::RootDomain;

/// A slice on one CPU, in nanoseconds: Linux's since v6.15 (Zihan Zhou, "Reduce the default slice
/// to avoid tasks getting an extra tick", 2025).
const BASE_SLICE: i64 = 700_000;

/// A slice grows with the binary logarithm of the number of CPUs, up to this number: Linux's.
const SLICE_CPUS_MAX: usize = 8;

/// The longest tick period where groups have slices of their own: that of kernels with 1,000 ticks
/// per second. No event tells a CPU that a waiting group has become eligible, so it looks at ticks.
const SLICED_TICK: Span = Span::from_micros(1_000);

/// The rank of a served fair task: above all real-time tasks, like the deadline class.
const ABOVE_REAL_TIME: Prio = Prio(-1);

/// The fair class of a scheduler, and the groups of its tasks.
pub(crate) struct Fair<P: Platform> {
    /// How a waking task finds an idle CPU.
    pub(super) search: IdleSearch,
    /// The tick period.
    tick: Span,
    pub(crate) groups: Groups<P>,
    /// Whether waiting tasks may be in a [list](crate::base::members). Those of a replica are not.
    pub(super) has_lists: bool,
    /// Made with the first fair task.
    class: OnceLock<Class<P>>,
}

/// Everything that exists once there was a fair task.
pub(super) struct Class<P: Platform> {
    queues: PerCpu<P, FairQueue<P>>,
    pub(super) sched_domains: SchedDomains<P>,
    pub(super) slice: i64,
}

impl<P: Platform> Class<P> {
    fn new(topology: &Topology, kept: Kept<P>) -> Self {
        let slice = BASE_SLICE * i64::from(1 + topology.cpus().min(SLICE_CPUS_MAX).ilog2());
        Self {
            queues: PerCpu::new(topology, |_| FairQueue::new()),
            sched_domains: SchedDomains::new(topology, kept),
            slice,
        }
    }
}

/// Returns the next multiple of a period: all CPUs tick at the same times, as Linux's do by
/// default.
fn next_multiple(now: Time, period: Span) -> Time {
    let period = period.as_picos();
    Time::from_picos((now.as_picos() / period + 1) * period)
}

impl<P: Platform> Fair<P> {
    pub(crate) fn new(search: IdleSearch, tick: Span, groups: GroupConfig, has_lists: bool) -> Self {
        Self { search, tick, groups: Groups::new(groups), has_lists, class: OnceLock::new() }
    }

    /// Returns whether there ever was a fair task or a group.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.class.get().is_some()
    }

    /// Fair tasks may exist from now on.
    pub(crate) fn make_fair(&self, state: &State<P>) {
        if !self.is_used() {
            // Placed before it is set: a simulated CPU may be suspended here, and another may come.
            // The first wins.
            let _came_later = self.class.set(Class::new(&state.topology, self.keep_idleness(state)));
        }
    }

    /// Whether `id` is a fair task now: exact under its queue's lock, else a hint.
    #[inline]
    #[track_caller]
    pub(crate) fn is_fair(&self, state: &State<P>, id: TaskId) -> bool {
        self.is_used() && !state.tasks.get(id).prio().is_real_time()
    }

    /// As [`is_fair`](Self::is_fair), of a task that was looked up.
    #[inline]
    #[track_caller]
    pub(crate) fn is_of_class(&self, task: &Task<P>) -> bool {
        self.is_used() && !task.prio().is_real_time()
    }

    /// Returns the class, of which a task exists.
    #[inline]
    pub(super) fn class(&self) -> &Class<P> {
        self.class.get().expect("made before its first task")
    }

    #[inline]
    pub(crate) fn fair_queue(&self, cpu: CpuId) -> &FairQueue<P> {
        &self.class().queues[cpu]
    }

    /// Returns the virtual time of the CPU's own queue.
    #[inline]
    pub(crate) fn timeline<'a>(
        &'a self,
        state: &'a State<P>,
        cpu: CpuId,
    ) -> Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>> {
        self.level(state, cpu, None)
    }

    /// Returns the rank of `curr`, which the CPU of `rq` runs.
    #[track_caller]
    pub(crate) fn rank(&self, state: &State<P>, rq: &RqGuard<'_, P>, curr: TaskId) -> Prio {
        self.rank_on(state, rq.cpu, curr)
    }

    /// Returns whether the fair tasks of `cpu` run before the real-time ones. The caller holds the
    /// CPU's lock.
    #[inline]
    pub(crate) fn is_served(&self, cpu: CpuId) -> bool {
        self.class.get().is_some_and(|class| class.queues[cpu].served.get() != 0)
    }

    /// As [`rank`](Self::rank), without the lock: a hint.
    #[inline]
    #[track_caller]
    pub(crate) fn rank_on(&self, state: &State<P>, cpu: CpuId, curr: TaskId) -> Prio {
        let prio = state.tasks.get(curr).prio();
        let is_served = || self.class.get().is_some_and(|class| class.queues[cpu].served.peek() != 0);
        if !prio.is_real_time() && is_served() { ABOVE_REAL_TIME } else { prio }
    }

    #[inline]
    pub(crate) fn enqueue_fair(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        ids: &Ids<P>,
        rq: &RqGuard<'_, P>,
        id: TaskId,
    ) {
        let task = state.tasks.get(id);
        task.on_rq.set(1);
        ids.arrive(state, rq, id);
        let is_held = self.groups.is_held(state, rq.cpu, id);
        if !is_held {
            Self::count_running(rd, rq, 1);
        }
        let runs = rq.curr() == Some(id);
        let now = P::moment();
        if !is_held {
            self.begin_if_first(state, rq, !runs, now);
        } else if runs {
            state.resched(rq);
        }
        let arrival = if runs && !is_held { Arrival::Runs } else { Arrival::Waits };
        self.enqueue_levels(state, rq, id, arrival, now);
    }

    /// Counts `tasks` more that may run on the CPU of `rq`.
    pub(super) fn count_running(rd: &RootDomain<P>, rq: &RqGuard<'_, P>, tasks: u32) {
        let before = rq.nr_running.get();
        rq.nr_running.set(before + tasks);
        rd.tell_of_two(before, before + tasks);
    }

    /// Fair tasks are about to come to the CPU of `rq`: to wait, or as the running task.
    #[inline]
    pub(super) fn begin_if_first(&self, state: &State<P>, rq: &RqGuard<'_, P>, wait: bool, now: Time) {
        if self.fair_queue(rq.cpu).nr_queued.get() != 0 {
            return;
        }
        self.fair_queue(rq.cpu).begin_period(now);
        let curr = rq.curr().filter(|_| wait);
        if curr.is_some_and(|curr| state.tasks.get(curr).prio().is_real_time()) {
            // The CPU runs a real-time task and did not have to tick: now it must.
            P::interrupt(rq.cpu, Interrupts::CONTROL);
        }
    }

    #[inline]
    pub(crate) fn dequeue_fair(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool) {
        state.tasks.get(id).on_rq.set(0);
        if !self.groups.is_held(state, rq.cpu, id) {
            rq.nr_running.set(rq.nr_running.get() - 1);
        }
        self.dequeue_levels(state, rq, id, sleeps, P::moment());
        self.fair_queue(rq.cpu).end_service_if_none();
    }

    /// The running task yields.
    pub(crate) fn let_go_fair(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        let group =
            if self.groups.are_used() { rq.curr().and_then(|curr| self.groups.group_of(state, curr)) } else { None };
        self.level(state, rq.cpu, group).let_go(P::moment());
    }

    /// The running task stays queued while something else runs.
    pub(crate) fn put_fair(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        // With groups, the next task decides at which levels.
        if !self.groups.are_used() {
            self.timeline(state, rq.cpu).put(P::moment());
        }
    }

    /// `next` runs from now on.
    #[inline]
    pub(crate) fn begin_fair(&self, state: &State<P>, rq: &RqGuard<'_, P>, next: TaskId) {
        let member = Member::task(next);
        if self.groups.are_used() {
            return self.begin_levels(state, rq.cpu, self.groups.group_of(state, next), member, P::moment());
        }
        let timeline = self.timeline(state, rq.cpu);
        if timeline.curr() != Some(member) {
            timeline.begin(member, P::moment());
        }
    }

    /// Returns the next task: `next`, the first real-time task, or a fair task other than `goes`.
    #[inline]
    pub(crate) fn pick_fair(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        next: Option<TaskId>,
        goes: Option<TaskId>,
    ) -> Option<TaskId> {
        let Some(class) = self.class.get() else { return next };
        let queue = &class.queues[rq.cpu];
        if next.is_some() && queue.served.get() == 0 {
            return next;
        }
        loop {
            let now = P::moment();
            let picked = self.pick_levels(state, rq.cpu, goes, now);
            let of = picked.filter(|_| self.groups.has_limits()).and_then(|picked| self.groups.group_of(state, picked));
            match self.groups.used_up(rq, of, now) {
                None => return picked.or(next),
                Some(group) => self.throttle(state, rq, group, now),
            }
        }
    }

    /// `id`, a fair task, was queued beside a running task of rank `running`: returns whether it
    /// should preempt.
    pub(crate) fn preempt_for_fair(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId, running: Prio) {
        if running.is_real_time() || rq.needs_resched() {
            return;
        }
        let next = self.pick_levels(state, rq.cpu, None, P::moment());
        if next == Some(id) || self.is_cut(state, rq.cpu) && next != rq.curr() {
            state.resched(rq);
        }
    }

    /// Returns whether a fair task other than `curr`, which the CPU of `rq` runs, should run there.
    pub(crate) fn has_another_first(&self, state: &State<P>, rq: &RqGuard<'_, P>, curr: TaskId) -> bool {
        self.pick_levels(state, rq.cpu, None, P::moment()) != Some(curr)
    }

    /// The calling CPU, that of `rq`, switches from `prev` to `next`.
    #[inline]
    pub(crate) fn note_idleness(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        prev: Option<TaskId>,
        next: Option<TaskId>,
    ) {
        if let Some(class) = self.class.get() {
            class.sched_domains.note_idleness(state, rq, prev, next);
        }
    }

    /// Returns the fair tasks of a queue: the running one, then the others by deadline.
    pub(crate) fn queued_fair(&self, state: &State<P>, cpu: CpuId) -> Vec<TaskId> {
        if !self.is_used() {
            return Vec::new();
        }
        let mut queued: Vec<TaskId> = self.running_fair(cpu).into_iter().collect();
        self.find_waiting(state, cpu, None, &mut |id| {
            queued.push(id);
            false
        });
        queued
    }

    /// A tick of the calling CPU.
    pub(crate) fn tick_fair(&self, state: &State<P>, rd: &RootDomain<P>, up: &impl Upcalls<P>) {
        self.refill(state, rd, up);
        self.groups.tick_real_time(state);
        let here = P::current_cpu();
        if self.class.get().is_none_or(|class| class.queues[here].nr_queued.peek() == 0) {
            return;
        }
        let mut rq = state.lock(here);
        let now = P::moment();
        let ended = if self.groups.are_used() {
            self.charge_levels(state, here, now) | self.cut_turns(state, here)
        } else {
            self.timeline(state, here).charge(now) && self.fair_queue(here).nr_queued.get() > 1
        };
        if ended {
            state.resched(&rq);
        }
        if self.groups.are_used() {
            self.tick_levels(state, &rq, now);
            self.tick_limits(state, &rq, now);
        }
        self.fair_queue(here).tick_server(state, &rq, self.tick, now);
        self.balance_at_tick(state, rd, up, &mut rq, now);
        drop(rq);
        self.update_idle_load(state, now);
    }

    /// Returns the time of the calling CPU's next tick, where ids need a tick or fair tasks may
    /// exist. `periodic` is the last periodic one that was found.
    pub(crate) fn next_tick_of(&self, state: &State<P>, ids_want_one: bool, periodic: &Cell<Time>, now: Time) -> Time {
        let here = P::current_cpu();
        let any = self.class.get().is_some_and(|class| class.queues[here].nr_queued.peek() > 0);
        let refill = self.groups.next_refill().min(self.groups.real_time_ends(state));
        if !ids_want_one && !any {
            return refill;
        }
        let period = if self.groups.has_slices() { self.tick.min(SLICED_TICK) } else { self.tick };
        // A division only once in a period.
        if !(now < periodic.get() && periodic.get() <= now + period) {
            periodic.set(next_multiple(now, period));
        }
        let tick = periodic.get().min(refill);
        let slice = if any { self.slice_ends(state, here) } else { None };
        slice.map_or(tick, |slice| slice.min(tick))
    }
}
