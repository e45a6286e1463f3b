//! Handing a CPU over from a task that waits to the equal that it has woken: see
//! [`run_next`](crate::shipped::run_next).
//!
//! **Protocol.** (1) A wakeup or a spawn by the polled task offers the woken task, if the two are
//! equal real-time tasks, and either nothing else waits on the CPU or no CPU idles. (2) The next
//! switch hands over: if the polled task blocks or ends, and nothing more urgent has come, the
//! offered task takes its place in the list of their priority: the first place and the CPU, or the
//! last place if others wait. The number of queued tasks and the queue's level stay the same. (3)
//! Otherwise the offered task is queued behind the tasks that wait. So it is at a checkpoint, at
//! the end of a turn, when the CPU goes offline, and before another task is queued there: at a
//! wakeup, after a change or a move. So whatever waits came before the offered task.

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
        // Other CPUs do not see an offered task: where others wait already, an idle CPU may come.
        let may_hide = || rq.nr_running.peek() == 1 || !searchers.any_idle();
        let prio = task.prio();
        let is_equal = || rq.curr().is_some_and(|curr| self.state.tasks.get(curr).prio() == prio);
        if !is_free || !may_hide() || !prio.is_real_time() || !is_equal() || self.fair.groups.has_real_time_limits() {
            return false;
        }
        self.go_to(id, task.cpu(), here);
        task.transition_to_runnable();
        next.offer(here, id);
        searchers.set_keeps(here, true);
        true
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
        let next = rq.rt.succeed(&self.state.tasks, prev, offered);
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
        !rq.needs_resched()
            && rq.online.get() != 0
            && prio.is_real_time()
            && rq.highest() == prio
            && rq.rt.list(&self.state.tasks, prio).first() == Some(prev)
            && self.state.tasks.allowed(offered).contains(rq.cpu)
            && !self.fair.groups.has_real_time_limits()
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
}
