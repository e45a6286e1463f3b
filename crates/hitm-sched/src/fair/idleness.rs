//! What a CPU records when it begins to idle and when it stops, and what balance records of an LLC.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::class::Fair;
use super::idle::IMBALANCE_PCT;
use crate::base::idle::sched_domains::{IDLE_MOST, Kept, MOVE_COSTS, averaged};
use crate::base::idle::search::Search;
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::base::timeline::PICOS;
use crate::scheduler::Scheduler;

/// The value of full utilisation: Linux's.
const SCALE: u64 = 1_024;

impl<P: Platform> Scheduler<P> {
    /// The calling CPU, that of `rq`, switches from `prev` to `next`.
    pub(crate) fn note_idleness(&self, rq: &RqGuard<'_, P>, prev: Option<TaskId>, next: Option<TaskId>) {
        let Some(fair) = self.fair.get() else { return };
        let keeps_stretches = matches!(fair.sched_domains.kept, Kept::Hints(_));
        if !keeps_stretches && prev.is_some() && next.is_some() {
            return;
        }
        let now = P::now();
        if keeps_stretches {
            self.note_stretch(fair, rq.cpu, prev.is_some(), now);
        }
        if next.is_none() {
            self.begin_idle(fair, rq.cpu, now);
        } else if prev.is_none() {
            self.end_idle(fair, rq.cpu, now);
        }
    }

    /// Ends a stretch of `cpu`, in which it ran a task or idled.
    fn note_stretch(&self, fair: &Fair<P>, cpu: CpuId, ran: bool, now: Time) {
        let domain = &fair.sched_domains.domains[cpu];
        if ran {
            let span = now.since(Time::from_picos(domain.runs_from.get())).as_picos() / PICOS;
            domain.avg_run.set(averaged(domain.avg_run.get(), span.min(2 * IDLE_MOST)));
        }
        domain.runs_from.set(now.as_picos());
    }

    fn begin_idle(&self, fair: &Fair<P>, cpu: CpuId, now: Time) {
        fair.sched_domains.domains[cpu].idles_from.set(now.as_picos());
        match &fair.sched_domains.kept {
            Kept::Nothing => {}
            Kept::Claims(masks) => return masks.begin_idle(cpu, self.state.around(cpu)[0]),
            Kept::Hints(masks) => masks.hint(cpu),
        }
        if !fair.sched_domains.has_siblings {
            return;
        }
        let shared = fair.sched_domains.shared_of(cpu);
        // Relaxed: a hint, as what is stored.
        if shared.has_idle_cores.load(Ordering::Relaxed) != 0 {
            return;
        }
        let siblings = self.state.around(cpu)[0];
        if siblings.iter().filter(|&sibling| sibling != cpu).all(|sibling| self.state.idles(sibling)) {
            // Relaxed: as above.
            shared.has_idle_cores.store(1, Ordering::Relaxed);
        }
    }

    fn end_idle(&self, fair: &Fair<P>, cpu: CpuId, now: Time) {
        if let Kept::Claims(masks) = &fair.sched_domains.kept {
            masks.end_idle(cpu, self.state.around(cpu)[0]);
        }
        let domain = &fair.sched_domains.domains[cpu];
        let since = domain.idles_from.get();
        if since == 0 {
            return;
        }
        domain.idles_from.set(0);
        let idled = (now.since(Time::from_picos(since)).as_picos() / PICOS).min(2 * IDLE_MOST);
        domain.avg_idle.set(averaged(domain.avg_idle.get(), idled).min(IDLE_MOST));
    }

    /// Returns whether a CPU usually idles for less time than a migration costs.
    pub(crate) fn idles_briefly(&self, cpu: CpuId) -> bool {
        self.sched_domains().domains[cpu].avg_idle.get() < MOVE_COSTS
    }

    /// Computes the number of CPUs that a search of the LLC of `cpu` examines: the busier, the
    /// fewer.
    pub(crate) fn refresh_idle_scan(&self, cpu: CpuId) {
        if !self.config.idle.reads_use() {
            return;
        }
        let llc = self.state.around(cpu)[1];
        let weight = llc.len() as u64;
        let busy = llc.iter().filter(|&cpu| self.state.rqs[cpu].nr_running.peek() > 0).count() as u64;
        let used = busy * SCALE / weight;
        let less = used * used * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * SCALE);
        let scan = (weight * (SCALE - less.min(SCALE)) / SCALE) as u32;
        let word = &self.sched_domains().shared_of(cpu).nr_idle_scan;
        // Relaxed: a hint. Stored only if it differs, so that the line stays shared.
        if word.load(Ordering::Relaxed) != scan {
            // Relaxed: as above.
            word.store(scan, Ordering::Relaxed);
        }
    }
}
