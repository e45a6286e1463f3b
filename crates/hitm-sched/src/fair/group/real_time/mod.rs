//! Real-time limits of groups: a group that has used up its runtime on a CPU runs no real-time task
//! there before the next period.
//!
//! **Claim.** In each period the real-time tasks of a limited group, and of all groups in it,
//! together run on a CPU for at most its runtime. Two things come on top, and are subtracted from
//! later periods: the time until the CPU notices, and the time of tasks with a lent priority.
//! Meanwhile other tasks use the CPU, fair tasks too.
//!
//! **Origin.** Linux's real-time group scheduling (Peter Zijlstra, 2008): one queue per group and
//! CPU, throttled as a whole when its used time exceeds the runtime, until the period's timer
//! subtracts the runtime again. Since v5.10 a queue borrows nothing from other CPUs by default.
//! Differences:
//!
//! - In Linux an entity represents the group on the queue above. Here tasks are on the CPU's one
//!   priority array, and a group's queue has the tasks that are [*held*](Groups::holder). So
//!   tasks of equal priority in several groups take turns in order of arrival; a throttle costs one
//!   step per task; and a group without a limit has no queue: its tasks count as tasks of the group
//!   above.
//! - In Linux one task with a lent priority lifts the throttle of its whole group. Here it alone
//!   runs on.
//! - In Linux pushes and wakeups treat a CPU where a group is throttled as idle. Here they skip it,
//!   and it pulls when the period ends.
//! - The group has no timer: as for [fair tasks](super::bandwidth), a CPU that holds tasks looks
//!   when the period ends.
//! - Which groups may have a limit: see [`admission`].
//!
//! **Roles.** [`queue`]: the runtime, the used time and the held tasks of a CPU. [`throttle`]: how
//! queues are throttled and limits changed. [`admission`]: which groups may have a limit. [`check`]: the invariants. [`bandwidth`](super::bandwidth)
//! decides when to look.
//!
//! **Protocol.** Under the CPU's lock. (1) *Charge*: time with a real-time priority, own or lent,
//! is charged to each limited group around the task: at a switch, at a tick, and when the priority
//! or a limit changes. (2) *Look*: a tick asks the CPU to reschedule when a group around the
//! running task has used up its runtime; the CPU ticks at that time. (3) *Throttle*: a switch that
//! would run a task of such a group takes all tasks of the group, and of groups below, off the
//! array and out of all counts, and puts them on the group's list. The CPU's level falls, and it
//! pulls. (4) *Hold*: a task that comes to the CPU while a group around it is throttled goes to the
//! list of the nearest such group. If the CPU runs that task, it is asked to reschedule. (5)
//! *Refill*: at the end of the period the CPU subtracts the runtime from the used time. (6)
//! *Unthrottle*: when the rest is below the runtime, the tasks of the list go back to the array, or
//! to the list of a throttled group above; the CPU pushes and pulls.
//!
//! A task with a *lent* priority is never held. A priority is lent if its setter says so, or if a
//! fair task has it.
//!
//! **Invariants.** When nothing is in flight: (1) a real-time task without a lent priority is on
//! the list of the nearest group around it that is throttled on its CPU, or on the array if there
//! is none; (2) held tasks are in no count and on no pushable list, and are not advertised; (3) a
//! throttled queue belongs to a limited group on an online CPU, and that CPU looks at the latest
//! when the period ends; (4) the limits of groups fit into those of the groups around them.
//!
//! **Locks.** As [`bandwidth`](super::bandwidth): a change of a limit takes its lock, then each
//! CPU's.
//!
//! **Memory ordering.** A queue is under its CPU's lock. A search for a CPU reads the set of CPUs
//! where a group is throttled without a lock:
//!
//! | one side | other side | forbidden (SB) |
//! |---|---|---|
//! | a task is advertised as waiting, fence SeqCst in `where_held`, the set is read | the set is written, fence SeqCst in `balance_after_refill`, the advertised tasks are read | the CPU is passed over and does not pull |
//!
//! **Cost.** Until the first such limit: one look outside the shared memory. Then a switch and a
//! tick write one line of the CPU and one line per limited group around the running task; a search
//! for a CPU has one fence and reads one line per such group. A throttle and its end cost a look at
//! each priority's list, and per held task the cost of a sleep and a wakeup. A limit takes one line
//! and one set of CPUs beside the fair limit's; a queue takes two lines, made at the first charge.
//!
//! **Limits.** A held task stays on its CPU even if another CPU idles on which its group may run;
//! it goes there at its next wakeup. A CPU where a group has used up its runtime, and holds no task
//! yet, appears to other CPUs as if runtime were left. The runtime treats a priority as lent if it
//! differs from the task's own: so an owner that is as urgent as its waiters is held, and they wait
//! with it, as in the original. A task that runs long without computing, checking or waiting, or
//! with a lent priority, makes its group wait for as many periods as it has used.

