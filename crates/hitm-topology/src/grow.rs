//! Adds packages to a machine, all one hop apart.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::{Draft, DraftCpu, NodeDistances};
use crate::error::{Error, Place};
use crate::limits::MAX_NODES;
use crate::restrict::{cores_in_order, whole_cores};
use crate::topology::Topology;
use crate::{CpuId, NodeId, PackageId};

/// The distance to another package for a machine of one package, whose input does not give one:
/// ACPI's SLIT has 10 for local and Linux uses 20 for remote memory (`REMOTE_DISTANCE`,
/// include/linux/topology.h).
const REMOTE_DISTANCE: f64 = 20.0;

/// Returns the machine with packages added until it has `cpus` CPUs, more than before, numbered as
/// documented at `Topology::restrict`.
pub(crate) fn grown(base: &Topology, cpus: usize) -> Result<Draft, Error> {
    let mut growth = Growth::new(base);
    while growth.draft.cpus.len() < cpus {
        growth.add_package(cpus - growth.draft.cpus.len())?;
    }
    if growth.nodes.len() > MAX_NODES {
        let cause = format!("with {cpus} CPUs it would have {} nodes", growth.nodes.len());
        return Err(Error::new(
            base.name(),
            Place::Whole,
            cause,
            format!("ask for a machine of at most {MAX_NODES} nodes"),
        ));
    }
    growth.number();
    growth.draft.distances = growth.distances();
    Ok(growth.draft)
}

struct Growth<'a> {
    base: &'a Topology,
    /// Names nodes by their position in `nodes`.
    draft: Draft,
    /// For each CPU of the draft: thread of its core, number of the copy (0 is the base), CPU of
    /// which it is a copy.
    origins: Vec<(u32, u32, CpuId)>,
    /// For each node: number of the copy, node of which it is a copy.
    nodes: Vec<(u32, NodeId)>,
    /// For each node of the base: the packages in which it has CPUs.
    node_packages: Vec<BTreeSet<PackageId>>,
    copies: u32,
}

impl<'a> Growth<'a> {
    fn new(base: &'a Topology) -> Growth<'a> {
        let origins = base.cpu_ids().map(|cpu| (base.cpu(cpu).thread, 0, cpu)).collect();
        let nodes: Vec<_> = (0..base.nodes() as u32).map(|node| (0, NodeId(node))).collect();
        let packages_of = |&(_, node): &(u32, NodeId)| {
            base.nodes.members(node.index()).iter().map(|&cpu| base.cpu(cpu).package).collect()
        };
        let node_packages = nodes.iter().map(packages_of).collect();
        let mut draft = base.to_draft();
        for (cpu, id) in draft.cpus.iter_mut().zip(base.cpu_ids()) {
            cpu.node = base.cpu(id).node.0;
        }
        Growth { base, draft, origins, nodes, node_packages, copies: 0 }
    }

    /// Adds a copy of the next package in turn, or of as many of its cores as have `cpus_max` CPUs.
    fn add_package(&mut self, cpus_max: usize) -> Result<(), Error> {
        let package = PackageId(self.copies % self.base.packages() as u32);
        self.copies += 1;
        let cores = cores_in_order(self.base, self.base.cpus_of_package(package).iter().copied());
        let have = self.draft.cpus.len();
        let mut fresh_nodes: BTreeMap<NodeId, u32> = BTreeMap::new();
        for id in whole_cores(&cores, cpus_max).map_err(|cut| cut.error(self.base, have))? {
            let cpu = self.base.cpu(id);
            let node = if self.spans_packages(cpu.node) {
                cpu.node.0
            } else {
                *fresh_nodes.entry(cpu.node).or_insert_with(|| {
                    self.nodes.push((self.copies, cpu.node));
                    self.nodes.len() as u32 - 1
                })
            };
            self.draft.cpus.push(DraftCpu {
                os_index: 0,
                core: cpu.core.0 + self.copies * self.base.cores() as u32,
                llc: cpu.llc.0 + self.copies * self.base.llcs() as u32,
                node,
                package: self.base.packages() as u32 + self.copies - 1,
            });
            self.origins.push((cpu.thread, self.copies, id));
        }
        Ok(())
    }

    fn spans_packages(&self, node: NodeId) -> bool {
        self.node_packages[node.index()].len() > 1
    }

    /// Assigns OS indices by the base's own convention.
    fn number(&mut self) {
        let threads: Vec<u32> = self.base.cpus.iter().map(|cpu| cpu.thread).collect();
        let first_threads_first = threads.is_sorted();
        let mut order: Vec<usize> = (0..self.origins.len()).collect();
        order.sort_by_key(|&at| {
            let (thread, copy, cpu) = self.origins[at];
            (if first_threads_first { thread } else { 0 }, copy, cpu)
        });
        for (os_index, at) in order.into_iter().enumerate() {
            self.draft.cpus[at].os_index = os_index as u32;
        }
    }

    fn distances(&self) -> Option<NodeDistances> {
        let hop = self.one_hop()?;
        let mut values = Vec::with_capacity(self.nodes.len() * self.nodes.len());
        for &(from_copy, from) in &self.nodes {
            for &(to_copy, to) in &self.nodes {
                let inside = from_copy == to_copy || self.spans_packages(from) || self.spans_packages(to);
                values.push(if inside { self.base.node_distance(from, to)? } else { hop });
            }
        }
        Some(NodeDistances { nodes: (0..self.nodes.len() as u32).collect(), values })
    }

    /// Returns the distance between the closest two nodes of different packages.
    fn one_hop(&self) -> Option<f64> {
        let nodes = || (0..self.base.nodes() as u32).map(NodeId);
        let mut closest: Option<f64> = None;
        for (from, to) in nodes().flat_map(|from| nodes().map(move |to| (from, to))) {
            let distance = self.base.node_distance(from, to)?;
            if self.node_packages[from.index()].is_disjoint(&self.node_packages[to.index()]) {
                closest = Some(closest.map_or(distance, |least| least.min(distance)));
            }
        }
        Some(closest.unwrap_or(REMOTE_DISTANCE))
    }
}
