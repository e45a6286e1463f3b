//! Fair tasks that are [offered](crate::shipped::run_next) to a CPU: they wait in its ring, and
//! share its time with those that are queued.
//!
//! **Claim.** Tasks that wake each other and have turns of about one length wait in no list. Each
//! has its share of the time, also beside tasks with longer turns: of four pairs of tasks on one
//! CPU, one with turns of 20 us to 1 ms beside turns of 2 to 150 us has 25.1 to 28.0 % of the time
//! (`tests/it/turns.rs` of `hitm`).
//!
//! **Origin.** Ours. The shares are those of the [queue](crate::base::timeline).
//!
//! **Protocol.** Under the lock of the queue, by its CPU, at a switch of the class: (1) tasks that
//! were offered since the last one count from now on, the first few of a long ring: each gets a
//! virtual runtime and a deadline as if it was queued, and the average is that of all. (2) The
//! running task leaves. (3) The first task of the ring runs, if it is eligible and its deadline is
//! earlier than that of the task which the queue would run. Otherwise that one runs. A first task
//! that is not eligible is queued. (4) A task that leaves the ring otherwise counts no more, and
//! keeps its lag.
//!
//! **Limits.** A task counts as if it came at the switch after its wakeup. So the rest of its
//! waker's turn is not time that it has waited. Tasks of the ring follow in the order of their
//! wakeups; their deadlines differ by one [grain](GRAIN) at most, or by what is left of a slice.

use hitm_memory::{PlainWord, Platform};

use super::class::Fair;
use crate::base::fair_words::{FairTask, Member};
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::task_table::TaskRef;
use crate::base::timeline::{GRAIN, Timeline};
use crate::base::weight::FINE_NICE_0_WEIGHT;
use crate::shipped::run_next::RunNext;

/// What follows a fair task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// A task that was offered runs now. It has left the ring.
    Offered(TaskId),
    /// A task that was queued runs now.
    Queued(TaskId),
    /// No task runs: the first one of the ring has had too much of the time, or is not fair.
    Ahead,
}

impl<P: Platform> Fair<P> {
    /// `prev`, which runs on the CPU of `rq`, waits or ends: does steps 1 to 3. There is no group,
    /// and a task is in the `ring` or queued.
    pub(crate) fn follow(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        prev: TaskRef<'_, P>,
    ) -> Follower {
        let (line, now) = (self.timeline(state, rq.cpu), P::moment());
        line.charge(now);
        prev.on_rq.set(0);
        let left = rq.nr_running.get() - 1;
        rq.nr_running.set(left);
        let only = if left == 0 { ring.only_uncounted(rq) } else { None };
        if let Some(only) = only.filter(|&only| self.is_fair(state, only)) {
            ring.take(rq);
            rq.nr_running.set(1);
            state.tasks.get(only).on_rq.set(1);
            line.succeed(Member::task(only), now);
            return Follower::Offered(only);
        }
        self.count_in(state, rq, ring, &line);
        line.dequeue(Member::task(prev.id), true, now);
        self.begin_first(state, rq, ring, &line)
    }

    /// Does steps 1 and 3 for the CPU of `rq`, which runs no task.
    pub(crate) fn begin_next(&self, state: &State<P>, rq: &RqGuard<'_, P>, ring: &RunNext<P>) -> Follower {
        let line = self.timeline(state, rq.cpu);
        // Those that counted may have left.
        self.count_in(state, rq, ring, &line);
        self.begin_first(state, rq, ring, &line)
    }

    /// Does step 1 on `line`, that of the CPU of `rq`. A running task has been charged.
    fn count_in<'a>(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        line: &Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>>,
    ) {
        for id in ring.uncounted(rq).take_while(|&id| self.is_fair(state, id)) {
            line.count_in(Member::task(id));
            ring.count_one(rq);
        }
    }

    /// Does step 3 on `line`.
    fn begin_first<'a>(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        ring: &RunNext<P>,
        line: &Timeline<'a, P, impl Fn(Member) -> &'a FairTask<P>>,
    ) -> Follower {
        let now = P::moment();
        let queued = if rq.nr_running.get() == 0 { None } else { line.pick(None) };
        let first = ring.first(rq.cpu);
        let is_before = |first| line.is_before(Member::task(first), queued);
        let goes_before = first.map(|first| if ring.counts_first(rq) { is_before(first) } else { None });
        match (first, goes_before, queued) {
            (Some(first), Some(Some(true)), _) => {
                ring.take(rq);
                rq.nr_running.set(rq.nr_running.get() + 1);
                state.tasks.get(first).on_rq.set(1);
                line.begin_counted(Member::task(first), now);
                Follower::Offered(first)
            }
            (_, Some(None), _) => Follower::Ahead,
            (_, _, queued) => {
                let next = queued.expect("one that is offered or queued may run");
                line.begin(next, now);
                Follower::Queued(TaskId(next.0))
            }
        }
    }

    /// Does step 4 for `id`, which has counted and has left the ring of the CPU of `rq`.
    pub(crate) fn count_out(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.timeline(state, rq.cpu).count_out(Member::task(id), P::moment()) {
            // The tick that was to find it has nothing left to charge.
            state.resched(rq);
        }
    }

    /// Returns whether `id`, a fair task, may wait beside others that are offered too: its weight
    /// is the usual one, and it has not had much more of the time than others.
    pub(crate) fn is_patient(&self, state: &State<P>, id: TaskId) -> bool {
        let words = state.tasks.fair(id);
        words.weight.peek() == FINE_NICE_0_WEIGHT && words.lag.peek() >= -GRAIN
    }

    /// Returns whether `id`, a fair task that sleeps, has had about its share of the time: then its
    /// wakeup hardly ever preempts.
    pub(crate) fn has_had_its_share(&self, state: &State<P>, id: TaskId) -> bool {
        state.tasks.fair(id).lag.peek() <= GRAIN
    }
}
