//! What a CPU records when it begins to idle and when it stops, and what balance records of an LLC.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::select::IMBALANCE_PCT;
use crate::base::idle::sched_domains::{IDLE_MOST, Kept, MOVE_COSTS, SchedDomains, averaged};
use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::PICOS;

/// The value of full utilisation: Linux's.
const SCALE: u64 = 1_024;

impl<P: Platform> SchedDomains<P> {
    /// The calling CPU, that of `rq`, switches from `prev` to `next`.
    #[inline]
    pub(super) fn note_idleness(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        prev: Option<TaskId>,
        next: Option<TaskId>,
    ) {
        let keeps_stretches = matches!(self.kept, Kept::Hints(_));
        if !keeps_stretches && prev.is_some() && next.is_some() {
            return;
        }
        let now = P::moment();
        if keeps_stretches {
            self.note_stretch(rq.cpu, prev.is_some(), now);
        }
        if next.is_none() {
            self.begin_idle(state, rq.cpu, now);
        } else if prev.is_none() {
            self.end_idle(state, rq.cpu, now);
        }
    }

    /// Ends a stretch of `cpu`, in which it ran a task or idled.
    fn note_stretch(&self, cpu: CpuId, ran: bool, now: Time) {
        let domain = &self.domains[cpu];
        if ran {
            let span = now.since(Time::from_picos(domain.runs_from.get())).as_picos() / PICOS;
            domain.avg_run.set(averaged(domain.avg_run.get(), span.min(2 * IDLE_MOST)));
        }
        domain.runs_from.set(now.as_picos());
    }

    fn begin_idle(&self, state: &State<P>, cpu: CpuId, now: Time) {
        self.domains[cpu].idles_from.set(now.as_picos());
        match &self.kept {
            Kept::Nothing => {}
            Kept::Claims(masks) => return masks.begin_idle(cpu, state.around(cpu)[0]),
            Kept::Hints(masks) => masks.hint(cpu),
        }
        if !self.has_siblings {
            return;
        }
        let shared = self.shared_of(cpu);
        // Relaxed: a hint, as what is stored.
        if shared.has_idle_cores.load(Ordering::Relaxed) != 0 {
            return;
        }
        let siblings = state.around(cpu)[0];
        if siblings.iter().filter(|&sibling| sibling != cpu).all(|sibling| state.idles(sibling)) {
            // Relaxed: as above.
            shared.has_idle_cores.store(1, Ordering::Relaxed);
        }
    }

    fn end_idle(&self, state: &State<P>, cpu: CpuId, now: Time) {
        if let Kept::Claims(masks) = &self.kept {
            masks.end_idle(cpu, state.around(cpu)[0]);
        }
        let domain = &self.domains[cpu];
        let since = domain.idles_from.get();
        if since == 0 {
            return;
        }
        domain.idles_from.set(0);
        let idled = (now.since(Time::from_picos(since)).as_picos() / PICOS).min(2 * IDLE_MOST);
        domain.avg_idle.set(averaged(domain.avg_idle.get(), idled).min(IDLE_MOST));
    }

    /// Returns whether a CPU usually idles for less time than a migration costs.
    pub(super) fn idles_briefly(&self, cpu: CpuId) -> bool {
        self.domains[cpu].avg_idle.get() < MOVE_COSTS
    }

    /// Computes the number of CPUs that a search of the LLC of `cpu` examines: the busier, the
    /// fewer.
    pub(super) fn refresh_idle_scan(&self, state: &State<P>, cpu: CpuId) {
        let llc = state.around(cpu)[1];
        let weight = llc.len() as u64;
        let busy = llc.iter().filter(|&cpu| state.rqs[cpu].nr_running.peek() > 0).count() as u64;
        let used = busy * SCALE / weight;
        let less = used * used * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * SCALE);
        let scan = (weight * (SCALE - less.min(SCALE)) / SCALE) as u32;
        let word = &self.shared_of(cpu).nr_idle_scan;
        // Relaxed: a hint. Stored only if it differs, so that the line stays shared.
        if word.load(Ordering::Relaxed) != scan {
            // Relaxed: as above.
            word.store(scan, Ordering::Relaxed);
        }
    }
}
