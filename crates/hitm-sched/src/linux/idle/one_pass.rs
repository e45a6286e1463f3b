//! One pass: over the cores of the LLC if one of them may idle, else over its CPUs.
//!
//! **Origin.** Linux v5.12; since v6.0 the utilisation of the LLC bounds the pass over CPUs.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Platform};
use hitm_topology::CpuId;

use crate::base::idle::search::Search;
use crate::base::idle::view::View;

/// The search of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnePass {
    /// Whether the utilisation of the LLC says how many CPUs are examined, instead of the
    /// searcher's average idle time.
    reads_use: bool,
}

/// Linux v5.12's.
pub(crate) const MERGED: OnePass = OnePass { reads_use: false };

/// Linux v6.0's.
pub(crate) const UTIL: OnePass = OnePass { reads_use: true };

impl Search for OnePass {
    fn reads_use(&self) -> bool {
        self.reads_use
    }

    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
        if view.may_have_idle_core() {
            let mut left = view.begin_scan(&view.masks().select);
            let mut candidate = None;
            while let Some(cpu) = left.first_from(view.target) {
                let core = view.core(cpu);
                let mut is_idle = true;
                for sibling in core.iter() {
                    if !view.is_available(sibling) {
                        is_idle = false;
                        if candidate.is_some() {
                            break;
                        }
                    } else if candidate.is_none() && left.contains(sibling) {
                        candidate = Some(sibling);
                    }
                }
                if is_idle {
                    return Some(cpu);
                }
                left.remove_all(core);
            }
            view.tell_no_idle_core();
            return candidate;
        }
        if view.is_near_prev() {
            let siblings = view.core(view.prev).iter().filter(|&cpu| cpu != view.prev && view.in_llc.contains(cpu));
            if let Some(sibling) = siblings.into_iter().find(|&sibling| view.is_available(sibling)) {
                return Some(sibling);
            }
        }
        let budget = if self.reads_use {
            // Relaxed: a hint.
            let scan = view.domains.shared_of(view.target).nr_idle_scan.load(Ordering::Relaxed);
            u64::from(scan).saturating_add(1)
        } else {
            view.budget_of_time()
        };
        if budget == 1 {
            return None;
        }
        let left = view.begin_scan(&view.masks().select);
        view.bounded_scan(&left, budget)
    }
}
