//! A task that wakes an equal and then waits hands its CPU to it. A task that wakes many leaves
//! them to CPUs that take them. See [`run_next`](crate::shipped::run_next).
//!
//! **Protocol.** To offer a task is to put it into the ring of the CPU. (1) A wakeup or a spawn by
//! the running task offers the woken task, if the two are [equal](Scheduler::are_equal), the CPU
//! need not switch, no task is offered yet, and nothing else waits on the CPU. A real-time task may
//! be offered although others wait: if no CPU idles, and no CPU holds the lock of the queue. It may
//! even join other offered tasks. Then three things must hold: it may run everywhere; only an idle
//! CPU can be less urgent; a queued task that may run everywhere, or the ring, is advertised to all
//! CPUs. A CPU that finds nothing to run looks here because of that, and looks into the ring too. A
//! fair task that may run everywhere may be offered, and join others, if no CPU idles, or if two
//! tasks wait in the queue: an idle CPU was called when the second one came, and takes tasks from
//! the ring too. (2) The next switch [hands over](super::succeed): if the running task blocks or
//! ends, and nothing more urgent has come, an offered task takes its place. Others stay in the ring
//! if it is advertised, or if they are fair. (3) Otherwise the offered tasks are queued behind the
//! tasks that wait. This happens at a checkpoint, unless the ring is advertised; at the end of a
//! turn; at a tick if one of them is fair; when the CPU goes offline; and before another task is
//! queued there: at a wakeup, after a change or a move. A real-time task is queued beside fair ones
//! of the ring; so is a fair one while a fair task runs, unless an idle CPU is to be called for it.
//! So whatever waits came before the offered tasks, or is compared with them by its virtual time.
//!
//! (4) While another CPU holds the lock of the queue, most often in order to take tasks from it, a
//! wakeup or a spawn by the running task leaves the task to that CPU: it offers the task, equal or
//! not. If the lock is free after the offer, the waker queues the task itself. If it is not, and
//! the holder takes no tasks or has looked already, the task waits: for the next CPU that takes
//! several there, for the waker's next wakeup or spawn that finds the lock free or the ring full,
//! or for its next checkpoint or switch. Until then no idle CPU is called for it. Behind fair tasks
//! it is only left if it may join them.
//!
//! (5) A CPU without real-time tasks that takes some from a queue takes offered ones last: the
//! older half of a ring that is advertised or has fair tasks, and all of another one, if it has at
//! least two. A single task may take its waker's place. Once two tasks that may run everywhere are
//! queued at the CPU that takes them, it puts the others into its own ring. It advertises one of
//! the two when it runs the other, and the ring with it. It puts fair tasks there once three are
//! queued.
//!
//! **Fair tasks.** An equal that is offered has had about its share of the time, so its wakeup
//! would hardly ever preempt the waker. It waits until the waker's slice ends at the latest, since
//! a tick comes then. Where others wait too, a task is offered only if it has the weight of nice 0
//! and is not [ahead](crate::base::timeline::GRAIN) of them. From the next switch on it
//! [counts](crate::fair::offered) on the queue of its CPU, and follows by its virtual time.

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::base::task_table::TaskRef;
use crate::scheduler::Scheduler;

impl<P: Platform> Scheduler<P> {
    /// Does step 1 for `task`, which this CPU keeps and whose `pi_lock` the caller holds. Returns
    /// whether it was offered.
    #[inline]
    pub(super) fn offer_next(&self, task: TaskRef<'_, P>) -> bool {
        let (Some(ring), Some(searchers)) = (self.run_next(), self.searchers()) else { return false };
        let here = P::current_cpu();
        let rq = &self.state.rqs[here];
        // Peeks: what another CPU changes just now comes after this wakeup.
        if rq.needs_resched() || rq.curr().is_none_or(|curr| !self.are_equal(curr, task)) {
            return false;
        }
        let may_be_told = self.may_join_ring(task);
        let is_advertised = may_be_told && rq.rt.everywhere.peek() != 0;
        // Other CPUs do not see a task that is not: where others wait already, an idle CPU may
        // come, or is there and holds the lock.
        let none_comes = || !rq.lock.is_held() && !searchers.any_idle();
        let may_hide = || match ring.count(here) {
            0 if rq.nr_running.peek() == 1 => true,
            _ if !task.prio().is_real_time() => {
                self.may_join_fair(task.id) && (rq.nr_running.peek() > 2 || none_comes())
            }
            count => count == 0 && none_comes(),
        };
        (is_advertised || may_hide()) && self.offer(task, here, may_be_told)
    }

