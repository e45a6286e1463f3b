//! Each CPU has one buddy in its LLC. A search examines the target's buddy, then the other CPUs of
//! the buddy's core, and nothing else. So its cost does not grow with the LLC, and a task that
//! wakes often stays between two cores.
//!
//! **Origin.** Mike Galbraith, "sched: Improve scalability via 'CPU buddies', which withstand
//! random perturbations", Linux v3.6 (June 2012). The buddies of two cores are each other, so that
//! a task does not wander on from buddy to buddy.
//!
//! **Difference.** In an LLC with an odd number of cores, the last core's buddy is the first one.

use hitm_memory::Platform;
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::idle::search::Search;
use crate::base::idle::view::View;

/// The search that examines a buddy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Buddy;

/// Linux v3.6's.
pub(crate) const BUDDY: Buddy = Buddy;

impl Search for Buddy {
    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
        let mut buddies = buddies(&view.state.topology, view.target);
        buddies.find(|&cpu| view.in_llc.contains(cpu) && view.is_available(cpu))
    }
}

/// Returns the buddy of `cpu`, then the other CPUs of the buddy's core.
fn buddies(topology: &Topology, cpu: CpuId) -> impl Iterator<Item = CpuId> {
    let core = topology.part_of(Scope::Core, cpu);
    let llc = topology.part_of(Scope::Llc, cpu);
    // The cores of an LLC have successive numbers.
    let first = topology.part_of(Scope::Core, topology.cpus_of(Scope::Llc, llc)[0]);
    let other = first + ((core - first) ^ 1);
    let is_inside = other < topology.parts(Scope::Core)
        && topology.part_of(Scope::Llc, topology.cpus_of(Scope::Core, other)[0]) == llc;
    let theirs = topology.cpus_of(Scope::Core, if is_inside { other } else { first });
    let own = topology.cpus_of(Scope::Core, core);
    let place = own.iter().position(|&own| own == cpu).unwrap_or(0).min(theirs.len() - 1);
    theirs[place..].iter().chain(&theirs[..place]).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buddies_are_mutual_and_in_the_llc() {
        for preset in hitm_topology::presets::all() {
            let topology = preset.topology();
            for cpu in topology.cpu_ids() {
                let buddy = buddies(&topology, cpu).next().expect("a core has a CPU");
                let [llc, of_buddy] = [cpu, buddy].map(|cpu| topology.part_of(Scope::Llc, cpu));
                assert_eq!(llc, of_buddy, "{}: {cpu:?}", preset.name());
                let cores = topology.cpus_of(Scope::Llc, llc).len() / topology.cpus_of(Scope::Core, 0).len();
                let back = buddies(&topology, buddy).next();
                assert!(cores % 2 == 1 || back == Some(cpu) && buddy != cpu, "{}: {cpu:?}", preset.name());
            }
        }
    }

    #[test]
    fn the_last_of_an_odd_number_of_cores_has_the_first_one() {
        let topology = hitm_topology::parse("l3:2 core:3 pu:2").expect("a machine");
        let of = |cpu| buddies(&topology, CpuId(cpu)).map(|CpuId(cpu)| cpu).collect::<Vec<_>>();
        assert_eq!([of(0), of(3), of(4), of(11)], [[2, 3], [1, 0], [0, 1], [7, 6]]);
    }
}
