//! Machines by name.

use std::fmt::Write;

use expect_test::expect;
use hitm_topology::{CpuId, LlcId, NodeId, parse, presets};

use crate::invariants;
use crate::oracle::{Shape, data};

#[test]
fn list() {
    let mut list = String::new();
    for preset in presets::all() {
        let machine = parse(preset.name()).unwrap();
        invariants::check(&machine);
        assert_eq!(machine, preset.topology());
        assert_eq!((machine.name(), machine.source()), (preset.name(), preset.source()));
        assert!(machine.cpu_ids().all(|cpu| machine.cpu(cpu).os_index == cpu.0), "{}", preset.name());
        for text in [preset.description(), preset.source()] {
            assert!(!text.is_empty() && !text.contains('\n') && !text.ends_with('.'), "{text}");
        }
        writeln!(list, "{:21} {machine}; {}", preset.name(), machine.model().unwrap_or("model not stated")).unwrap();
    }
    expect![[r#"
        gnr-2x120             2 packages, 6 LLCs, 240 cores, 480 CPUs, 2 nodes; model not stated
        gnr-2x120-snc3        2 packages, 6 LLCs, 240 cores, 480 CPUs, 6 nodes; model not stated
        epyc-9654-2x96        2 packages, 24 LLCs, 192 cores, 384 CPUs, 2 nodes; AMD EPYC 9654 96-Core Processor
        icx-2x40              2 packages, 2 LLCs, 80 cores, 160 CPUs, 2 nodes; model not stated
        clx-2x20              2 packages, 2 LLCs, 40 cores, 80 CPUs, 2 nodes; model not stated
        bdw-2x20              2 packages, 2 LLCs, 40 cores, 80 CPUs, 2 nodes; model not stated
        epyc-9654-2x96-nosmt  2 packages, 24 LLCs, 192 cores, 192 CPUs, 2 nodes; AMD EPYC 9654 96-Core Processor
        epyc-9754-2x128       2 packages, 32 LLCs, 256 cores, 512 CPUs, 2 nodes; AMD EPYC 9754 128-Core Processor
        icx-2x24              2 packages, 2 LLCs, 48 cores, 96 CPUs, 2 nodes; Intel Xeon Gold 6336Y
        spr-1x36              1 package, 1 LLC, 36 cores, 72 CPUs, 1 node; Intel Xeon w9-3475X
        clx-2x24              2 packages, 2 LLCs, 48 cores, 96 CPUs, 2 nodes; Intel Xeon Platinum 8275CL
        skx-8x28              8 packages, 8 LLCs, 224 cores, 448 CPUs, 8 nodes; Intel Xeon Platinum 8176
        bdw-2x10              2 packages, 2 LLCs, 20 cores, 40 CPUs, 2 nodes; Intel Xeon E5-2630 v4
        westmere-8x10         8 packages, 8 LLCs, 80 cores, 80 CPUs, 8 nodes; Intel Xeon E7-8867L
        opteron-4x12          4 packages, 8 LLCs, 48 cores, 48 CPUs, 8 nodes; AMD Opteron 6172
        skl-1x4               1 package, 1 LLC, 4 cores, 8 CPUs, 1 node; Intel Core i7-6700HQ
        icl-1x4               1 package, 1 LLC, 4 cores, 8 CPUs, 1 node; Intel Core i5-1035G4
    "#]]
    .assert_eq(&list);
}

#[test]
fn processors() {
    let mut list = String::new();
    for preset in presets::all() {
        let machine = preset.topology();
        let family = machine.vendor_family().unwrap();
        let stepping = family.stepping.map_or(String::new(), |stepping| format!(" stepping {stepping}"));
        writeln!(list, "{:21} {} {}/{}{stepping}", preset.name(), family.vendor, family.family, family.model).unwrap();
    }
    expect![[r#"
        gnr-2x120             GenuineIntel 6/173
        gnr-2x120-snc3        GenuineIntel 6/173
        epyc-9654-2x96        AuthenticAMD 25/17 stepping 1
        icx-2x40              GenuineIntel 6/106
        clx-2x20              GenuineIntel 6/85 stepping 7
        bdw-2x20              GenuineIntel 6/79 stepping 1
        epyc-9654-2x96-nosmt  AuthenticAMD 25/17 stepping 1
        epyc-9754-2x128       AuthenticAMD 25/160 stepping 2
        icx-2x24              GenuineIntel 6/106
        spr-1x36              GenuineIntel 6/143
        clx-2x24              GenuineIntel 6/85 stepping 7
        skx-8x28              GenuineIntel 6/85 stepping 4
        bdw-2x10              GenuineIntel 6/79 stepping 1
        westmere-8x10         GenuineIntel 6/47
        opteron-4x12          AuthenticAMD 16/9
        skl-1x4               GenuineIntel 6/94
        icl-1x4               GenuineIntel 6/126
    "#]]
    .assert_eq(&list);
}

#[test]
fn epyc_9654_is_the_measured_machine_but_for_its_node_interleaving() {
    // The XML is of a machine with memory interleaved over both packages (one node); the preset has
    // one node per package.
    let measured = Shape::of(&parse(&data("hwloc/AMD-19h-Zen4-2xEpyc-9654.xml")).unwrap());
    let preset = Shape::of(&parse("epyc-9654-2x96").unwrap());
    assert!(preset.same_but_nodes(&measured));
}

#[test]
fn granite_rapids_dies_come_one_after_the_other() {
    let machine = parse("gnr-2x120").unwrap();
    let places: Vec<(u32, u32, u32)> = [0, 39, 40, 119, 120, 239, 240, 479]
        .map(|cpu| {
            let cpu = machine.cpu(CpuId(cpu));
            (cpu.package.0, machine.llc_position_in_package(cpu.llc), cpu.thread)
        })
        .to_vec();
    assert_eq!(places, [(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 0), (1, 2, 0), (0, 0, 1), (1, 2, 1)]);
    assert_eq!(machine.siblings(CpuId(40)), [CpuId(40), CpuId(280)]);
    assert_eq!(machine.llc_position_in_package(LlcId(5)), 2);
    let clusters = parse("gnr-2x120-snc3").unwrap();
    assert_eq!(clusters.cpu(CpuId(40)).node, NodeId(1));
    assert_eq!(clusters.node_distance(NodeId(0), NodeId(4)), Some(28.0));
    assert_eq!(clusters.node_distance(NodeId(4), NodeId(0)), Some(23.0));
}

#[test]
fn eight_sockets_in_two_halves() {
    let machine = parse("skx-8x28").unwrap();
    let row: Vec<f64> = (0..8).map(|to| machine.node_distance(NodeId(5), NodeId(to)).unwrap()).collect();
    assert_eq!(row, [31.0, 31.0, 31.0, 31.0, 21.0, 10.0, 21.0, 21.0]);
    // As the source has them.
    assert_eq!((machine.cpu(CpuId(27)).package.0, machine.cpu(CpuId(28)).package.0), (0, 1));
    assert_eq!(machine.siblings(CpuId(0)), [CpuId(0), CpuId(224)]);
}
