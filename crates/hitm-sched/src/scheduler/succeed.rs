//! The short way of a switch: the running task waits or ends, and an equal takes its place. A fair
//! task may also yield.
//!
//! **Claim.** The result is that of the long way, [`switch`](super::switch), at about half of its
//! cost. The queue stays as urgent as it was, so no priority is searched for, and no other CPU is
//! asked for a task.
//!
//! **Origin.** Ours. Linux asks the class of the last task first for the next one, and goes through
//! the whole switch in any case.
//!
//! **Protocol.** Under the queue's lock, where CPUs keep the tasks that their own tasks wake, and
//! if nothing more urgent has come:
//!
//! 1. The offered tasks stay in the [ring](super::run_next) if it is advertised, or can be from now
//!    on. It can if all its tasks may run everywhere, if a waiting task that may run everywhere is
//!    advertised, and if only an idle CPU can be less urgent.
//! 2. If they do not stay, and there is just one, it takes the place of the running task, behind
//!    the equals that wait in the queue. The first of those takes the CPU. If there are several,
//!    they are queued.
//! 3. If a real-time task runs, the first equal behind it in the queue takes the CPU. If there is
//!    none, the first task of the ring does.
//! 4. If a fair task runs, and waits or ends, the offered tasks stay in the ring. The first one, or
//!    the next one of the queue, [follows](crate::fair::offered). At a yield the offered tasks are
//!    queued, and the queue decides. There must be no groups.
//! 5. If no task has taken the CPU, the offered tasks are queued, and the CPU chooses. Fair ones
//!    stay in the ring if a real-time task preempts a fair one: it need not wait for that.

use hitm_memory::{PlainWord, Platform};

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::task_table::TaskRef;
use crate::fair::offered::Follower;
use crate::scheduler::{Scheduler, SwitchReason};
use crate::shipped::run_next::RunNext;

impl<P: Platform> Scheduler<P> {
    /// Switches the calling CPU, whose queue is `rq`, the short way. Returns the task that runs
    /// now, unless the CPU has to choose. Then no task is offered to it any more, but for fair ones
    /// that a real-time task passes.
    #[inline]
    pub(super) fn succeed(&self, rq: &mut RqGuard<'_, P>, why: SwitchReason) -> Option<TaskId> {
        let ring = self.run_next()?;
        let prev = rq.curr().map(|prev| self.state.tasks.look_up(prev));
        if prev.is_some_and(|prev| self.is_preempted(rq, prev)) {
            return None;
        }
        let next = prev.and_then(|prev| self.succeed_task(rq, ring, prev, why));
        if next.is_none() && ring.count(rq.cpu) != 0 {
            self.queue_all_offered(rq);
        }
        next
    }

    /// Returns whether `prev`, which runs on the CPU of `rq`, is fair, fair tasks are offered to
    /// the CPU, which calls, and a real-time task waits. Then the CPU chooses at once. Fair tasks
    /// stay in the ring.
    #[inline]
    fn is_preempted(&self, rq: &RqGuard<'_, P>, prev: TaskRef<'_, P>) -> bool {
        self.fair.is_of_class(&prev) && rq.highest().is_real_time() && rq.online.get() != 0 && self.offers_fair(rq.cpu)
    }

    /// Does steps 1 to 4 for `prev`, which the CPU runs.
    #[inline]
    fn succeed_task(
        &self,
        rq: &mut RqGuard<'_, P>,
        ring: &RunNext<P>,
        prev: TaskRef<'_, P>,
        why: SwitchReason,
    ) -> Option<TaskId> {
        if ring.count(rq.cpu) == 0 {
            ring.note_empty(rq.cpu);
        } else if rq.needs_resched() || !(self.keeps_offered(rq, prev.prio()) || self.keeps_fair(prev, why)) {
            let only = ring.only(rq.cpu).map(|only| self.state.tasks.look_up(only));
            if let Some(next) = only.and_then(|only| self.hand_over(rq, ring, [prev, only], why)) {
                return Some(next);
            }
            self.queue_all_offered(rq);
        }
        self.follow(rq, ring, prev, why)
    }

