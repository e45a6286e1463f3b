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
//! **Cost.** A tick per 4 ms, or per 1 ms where groups have slices, on a CPU where fair tasks wait.
//! A CPU without fair tasks does not tick for this.

use hitm_memory::{PlainWord, Platform, Span, Time};

use crate::base::fair_words::FairQueue;
use crate::base::rq::RqGuard;
use crate::base::state::State;

/// Linux's default.
const PERIOD: Span = Span::from_micros(1_000_000);

/// Linux's default.
const BUDGET: Span = Span::from_micros(50_000);

impl<P: Platform> FairQueue<P> {
    /// Begins a period of this self.
    pub(super) fn begin_period(&self, now: Time) {
        self.period_start.set(now.as_picos());
        self.period_used.set(0);
    }

    /// Ends the service if no fair task is left.
    pub(super) fn end_service_if_none(&self) {
        if self.nr_queued.get() == 0 && self.served.get() != 0 {
            self.served.set(0);
        }
    }

    /// A tick of a CPU with fair tasks: that of `rq`, whose queue this is. `tick` is the period of
    /// ticks.
    pub(super) fn tick_server(&self, state: &State<P>, rq: &RqGuard<'_, P>, tick: Span, now: Time) {
        let used = Span::from_nanos(self.period_used.get());
        if self.served.get() != 0 {
            if used >= BUDGET {
                self.served.set(0);
                self.begin_period(now);
                if rq.highest().is_real_time() {
                    state.resched(rq);
                }
            }
            return;
        }
        let passed = now.since(Time::from_picos(self.period_start.get()));
        if passed >= PERIOD && used >= BUDGET {
            self.begin_period(now);
        } else if used < BUDGET && passed + (BUDGET - used) + tick >= PERIOD {
            // At the next tick it would be too late.
            self.serve(state, rq);
        }
    }

    /// From now on fair tasks go before real-time tasks, if there are any of these.
    fn serve(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        if rq.highest().is_real_time() {
            self.served.set(1);
            state.resched(rq);
        }
    }
}
