//! hwloc's facts about a machine.

use std::collections::{BTreeMap, BTreeSet};

use hitm_topology::{NodeId, PackageId, Scope, Topology};

/// OS indices of CPUs.
pub(crate) type Cpus = BTreeSet<u32>;

/// A machine by OS indices alone, so that two of them compare independently of ids.
#[derive(PartialEq, Debug)]
pub(crate) struct Shape {
    packages: BTreeSet<Cpus>,
    llcs: BTreeSet<Cpus>,
    cores: BTreeSet<Cpus>,
    /// By the node's OS index.
    nodes: BTreeMap<u32, Cpus>,
    /// By two nodes' OS indices.
    distances: BTreeMap<(u32, u32), String>,
}

impl Shape {
    /// Returns the facts of this crate.
    pub(crate) fn of(machine: &Topology) -> Shape {
        let os_indices =
            |cpus: &[hitm_topology::CpuId]| -> Cpus { cpus.iter().map(|&cpu| machine.cpu(cpu).os_index).collect() };
        let parts = |scope| (0..machine.parts(scope)).map(|part| os_indices(machine.cpus_of(scope, part))).collect();
        let nodes = || (0..machine.nodes() as u32).map(NodeId);
        let distances = nodes().flat_map(|from| nodes().map(move |to| (from, to))).filter_map(|(from, to)| {
            // hwloc drops matrices of one node.
            let distance = machine.node_distance(from, to).filter(|_| machine.nodes() > 1)?;
            Some(((machine.node_os_index(from), machine.node_os_index(to)), distance.to_string()))
        });
        Shape {
            packages: (0..machine.packages() as u32)
                .map(|package| os_indices(machine.cpus_of_package(PackageId(package))))
                .collect(),
            llcs: parts(Scope::Llc),
            cores: parts(Scope::Core),
            nodes: nodes()
                .map(|node| (machine.node_os_index(node), os_indices(machine.cpus_of(Scope::Node, node.index()))))
                .collect(),
            distances: distances.collect(),
        }
    }

    /// Returns the same machine without distances.
    pub(crate) fn without_distances(mut self) -> Shape {
        self.distances.clear();
        self
    }

    /// Whether packages, LLCs and cores agree.
    pub(crate) fn same_but_nodes(&self, other: &Shape) -> bool {
        (&self.packages, &self.llcs, &self.cores) == (&other.packages, &other.llcs, &other.cores)
    }

    /// Returns hwloc's facts, from the lines of `data/README.md`.
    ///
    /// Three rules are this crate's own, and are applied to hwloc's facts here: the definition of
    /// an LLC, the choice among several nodes of a CPU, and the replacement of a missing level.
    pub(crate) fn expected(text: &str) -> Shape {
        let mut levels: BTreeMap<&str, BTreeSet<Cpus>> = BTreeMap::new();
        let mut nodes: BTreeMap<u32, Cpus> = BTreeMap::new();
        let list = |text: &str| -> Cpus { text.split(',').filter_map(|cpu| cpu.trim().parse().ok()).collect() };
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("numanode", rest)) => {
                    let (node, cpus) = rest.split_once(' ').unwrap();
                    nodes.insert(node.parse().unwrap(), list(cpus));
                }
                Some((level @ ("package" | "l3" | "l2" | "l1" | "core"), cpus)) => {
                    levels.entry(level).or_default().insert(list(cpus));
                }
                _ => {}
            }
        }
        let all: Cpus = nodes.values().chain(levels.values().flatten()).flatten().copied().collect();
        let packages = levels.get("package").cloned().unwrap_or_else(|| [all.clone()].into());
        let mut llcs = ["l3", "l2", "l1"].iter().find_map(|level| levels.get(level)).cloned().unwrap_or_default();
        for package in &packages {
            let rest: Cpus = package.iter().filter(|cpu| !llcs.iter().any(|llc| llc.contains(cpu))).copied().collect();
            if !rest.is_empty() {
                llcs.insert(rest);
            }
        }
        let cores = levels.get("core").cloned().unwrap_or_else(|| all.iter().map(|&cpu| [cpu].into()).collect());
        let mut own: BTreeMap<u32, Cpus> = BTreeMap::new();
        for &cpu in &all {
            let local = nodes.iter().filter(|(_, cpus)| cpus.contains(&cpu));
            let (&node, _) = local.min_by_key(|(node, cpus)| (cpus.len(), **node)).unwrap_or((&0, &all));
            own.entry(node).or_default().insert(cpu);
        }
        let mut distances = node_distances(text);
        distances.retain(|(from, to), _| own.contains_key(from) && own.contains_key(to));
        if distances.len() != own.len() * own.len() {
            distances.clear();
        }
        Shape { packages, llcs, cores, nodes: own, distances }
    }
}

/// Returns the latency matrix between nodes: the one that hwloc calls `NUMALatency`, else the
/// first.
fn node_distances(text: &str) -> BTreeMap<(u32, u32), String> {
    let is_head = |line: &&str| line.starts_with("Relative latency matrix") && line.contains(" NUMANodes ");
    let heads = || text.lines().enumerate().filter(|(_, line)| is_head(line));
    let named = heads().find(|(_, line)| line.contains("NUMALatency"));
    let Some((at, _)) = named.or_else(|| heads().next()) else { return BTreeMap::new() };
    let mut lines = text.lines().skip(at + 1);
    let columns: Vec<u32> =
        lines.next().unwrap().split_whitespace().skip(1).map(|node| node.parse().unwrap()).collect();
    let mut distances = BTreeMap::new();
    for line in lines.take(columns.len()) {
        let mut words = line.split_whitespace();
        let from: u32 = words.next().unwrap().parse().unwrap();
        for (&to, value) in columns.iter().zip(words) {
            distances.insert((from, to), value.to_string());
        }
    }
    distances
}

/// The path of a file of the test data.
pub(crate) fn data(path: &str) -> String {
    format!("{}/tests/data/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the test data.
pub(crate) fn data_text(path: &str) -> String {
    std::fs::read_to_string(data(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
