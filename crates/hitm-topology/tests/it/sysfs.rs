//! sysfs trees: real ones compared with what hwloc reads from them, and made ones.

use expect_test::{Expect, expect};
use hitm_topology::{Cpu, NodeId, Topology, parse, presets};

use crate::invariants;
use crate::oracle::{Shape, data_text};
use crate::tree::Tree;

fn read(tree: &Tree) -> Topology {
    let machine = parse(tree.path()).unwrap_or_else(|error| panic!("{error}"));
    invariants::check(&machine);
    machine
}

/// Compares a real machine's dump with hwloc.
fn check(name: &str, expect: Expect) {
    let machine = read(&Tree::unpack(&data_text(&format!("sysfs/{name}.dump"))));
    let expected = Shape::expected(&data_text(&format!("sysfs/{name}.expected")));
    assert_eq!(Shape::of(&machine), expected, "{name}");
    let model = machine.model().unwrap_or("unknown");
    expect.assert_eq(&format!("{machine}; {} left out; {}; {model}\n", machine.excluded(), machine.source()));
}

#[test]
fn offline_cpus() {
    check(
        "16em64t-4s2c2t-offlines",
        expect![[r#"
            4 packages, 4 LLCs, 7 cores, 12 CPUs, 1 node; 4 left out; Linux sysfs dump; Intel(R) Xeon(TM) CPU 2.60GHz
        "#]],
    );
}

#[test]
fn eight_nodes_in_four_packages_with_sparse_numbers() {
    check(
        "48amd64-4d2n6c-sparse",
        expect![[r#"
            4 packages, 8 LLCs, 48 cores, 48 CPUs, 8 nodes; 0 left out; Linux sysfs dump; AMD Engineering Sample
        "#]],
    );
}

#[test]
fn no_caches() {
    check(
        "20s390-2g2g2s4co",
        expect![[r#"
            8 packages, 8 LLCs, 20 cores, 20 CPUs, 1 node; 0 left out; Linux sysfs dump; unknown
        "#]],
    );
}

#[test]
fn no_caches_and_no_packages() {
    check(
        "2ps3-2t",
        expect![[r#"
            1 package, 1 LLC, 1 core, 2 CPUs, 1 node; 0 left out; Linux sysfs dump; unknown
        "#]],
    );
}

#[test]
fn four_threads_a_core_and_nodes_without_cpus() {
    check(
        "nvidiagpunumanodes",
        expect![[r#"
            2 packages, 4 LLCs, 8 cores, 32 CPUs, 2 nodes; 0 left out; Linux sysfs dump; unknown
        "#]],
    );
}

#[test]
fn bitmaps_without_lists() {
    check(
        "16amd64-8n2c-cpusets",
        expect![[r#"
            8 packages, 15 LLCs, 15 cores, 15 CPUs, 8 nodes; 1 left out; Linux sysfs dump; Dual Core AMD Opteron(tm) Processor 865
        "#]],
    );
    check(
        "8ia64-2s2c2t",
        expect![[r#"
            2 packages, 4 LLCs, 4 cores, 8 CPUs, 1 node; 0 left out; Linux sysfs dump; unknown
        "#]],
    );
}

#[test]
fn memory_without_cpus() {
    check(
        "fakememinitiators-1np2c+1npp+gi",
        expect![[r#"
            2 packages, 2 LLCs, 8 cores, 8 CPUs, 4 nodes; 0 left out; Linux sysfs dump; Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz
        "#]],
    );
}

#[test]
fn presets_come_back() {
    // A tree has ten files per CPU: the largest preset with all kinds of parts, and all small ones.
    for preset in presets::all() {
        let machine = preset.topology();
        if machine.cpus() <= 100 || preset.name() == "gnr-2x120-snc3" {
            assert_eq!(Shape::of(&read(&Tree::showing(&machine))), Shape::of(&machine), "{}", preset.name());
        }
    }
}

/// Two packages of two dies of two cores with two threads, one node per die.
fn small() -> Topology {
    parse("pack:2 l3:2 [numa] core:2 pu:2(indexes=core:l3:pack)").unwrap()
}

/// Reads `small` with some changes.
fn changed(change: impl FnOnce(&Tree)) -> Topology {
    let tree = Tree::showing(&small());
    change(&tree);
    read(&tree)
}

#[test]
fn smt_off() {
    let machine = changed(|tree| tree.write("cpu/online", "0-7"));
    expect!["2 packages, 4 LLCs, 8 cores, 8 CPUs, 4 nodes"].assert_eq(&machine.to_string());
    assert_eq!(machine.excluded(), 8);
}

#[test]
fn one_die_offline() {
    let machine = changed(|tree| tree.write("cpu/online", "2-7,10-15"));
    expect!["2 packages, 3 LLCs, 6 cores, 12 CPUs, 3 nodes"].assert_eq(&machine.to_string());
    assert_eq!((machine.excluded(), machine.cpu(hitm_topology::CpuId(0)).os_index), (4, 2));
}

#[test]
fn online_is_asked_of_each_cpu_when_there_is_no_list() {
    let machine = changed(|tree| {
        tree.remove("cpu/online");
        tree.remove("cpu/present");
        tree.write("cpu/cpu3/online", "0");
        tree.write("cpu/cpu4/online", "1");
    });
    assert_eq!((machine.cpus(), machine.excluded()), (15, 1));
}

#[test]
fn without_l3_the_highest_data_cache_is_the_llc() {
    let machine = changed(|tree| (0..16).for_each(|cpu| tree.remove(&format!("cpu/cpu{cpu}/cache/index1"))));
    expect!["2 packages, 8 LLCs, 8 cores, 16 CPUs, 4 nodes"].assert_eq(&machine.to_string());
}

#[test]
fn instruction_caches_do_not_count() {
    let machine = changed(|tree| {
        for cpu in 0..16 {
            tree.write(&format!("cpu/cpu{cpu}/cache/index1/type"), "Instruction");
        }
    });
    assert_eq!(machine.llcs(), 8);
}

#[test]
fn empty_lists_are_no_facts() {
    let machine = changed(|tree| {
        for cpu in 0..16 {
            tree.write(&format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), "");
            tree.write(&format!("cpu/cpu{cpu}/topology/core_cpus_list"), "");
            tree.write(&format!("cpu/cpu{cpu}/topology/core_id"), &(cpu % 8).to_string());
        }
    });
    expect!["2 packages, 8 LLCs, 8 cores, 16 CPUs, 4 nodes"].assert_eq(&machine.to_string());
}

#[test]
fn without_caches_the_package_is_the_llc() {
    let machine = changed(|tree| (0..16).for_each(|cpu| tree.remove(&format!("cpu/cpu{cpu}/cache"))));
    expect!["2 packages, 2 LLCs, 8 cores, 16 CPUs, 4 nodes"].assert_eq(&machine.to_string());
}

#[test]
fn without_nodes_the_machine_is_one() {
    let machine = changed(|tree| tree.remove("node"));
    expect!["2 packages, 4 LLCs, 8 cores, 16 CPUs, 1 node"].assert_eq(&machine.to_string());
    assert_eq!(machine.node_distance(hitm_topology::NodeId(0), hitm_topology::NodeId(0)), None);
}

#[test]
fn without_any_topology_every_cpu_is_a_core_of_one_package() {
    let machine = changed(|tree| {
        tree.remove("node");
        (0..16).for_each(|cpu| tree.write(&format!("cpu/cpu{cpu}/topology/core_id"), "-1"));
        for file in ["physical_package_id", "package_cpus_list", "core_cpus_list"] {
            (0..16).for_each(|cpu| tree.remove(&format!("cpu/cpu{cpu}/topology/{file}")));
        }
        (0..16).for_each(|cpu| tree.remove(&format!("cpu/cpu{cpu}/cache")));
    });
    expect!["1 package, 1 LLC, 16 cores, 16 CPUs, 1 node"].assert_eq(&machine.to_string());
}

#[test]
fn ids_stand_in_for_lists_of_siblings() {
    let machine = changed(|tree| {
        for cpu in 0..16 {
            tree.remove(&format!("cpu/cpu{cpu}/topology/package_cpus_list"));
            tree.remove(&format!("cpu/cpu{cpu}/topology/core_cpus_list"));
            // Some firmware numbers cores again from 0 in every die.
            tree.write(&format!("cpu/cpu{cpu}/topology/die_id"), &(cpu / 2 % 2).to_string());
            tree.write(&format!("cpu/cpu{cpu}/topology/core_id"), &(cpu % 2).to_string());
        }
    });
    assert_eq!(Shape::of(&machine), Shape::of(&read(&Tree::showing(&small()))));
}

#[test]
fn cpus_of_an_offline_node_keep_their_link_to_it() {
    let machine = changed(|tree| {
        tree.write("node/online", "1-3");
        tree.remove("node/node0");
        for cpu in [0, 1, 8, 9] {
            tree.write(&format!("cpu/cpu{cpu}/node0/marker"), "");
        }
    });
    assert_eq!(machine.nodes(), 4);
}

#[test]
fn tree_may_begin_at_any_level() {
    let tree = Tree::showing(&small());
    let expected = Shape::of(&read(&tree));
    for below in ["sys", "sys/devices/system", "sys/devices/system/cpu"] {
        let machine = parse(&format!("{}/{below}", tree.path())).unwrap();
        assert_eq!(Shape::of(&machine), expected, "{below}");
        assert_eq!(machine.name(), below.rsplit('/').next().unwrap());
    }
}

#[test]
fn processor_is_read_beside_sys() {
    let tree = Tree::showing(&small());
    let cpuinfo = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 173\nmodel name : X\nstepping : 1";
    tree.write("../../../proc/cpuinfo", cpuinfo);
    let machine = read(&tree);
    assert_eq!(machine.model(), Some("X"));
    assert_eq!(machine.vendor_family().map(|family| (family.family, family.model)), Some((6, 173)));
}

#[test]
fn a_tree_that_was_written_is_read_back() {
    // Larger ones take as long as all of these together.
    let small = |preset: &&presets::Preset| preset.topology().cpus() <= 128;
    for preset in presets::all().iter().filter(small).map(presets::Preset::name) {
        let machine = parse(preset).expect("a preset");
        let tree = Tree::of(&[]);
        machine.write_sysfs(&tree.system()).expect("a folder that can be written");
        let again = read(&tree);
        for cpu in machine.cpu_ids() {
            let place = |of: &Topology| {
                let place = of.cpu(cpu);
                (place.core, place.llc, place.node, place.package, place.thread)
            };
            assert_eq!(place(&again), place(&machine), "{preset}: CPU {cpu}");
        }
        assert_eq!(again.excluded(), 0, "{preset}");
        for (from, to) in (0..machine.nodes()).flat_map(|from| (0..machine.nodes()).map(move |to| (from, to))) {
            let [from, to] = [from, to].map(|node| NodeId(node as u32));
            let distance = machine.node_distance(from, to).map(f64::round);
            assert_eq!(again.node_distance(from, to), distance, "{preset}: node {from} to {to}");
        }
        let text = machine.cpuinfo();
        let told = |name: &str| -> Vec<u32> {
            let values = text.lines().filter_map(|line| line.split_once(':')).filter(|(key, _)| key.trim() == name);
            values.map(|(_, value)| value.trim().parse().expect("a number")).collect()
        };
        let places = |of: fn(&Cpu) -> u32| -> Vec<u32> { machine.cpu_ids().map(|cpu| of(machine.cpu(cpu))).collect() };
        assert_eq!(told("physical id"), places(|cpu| cpu.package.0), "{preset}");
        assert_eq!(told("core id"), places(|cpu| cpu.core.0), "{preset}");
    }
}
