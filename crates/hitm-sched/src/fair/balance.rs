//! Load balance: a CPU that is about to idle pulls a fair task from a CPU that has more; a busy CPU
//! does so from time to time.
//!
//! **Claim.** A fair task waits for at most a tick while a CPU idles that it may use and that
//! already idled at that tick.
//!
//! **Origin.** Linux's new-idle and periodic balance over the domains core, LLC, node and machine,
//! reduced. Balance compares counts of tasks, moves one task at a time, and passes over no task
//! because its cache may be warm. At a tick Linux wakes an idle CPU that balances for all idle
//! CPUs; here the ticking CPU hands a waiting task to an idle CPU.
//!
//! **Protocol.** *New-idle*: a CPU with nothing to run searches for the fullest queue from the
//! smallest domain on, and takes a task from it. It does so only if some CPU is known to have two
//! tasks, and if it usually idles long enough. *Periodic*: at a tick a busy CPU does the same, for
//! each domain at its own interval. *Hand over*: at a tick a CPU on which fair tasks wait gives one
//! of them to an idle CPU.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, PlainWord, Platform, Span, Time};
use hitm_topology::CpuId;

use super::class::Fair;
use crate::base::idle::search::Search;
use crate::base::numbers::TaskId;
use crate::base::rq::{RqGuard, RunQueue};
use crate::base::state::State;
use crate::base::stats::Count;
use crate::base::upcalls::Upcalls;
use crate::linux::root_domain::RootDomain;

/// The interval of a domain per CPU in it, for balance on a busy CPU. Linux multiplies one
/// millisecond per CPU by 16.
const INTERVAL_A_CPU: Span = Span::from_micros(16_000);

/// The most tasks that an idle CPU takes at once, as of real-time tasks.
const TAKES_MOST: u32 = 128;

impl<P: Platform> Fair<P> {
    /// The CPU of `rq` has nothing to run: pulls a fair task. May release the lock. Returns true
    /// when there is something to run.
    pub(crate) fn pull_when_idle(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        up: &impl Upcalls<P>,
        rq: &mut RqGuard<'_, P>,
    ) -> bool {
        if !self.is_used() || rq.online.get() == 0 {
            return false;
        }
        let (here, overloaded) = (rq.cpu, &rd.words().overloaded);
        // Relaxed: a hint.
        if self.class().sched_domains.idles_briefly(here) || overloaded.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.update_leaves(state, rq, P::moment());
        let mut most = 0;
        for around in &state.neighbourhoods[here.index()] {
            if self.pull_fair(state, up, rq, around, 1, &mut most) {
                return true;
            }
        }
        if most < 2 {
            // Relaxed: a hint. A CPU that gets a second task just now sets it again with its next
            // task; until then the tick hands over.
            overloaded.store(0, Ordering::Relaxed);
        }
        rq.nr_running.get() > 0
    }

    /// Takes fair tasks for the CPU of `rq`, which has nothing to run: half of what the fullest
    /// queue near it has more, but not many at once, because both queues are locked meanwhile. May
    /// release the lock. Returns true when there is something to run.
    pub(crate) fn take_when_idle(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        up: &impl Upcalls<P>,
        rq: &mut RqGuard<'_, P>,
    ) -> bool {
        if !self.is_used() || rq.online.get() == 0 {
            return rq.nr_running.get() > 0;
        }
        self.update_leaves(state, rq, P::moment());
        let mut most = 0;
        for around in &state.neighbourhoods[rq.cpu.index()] {
            if self.pull_fair(state, up, rq, around, TAKES_MOST, &mut most) || rq.nr_running.get() > 0 {
                return true;
            }
        }
        // Relaxed: a hint. The load before the store keeps the line shared.
        if most < 2 && self.is_any_crowded(rd) {
            // Relaxed: as in `pull_when_idle`.
            rd.words().overloaded.store(0, Ordering::Relaxed);
        }
        false
    }

    /// Returns whether fair tasks wait on `rq`.
    pub(crate) fn is_crowded(&self, rq: &RqGuard<'_, P>) -> bool {
        if !self.is_used() {
            return false;
        }
        let queue = self.fair_queue(rq.cpu);
        queue.nr_queued.get() > u32::from(queue.curr.get() != 0)
    }

    /// Returns whether a CPU may have two tasks, so that fair tasks may wait: a hint.
    pub(crate) fn is_any_crowded(&self, rd: &RootDomain<P>) -> bool {
        // Relaxed: a hint.
        self.is_used() && rd.words().overloaded.load(Ordering::Relaxed) != 0
    }

