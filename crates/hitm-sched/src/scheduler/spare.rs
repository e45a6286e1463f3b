//! Tasks that a CPU keeps for itself, and how other CPUs get them if the CPU has more than it
//! needs.
//!
//! **Claim.** A task that is woken or spawned by the task that a CPU polls, and is no more urgent,
//! waits for that CPU: no search, no other queue's lock, no interrupt. If the CPU does not run it
//! next, an idle CPU comes and takes it.
//!
//! **Origin.** Tokio's worker keeps the newest task for itself and wakes another worker only if
//! none [searches](crate::shipped::searchers). Here the tasks stay in the order of their priorities
//! and of their arrival.
//!
//! **Protocol.** A wakeup: (1) the task is enqueued on the waker's CPU, or
//! [offered](super::run_next) to it, or left to a CPU that takes tasks from it; (2) if it was
//! enqueued and a second task waits there already, go to (4), else the CPU notes that it keeps one.
//! A switch or a checkpoint: (3) if tasks wait behind the one that runs, go on with (4). To spare:
//! (4) if the first waiting task may run everywhere and is advertised, the tasks behind it are
//! advertised too: no CPU is less urgent than that task, or one is about to take it. (5) If a CPU
//! idles and only idle CPUs are less urgent, the waiting tasks are advertised and the CPU is
//! called. (6) Otherwise the tasks are pushed to CPUs that run something less urgent, as after any
//! wakeup. A CPU that finds nothing to run takes half of the tasks of another queue, the longest of
//! a few near ones. (7) A task that its CPU leaves while it could run is advertised at once, if the
//! task that runs next was and may run everywhere. So two tasks that take turns do not write the
//! words of the advertisement. If they are equals, one takes the other's place in the list of
//! waiting tasks too.
//!
//! (8) Tasks that yield to each other and never wait are spread by their CPUs: at some of the
//! yields a CPU looks at a few queues, and takes tasks from one that is more than twice as long as
//! its own, until both are equally long.
//!
//! **Invariants.** (1) A real-time task that waits is advertised after the next switch or
//! checkpoint of its CPU, in the queue or with the ring. So a CPU idles beside it for a poll at
//! most. (2) The order of real-time tasks is that of their queue: nothing overtakes.
//!
//! **Cost.** A wakeup that its own CPU runs next: the CPU's own lines.

use std::sync::atomic::Ordering;

