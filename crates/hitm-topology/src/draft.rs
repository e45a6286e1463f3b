//! The result of every reader, and its conversion to a `Topology`. This is the only place that
//! assigns ids and checks the invariants of a machine.

use std::collections::BTreeMap;

use crate::error::{Error, Place};
use crate::limits::{MAX_CPUS, MAX_NODES};
use crate::topology::{Cpu, Partition, Topology};
use crate::{CoreId, Family, LlcId, NodeId, PackageId};

/// A machine without ids. The reader chooses keys as names of the parts: equal keys mean the same
/// part.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) model: Option<String>,
    pub(crate) family: Option<Family>,
    pub(crate) excluded: usize,
    /// In any order.
    pub(crate) cpus: Vec<DraftCpu>,
    pub(crate) distances: Option<NodeDistances>,
}

/// One CPU of a draft.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftCpu {
    pub(crate) os_index: u32,
    pub(crate) core: u32,
    pub(crate) llc: u32,
    /// The node's OS index.
    pub(crate) node: u32,
    pub(crate) package: u32,
}

/// A matrix between nodes, which may cover nodes without CPUs too.
#[derive(Clone, Debug)]
pub(crate) struct NodeDistances {
    /// OS indices, in the order of rows and columns.
    pub(crate) nodes: Vec<u32>,
    /// Row after row; `nodes.len()` squared.
    pub(crate) values: Vec<f64>,
}

impl NodeDistances {
    /// Checks shape and values; the error is the cause, for a message.
    pub(crate) fn new(nodes: Vec<u32>, values: Vec<f64>) -> Result<NodeDistances, String> {
        let count = nodes.len();
        if count > MAX_NODES {
            return Err(format!("a distance matrix between {count} nodes is larger than {MAX_NODES}"));
        }
        if values.len() != count * count {
            return Err(format!(
                "the distance matrix has {} values where {count} nodes need {}",
                values.len(),
                count * count
            ));
        }
        if let Some(bad) = values.iter().find(|value| !value.is_finite() || **value < 0.0) {
            return Err(format!("the distance {bad} is not a number from 0"));
        }
        let mut sorted = nodes.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("node {} has two rows in the distance matrix", twice[0]));
        }
        Ok(NodeDistances { nodes, values })
    }

    /// Returns the part of the matrix between these nodes, row after row, if it covers all of them.
    fn between(&self, nodes: &[u32]) -> Option<Vec<f64>> {
        let positions: BTreeMap<u32, usize> = self.nodes.iter().enumerate().map(|(at, &node)| (node, at)).collect();
        let at: Vec<usize> = nodes.iter().map(|node| positions.get(node).copied()).collect::<Option<_>>()?;
        let value = |row: usize, column: usize| self.values[row * self.nodes.len() + column];
        Some(at.iter().flat_map(|&row| at.iter().map(move |&column| value(row, column))).collect())
    }
}

impl Draft {
    /// Returns the machine as a reader would have described it: ids as keys.
    pub(crate) fn of(topology: &Topology) -> Draft {
        let cpu = |cpu: &Cpu| DraftCpu {
            os_index: cpu.os_index,
            core: cpu.core.0,
            llc: cpu.llc.0,
            node: topology.node_os_index(cpu.node),
            package: cpu.package.0,
        };
        let nodes = topology.node_os_indices.clone();
        Draft {
            name: topology.name.clone(),
            source: topology.source.clone(),
            model: topology.model.clone(),
            family: topology.family.clone(),
            excluded: topology.excluded,
            cpus: topology.cpus.iter().map(cpu).collect(),
            distances: topology.distances.clone().map(|values| NodeDistances { nodes, values }),
        }
    }

