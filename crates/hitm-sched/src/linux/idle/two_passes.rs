//! First a pass for an idle core, then one for an idle CPU, over as many CPUs as the searcher's
//! idle time allows.
//!
//! **Origin.** Linux v5.10; for the variants, Mel Gorman, "altrecent-v2" and "singlepass-v2",
//! December 2020, not merged.

use hitm_memory::Platform;
use hitm_topology::CpuId;

use crate::base::idle::scan::{Masks, Scan};
use crate::base::idle::search::Search;
use crate::base::idle::view::View;

/// The search of two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TwoPasses {
    /// Whether an idle CPU that the first pass meets is taken when no core idles. Then a task also
    /// remembers the CPU before its last one.
    takes_candidate: bool,
    /// Whether the second pass skips the CPUs that the first one examined.
    skips_examined: bool,
}

/// Linux v5.10's.
pub(crate) const BASELINE: TwoPasses = TwoPasses { takes_candidate: false, skips_examined: false };

/// "altrecent-v2", on which `SINGLE_PASS` was posted.
pub(crate) const CANDIDATE: TwoPasses = TwoPasses { takes_candidate: true, skips_examined: false };

/// "singlepass-v2".
pub(crate) const SINGLE_PASS: TwoPasses = TwoPasses { takes_candidate: true, skips_examined: true };

impl Search for TwoPasses {
    fn keeps_recent(&self) -> bool {
        self.takes_candidate
    }

    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
        let Masks { select, balance } = view.masks();
        let mut unseen = self.skips_examined.then(|| view.begin_scan(select));
        if view.may_have_idle_core() {
            let cores = match &unseen {
                Some(unseen) => unseen.copy(balance),
                None => view.begin_scan(select),
            };
            let found = self.scan_cores(view, cores, |cpu| {
                unseen.iter_mut().for_each(|unseen| unseen.remove(cpu));
            });
            if found.is_some() {
                return found;
            }
        }
        let left = unseen.unwrap_or_else(|| view.begin_scan(select));
        view.bounded_scan(&left, view.budget_of_time()).or_else(|| {
            let siblings = view.core(view.target).iter().filter(|&cpu| view.in_llc.contains(cpu));
            siblings.into_iter().find(|&sibling| view.is_available(sibling))
        })
    }
}

impl TwoPasses {
    /// Searches `cores` for an idle core, and gives each examined CPU to `see`. If none idles, an
    /// idle CPU that was met is taken, if the search takes candidates.
    fn scan_cores<P: Platform>(
        &self,
        view: &View<'_, P>,
        mut cores: Scan<'_, P>,
        mut see: impl FnMut(CpuId),
    ) -> Option<CpuId> {
        let mut candidate = None;
        while let Some(cpu) = cores.first_from(view.target) {
            let core = view.core(cpu);
            let mut is_idle = true;
            for sibling in core.iter() {
                see(sibling);
                if !view.is_available(sibling) {
                    is_idle = false;
                    break;
                }
                if candidate.is_none() && view.in_llc.contains(sibling) {
                    candidate = Some(sibling);
                }
            }
            if is_idle {
                return Some(cpu);
            }
            cores.remove_all(core);
        }
        view.tell_no_idle_core();
        candidate.filter(|_| self.takes_candidate)
    }
}
