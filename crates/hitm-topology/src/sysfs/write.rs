//! A machine as Linux describes it: the tree that [`read_dump`](super::read_dump) reads.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::id::{CpuId, NodeId};
use crate::scope::Scope;
use crate::topology::Topology;

impl Topology {
    /// Writes the machine's `cpu` and `node` folders into `folder`, which takes the place of
    /// `/sys/devices/system`. CPUs and nodes have their own numbers, `CpuId` and `NodeId`. Each CPU
    /// has one cache, its LLC.
    ///
    /// # Errors
    /// When a file or a folder cannot be made.
    pub fn write_sysfs(&self, folder: &Path) -> io::Result<()> {
        let cpus = folder.join("cpu");
        fs::create_dir_all(&cpus)?;
        let all: Vec<CpuId> = self.cpu_ids().collect();
        for name in ["possible", "present", "online"] {
            fs::write(cpus.join(name), list(&all))?;
        }
        for &cpu in &all {
            self.write_cpu(cpu, &cpus.join(format!("cpu{cpu}")))?;
        }
        let nodes = folder.join("node");
        fs::create_dir_all(&nodes)?;
        let ids: Vec<u32> = (0..self.nodes() as u32).collect();
        for name in ["possible", "online", "has_cpu", "has_memory"] {
            fs::write(nodes.join(name), ranges(ids.iter().copied()))?;
        }
        for node in ids {
            self.write_node(NodeId(node), &nodes.join(format!("node{node}")))?;
        }
        Ok(())
    }

    fn write_cpu(&self, cpu: CpuId, folder: &Path) -> io::Result<()> {
        let (topology, cache) = (folder.join("topology"), folder.join("cache/index0"));
        fs::create_dir_all(&topology)?;
        fs::create_dir_all(&cache)?;
        let place = self.cpu(cpu);
        let package = self.cpus_of_package(place.package);
        for (names, set) in [
            (["package_cpus_list", "core_siblings_list"], package),
            (["core_cpus_list", "thread_siblings_list"], self.siblings(cpu)),
        ] {
            names.iter().try_for_each(|name| fs::write(topology.join(name), list(set)))?;
        }
        for (names, set) in
            [(["package_cpus", "core_siblings"], package), (["core_cpus", "thread_siblings"], self.siblings(cpu))]
        {
            names.iter().try_for_each(|name| fs::write(topology.join(name), self.mask(set)))?;
        }
        fs::write(topology.join("physical_package_id"), format!("{}\n", place.package))?;
        fs::write(topology.join("core_id"), format!("{}\n", place.core))?;
        let llc = self.cpus_of(Scope::Llc, self.part_of(Scope::Llc, cpu));
        fs::write(cache.join("level"), "3\n")?;
        fs::write(cache.join("type"), "Unified\n")?;
        fs::write(cache.join("shared_cpu_list"), list(llc))?;
        fs::write(cache.join("shared_cpu_map"), self.mask(llc))
    }

    fn write_node(&self, node: NodeId, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let cpus = self.cpus_of(Scope::Node, node.index());
        fs::write(folder.join("cpulist"), list(cpus))?;
        fs::write(folder.join("cpumap"), self.mask(cpus))?;
        let to = (0..self.nodes() as u32).map(NodeId);
        let distances: Option<Vec<String>> =
            to.map(|to| self.node_distance(node, to).map(|distance| distance.round().to_string())).collect();
        match distances {
            Some(distances) => fs::write(folder.join("distance"), distances.join(" ") + "\n"),
            None => Ok(()),
        }
    }

    /// Returns the machine's processors as `/proc/cpuinfo` lists them: their numbers, packages and
    /// cores. It names no model.
    #[must_use]
    pub fn cpuinfo(&self) -> String {
        let mut text = String::new();
        for cpu in self.cpu_ids() {
            let place = self.cpu(cpu);
            let package = self.cpus_of_package(place.package);
            let cores = package.iter().filter(|&&cpu| self.cpu(cpu).thread == 0).count();
            writeln!(
                text,
                "processor\t: {cpu}\nphysical id\t: {}\nsiblings\t: {}\ncore id\t\t: {}\ncpu cores\t: {cores}\n",
                place.package,
                package.len(),
                place.core
            )
            .expect("a string has room");
        }
        text
    }

    /// Returns a set as a mask in hexadecimal words of 32 CPUs, the last CPUs first.
    fn mask(&self, set: &[CpuId]) -> String {
        let mut words = vec![0_u32; self.cpus().div_ceil(32)];
        for cpu in set {
            words[cpu.index() / 32] |= 1 << (cpu.index() % 32);
        }
        let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
        words.join(",") + "\n"
    }
}

/// Returns a set as a list of ranges.
fn list(set: &[CpuId]) -> String {
    ranges(set.iter().map(|cpu| cpu.0))
}

/// Returns ascending numbers as Linux lists them, in a line: `0-3,8`.
pub fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",") + "\n"
}