use hitm_memory::{Interrupts, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::attributes::WakeHint;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::base::task_table::TaskRef;
use crate::scheduler::Scheduler;
use crate::scheduler::wake::WakeFlags;
use crate::shipped::searchers::Call;

/// The most tasks that a CPU takes at once: as long as Tokio's workers' queues are when they are
/// halved.
const TAKES_MOST: u32 = 128;

impl<P: Platform> Scheduler<P> {
    /// Returns whether this CPU keeps `task`, which comes with `flags`.
    #[inline]
    pub(super) fn keeps(&self, task: TaskRef<'_, P>, flags: WakeFlags) -> bool {
        let (WakeFlags::New(hint) | WakeFlags::Woken(hint)) = flags;
        if hint != WakeHint::Polled || self.searchers().is_none() {
            return false;
        }
        let here = P::current_cpu();
        let Some(curr) = self.state.rqs[here].curr() else { return false };
        self.fair.rank_on(&self.state, here, curr) <= task.prio()
            && self.may_run_on(task, here)
            && self.rd.active.contains(here)
            && (!self.fair.groups.has_real_time_limits() || self.fair.groups.where_held(&self.state, task.id).is_none())
    }

    /// Acts on the wakeup of `id`, which this CPU, that of `rq`, keeps. Returns a CPU to call.
    pub(super) fn keep(&self, rq: &mut RqGuard<'_, P>, id: TaskId) -> Option<CpuId> {
        self.preempt_for_kept(rq, id);
        self.spare_if_crowded(rq)
    }

    /// Decides, after `id` was enqueued on its waker's CPU, whether it preempts the running task.
    /// The waker may have become less urgent.
    pub(super) fn preempt_for_kept(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let prio = self.state.tasks.get(id).prio();
        let is_preempted = rq.curr().is_some_and(|curr| prio < self.fair.rank(&self.state, rq, curr));
        if is_preempted || !prio.is_real_time() {
            self.preempt_for(rq, id);
        }
    }

    /// Lets other CPUs have the tasks that wait on `rq`, the queue of the calling CPU, if there is
    /// more than one. Else the CPU keeps it. Returns a CPU to call.
    pub(super) fn spare_if_crowded(&self, rq: &mut RqGuard<'_, P>) -> Option<CpuId> {
        // The running task, and two that wait.
        if rq.nr_running.get() > 2 {
            return self.spare(rq);
        }
        if let Some(searchers) = self.searchers() {
            searchers.set_keeps(rq.cpu, true);
        }
        None
    }

    /// Lets other CPUs have the tasks that wait on `rq`, the queue of the calling CPU. Returns a
    /// CPU to call once the lock is released.
    pub(super) fn spare(&self, rq: &mut RqGuard<'_, P>) -> Option<CpuId> {
        let searchers = self.searchers()?;
        if rq.needs_resched() {
            // The CPU switches first.
            return None;
        }
        let mut called = None;
        if rq.rt.unannounced.get() != 0 {
            called = self.spare_real_time(rq);
        }
        // What a CPU hides, it must queue at its next checkpoint.
        let hides = self.hides_offered(rq);
        searchers.set_keeps(rq.cpu, hides);
        // An idle CPU that this one does not see yet is seen at the next switch.
        let offers_several = || {
            let several = self.run_next().is_some_and(|ring| ring.count(rq.cpu) > 1);
            hides && several && self.offers_fair(rq.cpu) && searchers.any_idle()
        };
        if called.is_none() && (self.fair.is_crowded(rq) || offers_several()) {
            // SeqCst: between the queue and the counts of idle CPUs. Pairs with the fence in
            // `begin_idle`, after which an idle CPU reads the queue.
            P::fence(Ordering::SeqCst);
            if let Call::Cpu(cpu) = searchers.call(|| self.state.near(rq.cpu)) {
                called = Some(cpu);
            }
        }
        called
    }

    fn spare_real_time(&self, rq: &mut RqGuard<'_, P>) -> Option<CpuId> {
        let (searchers, own) = (self.searchers()?, self.shipped()?);
        let first = rq.rt.first_pushable(&self.state.tasks)?;
        let everywhere = self.runs_everywhere(first);
        if everywhere && own.tell_behind(&self.state, rq, first) {
            return None;
        }
        // A searcher leaves the CPUs alone that run something.
        let is_least = || self.only_idle_is_less_urgent(self.state.tasks.get(first).prio());
        if everywhere && is_least() && searchers.any_idle() {
            own.announce(&self.state, rq, None);
            match searchers.call(|| self.state.near(rq.cpu)) {
                Call::Cpu(cpu) => return Some(cpu),
                Call::Searched => return None,
                Call::NoneIdles => {}
            }
        }
        self.push_all(rq);
        None
    }

    /// Returns whether only an idle CPU can be less urgent than `prio`.
    #[inline]
    pub(super) fn only_idle_is_less_urgent(&self, prio: Prio) -> bool {
        prio == Prio::ORDINARY && !self.fair.is_used()
    }

    /// Does step 7 for the task that the CPU of `rq`, which calls, has just left.
    pub(super) fn keep_telling(&self, rq: &RqGuard<'_, P>) {
        let (Some(_), Some(own)) = (self.searchers(), self.shipped()) else { return };
        let Some(first) = rq.rt.first_pushable(&self.state.tasks) else { return };
        if self.runs_everywhere(first) {
            own.tell_behind(&self.state, rq, first);
        }
    }

    /// Does step 8 for the CPU of `rq`, which calls, and whose task `curr` yields. The lock may be
    /// released meanwhile.
    pub(super) fn even_out(&self, rq: &mut RqGuard<'_, P>, curr: TaskId) {
        let (Some(searchers), Some(own)) = (self.searchers(), self.shipped()) else { return };
        if self.fair.is_fair(&self.state, curr) {
            return;
        }
        let Some(time) = searchers.yields(rq.cpu) else { return };
        let prio = self.state.tasks.get(curr).prio();
        let may_take = |rq: &RqGuard<'_, P>| rq.highest() == prio && rq.online.get() != 0 && !rq.needs_resched();
        if !may_take(rq) || self.fair.groups.has_real_time_limits() {
            return;
        }
        // More than twice as many tasks as here.
        let takes = |here: u32, there: u32| (there > 2 * here).then(|| (there - here) / 2);
        let Some((cpu, there)) = own.crowded_around(&self.state, rq.cpu, time) else { return };
        if takes(rq.rt.rt_nr_running.get(), there).is_none() {
            return;
        }
        let (source, _let_go) = rq.lock_both(&self.state.rqs[cpu], cpu);
        self.queue_next(&source);
        let (here, there) = (rq.rt.rt_nr_running.get(), source.rt.rt_nr_running.get());
        let Some(most) = takes(here, there).filter(|_| may_take(rq)) else { return };
        if self.take_equals(&source, rq, prio, most) {
            searchers.yields_to_others(rq.cpu);
        }
    }

    /// Interrupts a CPU that was called.
    pub(super) fn interrupt_called(&self, called: Option<CpuId>) {
        if let Some(cpu) = called {
            self.state.stats.add(Count::Kick);
            P::interrupt(cpu, Interrupts::RESCHEDULE);
        }
    }

    /// Returns whether tasks are offered to the calling CPU, that of `rq`, and cannot be
    /// advertised. If they can, they are from now on.
    fn hides_offered(&self, rq: &RqGuard<'_, P>) -> bool {
        let may_stay = |curr| self.keeps_offered(rq, self.state.tasks.get(curr).prio());
        self.has_offered(rq.cpu) && !rq.curr().is_some_and(may_stay)
    }

    /// Does [`Scheduling::spare`](crate::Scheduling::spare).
    pub(super) fn spare_kept(&self) {
        if !self.keeps_any() {
            return;
        }
        let mut rq = self.state.lock(P::current_cpu());
        if self.hides_offered(&rq) {
            self.queue_next(&rq);
        }
        let called = self.spare(&mut rq);
        drop(rq);
        self.interrupt_called(called);
    }

    /// The CPU of `rq` has found nothing to run: looks at the other CPUs, and once more after it
    /// counts as idle. Returns whether it has something to run.
    pub(super) fn find_before_idle(&self, rq: &mut RqGuard<'_, P>) -> bool {
        let Some(searchers) = self.searchers() else { return false };
        if self.take(rq) {
            return true;
        }
        if rq.online.get() == 0 {
            return false;
        }
        searchers.begin_idle(rq.cpu);
        self.take(rq)
    }

    /// Takes tasks from other CPUs. Returns whether there is something to run.
    fn take(&self, rq: &mut RqGuard<'_, P>) -> bool {
        self.pull(rq);
        if rq.highest() == Prio::NONE {
            // It has taken tasks, and others have taken those of the queue.
            self.queue_next(rq);
        }
        if rq.highest() != Prio::NONE || self.fair.take_when_idle(&self.state, &self.rd, self, rq) {
            // The CPU is about to pick.
            rq.clear_need_resched();
            return true;
        }
        false
    }

    /// The CPU of `rq`, which calls, runs a task from now on, or has gone offline. It had to look
    /// for tasks if it `looked`. Returns a CPU to call.
    pub(super) fn stop_idling(&self, rq: &RqGuard<'_, P>, looked: bool) -> Option<CpuId> {
        let (searchers, own) = (self.searchers()?, self.shipped()?);
        // Others have not called a CPU for what they advertised meanwhile.
        let must_pass_on = searchers.end_idle(rq.cpu) || looked;
        if !must_pass_on || !searchers.any_idle() {
            return None;
        }
        let (near, anywhere) = own.waiting.any_for(rq.cpu);
        if !near && !anywhere && !self.fair.is_any_crowded(&self.rd) {
            return None;
        }
        match searchers.call(|| self.state.near(rq.cpu)) {
            Call::Cpu(cpu) => Some(cpu),
            Call::Searched | Call::NoneIdles => None,
        }
    }

    /// Takes more tasks of `prio` from `source`, which has given one: half of those that wait.
    pub(super) fn take_half(&self, source: &RqGuard<'_, P>, rq: &RqGuard<'_, P>, prio: Prio) {
        self.take_equals(source, rq, prio, source.rt.rt_nr_running.get() / 2);
    }

    /// Takes up to `most` tasks of `prio` that wait on `source` before less urgent ones. Returns
    /// whether there was any.
    fn take_equals(&self, source: &RqGuard<'_, P>, rq: &RqGuard<'_, P>, prio: Prio, most: u32) -> bool {
        let most = most.min(TAKES_MOST);
        let mut left = most;
        let mut next = source.rt.first_pushable(&self.state.tasks);
        while let Some(id) = next.filter(|&id| left > 0 && self.state.tasks.get(id).prio() == prio) {
            next = source.rt.next_pushable(&self.state.tasks, id);
            if self.may_come(id, rq) {
                self.move_away(source, id, rq);
                left -= 1;
            }
        }
        left < most
    }

    /// Returns whether this CPU keeps a task for itself: a hint.
    #[must_use]
    pub fn keeps_any(&self) -> bool {
        self.searchers().is_some_and(|searchers| searchers.keeps(P::current_cpu()))
    }

    /// Returns whether this CPU, which idles, must call [`switch`](crate::Scheduling::switch).
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.needs_resched() || self.searchers().is_some_and(|searchers| searchers.is_called(P::current_cpu()))
    }

    /// Returns whether CPUs keep the tasks that their own tasks wake.
    #[must_use]
    pub fn keeps_wakeups(&self) -> bool {
        self.searchers().is_some()
    }
}
