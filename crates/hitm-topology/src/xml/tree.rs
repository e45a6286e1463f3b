//! Objects and the CPUs that they contain.

use super::attributes::{Attributes, EXPORT_AGAIN, Fault};
use crate::draft::DraftCpu;
use crate::error::quote;
use crate::index_set::IndexSet;
use crate::limits::{MAX_CPUS, MAX_NODES};

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Package,
    Core,
    /// A data or unified cache.
    Cache {
        level: u32,
    },
    Node,
    Pu,
    /// A type without a part in the topology; its bitmap must still agree with its contents.
    Container,
    /// Memory-side caches, I/O and the like, which have no CPUs.
    Aside,
}

/// An open object.
pub(super) struct Object {
    kind: Kind,
    /// Different for every object.
    key: u32,
    name: String,
    pub(super) offset: usize,
    pub(super) depth: usize,
    cpu_set: Option<IndexSet>,
    pus: usize,
}

impl Object {
    /// Whether its `info` children may describe the processor.
    pub(super) fn describes_processor(&self) -> bool {
        self.depth == 0 || self.kind == Kind::Package
    }
}

/// A NUMA node.
pub(super) struct Node {
    pub(super) os_index: u32,
    pub(super) gp_index: u64,
    pub(super) depth: usize,
    cpu_set: IndexSet,
    cpus: usize,
}

/// A CPU and the objects around it.
struct Pu {
    os_index: u32,
    offset: usize,
    key: u32,
    core: Option<u32>,
    llc: Option<u32>,
    package: Option<u32>,
    /// The node in its `complete_nodeset`, if it is a single one: nodes that may not be used have
    /// no object.
    own_node: Option<u32>,
}

/// All relevant objects of a file so far.
#[derive(Default)]
pub(super) struct Tree {
    pus: Vec<Pu>,
    pub(super) nodes: Vec<Node>,
    /// The CPUs that may be used, according to the root object.
    allowed: Option<IndexSet>,
    online: Option<IndexSet>,
    complete: Option<IndexSet>,
    seen: IndexSet,
    objects: u32,
}

impl Tree {
    /// Begins an object inside those of `around`, the outermost first.
    pub(super) fn open(
        &mut self,
        attributes: &Attributes<'_>,
        offset: usize,
        around: &mut [&mut Object],
    ) -> Result<Object, Fault> {
        let name = attributes.require("type")?;
        let Some(kind) = kind_of(name, attributes)? else {
            let remedy = "export the file with hwloc 1 to 3".to_string();
            return Err((format!("the object type {} is unknown", quote(name)), remedy));
        };
        let key = self.objects;
        self.objects += 1;
        let cpu_set = if kind == Kind::Aside { None } else { attributes.cpu_set("cpuset")? };
        let object = Object { kind, key, name: name.to_string(), offset, depth: around.len(), cpu_set, pus: 0 };
        if around.is_empty() {
            self.allowed = attributes.cpu_set("allowed_cpuset")?;
            self.online = attributes.cpu_set("online_cpuset")?;
            // Only for the count; the set is infinite where hwloc does not know it.
            self.complete = attributes.cpu_set("complete_cpuset").ok().flatten();
        }
        match kind {
            Kind::Pu => self.open_pu(attributes, &object, around)?,
            Kind::Node => self.open_node(attributes, &object)?,
            _ => {}
        }
        Ok(object)
    }

    fn open_pu(
        &mut self,
        attributes: &Attributes<'_>,
        object: &Object,
        around: &mut [&mut Object],
    ) -> Result<(), Fault> {
        let os_index = attributes.os_index("os_index")?;
        if self.seen.contains(os_index) {
            return Err((
                format!("CPU {os_index} appears twice"),
                "give every PU an `os_index` of its own".to_string(),
            ));
        }
        self.seen.insert(os_index);
        if self.pus.len() == MAX_CPUS {
            return Err((format!("there are more than {MAX_CPUS} CPUs"), "describe a smaller machine".to_string()));
        }
        let own = object.cpu_set.iter().map(|set| ("PU", set));
        let outer = around.iter().filter_map(|object| object.cpu_set.as_ref().map(|set| (object.name.as_str(), set)));
        for (name, set) in own.chain(outer) {
            if !set.contains(os_index) {
                let cause = format!("CPU {os_index} is inside a `{name}` whose `cpuset` does not have it");
                return Err((cause, EXPORT_AGAIN.to_string()));
            }
        }
        let innermost =
            |wanted: Kind| around.iter().rev().find(|object| object.kind == wanted).map(|object| object.key);
        let caches = around.iter().rev().filter_map(|object| match object.kind {
            Kind::Cache { level } => Some((object.key, if level == 3 { u32::MAX } else { level })),
            _ => None,
        });
        // `max_by_key` returns the last of equal ones, which is the outermost.
        let llc = caches.max_by_key(|&(_, rank)| rank).map(|(key, _)| key);
        let (core, package) = (innermost(Kind::Core), innermost(Kind::Package));
        let own_nodes = attributes.cpu_set("complete_nodeset").ok().flatten();
        let own_node = own_nodes.filter(|nodes| nodes.len() == 1).and_then(|nodes| nodes.first());
        self.pus.push(Pu { os_index, offset: object.offset, key: object.key, core, llc, package, own_node });
        for object in around {
            object.pus += 1;
        }
        Ok(())
    }

