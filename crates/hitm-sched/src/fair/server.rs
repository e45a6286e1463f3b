//! The fair server: the time that real-time tasks must leave to fair tasks.
//!
//! **Claim.** While fair tasks are queued on a CPU without a break, they run there for at least 50
//! ms of each second, minus two ticks. None of them waits longer than 950 ms until one of them
//! runs.
//!
//! **Origin.** The fair server of Linux v6.12, with its period and budget, in its deferred form:
//! fair tasks go before real-time tasks only when they could not get their budget otherwise.
//! Differences: in Linux it is a task of the deadline class, and here the tick reads two words; a
//! CPU whose fair tasks all slept begins a new period at the next wakeup.
//!
//! **Protocol.** A *period* begins when the first fair task is queued, when a period has passed,
//! and when a service ends. The time of fair tasks in it is counted. A tick that finds just enough
//! of the period left for the rest of the budget *serves* them: they go before real-time tasks
//! until they have had the budget. Meanwhile real-time tasks are pushed away or wait.
//!
//! **Cost.** A tick per 4 ms on a CPU where fair tasks wait. A CPU without fair tasks does not tick
//! for this.

use hitm_memory::{PlainWord, Platform, Span, Time};

use crate::base::rq::RqGuard;
use crate::scheduler::Scheduler;

/// Linux's default.
const PERIOD: Span = Span::from_micros(1_000_000);

/// Linux's default.
const BUDGET: Span = Span::from_micros(50_000);

impl<P: Platform> Scheduler<P> {
    pub(crate) fn begin_period(&self, rq: &RqGuard<'_, P>, now: Time) {
        let queue = self.fair_queue(rq.cpu);
        queue.period_start.set(now.as_picos());
        queue.period_used.set(0);
    }

    /// Ends the service if no fair task is left.
    pub(crate) fn end_service_if_none(&self, rq: &RqGuard<'_, P>) {
        let queue = self.fair_queue(rq.cpu);
        if queue.nr_queued.get() == 0 && queue.served.get() != 0 {
            queue.served.set(0);
        }
    }

    /// A tick of a CPU with fair tasks.
    pub(crate) fn tick_server(&self, rq: &RqGuard<'_, P>, now: Time) {
        let queue = self.fair_queue(rq.cpu);
        let used = Span::from_nanos(queue.period_used.get());
        if queue.served.get() != 0 {
            if used >= BUDGET {
                queue.served.set(0);
                self.begin_period(rq, now);
                if rq.highest().is_real_time() {
                    self.state.resched(rq);
                }
            }
            return;
        }
        let passed = now.since(Time::from_picos(queue.period_start.get()));
        if passed >= PERIOD && used >= BUDGET {
            self.begin_period(rq, now);
        } else if used < BUDGET && passed + (BUDGET - used) + self.config.tick >= PERIOD {
            // At the next tick it would be too late.
            self.serve(rq);
        }
    }

    /// From now on fair tasks go before real-time tasks, if there are any of these.
    fn serve(&self, rq: &RqGuard<'_, P>) {
        if rq.highest().is_real_time() {
            self.fair_queue(rq.cpu).served.set(1);
            self.state.resched(rq);
        }
    }
}
