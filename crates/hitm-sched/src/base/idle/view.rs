//! What a search for an idle CPU may read and write.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::idle::scan::{Mask, Masks, Scan};
use crate::base::idle::sched_domains::{Kept, SchedDomains, averaged};
use crate::base::state::State;
use crate::base::timeline::PICOS;

/// The least budget of a bounded scan, in CPUs: Linux's.
pub(crate) const SCAN_LEAST: u64 = 4;

/// The part of a CPU's average idle time that a scan may take: a 512th, as in Linux.
const IDLE_FUZZ: u64 = 512;

/// The scheduler, as a search for one task sees it: hints about other CPUs, and scratch masks of
/// the searcher.
pub(crate) struct View<'a, P: Platform> {
    pub(crate) state: &'a State<P>,
    pub(crate) domains: &'a SchedDomains<P>,
    /// Where the task ran last.
    pub(crate) prev: CpuId,
    /// Around which CPU to search.
    pub(crate) target: CpuId,
    /// Where the task may run.
    pub(crate) may: &'a CpuSet,
    /// Those of the target's LLC.
    pub(crate) in_llc: CpuSet,
}

impl<P: Platform> View<'_, P> {
    /// Returns whether nothing runs or is queued on a CPU: a hint. It counts as a probe.
    #[inline]
    pub(crate) fn is_available(&self, cpu: CpuId) -> bool {
        self.state.is_available(cpu)
    }

    /// Returns the CPUs of the core of `cpu`.
    pub(crate) fn core(&self, cpu: CpuId) -> &CpuSet {
        self.state.around(cpu)[0]
    }

    /// Returns the CPUs of the LLC of `cpu`.
    pub(crate) fn llc(&self, cpu: CpuId) -> &CpuSet {
        self.state.around(cpu)[1]
    }

    /// Returns whether the target shares its LLC with the task's previous CPU.
    pub(crate) fn is_near_prev(&self) -> bool {
        self.state.share_cache(self.prev, self.target)
    }

    /// Returns what the scheduler records of idle CPUs.
    pub(crate) fn kept(&self) -> &Kept<P> {
        &self.domains.kept
    }

    /// Returns whether a core of the LLC of `target` may be wholly idle.
    pub(crate) fn may_have_idle_core(&self) -> bool {
        // Relaxed: a hint.
        self.domains.has_siblings && self.domains.shared_of(self.target).has_idle_cores.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn tell_no_idle_core(&self) {
        // Relaxed: a hint. A core that falls idle just now may be missed until the next one does.
        self.domains.shared_of(self.target).has_idle_cores.store(0, Ordering::Relaxed);
    }

    /// Returns the calling CPU's masks.
    pub(crate) fn masks(&self) -> &Masks<P> {
        &self.domains.masks[P::current_cpu().index()]
    }

    /// Fills `mask` with the allowed CPUs of the target's LLC.
    pub(crate) fn begin_scan<'b>(&self, mask: &'b Mask<P>) -> Scan<'b, P> {
        // Peek: written at construction; its line also has the CPUs of the LLC.
        _ = self.domains.domains[self.target].span_weight.peek();
        Scan::begin(mask, self.in_llc.clone())
    }

    /// Examines fewer than `budget` CPUs from `target` on. The cost of a scan that the budget did
    /// not cut short goes into the average.
    pub(crate) fn bounded_scan(&self, left: &Scan<'_, P>, budget: u64) -> Option<CpuId> {
        let start = P::now();
        let mut budget = budget;
        let mut found = None;
        for cpu in left.all_from(self.target) {
            budget -= 1;
            if budget == 0 {
                return None;
            }
            if self.is_available(cpu) {
                found = Some(cpu);
                break;
            }
        }
        let cost = P::now().since(start).as_picos() / PICOS;
        let average = &self.domains.domains[P::current_cpu()].avg_scan_cost;
        // Peek: a hint of the CPU's own, which threads outside the CPUs may share.
        let before = average.peek();
        average.set(averaged(before, cost));
        found
    }

    /// Returns the number of CPUs that the searcher's average idle time allows.
    pub(crate) fn budget_of_time(&self) -> u64 {
        let domain = &self.domains.domains[P::current_cpu()];
        let (idle, cost) = (domain.avg_idle.peek() / IDLE_FUZZ, domain.avg_scan_cost.peek() + 1);
        let span = u64::from(domain.span_weight.peek()) * idle;
        if span > SCAN_LEAST * cost { span / cost } else { SCAN_LEAST }
    }
}
