//! sysfs trees in temporary directories.

use std::fs;
use std::path::{Path, PathBuf};

use hitm_topology::{CpuId, NodeId, Scope, Topology};
use tempfile::TempDir;

/// A directory that is removed when the tree is dropped.
pub(crate) struct Tree {
    directory: TempDir,
}

impl Tree {
    /// A tree with these files: paths below `sys/devices/system`, and their contents.
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let tree = Tree { directory: tempfile::Builder::new().prefix("dump").tempdir().unwrap() };
        for (path, content) in files {
            tree.write(path, content);
        }
        tree
    }

    /// A tree unpacked from the lines of a `.dump` file, see `data/README.md`.
    pub(crate) fn unpack(dump: &str) -> Tree {
        let tree = Tree::of(&[]);
        let mut files: std::collections::BTreeMap<&str, String> = std::collections::BTreeMap::new();
        for line in dump.lines() {
            let (path, content) = line.split_once(':').unwrap();
            *files.entry(path).or_default() += &format!("{content}\n");
        }
        for (path, content) in files {
            write_file(&tree.directory.path().join(path), &content);
        }
        tree
    }

    /// Returns the tree that Linux would show for this machine.
    pub(crate) fn showing(machine: &Topology) -> Tree {
        let tree = Tree::of(&[]);
        let list = |cpus: &[CpuId]| list_of(cpus.iter().map(|&cpu| machine.cpu(cpu).os_index));
        let all: Vec<CpuId> = machine.cpu_ids().collect();
        tree.write("cpu/online", &list(&all));
        tree.write("cpu/present", &list(&all));
        for id in machine.cpu_ids() {
            let cpu = machine.cpu(id);
            let topology = format!("cpu/cpu{}/topology", cpu.os_index);
            tree.write(&format!("{topology}/physical_package_id"), &cpu.package.to_string());
            tree.write(&format!("{topology}/package_cpus_list"), &list(machine.cpus_of_package(cpu.package)));
            tree.write(&format!("{topology}/core_cpus_list"), &list(machine.siblings(id)));
            tree.cache(cpu.os_index, 0, "1", "Data", &list(machine.siblings(id)));
            tree.cache(cpu.os_index, 1, "3", "Unified", &list(machine.cpus_of(Scope::Llc, cpu.llc.index())));
        }
        let mut nodes: Vec<NodeId> = (0..machine.nodes() as u32).map(NodeId).collect();
        nodes.sort_by_key(|&node| machine.node_os_index(node));
        tree.write("node/online", &list_of(nodes.iter().map(|&node| machine.node_os_index(node))));
        for &from in &nodes {
            let directory = format!("node/node{}", machine.node_os_index(from));
            tree.write(&format!("{directory}/cpulist"), &list(machine.cpus_of(Scope::Node, from.index())));
            let row = nodes.iter().map(|&to| machine.node_distance(from, to).map(|value| value.to_string()));
            if let Some(row) = row.collect::<Option<Vec<String>>>() {
                tree.write(&format!("{directory}/distance"), &row.join(" "));
            }
        }
        tree
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        write_file(&self.system().join(path), &format!("{content}\n"));
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.system().join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    fn cache(&self, cpu: u32, index: u32, level: &str, kind: &str, shared: &str) {
        let directory = format!("cpu/cpu{cpu}/cache/index{index}");
        self.write(&format!("{directory}/level"), level);
        self.write(&format!("{directory}/type"), kind);
        self.write(&format!("{directory}/shared_cpu_list"), shared);
    }

    pub(crate) fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    pub(crate) fn system(&self) -> PathBuf {
        self.directory.path().join("sys/devices/system")
    }

    /// A message with this directory's name, which differs from run to run, masked.
    pub(crate) fn masked(&self, message: &str) -> String {
        message.replace(self.path(), "DUMP")
    }
}

fn write_file(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// `0-3,8`, as Linux writes lists.
fn list_of(cpus: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}
