//! The search of `shipped`: the nearest idle CPU, else the least urgent one, as the queues' own
//! words have it.
//!
//! **Origin.** Ours. The kernel searches cpupri, an index of all CPUs' priorities that every CPU
//! keeps up to date.
//!
//! **Protocol.** The search goes LLC by LLC: first the LLC where the task was, beginning with its
//! core, then the LLCs of its node, then all others. An LLC whose [`floor`](super::floor) excludes
//! a less urgent CPU is skipped, if the task may use all of it. If a search of a whole LLC fails,
//! it publishes the LLC's floor.
//!
//! **Cost.** One line per examined CPU, and one per LLC of which the task may use every CPU.

use hitm_memory::{CpuMask, CpuSet, PlainWord, Platform};
use hitm_topology::{CpuId, Scope};

use super::Shipped;
use crate::base::numbers::TaskId;
use crate::base::operation;
use crate::base::prio::Prio;
use crate::base::state::State;
use crate::base::stats::Count;

/// The parameters of a search.
struct Wanted<'a> {
    /// CPUs that run something less urgent than this are wanted.
    prio: Prio,
    /// The CPUs to examine.
    candidates: CpuSet,
    /// The search begins at this CPU and goes around.
    from: CpuId,
    /// The search examines these CPUs first.
    core: &'a CpuSet,
}

impl<P: Platform> Shipped<P> {
    /// Returns a CPU that runs something less urgent than `id` and is not `busy`: the nearest idle
    /// one, else the least urgent of all.
    pub(crate) fn find(&self, state: &State<P>, active: &CpuMask<P>, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        let _search = operation::SEARCH.begin::<P>();
        let (prio, cpu) = (state.tasks.get(id).prio(), state.tasks.get(id).cpu());
        let mut candidates = Self::candidates(state, active, id);
        candidates.subtract(busy);
        let cursor = &state.rqs[P::current_cpu()].cursor;
        // Peek: the cursor is a hint of this CPU. Threads outside the CPUs may share it.
        let from = CpuId((cursor.peek() + 1) % state.topology.cpus() as u32);
        let core = &*state.neighbourhoods[cpu.index()][0];
        let mut wanted = Wanted { prio, candidates, from, core };
        let mut least: Option<(Prio, CpuId)> = None;
        for llc in Self::llcs_around(state, cpu, from) {
            match self.look_into(state, llc, &wanted) {
                Some((highest, cpu)) if !highest.is_real_time() => {
                    cursor.set(cpu.0);
                    return Some(cpu);
                }
                Some(found) if least.is_none_or(|(least, _)| found.0 > least) => least = Some(found),
                _ => {}
            }
            wanted.candidates.subtract(&state.llcs[llc]);
            if wanted.candidates.is_empty() {
                break;
            }
        }
        least.map(|(_, cpu)| cpu)
    }

    /// Returns whether any CPU where `id` may run runs something less urgent than `id`.
    pub(crate) fn any_less_urgent(&self, state: &State<P>, active: &CpuMask<P>, id: TaskId) -> bool {
        let _search = operation::SEARCH.begin::<P>();
        let prio = state.tasks.get(id).prio();
        let mut candidates = Self::candidates(state, active, id);
        for llc in 0..state.llcs.len() {
            if self.is_in_vain(state, llc, &candidates, prio) {
                candidates.subtract(&state.llcs[llc]);
            }
        }
        candidates.iter().any(|cpu| state.rqs[cpu].highest() > prio)
    }

    /// Returns the active CPUs where `id` may run.
    fn candidates(state: &State<P>, active: &CpuMask<P>, id: TaskId) -> CpuSet {
        state.stats.add(Count::Find);
        state.tasks.allowed(id).intersection(active)
    }

    /// Returns the LLCs in order of distance from `cpu`, nearest first. Of equally near ones that
    /// of `from` comes first.
    fn llcs_around(state: &State<P>, cpu: CpuId, from: CpuId) -> impl Iterator<Item = usize> {
        let [own, first] = [cpu, from].map(|cpu| state.topology.part_of(Scope::Llc, cpu));
        let around = || (first..state.llcs.len()).chain(0..first).filter(move |&llc| llc != own);
        let node = state.topology.cpu(cpu).node;
        let is_near = move |llc: &usize| state.topology.cpu(state.topology.cpus_of(Scope::Llc, *llc)[0]).node == node;
        std::iter::once(own).chain(around().filter(is_near)).chain(around().filter(move |llc| !is_near(llc)))
    }

    /// Returns whether all CPUs of `llc` are candidates and are known to run nothing less urgent
    /// than `prio`.
    fn is_in_vain(&self, state: &State<P>, llc: usize, candidates: &CpuSet, prio: Prio) -> bool {
        self.is_whole(state, llc, candidates) && self.waiting.floors.are_all_urgent(llc, prio)
    }

    /// Returns whether all CPUs of `llc` are candidates, so that the result of a search there is
    /// its floor.
    fn is_whole(&self, state: &State<P>, llc: usize, candidates: &CpuSet) -> bool {
        self.waiting.floors.are_kept() && candidates.contains_all(&state.llcs[llc])
    }

    /// Returns an idle CPU of `llc`, else the least urgent wanted one, with its priority.
    fn look_into(&self, state: &State<P>, llc: usize, wanted: &Wanted<'_>) -> Option<(Prio, CpuId)> {
        let floors = &self.waiting.floors;
        let is_whole = self.is_whole(state, llc, &wanted.candidates);
        if is_whole && floors.are_all_urgent(llc, wanted.prio) {
            return None;
        }
        let found = Self::look_at(state, &state.llcs[llc], wanted);
        if !is_whole || found.is_some() {
            return found;
        }
        let claim = floors.claim(llc, wanted.prio)?;
        let found = Self::look_at(state, &state.llcs[llc], wanted);
        floors.settle(claim, found.is_some());
        found
    }

    fn look_at(state: &State<P>, cpus: &CpuSet, wanted: &Wanted<'_>) -> Option<(Prio, CpuId)> {
        let Wanted { prio, candidates, from, core } = wanted;
        let others = candidates.common_from(cpus, *from).filter(|&cpu| !core.contains(cpu));
        let mut least = None;
        for cpu in core.common_from(cpus, *from).filter(|&cpu| candidates.contains(cpu)).chain(others) {
            let highest = state.rqs[cpu].highest();
            if !highest.is_real_time() {
                return Some((highest, cpu));
            }
            if highest > least.map_or(*prio, |(least, _)| least) {
                least = Some((highest, cpu));
            }
        }
        least
    }
}
