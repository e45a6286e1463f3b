//! Handing a CPU over from a task that waits to the equal that it has woken: see
//! [`run_next`](crate::shipped::run_next).
//!
//! **Protocol.** (1) A wakeup or a spawn by the polled task offers the woken task, if the two are
//! [equal](Scheduler::are_equal), and nothing else waits on the CPU; a real-time task also if
//! others wait and no CPU idles. (2) The next switch hands over: if the polled task blocks or ends,
//! and nothing more urgent has come, the offered task takes its place. A real-time task takes its
//! place in the list of their priority: the first place and the CPU, or the last place if others
//! wait. A fair task takes the CPU. The number of queued tasks and the queue's level stay the same.
//! (3) Otherwise the offered task is queued behind the tasks that wait. So it is at a checkpoint,
//! at the end of a turn, at a tick if it is fair, when the CPU goes offline, and before another
//! task is queued there: at a wakeup, after a change or a move. So whatever waits came before the
//! offered task.
//!
//! **Fair tasks.** The offered task has no claim to the time that the CPU has given to others, so
//! the wakeup would hardly ever preempt its waker. It waits until the waker's slice ends at the
//! latest, since a tick comes then. Its share of the time counts from when it is queued, not from
//! the wakeup.

use hitm_memory::{PlainWord, Platform};

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::scheduler::{Scheduler, SwitchReason};

impl<P: Platform> Scheduler<P> {
    /// Does step 1 for `id`, which this CPU keeps and whose `pi_lock` the caller holds. Returns
    /// whether it was offered.
    pub(super) fn offer_next(&self, id: TaskId) -> bool {
        let (Some(next), Some(searchers)) = (self.run_next(), self.searchers()) else { return false };
        let here = P::current_cpu();
        let (rq, task) = (&self.state.rqs[here], self.state.tasks.get(id));
        // Peeks: what another CPU changes just now comes after this wakeup.
        let is_free = !rq.needs_resched() && next.peek(here).is_none();
        // Other CPUs do not see an offered task: where others wait already, an idle CPU may come. A
        // fair task would be queued at the switch, and its time counts from then.
        let may_hide = || rq.nr_running.peek() == 1 || task.prio().is_real_time() && !searchers.any_idle();
        let is_equal = || rq.curr().is_some_and(|curr| self.are_equal(curr, id));
        if !is_free || !may_hide() || !is_equal() {
            return false;
        }
        self.go_to(id, task.cpu(), here);
        task.transition_to_runnable();
        next.offer(here, id);
        searchers.set_keeps(here, true);
        true
    }

    /// Returns whether `id`, which is on no queue, may wait for `curr`, which this CPU runs, as an
    /// equal: it has the same real-time priority, or the two are fair, have one weight, and `id`
    /// has had its share of the time. No group may limit them or share the time.
    fn are_equal(&self, curr: TaskId, id: TaskId) -> bool {
        let prio = self.state.tasks.get(id).prio();
        if self.state.tasks.get(curr).prio() != prio {
            return false;
        }
        if prio.is_real_time() {
            return !self.fair.groups.has_real_time_limits();
        }
        let (curr, id) = (self.state.tasks.fair(curr), self.state.tasks.fair(id));
        !self.fair.groups.are_used() && curr.weight.peek() == id.weight.peek() && id.lag.peek() <= 0
    }

    /// Does step 2 for the calling CPU, whose queue is `rq`. Returns the task that runs now, unless
    /// the CPU has to choose. Then the offered task, if there was one, is queued.
    #[inline]
    pub(super) fn hand_over(&self, rq: &mut RqGuard<'_, P>, why: SwitchReason) -> Option<TaskId> {
        let offered = self.run_next()?.peek(rq.cpu)?;
        let prev = rq.curr()?;
        if !self.can_hand_over(rq, prev, offered) || !self.gives_up(prev, why) {
            self.queue_offered(rq);
            if rq.online.get() == 0 {
                // The CPU went offline before the offer, of which it knew nothing.
                self.expel(rq, offered);
            }
            return None;
        }
        self.run_next()?.take(rq);
        self.searchers()?.set_keeps(rq.cpu, false);
        self.state.stats.note(|| Entry::Leaves(rq.cpu, prev));
        self.state.stats.note(|| Entry::Comes(rq.cpu, offered));
        let next = if self.fair.is_fair(&self.state, offered) {
            self.fair.succeed_fair(&self.state, rq, prev, offered);
            offered
        } else {
            rq.rt.succeed(&self.state.tasks, prev, offered)
        };
        self.ids.arrive(&self.state, rq, offered);
        if next != offered && !self.take_turns(rq, offered, next) {
            self.put(rq, offered);
            self.dequeue_pushable(rq, next);
        }
        self.fair.note_idleness(&self.state, rq, Some(prev), Some(next));
        self.state.tasks.get(next).set_on_cpu();
        self.set_running(rq, Some(next));
        self.part(rq, Some(prev), why, Some(next));
        Some(next)
    }

    /// Returns whether `offered` may take the place of `prev`: nothing is more urgent, and neither
    /// may have changed since the offer in a way that the queue must know of.
    fn can_hand_over(&self, rq: &RqGuard<'_, P>, prev: TaskId, offered: TaskId) -> bool {
        let prio = self.state.tasks.get(offered).prio();
        let may_succeed = || {
            if prio.is_real_time() {
                rq.rt.list(&self.state.tasks, prio).first() == Some(prev) && !self.fair.groups.has_real_time_limits()
            } else {
                // `prev` may have become a real-time task.
                rq.nr_running.get() == 1 && self.fair.is_fair(&self.state, prev) && !self.fair.groups.are_used()
            }
        };
        !rq.needs_resched()
            && rq.online.get() != 0
            && rq.highest() == prio
            && may_succeed()
            && self.state.tasks.allowed(offered).contains(rq.cpu)
            && !self.fair.is_served(rq.cpu)
            && self.urgent().is_none_or(|urgent| urgent.named_to(rq.cpu).is_none())
    }

    /// Does step 3, if the CPU of `rq` is online: queues the task that it was to run next, if there
    /// is one. From a CPU that is offline, a task moves away when the CPU leaves it.
    #[inline]
    pub(super) fn queue_next(&self, rq: &RqGuard<'_, P>) {
        if self.run_next().is_some_and(|next| next.peek(rq.cpu).is_some()) && rq.online.get() != 0 {
            self.queue_offered(rq);
        }
    }

    /// Does step 3.
    pub(super) fn queue_offered(&self, rq: &RqGuard<'_, P>) {
        let Some(id) = self.run_next().and_then(|next| next.take(rq)) else { return };
        self.enqueue(rq, id, false);
    }

    /// Does step 3 at a tick of the calling CPU.
    pub(super) fn queue_fair_at_tick(&self) {
        let here = P::current_cpu();
        let offered = self.run_next().and_then(|next| next.peek(here));
        if offered.is_none_or(|id| !self.fair.is_fair(&self.state, id)) {
            return;
        }
        let mut rq = self.state.lock(here);
        // Another CPU may have taken it meanwhile.
        if self.run_next().and_then(|next| next.peek(here)) == offered
            && rq.online.get() != 0
            && let Some(id) = offered
        {
            self.queue_offered(&rq);
            self.preempt_for(&rq, id);
        }
        self.run_balance(&mut rq);
    }
}