    /// Does step 4 for `task`, which this CPU keeps and whose `pi_lock` the caller holds. Returns
    /// whether it was left to another CPU, or queued.
    pub(super) fn leave_to_holder(&self, task: TaskRef<'_, P>) -> bool {
        let here = P::current_cpu();
        let (lock, curr) = (&self.state.rqs[here].lock, self.state.rqs[here].curr());
        if !lock.is_held() {
            return false;
        }
        // Fair tasks may stay in the ring for many switches.
        let is_equal = || curr.is_some_and(|curr| self.are_equal(curr, task));
        let fits = if self.fair.is_of_class(&task) {
            is_equal() && self.may_join_fair(task.id)
        } else {
            !self.offers_fair(here)
        };
        if !fits || !self.offer(task, here, self.may_join_ring(task)) {
            return false;
        }
        if !lock.is_held() {
            let mut rq = self.state.lock(here);
            self.queue_next(&rq);
            let called = self.spare_if_crowded(&mut rq);
            self.run_balance(&mut rq);
            drop(rq);
            self.interrupt_called(called);
        }
        true
    }

    /// Offers `task`, which is on no queue and whose `pi_lock` the caller holds, to this CPU.
    /// Returns false if there is no place.
    #[inline]
    fn offer(&self, task: TaskRef<'_, P>, here: CpuId, may_be_told: bool) -> bool {
        let (Some(ring), Some(searchers)) = (self.run_next(), self.searchers()) else { return false };
        if !ring.has_place(here) {
            return false;
        }
        self.go_to(task.id, task.cpu(), here);
        searchers.set_keeps(here, true);
        // First: another CPU may take it at once.
        self.state.stats.note(|| Entry::Comes(here, task.id));
        ring.offer(here, task.id, may_be_told);
        true
    }

    /// Returns whether `task`, which is on no queue, may wait for `curr`, which this CPU runs, as
    /// an equal: it has the same real-time priority, or the two are fair, have one weight, and
    /// `task` has had its share of the time. No group may limit them or share the time.
    #[inline]
    pub(super) fn are_equal(&self, curr: TaskId, task: TaskRef<'_, P>) -> bool {
        let prio = task.prio();
        if self.state.tasks.get(curr).prio() != prio {
            return false;
        }
        if prio.is_real_time() { !self.fair.groups.has_real_time_limits() } else { self.are_equal_fair(curr, task.id) }
    }

    /// Does this for fair tasks.
    fn are_equal_fair(&self, curr: TaskId, id: TaskId) -> bool {
        let (curr, next) = (self.state.tasks.fair(curr), self.state.tasks.fair(id));
        !self.fair.groups.are_used()
            && curr.weight.peek() == next.weight.peek()
            && self.fair.has_had_its_share(&self.state, id)
    }

    /// Does step 3, if the CPU of `rq` is online: queues its offered tasks. From a CPU that is
    /// offline, a task moves away when the CPU leaves it.
    #[inline]
    pub(super) fn queue_next(&self, rq: &RqGuard<'_, P>) {
        if self.has_offered(rq.cpu) && rq.online.get() != 0 {
            self.queue_offered(rq);
        }
    }