    /// Does step 1: returns whether the tasks that are offered to the calling CPU, that of `rq`,
    /// stay in the ring while it leaves a task of priority `curr`. Then they are advertised from
    /// now on.
    #[inline]
    pub(super) fn keeps_offered(&self, rq: &RqGuard<'_, P>, curr: Prio) -> bool {
        let (Some(ring), Some(own)) = (self.run_next(), self.shipped()) else { return false };
        let stay = rq.rt.everywhere.get() != 0 && self.only_idle_is_less_urgent(curr) && ring.may_be_told(rq.cpu);
        if stay {
            own.tell_offered(rq);
        }
        stay
    }

    /// Returns whether the offered tasks stay in the ring while the CPU leaves `prev`, a fair task
    /// that waits or ends.
    #[inline]
    fn keeps_fair(&self, prev: TaskRef<'_, P>, why: SwitchReason) -> bool {
        matches!(why, SwitchReason::Block | SwitchReason::Exit) && self.fair.is_of_class(&prev)
    }

    /// Queues the offered tasks. If the CPU went offline before the offer, of which it knew
    /// nothing, they move.
    fn queue_all_offered(&self, rq: &mut RqGuard<'_, P>) {
        let Some(ring) = self.run_next() else { return };
        while let Some(id) = self.take_first(rq) {
            self.queue_one(rq, id);
            if rq.online.get() == 0 {
                self.expel(rq, id);
            }
        }
        ring.note_empty(rq.cpu);
        self.end_offer(rq);
    }

