//! Where a waking fair task runs.
//!
//! **Origin.** Linux's. Wake-affine chooses between the CPU that wakes the task and the CPU where
//! the task ran last. From this *target* the search tries, in this order: the target, the previous
//! CPU, the CPU before that, an idle core, an idle CPU and an idle sibling of the target, all in
//! the target's LLC. An [`IdleSearch`](super::idle::IdleSearch) says how the last three are found.
//!
//! **What is left out.** The count of wakees of a waker, above which the original skips
//! wake-affine; load averages, in whose place wake-affine compares the weights that are queued now;
//! per-CPU kernel threads; capacities; clusters; the count of busy CPUs, since ticks do not stop
//! here. The budget of a scan follows from the present utilisation, not from an average.
//!
//! **Layout.** That of [`sched_domains`](crate::base::idle::sched_domains). A probe reads the lines
//! of a queue with its running task and its task count. The CPUs that a search has yet to examine
//! are in [masks](crate::base::idle::scan) of the searcher.
//!
//! **Cost.** Counted: [`Count::Probe`] is one examined CPU.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::CpuId;

use super::class::Fair;
use crate::base::attributes::WakeHint;
use crate::base::fair_words::member;
use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::sched_domains::{Kept, SchedDomains};
use crate::base::idle::search::Search;
use crate::base::idle::view::View;
use crate::base::numbers::TaskId;
use crate::base::operation;
use crate::base::state::State;
use crate::base::stats::Count;
use crate::linux::root_domain::RootDomain;

/// By how much, in hundredths, a queue may be fuller than another within an LLC: Linux's.
pub(super) const IMBALANCE_PCT: u64 = 117;

impl<P: Platform> Fair<P> {
    /// Returns the CPU for the waking task `id`, which ran on `prev` last.
    #[inline]
    pub(crate) fn select_fair(
        &self,
        state: &State<P>,
        rd: &RootDomain<P>,
        id: TaskId,
        prev: CpuId,
        hint: WakeHint,
    ) -> CpuId {
        let _placing = operation::PLACE.begin::<P>();
        state.stats.add(Count::Place);
        let may = state.tasks.allowed(id).intersection(&rd.active);
        let here = P::current_cpu();
        let target = if may.contains(here) { self.affine(state, id, here, prev, hint) } else { prev };
        let chosen = self.idle_sibling(state, id, prev, target, &may);
        if target == here && !self.search.keeps_recent() {
            // This CPU will probably wake the waker too: its partner was here.
            if let Some(waker) = self.fair_curr(state, here) {
                state.tasks.fair(waker).recent_cpu.set(link(here));
            }
        }
        chosen
    }

    /// Wake-affine: returns the target of the search, the waker's CPU `here` or the task's previous
    /// CPU `prev`.
    fn affine(&self, state: &State<P>, id: TaskId, here: CpuId, prev: CpuId, hint: WakeHint) -> CpuId {
        if here == prev {
            return prev;
        }
        if state.is_available(here) && state.share_cache(here, prev) {
            return if state.is_available(prev) { prev } else { here };
        }
        let makes_room = hint == WakeHint::WakerSleeps;
        if makes_room && state.rqs[here].nr_running.peek() == 1 {
            return here;
        }
        if state.is_available(prev) {
            return prev;
        }
        let weight = u64::from(state.tasks.fair(id).weight.peek());
        let [mut here_load, prev_load] = [here, prev].map(|cpu| self.load_of(state, cpu));
        if makes_room {
            let waker = self.fair_curr(state, here);
            here_load -= waker.map_or(0, |waker| u64::from(state.tasks.fair(waker).weight.peek())).min(here_load);
        }
        // The task goes to one of the two CPUs: the one with less load, with a small preference for
        // its previous one.
        if (here_load + weight) * 100 < (prev_load + weight) * (100 + (IMBALANCE_PCT - 100) / 2) { here } else { prev }
    }

    /// Returns the fair task that runs on a CPU: a hint.
    #[track_caller]
    fn fair_curr(&self, state: &State<P>, cpu: CpuId) -> Option<TaskId> {
        // No closure: its accesses would be counted here, and not at the caller's place.
        let curr = state.rqs[cpu].curr()?;
        self.is_fair(state, curr).then_some(curr)
    }

    /// Returns the weight that is queued on a CPU: a hint.
    pub(crate) fn load_of(&self, state: &State<P>, cpu: CpuId) -> u64 {
        let queue = self.fair_queue(cpu);
        let curr = member(queue.curr.peek());
        queue.load.peek() + curr.map_or(0, |curr| u64::from(self.groups.words_of(state, curr, cpu).weight.peek()))
    }

    /// Returns the state of idle CPUs that the chosen search keeps.
    pub(crate) fn keep_idleness(&self, state: &State<P>) -> Kept<P> {
        let core = |cpu| CpuSet::clone(state.around(cpu)[0]);
        let masks = |scope| IdleMasks::new(&state.topology, scope, |cpu| state.idles(cpu), core);
        self.search.keeps(masks)
    }

    fn idle_sibling(&self, state: &State<P>, id: TaskId, prev: CpuId, target: CpuId, may: &CpuSet) -> CpuId {
        let search = self.search;
        let mut in_llc = state.around(target)[1].clone();
        in_llc.intersect(may);
        let view = View { state, domains: self.sched_domains(), prev, target, may, in_llc };
        if search.claims() {
            return search.find(&view).unwrap_or(target);
        }
        if may.contains(target) && state.is_available(target) {
            return target;
        }
        if prev != target && state.share_cache(prev, target) && may.contains(prev) && state.is_available(prev) {
            return prev;
        }
        let recent_word = &state.tasks.fair(id).recent_cpu;
        let recent = cpu_of(recent_word.peek());
        let recent = recent.filter(|&cpu| cpu != prev && cpu != target && state.share_cache(cpu, target));
        let recent = recent.filter(|&cpu| may.contains(cpu) && state.is_available(cpu));
        if recent.is_some() || search.keeps_recent() {
            recent_word.set(link(prev));
        }
        if let Some(recent) = recent {
            return recent;
        }
        search.find(&view).unwrap_or(target)
    }

    pub(crate) fn sched_domains(&self) -> &SchedDomains<P> {
        &self.class().sched_domains
    }
}

/// Returns the link of a CPU: its number counted from 1.
fn link(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

/// Returns the CPU of a link; `None` for 0.
fn cpu_of(link: u32) -> Option<CpuId> {
    link.checked_sub(1).map(CpuId)
}