    /// Checks the machine and assigns ids. `input` names it in errors.
    pub(crate) fn finish(mut self, input: &str) -> Result<Topology, Error> {
        self.check(input)?;
        let mut ids = Ids::default();
        let cpus: Vec<Cpu> = self.cpus.iter().map(|cpu| ids.place(cpu)).collect();
        let part = |of: fn(&Cpu) -> u32| Partition::new(&cpus.iter().map(of).collect::<Vec<_>>());
        let packages = part(|cpu| cpu.package.0);
        let llcs = part(|cpu| cpu.llc.0);
        let mut in_package = vec![0u32; packages.len()];
        let llc_positions = (0..llcs.len())
            .map(|llc| {
                let next = &mut in_package[cpus[llcs.members(llc)[0].index()].package.index()];
                *next += 1;
                *next - 1
            })
            .collect();
        let node_os_indices = ids.node_os_indices;
        // A matrix without a node that has CPUs describes another thing, such as memory of another
        // kind.
        let distances = self.distances.take().and_then(|matrix| matrix.between(&node_os_indices));
        Ok(Topology {
            machine: part(|_| 0),
            nodes: part(|cpu| cpu.node.0),
            cores: part(|cpu| cpu.core.0),
            singles: Partition::new(&(0..cpus.len() as u32).collect::<Vec<_>>()),
            packages,
            llcs,
            cpus,
            llc_positions,
            node_os_indices,
            distances,
            name: self.name,
            source: self.source,
            model: self.model,
            family: self.family,
            excluded: self.excluded,
        })
    }

    /// Sorts the CPUs by OS index and checks every invariant of `Topology`.
    fn check(&mut self, input: &str) -> Result<(), Error> {
        let fail = |cause: String, remedy: &str| Err(Error::new(input, Place::Whole, cause, remedy));
        match self.cpus.len() {
            0 => {
                return fail(
                    "there is no CPU that may be used".to_string(),
                    "bring at least one CPU online and allow it",
                );
            }
            count if count > MAX_CPUS => {
                return fail(format!("{count} CPUs are more than {MAX_CPUS}"), "describe a smaller machine");
            }
            _ => {}
        }
        self.cpus.sort_by_key(|cpu| cpu.os_index);
        if let Some(pair) = self.cpus.windows(2).find(|pair| pair[0].os_index == pair[1].os_index) {
            let cause = format!("CPU {} appears twice", pair[0].os_index);
            return fail(cause, "give every CPU an OS index of its own");
        }
        type Keys = fn(&DraftCpu) -> (u32, u32);
        let levels: [(&str, &str, Keys); 4] = [
            ("core", "LLC", |cpu| (cpu.core, cpu.llc)),
            ("core", "node", |cpu| (cpu.core, cpu.node)),
            ("core", "package", |cpu| (cpu.core, cpu.package)),
            ("LLC", "package", |cpu| (cpu.llc, cpu.package)),
        ];
        for (inner, outer, pair) in levels {
            let mut first: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
            for cpu in &self.cpus {
                let (small, large) = pair(cpu);
                let &mut (other, seen) = first.entry(small).or_insert((cpu.os_index, large));
                if seen != large {
                    let cause = format!("CPUs {other} and {} share a {inner} but not a {outer}", cpu.os_index);
                    let cause = cause.replace("a LLC", "an LLC");
                    return fail(cause, format!("keep every {inner} inside one {outer}").as_str());
                }
            }
        }
        Ok(())
    }
}

/// Assigns dense ids to keys, in order of appearance.
#[derive(Default)]
struct Ids {
    cores: BTreeMap<u32, (CoreId, u32)>,
    llcs: BTreeMap<u32, LlcId>,
    nodes: BTreeMap<u32, NodeId>,
    packages: BTreeMap<u32, PackageId>,
    node_os_indices: Vec<u32>,
}

impl Ids {
    /// Called with ascending OS indices, so that every part is numbered by its lowest CPU.
    fn place(&mut self, cpu: &DraftCpu) -> Cpu {
        let (cores, llcs, nodes, packages) =
            (self.cores.len() as u32, self.llcs.len() as u32, self.nodes.len() as u32, self.packages.len() as u32);
        let (core, threads) = self.cores.entry(cpu.core).or_insert((CoreId(cores), 0));
        *threads += 1;
        let (core, thread) = (*core, *threads - 1);
        let node = *self.nodes.entry(cpu.node).or_insert(NodeId(nodes));
        if node.0 == nodes {
            self.node_os_indices.push(cpu.node);
        }
        Cpu {
            os_index: cpu.os_index,
            core,
            llc: *self.llcs.entry(cpu.llc).or_insert(LlcId(llcs)),
            node,
            package: *self.packages.entry(cpu.package).or_insert(PackageId(packages)),
            thread,
        }
    }
}