    /// Does step 3.
    pub(super) fn queue_offered(&self, rq: &RqGuard<'_, P>) {
        let Some(ring) = self.run_next() else { return };
        // Those that come meanwhile are left: their CPU may offer as fast as this one queues.
        for id in (0..ring.count(rq.cpu)).map_while(|_| self.take_first(rq)) {
            self.queue_one(rq, id);
        }
        self.end_offer(rq);
    }

    /// Takes the first offered task of the CPU of `rq`, which does not run there next.
    #[inline]
    pub(super) fn take_first(&self, rq: &RqGuard<'_, P>) -> Option<TaskId> {
        let (id, is_counted) = self.run_next()?.take(rq)?;
        if is_counted {
            self.fair.count_out(&self.state, rq, id);
        }
        Some(id)
    }

    /// Offered tasks of the CPU of `rq` have left the ring, and some may have been queued. Those
    /// stay advertised if the ring was. If it is empty, it is advertised no more.
    pub(super) fn end_offer(&self, rq: &RqGuard<'_, P>) {
        let Some(own) = self.shipped() else { return };
        // Where fair tasks may run, other CPUs must be searched for.
        if self.only_idle_is_less_urgent(Prio::ORDINARY) {
            own.tell_queued(&self.state, rq);
        }
        if !self.has_offered(rq.cpu) {
            own.withdraw_offered(rq);
        }
    }

    /// Returns whether a task is offered to `cpu`: as exact as [`count`](RunNext::count).
    #[inline]
    pub(super) fn has_offered(&self, cpu: CpuId) -> bool {
        self.run_next().is_some_and(|ring| ring.count(cpu) != 0)
    }

    /// Queues `id`, which was offered to the CPU of `rq`, as if it came now.
    pub(super) fn queue_one(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        self.state.stats.note(|| Entry::Leaves(rq.cpu, id));
        self.enqueue(rq, id, false);
        self.preempt_for_kept(rq, id);
    }

    /// Takes tasks that are offered to the CPU of `source` to that of `rq`, which had no real-time
    /// task before it looked there: half of them if they are advertised or fair, else all. A single
    /// one that is not advertised is left if no other task waits: it may take its waker's place.
    /// Those that may not run there are queued on `source`; so are fair ones, unless it
    /// `takes_fair` ones. Returns whether any was taken.
    pub(super) fn take_offered(&self, source: RqGuard<'_, P>, rq: &RqGuard<'_, P>, takes_fair: bool) -> bool {
        let Some(ring) = self.run_next() else { return false };
        let offered = ring.count(source.cpu);
        let most = if source.rt.tells_offered.get() != 0 {
            offered.div_ceil(2)
        } else if self.offers_fair(source.cpu) {
            let is_left = !takes_fair || offered == 1 && source.nr_running.get() == 1;
            if is_left { 0 } else { offered.div_ceil(2) }
        } else if offered == 1 {
            0
        } else {
            offered
        };
        if most == 0 || source.online.get() == 0 || rq.online.get() == 0 {
            return false;
        }
        // By deadline, each CPU gets every second task: see `pull_fair`.
        let takes_fair = takes_fair && !self.fair.groups.has_deadlines();
        let mut taken = Vec::with_capacity(most as usize);
        for id in (0..most).map_while(|_| self.take_first(&source)) {
            let suits = self.state.tasks.get(id).prio().is_real_time() || takes_fair;
            if suits && self.may_come(id, rq) && !self.fair.groups.is_held(&self.state, rq.cpu, id) {
                // Who changes the task from now on needs the lock of `rq`.
                self.go_to(id, source.cpu, rq.cpu);
                self.state.stats.note(|| Entry::Leaves(source.cpu, id));
                taken.push(id);
            } else {
                self.queue_one(&source, id);
            }
        }
        self.end_offer(&source);
        // Others wait for this lock: the CPU of that queue, or CPUs that take tasks.
        drop(source);
        if taken.is_empty() {
            return false;
        }
        self.state.stats.add(Count::Take);
        self.receive(rq, &taken);
        true
    }

