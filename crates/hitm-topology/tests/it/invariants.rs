//! Properties of every machine, from any input.

use hitm_topology::{CpuId, LlcId, MAX_CPUS, NodeId, PackageId, Scope, Topology};

/// Panics when the machine contradicts itself.
pub(crate) fn check(machine: &Topology) {
    assert!((1..=MAX_CPUS).contains(&machine.cpus()), "{machine}");
    check_cpus(machine);
    for scope in Scope::ALL {
        check_scope(machine, scope);
    }
    check_packages(machine);
    check_distances(machine);
    assert_eq!(machine.parts(Scope::Machine), 1);
    let parts = [Scope::Node, Scope::Llc, Scope::Core, Scope::Cpu].map(|scope| machine.parts(scope));
    assert_eq!(parts, [machine.nodes(), machine.llcs(), machine.cores(), machine.cpus()]);
    assert!(!machine.to_string().contains('\n') && !machine.name().contains('\n') && !machine.source().contains('\n'));
}

fn check_cpus(machine: &Topology) {
    assert!(machine.cpu_ids().map(|cpu| machine.cpu(cpu).os_index).is_sorted_by(|a, b| a < b));
    let (mut cores, mut llcs, mut nodes, mut packages) = (0, 0, 0, 0);
    for id in machine.cpu_ids() {
        let cpu = machine.cpu(id);
        assert_eq!(machine.cpu_by_os_index(cpu.os_index), Some(id));
        // Ids are dense and assigned by the lowest CPU.
        for (part, seen) in
            [(cpu.core.0, &mut cores), (cpu.llc.0, &mut llcs), (cpu.node.0, &mut nodes), (cpu.package.0, &mut packages)]
        {
            assert!(part <= *seen, "{id}: {cpu:?}");
            *seen = (*seen).max(part + 1);
        }
        let siblings = machine.siblings(id);
        assert_eq!(siblings[cpu.thread as usize], id);
        assert!(siblings.is_sorted_by(|a, b| a < b));
        for &sibling in siblings {
            let other = machine.cpu(sibling);
            assert_eq!((other.core, other.llc, other.node, other.package), (cpu.core, cpu.llc, cpu.node, cpu.package));
        }
    }
    let counts = [cores, llcs, nodes, packages].map(|count| count as usize);
    assert_eq!(counts, [machine.cores(), machine.llcs(), machine.nodes(), machine.packages()]);
    assert_eq!(machine.cpu_by_os_index(u32::MAX), None);
}

/// A scope divides the CPUs into disjoint parts, none of them empty.
fn check_scope(machine: &Topology, scope: Scope) {
    let mut seen = 0;
    for part in 0..machine.parts(scope) {
        let cpus = machine.cpus_of(scope, part);
        assert!(!cpus.is_empty() && cpus.is_sorted_by(|a, b| a < b));
        assert!(cpus.iter().all(|&cpu| machine.part_of(scope, cpu) == part));
        seen += cpus.len();
    }
    assert_eq!(seen, machine.cpus());
}

fn check_packages(machine: &Topology) {
    let mut seen: Vec<CpuId> = Vec::new();
    for package in (0..machine.packages() as u32).map(PackageId) {
        seen.extend(machine.cpus_of_package(package));
        let llcs: Vec<LlcId> =
            (0..machine.llcs() as u32).map(LlcId).filter(|&llc| machine.llc_package(llc) == package).collect();
        let positions: Vec<u32> = llcs.iter().map(|&llc| machine.llc_position_in_package(llc)).collect();
        assert_eq!(positions, (0..llcs.len() as u32).collect::<Vec<_>>());
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(machine.cpu_ids()));
}

fn check_distances(machine: &Topology) {
    let nodes: Vec<NodeId> = (0..machine.nodes() as u32).map(NodeId).collect();
    let known = machine.node_distance(nodes[0], nodes[0]).is_some();
    for &from in &nodes {
        for &to in &nodes {
            let distance = machine.node_distance(from, to);
            assert_eq!(distance.is_some(), known);
            assert!(distance.is_none_or(|distance| distance.is_finite() && distance >= 0.0));
        }
    }
    let mut os_indices: Vec<u32> = nodes.iter().map(|&node| machine.node_os_index(node)).collect();
    os_indices.sort_unstable();
    assert!(os_indices.is_sorted_by(|a, b| a < b));
}
