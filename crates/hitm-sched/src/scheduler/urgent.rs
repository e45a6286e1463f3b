//! Taking an urgent task whose CPU has not begun it: see [`urgent`](crate::shipped::urgent).

use hitm_memory::{PlainWord, Platform};

use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::scheduler::Scheduler;
use crate::shipped::urgent::Named;

impl<P: Platform> Scheduler<P> {
    /// `id` was woken onto `rq`. If the CPU must leave something else first, other CPUs may take
    /// it.
    pub(super) fn tell_urgent(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let Some(urgent) = self.urgent() else { return };
        let task = self.state.tasks.get(id);
        let prio = task.prio();
        if prio < Prio::ORDINARY
            && rq.needs_resched()
            && rq.curr() != Some(id)
            && task.can_move()
            && task.on_list.get() != 0
        {
            urgent.tell(Named { prio, cpu: rq.cpu });
        }
    }

    /// The CPU of `rq`, which calls, is about to run `next`. Takes a more urgent task of another
    /// CPU if one is named. Returns whether it did: then the caller picks again.
    pub(super) fn take_urgent(&self, rq: &RqGuard<'_, P>, next: Option<TaskId>) -> bool {
        let Some((urgent, named)) = self.urgent().and_then(|urgent| Some((urgent, urgent.named_to(rq.cpu)?))) else {
            return false;
        };
        if named.cpu == rq.cpu {
            // It is the most urgent task here, which runs next.
            urgent.withdraw(named);
            return false;
        }
        let rank = next.map(|next| self.fair.rank(&self.state, rq, next));
        let is_wanted = |prio: Prio| rank.is_none_or(|rank| prio < rank);
        if !is_wanted(named.prio) || rq.online.get() == 0 {
            return false;
        }
        // One try: its holder may be a thread that was preempted, or the CPU that begins the task.
        let Some(source) = RqGuard::try_lock(&self.state.rqs[named.cpu], named.cpu) else { return false };
        let first = source.rt.first_pushable(&self.state.tasks);
        let prio_of = |id: TaskId| self.state.tasks.get(id).prio();
        let running = source.curr().map(|curr| self.fair.rank(&self.state, &source, curr));
        if first.is_none_or(|id| running.is_some_and(|running| running <= prio_of(id))) {
            // It has begun, or is gone.
            urgent.withdraw(named);
            return false;
        }
        let Some(id) = first.filter(|&id| is_wanted(prio_of(id)) && self.may_come(id, rq)) else { return false };
        urgent.withdraw(named);
        self.move_away(&source, id, rq);
        self.state.stats.add(Count::Pull);
        true
    }

    /// Returns whether a more urgent task than the running one waits for this CPU, or is named to
    /// it: a hint.
    #[must_use]
    pub fn must_switch(&self) -> bool {
        if self.needs_resched() {
            return true;
        }
        let here = P::current_cpu();
        let named = self.urgent().and_then(|urgent| urgent.named_to(here)).filter(|named| named.cpu != here);
        named.is_some_and(|named| {
            let curr = self.state.rqs[here].curr();
            curr.is_some_and(|curr| named.prio < self.fair.rank_on(&self.state, here, curr))
        })
    }
}
