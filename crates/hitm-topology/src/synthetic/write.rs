//! From a machine to text.

use crate::topology::{Partition, Topology};

impl Topology {
    /// Returns the hwloc synthetic string of this machine, which [`parse`](crate::parse()) and
    /// hwloc's own tools read.
    ///
    /// `None` unless the machine is regular: every package has the same number of LLCs, every LLC
    /// the same number of cores, every core the same number of threads, and nodes are nested in
    /// that order. Distances and names are not part of such strings.
    pub fn to_synthetic(&self) -> Option<String> {
        let order = self.tree_order();
        let mut levels =
            vec![("pack", self.packages()), ("l3", self.llcs()), ("core", self.cores()), ("pu", self.cpus())];
        let partitions = [&self.packages, &self.llcs, &self.cores, &self.nodes];
        if !partitions.iter().all(|partition| is_regular(partition, &order)) {
            return None;
        }
        // Where nodes and another level have equally many parts, they are the same parts: memory is
        // attached to that level.
        let attached = levels.iter().position(|&(_, total)| total == self.nodes());
        if attached.is_none() && self.nodes() > 1 {
            let at = levels.iter().position(|&(_, total)| total > self.nodes())?;
            levels.insert(at, ("numa", self.nodes()));
        }
        let node_indexes = indexes(order.iter().map(|&cpu| self.node_os_indices[self.cpus[cpu].node.index()]));
        let mut text = String::new();
        if self.nodes() == 1 && !node_indexes.is_empty() {
            text.push_str(&format!("[numa{node_indexes}] "));
        }
        let mut above = 1;
        for (at, &(kind, total)) in levels.iter().enumerate() {
            if !total.is_multiple_of(above) {
                return None;
            }
            let blank = if at == 0 { "" } else { " " };
            text.push_str(&format!("{blank}{kind}:{}", total / above));
            if kind == "numa" {
                text.push_str(&node_indexes);
            }
            if attached == Some(at) && self.nodes() > 1 {
                text.push_str(&format!(" [numa{node_indexes}]"));
            }
            above = total;
        }
        text.push_str(&indexes(order.iter().map(|&cpu| self.cpus[cpu].os_index)));
        Some(text)
    }

    /// Returns the CPUs' indices in the order of a tree of packages, nodes and LLCs, cores and
    /// threads.
    fn tree_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cpus()).collect();
        let nodes_outside = self.nodes() < self.packages();
        let nodes_inside = self.nodes() > self.llcs();
        order.sort_by_key(|&index| {
            let cpu = &self.cpus[index];
            let node = cpu.node.0;
            let outside = if nodes_outside { node } else { 0 };
            let between = if nodes_outside || nodes_inside { 0 } else { node };
            let inside = if nodes_inside { node } else { 0 };
            (outside, cpu.package, between, cpu.llc, inside, cpu.core, cpu.thread)
        });
        order
    }
}

/// Whether all parts have one size and each is a contiguous run of the order.
fn is_regular(partition: &Partition, order: &[usize]) -> bool {
    let mut part_of = vec![0; order.len()];
    for part in 0..partition.len() {
        for cpu in partition.members(part) {
            part_of[cpu.index()] = part;
        }
    }
    let size = order.len() / partition.len();
    order.len().is_multiple_of(partition.len())
        && order.chunks(size).all(|chunk| chunk.iter().all(|&cpu| part_of[cpu] == part_of[chunk[0]]))
}

/// Returns the attribute for these OS indices, with adjacent repetitions counted once; empty when
/// they count up from 0.
fn indexes(values: impl Iterator<Item = u32>) -> String {
    let mut values: Vec<u32> = values.collect();
    values.dedup();
    if values.iter().enumerate().all(|(at, &value)| value as usize == at) {
        return String::new();
    }
    // Where siblings have a constant distance, as on most servers, two loops suffice: first all
    // first threads.
    let stride = values.get(1).map_or(0, |&second| second as usize);
    if stride > 1 && values.len().is_multiple_of(stride) {
        let threads = values.len() / stride;
        if values.iter().enumerate().all(|(at, &value)| value as usize == at / threads + at % threads * stride) {
            return format!("(indexes={threads}*{stride}:1*{threads})");
        }
    }
    let texts: Vec<String> = values.iter().map(u32::to_string).collect();
    format!("(indexes={})", texts.join(","))
}