pub(super) mod admission;
pub(crate) mod check;
pub(super) mod queue;
mod throttle;

use std::sync::atomic::Ordering;

use hitm_memory::{CpuSet, PerCpu, PlainWord, Platform, Time, described};
use hitm_topology::{CpuId, Topology};

use self::queue::{RealTimeLimit, RealTimeQueue};
use super::Groups;
use crate::base::list::{Links, List};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::{PICOS, nanos};
use crate::cid::Ids;

described! {
    /// A CPU that runs real-time tasks of groups.
    pub(crate) struct RealTimeClock<M: Memory> as "group_rt_clock" {
        /// The time up to which the running task is charged, in nanoseconds. Peeked at by the CPU.
        charged: M::Plain<u64>,
    }
}

impl<M: hitm_memory::Memory> RealTimeClock<M> {
    /// By CPU, from `now` on.
    pub(super) fn all(topology: &Topology, now: Time) -> PerCpu<M, Self> {
        PerCpu::new(topology, |_| Self { charged: M::Plain::new(nanos(now)) })
    }
}

impl<M: hitm_memory::Memory> std::fmt::Debug for RealTimeClock<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealTimeClock").field("charged", &self.charged).finish()
    }
}

impl<P: Platform> Groups<P> {
    /// Returns whether a group ever had a limit for real-time tasks.
    #[inline]
    pub(crate) fn has_real_time_limits(&self) -> bool {
        self.limits().is_some_and(|limits| limits.clocks.get().is_some())
    }

    /// Returns that limit of `id`, if it ever had one.
    pub(super) fn real_time_limit_of(&self, id: GroupId) -> Option<&RealTimeLimit<P>> {
        self.limit_of(id)?.real_time.get()
    }

    /// Returns the queue of `id` on the CPU of `rq`, if it has a limit.
    fn real_time_queue(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        id: GroupId,
        now: u64,
    ) -> Option<&RealTimeQueue<P>> {
        self.real_time_limit_of(id)?.limited_on(&state.topology, id.0 as usize, rq.cpu, now)
    }

    /// Returns the groups around a task, the nearest first, as `cpu` has them.
    fn groups_around(&self, state: &State<P>, cpu: CpuId, id: TaskId) -> impl Iterator<Item = GroupId> {
        std::iter::successors(self.group_hint(state, id), move |&own| self.above_on(own, cpu))
    }

    fn is_throttled_real_time(&self, cpu: CpuId, id: GroupId) -> bool {
        self.real_time_limit_of(id).and_then(|limit| limit.on(cpu)).is_some_and(RealTimeQueue::is_throttled)
    }

    // ---- held tasks ----

    /// Returns the group that holds `id` on `cpu`, or would hold it if it were queued there. The
    /// caller holds the CPU's lock.
    #[inline]
    pub(crate) fn holder(&self, state: &State<P>, cpu: CpuId, id: TaskId) -> Option<GroupId> {
        if !self.has_real_time_limits() {
            return None;
        }
        let task = state.tasks.get(id);
        if !task.prio().is_real_time() || task.is_lent() {
            return None;
        }
        self.groups_around(state, cpu, id).find(|&own| self.is_throttled_real_time(cpu, own))
    }

    /// Returns whether `id`, whose queue's lock the caller holds, is a held real-time task.
    #[inline]
    pub(crate) fn is_held_real_time(&self, state: &State<P>, id: TaskId) -> bool {
        if !self.has_real_time_limits() {
            return false;
        }
        let task = state.tasks.get(id);
        task.prio().is_real_time() && task.on_rq.get() != 0 && task.on_list.get() == 0
    }

    /// Returns the CPUs where `id` would be held, if there may be any: a hint.
    pub(crate) fn where_held(&self, state: &State<P>, id: TaskId) -> Option<CpuSet> {
        if !self.has_real_time_limits() || state.tasks.get(id).is_lent() {
            return None;
        }
        let around = self.groups_around(state, state.tasks.get(id).cpu(), id);
        let mut limits = around.filter_map(|own| self.real_time_limit_of(own)).peekable();
        limits.peek()?;
        // SeqCst: between the advertisement of the task and the look at the throttled CPUs. Pairs
        // with the fence in `balance_after_refill`: one of the two sees the other.
        P::fence(Ordering::SeqCst);
        let mut held = CpuSet::new();
        for cpus in limits.map(RealTimeLimit::throttled_on) {
            cpus.iter().for_each(|cpu| held.insert(cpu));
        }
        Some(held)
    }