    fn open_node(&mut self, attributes: &Attributes<'_>, object: &Object) -> Result<(), Fault> {
        let os_index = attributes.os_index("os_index")?;
        attributes.require("cpuset")?;
        let gp_index = attributes.number("gp_index", "a number")?.unwrap_or(u64::MAX);
        if self.nodes.iter().any(|node| node.os_index == os_index) {
            return Err((
                format!("node {os_index} appears twice"),
                "give every node an `os_index` of its own".to_string(),
            ));
        }
        if self.nodes.len() == MAX_NODES {
            return Err((
                format!("there are more than {MAX_NODES} nodes"),
                "describe a machine with fewer nodes".to_string(),
            ));
        }
        let cpu_set = object.cpu_set.clone().unwrap_or_default();
        let cpus = cpu_set.len();
        self.nodes.push(Node { os_index, gp_index, depth: object.depth, cpu_set, cpus });
        Ok(())
    }

    /// Ends an object.
    pub(super) fn close(&mut self, object: &Object) -> Result<(), Fault> {
        let pus = if object.kind == Kind::Pu { 1 } else { object.pus };
        let Some(set) = object.cpu_set.as_ref().filter(|_| object.kind != Kind::Node) else { return Ok(()) };
        if set.len() != pus {
            let cause = format!("the `cpuset` of this `{}` has {} CPUs, and {pus} are inside", object.name, set.len());
            return Err((cause, EXPORT_AGAIN.to_string()));
        }
        Ok(())
    }

    /// Returns the CPUs that may be used, and the number of all others. A fault has its offset.
    pub(super) fn finish(&self) -> Result<(Vec<DraftCpu>, usize), (usize, Fault)> {
        let usable =
            |pu: &&Pu| [&self.allowed, &self.online].into_iter().flatten().all(|set| set.contains(pu.os_index));
        let pus: Vec<&Pu> = self.pus.iter().filter(usable).collect();
        let complete = self.complete.as_ref().map_or(0, IndexSet::len);
        let excluded = complete.max(self.pus.len()) - pus.len();
        let packages = pus.iter().any(|pu| pu.package.is_some());
        let nodes = pus.iter().any(|pu| self.node_of(pu).is_some());
        let mut cpus = Vec::new();
        for pu in &pus {
            let lost = |what: &str| {
                let cause = format!("CPU {} is in no {what} while others are", pu.os_index);
                (pu.offset, (cause, format!("put every CPU into a {what}, or none")))
            };
            let package = match pu.package {
                None if packages => return Err(lost("package")),
                package => package.unwrap_or(u32::MAX),
            };
            let node = match self.node_of(pu).or(pu.own_node.filter(|_| nodes)) {
                None if nodes => return Err(lost("node")),
                node => node.unwrap_or(0),
            };
            let (core, llc) = (pu.core.unwrap_or(pu.key), pu.llc.unwrap_or(package));
            cpus.push(DraftCpu { os_index: pu.os_index, core, llc, node, package });
        }
        Ok((cpus, excluded))
    }

    fn node_of(&self, pu: &Pu) -> Option<u32> {
        let local = self.nodes.iter().filter(|node| node.cpu_set.contains(pu.os_index));
        local.min_by_key(|node| (node.cpus, node.os_index)).map(|node| node.os_index)
    }
}

/// Returns the kind of a type's name; `None` for a name that no version of hwloc writes.
fn kind_of(name: &str, attributes: &Attributes<'_>) -> Result<Option<Kind>, Fault> {
    Ok(Some(match name {
        "PU" => Kind::Pu,
        "Core" => Kind::Core,
        "Package" | "Socket" => Kind::Package,
        "NUMANode" | "Node" => Kind::Node,
        "Machine" | "System" | "Group" | "Die" => Kind::Container,
        "MemCache" | "Bridge" | "PCIDev" | "OSDev" | "Misc" => Kind::Aside,
        "Cache" => {
            // Format 1: 0 is unified, 1 data, 2 instruction; old files have no value.
            attributes.require("depth")?;
            let level = attributes.number("depth", "a cache level")?.unwrap_or(0);
            if attributes.get("cache_type") == Some("2") { Kind::Container } else { Kind::Cache { level } }
        }
        _ => match name.strip_prefix('L').and_then(|rest| rest.strip_suffix("Cache")).map(str::as_bytes) {
            Some([level @ b'1'..=b'5']) => Kind::Cache { level: u32::from(level - b'0') },
            Some([b'1'..=b'3', b'i']) => Kind::Container,
            _ => return Ok(None),
        },
    }))
}
