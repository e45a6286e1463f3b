//! Balance: a CPU that would idle, and now and then one that does not, gets a fair task from one
//! that has more.
//!
//! **Claim.** A fair task does not wait for longer than a tick while a CPU idles that it may use
//! and that idled at that tick.
//!
//! **Origin.** Linux's new-idle and periodic balance over the domains core, LLC, node and machine,
//! reduced: what is compared are counts of tasks, one task moves at a time, and no task is passed
//! over because its cache may be warm. Where Linux's tick wakes an idle CPU to balance for all that
//! idle, here it hands a task that waits to an idle CPU.
//!
//! **Protocol.** *New-idle*: a CPU with nothing to run, where any CPU is known to have two tasks
//! and it idles long enough as a rule, looks from the smallest domain on for the fullest queue, and
//! takes from it. *Periodic*: at a tick, each domain in its own interval, a busy CPU does the same.
//! *Hand over*: at a tick, a CPU on which fair tasks wait gives one to an idle CPU.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, PlainWord, Platform, Span, Time};
use hitm_topology::CpuId;

use crate::root_domain::RootDomainWords;
use crate::rq::{RqGuard, RunQueue};
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// A domain is balanced every so many milliseconds a CPU of it, on a CPU that is busy: Linux's, one
/// of which it multiplies by 16.
const INTERVAL_A_CPU: Span = Span::from_micros(16_000);

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Nothing is to run on the CPU of `rq`: gets a fair task from elsewhere. The lock may be let
    /// go. True when there is something to run.
    pub(crate) fn pull_when_idle(&self, rq: &mut RqGuard<'_, P>) -> bool {
        if self.fair.get().is_none() || rq.online.get() == 0 {
            return false;
        }
        let (here, overloaded) = (rq.cpu, self.rd.words().overloaded());
        // Relaxed: a hint.
        if self.idles_briefly(here) || overloaded.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.update_leaves(rq, P::now());
        let mut most = 0;
        for around in &self.neighbourhoods[here.index()] {
            if self.pull_fair(rq, around, &mut most) {
                return true;
            }
        }
        if most < 2 {
            // Relaxed: a hint. Who gets a second task just now sets it again with the next; until
            // then the tick hands over.
            overloaded.store(0, Ordering::Relaxed);
        }
        rq.nr_running.get() > 0
    }

    /// Gets a fair task from the fullest queue of `around`, if that has at least two tasks more.
    /// `most` is raised to what a queue there has.
    fn pull_fair(&self, rq: &mut RqGuard<'_, P>, around: &CpuSet, most: &mut u32) -> bool {
        let here = rq.cpu;
        let own = rq.nr_running.get();
        let mut fullest = (own + 1, None);
        for cpu in around.iter().filter(|&cpu| cpu != here) {
            let count = self.rqs[cpu].nr_running.peek();
            *most = count.max(*most);
            if count > fullest.0 && self.fair_queue(cpu).nr_queued.peek() > 0 {
                fullest = (count, Some(cpu));
            }
        }
        let Some(cpu) = fullest.1 else { return false };
        let (source, _let_go) = rq.lock_both(&self.rqs[cpu], cpu);
        // All that follows reads both queues anew.
        if rq.online.get() == 0 || source.nr_running.get() < rq.nr_running.get() + 2 {
            return false;
        }
        let Some(id) = self.first_that_may(&source, here) else { return false };
        self.move_task(&source, id, rq);
        self.stats.add(Count::Balance);
        true
    }

    /// The first fair task by deadline that waits on `source` and may run on `cpu`.
    fn first_that_may(&self, source: &RqGuard<'_, P>, cpu: CpuId) -> Option<TaskId> {
        // Where it would be held it is no better off.
        let may =
            |id| self.tasks.allowed(id).contains(cpu) && !self.tasks.get(id).is_on_cpu() && !self.is_held(cpu, id);
        self.find_waiting(source.cpu, None, &mut { may })
    }

    /// A tick of the CPU of `rq`, on which fair tasks are queued.
    pub(crate) fn balance_at_tick(&self, rq: &mut RqGuard<'_, P>, now: Time) {
        if self.hand_over(rq) {
            return;
        }
        for (level, around) in self.neighbourhoods[rq.cpu.index()].iter().enumerate() {
            let next = &self.fair_queue(rq.cpu).next_balance[level];
            if around.len() < 2 || now.as_picos() < next.get() {
                continue;
            }
            next.set((now + INTERVAL_A_CPU * around.len() as u64).as_picos());
            self.refresh_idle_scan(rq.cpu);
            self.update_leaves(rq, now);
            if rq.online.get() != 0 && self.pull_fair(rq, around, &mut 0) {
                return;
            }
        }
    }

    /// Gives a fair task that waits here to the nearest CPU that idles. True when one went.
    fn hand_over(&self, rq: &mut RqGuard<'_, P>) -> bool {
        // Where there are groups, who waits may do so in one that runs.
        let nobody_waits = self.fair_queue(rq.cpu).root.get() == 0 && self.groups().is_none();
        if nobody_waits || rq.nr_running.get() < 2 {
            return false;
        }
        let active = self.rd.active.load();
        let idles = |rq: &RunQueue<P>| rq.nr_running.peek() == 0;
        let here = rq.cpu;
        for around in &self.neighbourhoods[here.index()] {
            for cpu in around.common_from(&active, here).filter(|&cpu| cpu != here) {
                if !idles(&self.rqs[cpu]) || self.first_that_may(rq, cpu).is_none() {
                    continue;
                }
                let (to, _let_go) = rq.lock_both(&self.rqs[cpu], cpu);
                let next = self.first_that_may(rq, cpu);
                let Some(id) = next.filter(|_| to.online.get() != 0 && idles(&to)) else { continue };
                self.move_task(rq, id, &to);
                self.stats.add(Count::Balance);
                self.resched(&to);
                return true;
            }
        }
        false
    }
}