    /// Queues `tasks`, which the CPU of `rq` has taken, or offers them to it: real-time ones once
    /// it [will advertise](Self::will_advertise) its ring, fair ones once others are
    /// [queued](Self::may_follow_fair). It polls no task, so it offers nothing meanwhile.
    fn receive(&self, rq: &RqGuard<'_, P>, tasks: &[TaskId]) {
        let Some(ring) = self.run_next() else { return };
        for &id in tasks {
            let may_be_told = self.may_join_ring(self.state.tasks.look_up(id)) && self.will_advertise(rq);
            if (may_be_told || self.may_follow_fair(rq, id)) && ring.has_place(rq.cpu) {
                self.state.stats.note(|| Entry::Comes(rq.cpu, id));
                ring.offer(rq.cpu, id, may_be_told);
            } else {
                self.queue_next(rq);
                self.enqueue(rq, id, false);
            }
        }
    }

    /// Returns whether the CPU of `rq`, which runs no real-time task, will advertise its ring when
    /// it has picked a task: whether another one that may run everywhere waits then.
    fn will_advertise(&self, rq: &RqGuard<'_, P>) -> bool {
        let first = rq.rt.first_pushable(&self.state.tasks);
        let second = first.and_then(|first| rq.rt.next_pushable(&self.state.tasks, first));
        self.only_idle_is_less_urgent(rq.highest())
            && [first, second].iter().all(|task| task.is_some_and(|task| self.runs_everywhere(task)))
    }

    /// Returns whether `id`, which the CPU of `rq` has taken, may wait in its ring: a fair task
    /// behind others that wait in the queue, so that an idle CPU comes.
    fn may_follow_fair(&self, rq: &RqGuard<'_, P>, id: TaskId) -> bool {
        self.fair.is_fair(&self.state, id)
            && rq.nr_running.get() > 2
            && !self.fair.groups.are_used()
            && self.may_join_fair(id)
    }

    /// Returns whether `id`, a fair task, may be in a ring with others or behind others.
    fn may_join_fair(&self, id: TaskId) -> bool {
        self.fair.is_patient(&self.state, id) && self.runs_everywhere(id)
    }

    /// Returns whether the first task that is offered to `cpu` is fair: as exact as
    /// [`count`](RunNext::count).
    pub(super) fn offers_fair(&self, cpu: CpuId) -> bool {
        let first = self.run_next().and_then(|ring| ring.first(cpu));
        first.is_some_and(|first| self.fair.is_fair(&self.state, first))
    }

    /// Queues the offered tasks before `id` comes to `rq`. Fair ones need not be queued before a
    /// real-time task, which is waiting for its CPU. Nor need they while a fair task runs, since
    /// the next switch compares their virtual times, and no idle CPU is to be called for the two.
    pub(super) fn queue_before(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let is_compared = || rq.curr().is_some_and(|curr| self.fair.is_fair(&self.state, curr));
        let may_call = || rq.nr_running.get() <= 2 && self.searchers().is_some_and(|searchers| searchers.any_idle());
        let may_stay = || self.state.tasks.get(id).prio().is_real_time() || is_compared() && !may_call();
        if !(self.offers_fair(rq.cpu) && may_stay()) {
            self.queue_next(rq);
        }
    }

    /// Returns whether `task` may be in a ring that is advertised: it may run everywhere, and only
    /// an idle CPU can be less urgent.
    #[inline]
    fn may_join_ring(&self, task: TaskRef<'_, P>) -> bool {
        self.only_idle_is_less_urgent(task.prio()) && self.state.has_all_cpus(&task)
    }

    /// Does step 3 at a tick of the calling CPU.
    pub(super) fn queue_fair_at_tick(&self) {
        let here = P::current_cpu();
        let Some(ring) = self.run_next() else { return };
        if ring.peek(here).any(|id| self.fair.is_fair(&self.state, id)) {
            let mut rq = self.state.lock(here);
            self.queue_next(&rq);
            self.run_balance(&mut rq);
        }
    }
}
