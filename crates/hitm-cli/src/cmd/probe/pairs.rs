//! Pairs of CPUs by distance.

use hitm_machine::{CostSet, Costs, Distance, Latencies};
use hitm_topology::{CpuId, NodeId, Topology};

/// Two CPUs, and the home node of the word.
pub(crate) type Pair = (CpuId, CpuId, Option<NodeId>);

/// Returns up to `most` pairs of each distance that the machine has, spread over the machine. Pairs
/// of two LLC domains of one package come twice: with the word's home in their package, and in
/// another package if there is one.
pub(crate) fn classes(topology: &Topology, most: usize) -> Vec<(&'static str, &'static str, Vec<Pair>)> {
    let latencies = Latencies::new(topology, &Costs::of(topology, CostSet::Linux));
    let far_node = |cpu: CpuId| {
        let package = topology.cpu(cpu).package;
        topology
            .cpu_ids()
            .map(|other| topology.cpu(other))
            .find(|other| other.package != package)
            .map(|other| other.node)
    };
    let pairs = |distance: Distance, far: bool| -> Vec<Pair> {
        let step = (topology.cpus() / most.max(1)).max(1);
        let partner = |one: CpuId| {
            let others = topology.cpu_ids().filter(|&other| latencies.distance_of_cpus(one, other) == distance);
            let others: Vec<CpuId> = others.filter(|&other| other != one).collect();
            // The CPU in the middle of the list: neither always the nearest nor always the
            // farthest.
            let other = *others.get(others.len() / 2)?;
            let node = if far { far_node(one)? } else { topology.cpu(one).node };
            Some((one, other, Some(node)))
        };
        topology.cpu_ids().step_by(step).take(most.max(1)).filter_map(partner).collect()
    };
    [
        ("same core", "near", Distance::SameCore, false),
        ("same LLC", "near", Distance::SameLlc, false),
        ("same LLC", "far", Distance::SameLlc, true),
        ("same package", "near", Distance::SamePackage, false),
        ("same package", "far", Distance::SamePackage, true),
        ("other package", "near", Distance::OtherPackage, false),
    ]
    .into_iter()
    .map(|(class, home, distance, far)| (class, home, pairs(distance, far)))
    .filter(|(.., pairs)| !pairs.is_empty())
    .collect()
}

/// Groups `cpus` but the first by their distance from the first: indexes into `cpus`.
pub(crate) fn by_distance(topology: &Topology, cpus: &[CpuId]) -> Vec<(&'static str, Vec<usize>)> {
    let latencies = Latencies::new(topology, &Costs::of(topology, CostSet::Linux));
    let at = |distance| {
        let is_there = |&index: &usize| latencies.distance_of_cpus(cpus[0], cpus[index]) == distance;
        (1..cpus.len()).filter(is_there).collect::<Vec<_>>()
    };
    [
        ("same core", Distance::SameCore),
        ("same LLC", Distance::SameLlc),
        ("same package", Distance::SamePackage),
        ("other package", Distance::OtherPackage),
    ]
    .into_iter()
    .map(|(name, distance)| (name, at(distance)))
    .filter(|(_, readers)| !readers.is_empty())
    .collect()
}