    /// Returns the tasks on the list of `queue`.
    fn held_by<'a>(
        &'a self,
        state: &'a State<P>,
        queue: &'a RealTimeQueue<P>,
    ) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        List::new(&queue.held, |id| &state.tasks.get(id).run_list)
    }

    fn list_of<'a>(
        &'a self,
        state: &'a State<P>,
        cpu: CpuId,
        holder: GroupId,
    ) -> List<'a, P, impl Fn(TaskId) -> &'a Links<P>> {
        let queue = self.real_time_limit_of(holder).and_then(|limit| limit.on(cpu));
        self.held_by(state, queue.expect("a group that is throttled there"))
    }

    /// `holder` holds `id`, which is on no list.
    pub(crate) fn hold(&self, state: &State<P>, ids: &Ids<P>, rq: &RqGuard<'_, P>, id: TaskId, holder: GroupId) {
        self.list_of(state, rq.cpu, holder).push_back(id);
        state.tasks.get(id).on_rq.set(1);
        ids.arrive(state, rq, id);
    }

    /// `id`, which is held, leaves its list. Since it came, nothing has changed that decides its
    /// holder: it would have left.
    pub(crate) fn let_go_of(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        let holder = self.holder(state, rq.cpu, id).expect("it is held");
        self.list_of(state, rq.cpu, holder).remove(id);
        state.tasks.get(id).on_rq.set(0);
    }

    /// Returns the held real-time tasks of a CPU, with the holder of each.
    pub(crate) fn held_real_time(&self, state: &State<P>, cpu: CpuId) -> Vec<(GroupId, TaskId)> {
        let mut held = Vec::new();
        for id in self.watched(cpu) {
            if let Some(queue) = self.real_time_limit_of(id).and_then(|limit| limit.on(cpu)) {
                held.extend(self.held_by(state, queue).collect().into_iter().map(|task| (id, task)));
            }
        }
        held
    }

    // ---- used time ----

    /// Charges the running task of the CPU of `rq`, if it has a real-time priority.
    #[inline]
    pub(crate) fn charge_real_time(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        let Some(clocks) = self.limits().and_then(|limits| limits.clocks.get()) else { return };
        let (clock, now) = (&clocks[rq.cpu], nanos(P::moment()));
        let since = clock.charged.get();
        clock.charged.set(now.max(since));
        let Some(curr) = rq.curr().filter(|&curr| state.tasks.get(curr).prio().is_real_time()) else { return };
        for own in self.groups_around(state, rq.cpu, curr) {
            if let Some(queue) = self.real_time_queue(state, rq, own, now) {
                queue.pass(Some(since), now);
            }
        }
    }

    /// Returns the topmost of the groups around `id` that has used up its runtime on the CPU of
    /// `rq`, if the task must be held.
    #[inline]
    pub(crate) fn used_up_real_time(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) -> Option<GroupId> {
        if !self.has_real_time_limits() || rq.online.get() == 0 || state.tasks.get(id).is_lent() {
            return None;
        }
        let now = nanos(P::moment());
        let is_used_up = |&own: &GroupId| {
            self.real_time_queue(state, rq, own, now).is_some_and(|queue| {
                queue.pass(None, now);
                queue.is_used_up()
            })
        };
        self.groups_around(state, rq.cpu, id).filter(is_used_up).last()
    }

    /// A tick of the calling CPU.
    pub(crate) fn tick_real_time(&self, state: &State<P>) {
        let here = P::current_cpu();
        if !self.has_real_time_limits() || !self.runs_limited(state, here) {
            return;
        }
        let rq = state.lock(here);
        self.charge_real_time(state, &rq);
        let curr = rq.curr().filter(|&curr| state.tasks.get(curr).prio().is_real_time());
        if curr.is_some_and(|curr| self.used_up_real_time(state, &rq, curr).is_some()) {
            state.resched(&rq);
        }
    }

    /// Returns whether `cpu` runs a real-time task of a limited group: a hint.
    fn runs_limited(&self, state: &State<P>, cpu: CpuId) -> bool {
        let curr = state.rqs[cpu].curr().filter(|&curr| state.tasks.get(curr).prio().is_real_time());
        curr.is_some_and(|curr| self.groups_around(state, cpu, curr).any(|own| self.real_time_limit_of(own).is_some()))
    }

    /// Returns when the running task of the calling CPU will have used up the runtime of a group.
    /// Read without the lock.
    pub(crate) fn real_time_ends(&self, state: &State<P>) -> Time {
        let here = P::current_cpu();
        let Some(clocks) = self.limits().and_then(|limits| limits.clocks.get()) else { return Time::NEVER };
        let curr = state.rqs[here].curr().filter(|&curr| state.tasks.get(curr).prio().is_real_time());
        let left = |own| self.real_time_limit_of(own)?.on(here)?.peek_left();
        let least = curr.and_then(|curr| self.groups_around(state, here, curr).filter_map(left).min());
        least.map_or(Time::NEVER, |left| Time::from_picos((clocks[here].charged.peek() + left) * PICOS))
    }
}
