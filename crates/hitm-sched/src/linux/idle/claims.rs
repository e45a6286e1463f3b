//! A CPU is claimed in masks of idle CPUs and of idle cores, so that no two wakers choose the same
//! one: an idle core, then an idle CPU, with a preference for the task's previous one.
//!
//! **Origin.** sched_ext's built-in idle tracking, Linux v6.12.

use hitm_memory::{CpuSet, Platform};
use hitm_topology::{CpuId, Scope};

use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::sched_domains::Kept;
use crate::base::idle::search::Search;
use crate::base::idle::view::View;
use crate::base::stats::Count;

/// The search that claims CPUs in masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claims {
    /// The masks are one per part of this scope.
    pub(crate) scope: Scope,
}

impl Search for Claims {
    fn keeps<P: Platform>(&self, masks: impl Fn(Scope) -> IdleMasks<P>) -> Kept<P> {
        Kept::Claims(masks(self.scope))
    }

    fn claims(&self) -> bool {
        true
    }

    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
        let Kept::Claims(masks) = view.kept() else { unreachable!("`keeps` says so") };
        let (prev, target, may) = (view.prev, view.target, view.may);
        let claim = |cpu: CpuId| {
            view.state.stats.add(Count::Probe);
            masks.claim(cpu, view.core(cpu))
        };
        let goes_back = view.is_near_prev() && may.contains(prev);
        if goes_back && masks.has_idle_core(prev) && claim(prev) {
            return Some(prev);
        }
        // The LLC first; then the rest of the masks, if they cover more.
        let llc = view.llc(target);
        let nearest = |found: CpuSet| {
            let (mut inside, mut outside) = (found.clone(), found);
            inside.intersect(llc);
            outside.subtract(llc);
            [inside, outside]
        };
        let first = |sets: [CpuSet; 2]| {
            let cpus = sets.iter().flat_map(|set| set.common_from(may, target));
            cpus.into_iter().find(|&cpu| claim(cpu))
        };
        if view.domains.has_siblings
            && let Some(cpu) = first(nearest(masks.idle_cores_near(target)))
        {
            return Some(cpu);
        }
        if goes_back && claim(prev) {
            return Some(prev);
        }
        first(nearest(masks.idle_cpus_near(target)))
    }
}