    /// Pulls fair tasks, up to `limit`, from the fullest queue of `around`, until that queue does
    /// not have two tasks more. Returns whether there was one. Raises `most` to the count of the
    /// fullest queue.
    fn pull_fair(
        &self,
        state: &State<P>,
        up: &impl Upcalls<P>,
        rq: &mut RqGuard<'_, P>,
        around: &CpuSet,
        limit: u32,
        most: &mut u32,
    ) -> bool {
        let here = rq.cpu;
        let own = rq.nr_running.get();
        let mut fullest = (own + 1, None);
        for cpu in around.iter().filter(|&cpu| cpu != here) {
            let mut count = state.rqs[cpu].nr_running.peek();
            if limit > 1 && count > 0 {
                count += up.offered_to(cpu);
            }
            *most = count.max(*most);
            // A CPU that takes several tasks at once does so where few others do.
            let is_left = || limit > 1 && state.rqs[cpu].has_takers();
            if count > fullest.0 && self.fair_queue(cpu).nr_queued.peek() > 0 && !is_left() {
                fullest = (count, Some(cpu));
            }
        }
        let Some(cpu) = fullest.1 else { return false };
        let (source, _let_go) = rq.lock_both(&state.rqs[cpu], cpu);
        // Everything that follows reads both queues again.
        if rq.online.get() == 0 {
            return false;
        }
        let takes_offered = limit > 1 && rq.rt.rt_nr_running.get() == 0;
        let (fullest, own) = (source.nr_running.get(), rq.nr_running.get());
        if fullest < own + 2 {
            return takes_offered && up.take_offered(source, rq, own == 0);
        }
        let wanted = ((fullest - own) / 2).min(limit) as usize;
        let mut found = Vec::with_capacity(wanted);
        // Of tasks in the order of deadlines, the other CPU keeps every second one: both have early
        // ones then.
        let by_deadline = |id| {
            let group = if limit > 1 && self.groups.has_deadlines() { self.groups.group_hint(state, id) } else { None };
            group.is_some_and(|group| self.groups.is_by_deadline(group))
        };
        let mut keeps_next = false;
        self.find_waiting(state, source.cpu, None, &mut |id| {
            if !self.may_come(state, id, here) {
                return false;
            }
            let keeps = keeps_next && by_deadline(id);
            if !keeps {
                found.push(id);
            }
            keeps_next = !keeps;
            found.len() == wanted
        });
        for &id in &found {
            up.move_task(&source, id, rq);
            state.stats.add(Count::Balance);
        }
        takes_offered && up.take_offered(source, rq, own == 0) || !found.is_empty()
    }

    /// Returns whether `id`, which waits, may run on `cpu`. A CPU on which it would be held is no
    /// better.
    fn may_come(&self, state: &State<P>, id: TaskId, cpu: CpuId) -> bool {
        state.tasks.allowed(id).contains(cpu)
            && !state.tasks.get(id).is_on_cpu()
            && !self.groups.is_held(state, cpu, id)
    }

    /// Returns the first fair task by deadline that waits on `source` and may run on `cpu`.
    fn first_that_may(&self, state: &State<P>, source: &RqGuard<'_, P>, cpu: CpuId) -> Option<TaskId> {
        self.find_waiting(state, source.cpu, None, &mut |id| self.may_come(state, id, cpu))
    }

    /// A tick of the CPU of `rq`, on which fair tasks are queued.
    pub(crate) fn balance_at_tick(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        up: &impl Upcalls<P>,
        rq: &mut RqGuard<'_, P>,
        now: Time,
    ) {
        if self.hand_over(state, rd, up, rq) {
            return;
        }
        for (level, around) in state.neighbourhoods[rq.cpu.index()].iter().enumerate() {
            let next = &self.fair_queue(rq.cpu).next_balance[level];
            if around.len() < 2 || now.as_picos() < next.get() {
                continue;
            }
            next.set((now + INTERVAL_A_CPU * around.len() as u64).as_picos());
            if self.search.reads_use() {
                self.class().sched_domains.refresh_idle_scan(state, rq.cpu);
            }
            self.update_leaves(state, rq, now);
            if rq.online.get() != 0 && self.pull_fair(state, up, rq, around, 1, &mut 0) {
                return;
            }
        }
    }

    /// Gives a waiting fair task to the nearest idle CPU. Returns true when one moved.
    fn hand_over(&self, state: &State<P>, rd: &RootDomain<P>, up: &impl Upcalls<P>, rq: &mut RqGuard<'_, P>) -> bool {
        // With groups, a waiting task may be in a group that runs.
        let none_waits = !self.timeline(state, rq.cpu).has_waiting() && !self.groups.are_used();
        if none_waits || rq.nr_running.get() < 2 {
            return false;
        }
        let active = rd.active.load();
        let idles = |rq: &RunQueue<P>| rq.nr_running.peek() == 0;
        let here = rq.cpu;
        for around in &state.neighbourhoods[here.index()] {
            for cpu in around.common_from(&active, here).filter(|&cpu| cpu != here) {
                if !idles(&state.rqs[cpu]) || self.first_that_may(state, rq, cpu).is_none() {
                    continue;
                }
                let (to, _let_go) = rq.lock_both(&state.rqs[cpu], cpu);
                let next = self.first_that_may(state, rq, cpu);
                let Some(id) = next.filter(|_| to.online.get() != 0 && idles(&to)) else { continue };
                up.move_task(rq, id, &to);
                state.stats.add(Count::Balance);
                state.resched(&to);
                return true;
            }
        }
        false
    }
}
