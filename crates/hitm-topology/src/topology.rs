//! The shape of one machine, and queries about it.

use std::fmt;

use crate::draft::Draft;
use crate::{CoreId, CpuId, Family, LlcId, NodeId, PackageId, Scope};

/// One logical CPU and its position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    /// The operating system's number of it. It ascends with the [`CpuId`], with holes where CPUs
    /// are left out.
    pub os_index: u32,
    /// Its physical core; its SMT siblings have the same.
    pub core: CoreId,
    /// Its last-level cache domain: the CPUs with which it shares an L3. Without an L3, the CPUs
    /// with which it shares its highest data or unified cache; without any cache, its package.
    pub llc: LlcId,
    /// Its NUMA node: of several nodes that list it, the one with the fewest CPUs, then the lowest
    /// OS index (memory of another kind has nodes of its own beside the ordinary one).
    pub node: NodeId,
    /// Its package, which occupies one socket.
    pub package: PackageId,
    /// Its position among the threads of its core, by OS index; 0 is the first.
    pub thread: u32,
}

/// The shape of a machine: immutable, with at least one and at most [`MAX_CPUS`](crate::MAX_CPUS)
/// CPUs.
///
/// Ids are dense. A query with an id that the machine does not have panics, like an index out of
/// range.
///
/// [`Display`](fmt::Display) gives a summary such as `2 packages, 6 LLCs, 240 cores, 480 CPUs, 2
/// nodes`.
#[derive(Clone, PartialEq, Debug)]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) model: Option<String>,
    pub(crate) family: Option<Family>,
    pub(crate) excluded: usize,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) machine: Partition,
    pub(crate) packages: Partition,
    pub(crate) nodes: Partition,
    pub(crate) llcs: Partition,
    pub(crate) cores: Partition,
    pub(crate) singles: Partition,
    /// The node's number in the operating system, by `NodeId`.
    pub(crate) node_os_indices: Vec<u32>,
    /// One row of `nodes()` values for each node.
    pub(crate) distances: Option<Vec<f64>>,
    /// The number of earlier LLCs of the same package, by `LlcId`.
    pub(crate) llc_positions: Vec<u32>,
}

impl Topology {
    /// Returns the preset's name, the file's or directory's name, the synthetic string, or `this`,
    /// followed by `@` and the number of CPUs when the machine was made smaller or larger.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source of the facts, for the reader.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the CPU model as the input names it, such as `AMD EPYC 9654 96-Core Processor`.
    ///
    /// From hwloc's `CPUModel`, `/proc/cpuinfo`, or the preset; of different packages, the first.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns vendor, family and model numbers, where the input has all three; of different
    /// packages, the first.
    pub fn vendor_family(&self) -> Option<&Family> {
        self.family.as_ref()
    }

    /// Returns the number of CPUs in the input that this machine lacks because they are offline or
    /// not allowed to be used.
    pub fn excluded(&self) -> usize {
        self.excluded
    }

    /// Returns the number of logical CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Returns the number of physical cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Returns the number of last-level cache domains.
    pub fn llcs(&self) -> usize {
        self.llcs.len()
    }

    /// Returns the number of NUMA nodes that have CPUs.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of packages.
    pub fn packages(&self) -> usize {
        self.packages.len()
    }

    /// Returns the position of a CPU.
    pub fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    /// Returns all CPUs, ascending.
    pub fn cpu_ids(&self) -> impl ExactSizeIterator<Item = CpuId> + use<> {
        (0..self.cpus.len() as u32).map(CpuId)
    }

    /// Returns the CPU with this number in the operating system.
    pub fn cpu_by_os_index(&self, os_index: u32) -> Option<CpuId> {
        self.cpus.binary_search_by_key(&os_index, |cpu| cpu.os_index).ok().map(|index| CpuId(index as u32))
    }

    /// Returns all threads of the CPU's core, itself included, ascending.
    pub fn siblings(&self, cpu: CpuId) -> &[CpuId] {
        self.cores.members(self.cpu(cpu).core.index())
    }

