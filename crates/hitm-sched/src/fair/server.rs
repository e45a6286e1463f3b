//! What real-time tasks must leave.
//!
//! **Claim.** While fair tasks are queued on a CPU without a break, they run there for 50 ms at
//! least of each second, less two ticks; none of its fair tasks waits longer than 950 ms until one
//! of them runs.
//!
//! **Origin.** The fair server of Linux v6.12, with its period and budget, in its deferred form:
//! fair tasks are put before real-time ones only when they could not have their budget otherwise.
//! Differences: there it is a task of the deadline class, here the tick looks at two words; and a
//! CPU whose fair tasks all slept begins a new period when one wakes.
//!
//! **Protocol.** A *period* begins when the first fair task is queued, when one has passed, and
//! when a service ends. What fair tasks run is counted in it. A tick that finds so little left of
//! it that the rest of the budget only just fits *serves* them: they go before real-time tasks
//! until they have had it. Meanwhile real-time tasks are pushed away, or wait.
//!
//! **Cost.** A tick every 4 ms of a CPU on which fair tasks wait. A CPU without any does not tick
//! for this.

use hitm_memory::{PlainWord, Platform, Span, Time};

use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;

/// Linux's default.
const PERIOD: Span = Span::from_micros(1_000_000);

/// Linux's default.
const BUDGET: Span = Span::from_micros(50_000);

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    pub(crate) fn begin_period(&self, rq: &RqGuard<'_, P>, now: Time) {
        let queue = self.fair_queue(rq.cpu);
        queue.period_start.set(now.as_picos());
        queue.period_used.set(0);
    }

    /// Nobody is left to serve, perhaps.
    pub(crate) fn end_service_if_none(&self, rq: &RqGuard<'_, P>) {
        let queue = self.fair_queue(rq.cpu);
        if queue.nr_queued.get() == 0 && queue.served.get() != 0 {
            queue.served.set(0);
        }
    }

    /// A tick of a CPU that has fair tasks.
    pub(crate) fn tick_server(&self, rq: &RqGuard<'_, P>, now: Time) {
        let queue = self.fair_queue(rq.cpu);
        let used = Span::from_nanos(queue.period_used.get());
        if queue.served.get() != 0 {
            if used >= BUDGET {
                queue.served.set(0);
                self.begin_period(rq, now);
                if rq.highest().is_real_time() {
                    self.resched(rq);
                }
            }
            return;
        }
        let passed = now.since(Time::from_picos(queue.period_start.get()));
        if passed >= PERIOD && used >= BUDGET {
            self.begin_period(rq, now);
        } else if used < BUDGET && passed + (BUDGET - used) + self.rd.config.tick >= PERIOD {
            // The next tick would be too late.
            self.serve(rq);
        }
    }

    /// Fair tasks go before real-time ones from now on, if there are any of those.
    fn serve(&self, rq: &RqGuard<'_, P>) {
        if rq.highest().is_real_time() {
            self.fair_queue(rq.cpu).served.set(1);
            self.resched(rq);
        }
    }
}
