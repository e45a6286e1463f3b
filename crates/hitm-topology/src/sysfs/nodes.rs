//! Nodes and the distances between them.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::Dump;
use crate::draft::{DraftCpu, NodeDistances};
use crate::error::{Error, quote};
use crate::index_set::IndexSet;
use crate::limits::MAX_NODES;

/// Puts every CPU into its node, and returns the distances between all nodes.
pub(super) fn read(dump: &Dump<'_>, used: &IndexSet, cpus: &mut [DraftCpu]) -> Result<Option<NodeDistances>, Error> {
    let existing = dump.numbered("node", "node")?;
    let nodes: BTreeSet<u32> = match dump.list("node/online")? {
        Some(online) => online.iter().filter(|node| existing.contains(node)).collect(),
        None => existing,
    };
    if nodes.len() > MAX_NODES {
        return dump.fail("node", format!("{} nodes are more than {MAX_NODES}", nodes.len()));
    }
    let mut node_of: BTreeMap<u32, u32> = BTreeMap::new();
    for &node in &nodes {
        let Some((file, set)) = dump.first_set(&format!("node/node{node}"), &["cpulist", "cpumap"])? else { continue };
        for cpu in set.intersection(used).iter() {
            if let Some(other) = node_of.insert(cpu, node) {
                return dump.fail(&file, format!("CPU {cpu} is in node {other} as well as in node {node}"));
            }
        }
    }
    if node_of.is_empty() {
        return Ok(None);
    }
    for cpu in cpus {
        cpu.node = match node_of.get(&cpu.os_index) {
            Some(&node) => node,
            // A node with offline memory is not listed, but its CPUs still link to it.
            None => match dump.numbered(&format!("cpu/cpu{}", cpu.os_index), "node")?.first() {
                Some(&node) => node,
                None => return dump.fail("node", format!("CPU {} is in no node while others are", cpu.os_index)),
            },
        };
    }
    distances(dump, &nodes)
}

/// Returns the matrix, one row per file; `None` unless every node has its row.
fn distances(dump: &Dump<'_>, nodes: &BTreeSet<u32>) -> Result<Option<NodeDistances>, Error> {
    let mut values = Vec::with_capacity(nodes.len() * nodes.len());
    for node in nodes {
        let file = format!("node/node{node}/distance");
        let Some(text) = dump.text(&file)? else { return Ok(None) };
        let before = values.len();
        for word in text.split_ascii_whitespace() {
            match word.parse::<u32>() {
                Ok(value) => values.push(f64::from(value)),
                Err(_) => return dump.fail(&file, format!("the distance {} is not a number from 0", quote(word))),
            }
        }
        let row = values.len() - before;
        if row != nodes.len() {
            return dump.fail(&file, format!("there are {row} distances where the machine has {} nodes", nodes.len()));
        }
    }
    let matrix = NodeDistances::new(nodes.iter().copied().collect(), values);
    matrix.map(Some).or_else(|cause| dump.fail("node", cause))
}