    /// Lets `offered`, a real-time task and the first one of the ring, take the place of `prev`, if
    /// it may.
    fn hand_over(
        &self,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        [prev, offered]: [TaskRef<'_, P>; 2],
        why: SwitchReason,
    ) -> Option<TaskId> {
        if !self.can_hand_over(rq, prev, offered) || !Self::gives_up(&prev, why) {
            return None;
        }
        let next = self.replace(rq, ring, prev, offered);
        if next == offered.id {
            self.change_over(rq, prev, why, offered);
            return Some(next);
        }
        if !self.take_turns(rq, offered.id, next) {
            self.put(rq, offered.id);
            self.dequeue_pushable(rq, next);
        }
        self.change_over(rq, prev, why, self.state.tasks.look_up(next));
        Some(next)
    }

    /// Does steps 3 and 4.
    #[inline]
    fn follow(
        &self,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        prev: TaskRef<'_, P>,
        why: SwitchReason,
    ) -> Option<TaskId> {
        if self.fair.is_of_class(&prev) {
            return self.follow_fair(rq, ring, prev, why);
        }
        let prio = prev.prio();
        if !self.stays_as_urgent(rq, prio) || !self.is_first(rq, prev.id, prio) {
            return None;
        }
        let queued = prev.run_list.next();
        let next = self.state.tasks.look_up(queued.or_else(|| ring.first(rq.cpu))?);
        if next.prio() != prio || !Self::gives_up(&prev, why) {
            return None;
        }
        if queued.is_some() {
            self.state.stats.note(|| Entry::Leaves(rq.cpu, prev.id));
            rq.rt.remove_before_equal(&self.state.tasks, prev.id, prio);
            rq.nr_running.set(rq.nr_running.get() - 1);
            self.dequeue_pushable(rq, next.id);
        } else {
            self.replace(rq, ring, prev, next);
        }
        self.change_over(rq, prev, why, next);
        Some(next.id)
    }

    /// Does step 4 for `prev`, a fair task. Not a part of the code of real-time tasks.
    #[inline(never)]
    fn follow_fair(
        &self,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        prev: TaskRef<'_, P>,
        why: SwitchReason,
    ) -> Option<TaskId> {
        if self.fair.groups.are_used() || !self.stays_as_urgent(rq, prev.prio()) {
            return None;
        }
        if why == SwitchReason::Yield {
            return self.follow_yield(rq, prev);
        }
        // An offered real-time task goes first: `prev` may have been one when it came.
        let follows = if ring.count(rq.cpu) == 0 { rq.nr_running.get() > 1 } else { self.offers_fair(rq.cpu) };
        if !follows || !Self::gives_up(&prev, why) {
            return None;
        }
        self.state.stats.note(|| Entry::Leaves(rq.cpu, prev.id));
        let mut follower = self.fair.follow(&self.state, rq, ring, prev);
        let next = loop {
            match follower {
                Follower::Offered(next) => {
                    self.ids.arrive(&self.state, rq, next);
                    break next;
                }
                Follower::Queued(next) => break next,
                Follower::Ahead => {
                    let id = self.take_first(rq).expect("it is there");
                    self.state.stats.note(|| Entry::Leaves(rq.cpu, id));
                    self.enqueue(rq, id, false);
                    if self.state.tasks.get(id).prio().is_real_time() {
                        self.dequeue_pushable(rq, id);
                        break id;
                    }
                    follower = self.fair.begin_next(&self.state, rq, ring);
                    let queued = rq.nr_running.get();
                    self.rd.tell_of_two(queued - 1, queued);
                }
            }
        };
        self.change_over(rq, prev, why, self.state.tasks.look_up(next));
        Some(next)
    }

    /// Does step 4 for `prev`, a fair task that yields. No task is offered.
    fn follow_yield(&self, rq: &RqGuard<'_, P>, prev: TaskRef<'_, P>) -> Option<TaskId> {
        if !self.may_stay(rq, prev.id) {
            return None;
        }
        self.fair.let_go_fair(&self.state, rq);
        let next = self.fair.pick_fair(&self.state, rq, None, None)?;
        if next != prev.id {
            self.fair.put_fair(&self.state, rq);
            self.fair.begin_fair(&self.state, rq, next);
            self.change_over(rq, prev, SwitchReason::Yield, self.state.tasks.look_up(next));
        }
        Some(next)
    }

    /// `offered`, the first offered task and a real-time one, takes the place of `prev` on the
    /// queue of the calling CPU, `rq`, behind the others of its priority. Returns the first one.
    #[inline]
    fn replace(&self, rq: &RqGuard<'_, P>, ring: &RunNext<P>, prev: TaskRef<'_, P>, offered: TaskRef<'_, P>) -> TaskId {
        let others = ring.count(rq.cpu);
        ring.take(rq);
        if others == 1 {
            ring.note_empty(rq.cpu);
            self.shipped().inspect(|own| own.withdraw_offered(rq));
        }
        self.state.stats.note(|| Entry::Leaves(rq.cpu, prev.id));
        let next = rq.rt.succeed(&self.state.tasks, prev, offered);
        self.ids.arrive(&self.state, rq, offered.id);
        next
    }

    /// The CPU of `rq` runs `next` from now on, which is on its queue as `prev` was.
    #[inline]
    fn change_over(&self, rq: &RqGuard<'_, P>, prev: TaskRef<'_, P>, why: SwitchReason, next: TaskRef<'_, P>) {
        if let Some(searchers) = self.searchers() {
            // If tasks are still offered, `spare` follows, and notes whether it hides them.
            searchers.set_keeps(rq.cpu, false);
        }
        self.fair.note_idleness(&self.state, rq, Some(prev.id), Some(next.id));
        next.set_on_cpu();
        self.set_running(rq, Some(next.id));
        self.part(rq, Some(prev), why, Some(next.id));
    }

    /// Returns whether a task of priority `prio` runs on the CPU of `rq`, and another one of the
    /// same priority may follow it: nothing is more urgent, here or elsewhere.
    #[inline]
    fn stays_as_urgent(&self, rq: &RqGuard<'_, P>, prio: Prio) -> bool {
        !rq.needs_resched()
            && rq.online.get() != 0
            && rq.highest() == prio
            && !self.fair.is_served(rq.cpu)
            && self.urgent().is_none_or(|urgent| urgent.named_to(rq.cpu).is_none())
    }

    /// Returns whether `prev` is a real-time task of priority `prio`, the first one of the list,
    /// and no group is limited.
    #[inline]
    fn is_first(&self, rq: &RqGuard<'_, P>, prev: TaskId, prio: Prio) -> bool {
        prio.is_real_time()
            && rq.rt.list(&self.state.tasks, prio).first() == Some(prev)
            && !self.fair.groups.has_real_time_limits()
    }

    /// Returns whether `offered` may take the place of `prev`: nothing is more urgent, and neither
    /// may have changed since the offer in a way that the queue must know of.
    fn can_hand_over(&self, rq: &RqGuard<'_, P>, prev: TaskRef<'_, P>, offered: TaskRef<'_, P>) -> bool {
        let prio = offered.prio();
        self.stays_as_urgent(rq, prio) && self.is_first(rq, prev.id, prio) && self.may_run_on(offered, rq.cpu)
    }
}
