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
    /// `/sys/devices/system`. CPUs have the numbers of their `CpuId`, nodes those of the operating
    /// system. Each CPU has two caches: a first one for each core, and the LLC as `index3`.
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
        let mut ids: Vec<NodeId> = (0..self.nodes() as u32).map(NodeId).collect();
        ids.sort_by_key(|&node| self.node_os_index(node));
        for name in ["possible", "online", "has_cpu", "has_memory"] {
            fs::write(nodes.join(name), ranges(ids.iter().map(|&node| self.node_os_index(node))))?;
        }
        for &node in &ids {
            self.write_node(node, &ids, &nodes.join(format!("node{}", self.node_os_index(node))))?;
        }
        Ok(())
    }

    fn write_cpu(&self, cpu: CpuId, folder: &Path) -> io::Result<()> {
        let topology = folder.join("topology");
        fs::create_dir_all(&topology)?;
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
        self.write_cache(&folder.join("cache/index0"), "1\n", "Data\n", self.siblings(cpu))?;
        self.write_cache(&folder.join("cache/index3"), "3\n", "Unified\n", llc)
    }

    fn write_cache(&self, folder: &Path, level: &str, kind: &str, shared: &[CpuId]) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("level"), level)?;
        fs::write(folder.join("type"), kind)?;
        // As on every machine of the presets.
        fs::write(folder.join("coherency_line_size"), "64\n")?;
        fs::write(folder.join("shared_cpu_list"), list(shared))?;
        fs::write(folder.join("shared_cpu_map"), self.mask(shared))
    }

    fn write_node(&self, node: NodeId, all: &[NodeId], folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let cpus = self.cpus_of(Scope::Node, node.index());
        fs::write(folder.join("cpulist"), list(cpus))?;
        fs::write(folder.join("cpumap"), self.mask(cpus))?;
        let distances: Option<Vec<String>> =
            all.iter().map(|&to| self.node_distance(node, to).map(|distance| distance.round().to_string())).collect();
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