    /// Returns the number of parts into which a scope divides the machine.
    pub fn parts(&self, scope: Scope) -> usize {
        self.partition(scope).len()
    }

    /// Returns the part in which a CPU lies, below [`Topology::parts`]: the index of its
    /// [`NodeId`], [`LlcId`], [`CoreId`] or [`CpuId`], or 0.
    pub fn part_of(&self, scope: Scope, cpu: CpuId) -> usize {
        let place = self.cpu(cpu);
        match scope {
            Scope::Machine => 0,
            Scope::Node => place.node.index(),
            Scope::Llc => place.llc.index(),
            Scope::Core => place.core.index(),
            Scope::Cpu => cpu.index(),
        }
    }

    /// Returns the CPUs of a part, ascending; never empty.
    pub fn cpus_of(&self, scope: Scope, part: usize) -> &[CpuId] {
        self.partition(scope).members(part)
    }

    /// Returns the CPUs of a package, ascending; never empty.
    pub fn cpus_of_package(&self, package: PackageId) -> &[CpuId] {
        self.packages.members(package.index())
    }

    /// Returns the package in which an LLC lies.
    pub fn llc_package(&self, llc: LlcId) -> PackageId {
        self.cpu(self.llcs.members(llc.index())[0]).package
    }

    /// Returns the position of the LLC among those of its package, from 0: dies are neighbours when
    /// their positions differ by one.
    pub fn llc_position_in_package(&self, llc: LlcId) -> u32 {
        self.llc_positions[llc.index()]
    }

    /// Returns the node's number in the operating system.
    pub fn node_os_index(&self, node: NodeId) -> u32 {
        self.node_os_indices[node.index()]
    }

    /// Returns the distance of memory of `to` from CPUs of `from`, in the input's own unit:
    /// relative latency with 10 for local memory in firmware's tables. It need not be symmetric.
    /// `None` when the input has no distances.
    pub fn node_distance(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let nodes = self.nodes.len();
        assert!(from.index() < nodes && to.index() < nodes, "nodes {from} and {to} of a machine of {nodes} nodes");
        self.distances.as_ref().map(|values| values[from.index() * nodes + to.index()])
    }

    fn partition(&self, scope: Scope) -> &Partition {
        match scope {
            Scope::Machine => &self.machine,
            Scope::Node => &self.nodes,
            Scope::Llc => &self.llcs,
            Scope::Core => &self.cores,
            Scope::Cpu => &self.singles,
        }
    }

    /// Returns the same machine as a reader would have described it.
    pub(crate) fn to_draft(&self) -> Draft {
        Draft::of(self)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.packages(), "package"),
            (self.llcs(), "LLC"),
            (self.cores(), "core"),
            (self.cpus(), "CPU"),
            (self.nodes(), "node"),
        ];
        for (index, (count, noun)) in counts.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let plural = if count == 1 { "" } else { "s" };
            write!(f, "{comma}{count} {noun}{plural}")?;
        }
        Ok(())
    }
}

/// The CPUs, sorted into parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Partition {
    /// Part after part, ascending within each.
    members: Vec<CpuId>,
    /// The start of each part in `members`, and the end.
    starts: Vec<u32>,
}

impl Partition {
    /// Sorts CPUs by the part of each, given in the order of the CPUs. Part numbers are dense.
    pub(crate) fn new(part_of: &[u32]) -> Partition {
        let parts = part_of.iter().max().map_or(0, |&last| last as usize + 1);
        let mut starts = vec![0u32; parts + 1];
        for &part in part_of {
            starts[part as usize + 1] += 1;
        }
        for part in 0..parts {
            starts[part + 1] += starts[part];
        }
        let mut next = starts.clone();
        let mut members = vec![CpuId(0); part_of.len()];
        for (cpu, &part) in part_of.iter().enumerate() {
            members[next[part as usize] as usize] = CpuId(cpu as u32);
            next[part as usize] += 1;
        }
        Partition { members, starts }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn members(&self, part: usize) -> &[CpuId] {
        &self.members[self.starts[part] as usize..self.starts[part + 1] as usize]
    }
}
