//! hitm's search: it examines the CPUs that a hint of their LLC names, and corrects the hint. It
//! does not search where the LLC is busy and tasks run briefly.
//! [`idle_mask`](crate::base::idle::idle_mask) has the protocol.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, PlainWord, Platform};
use hitm_topology::{CpuId, Scope};

use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::sched_domains::{Kept, MOVE_COSTS, WAKE_COSTS};
use crate::base::idle::search::Search;
use crate::base::idle::view::{SCAN_LEAST, View};

/// The search by hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hints;

/// hitm's.
pub(crate) const SHIPPED: Hints = Hints;

impl Search for Hints {
    fn keeps<P: Platform>(&self, masks: impl Fn(Scope) -> IdleMasks<P>) -> Kept<P> {
        Kept::Hints(masks(Scope::Llc))
    }

    fn reads_use(&self) -> bool {
        true
    }

    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
        let Kept::Hints(masks) = view.kept() else { unreachable!("`keeps` says so") };
        let target = view.target;
        let wants_core = view.may_have_idle_core();
        // Where a core may be wholly idle, the LLC is less busy than balance last found it.
        let mut budget = if wants_core { u32::MAX } else { worthwhile(view) };
        if budget == 0 {
            return None;
        }
        let hinted = masks.idle_cpus_near(target);
        let mut left = hinted.clone();
        left.intersect(&view.in_llc);
        let (mut candidate, mut in_vain) = (None, CpuSet::new());
        while let Some(cpu) = left.first_from(target) {
            let core = view.core(cpu);
            let mut idles_whole = true;
            for sibling in core.iter() {
                let looks = hinted.contains(sibling) && budget > 0;
                budget -= u32::from(looks);
                if looks && view.is_available(sibling) {
                    candidate = candidate.or_else(|| left.contains(sibling).then_some(sibling));
                    continue;
                }
                idles_whole = false;
                if looks {
                    in_vain.insert(sibling);
                }
                if candidate.is_some() {
                    // The other siblings could only show whether the core is wholly idle.
                    break;
                }
            }
            if idles_whole {
                candidate = Some(cpu);
            }
            if idles_whole || (candidate.is_some() && !wants_core) || budget == 0 {
                break;
            }
            left.subtract(core);
        }
        if left.is_empty() && wants_core {
            view.tell_no_idle_core();
        }
        // Where tasks run briefly, a stale bit is right again before the next search. To clear it
        // would transfer the line twice, away from all its readers.
        if in_vain.len() as u64 > SCAN_LEAST && run_of(view) >= MOVE_COSTS {
            masks.forget(target, &in_vain);
        }
        candidate
    }
}

/// Returns the number of CPUs in the target's LLC that are worth examining. All of them, if a task
/// queued at the target would wait there longer than an idle CPU takes to wake; else fewer, the
/// busier the LLC was at the last balance.
fn worthwhile<P: Platform>(view: &View<'_, P>) -> u32 {
    // Relaxed: a hint.
    let scan = view.domains.shared_of(view.target).nr_idle_scan.load(Ordering::Relaxed);
    if run_of(view) >= WAKE_COSTS { u32::MAX } else { scan }
}

/// Returns how long a task runs on the target on average, in nanoseconds: a hint.
fn run_of<P: Platform>(view: &View<'_, P>) -> u64 {
    view.domains.domains[view.target].avg_run.peek()
}
