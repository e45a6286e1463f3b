//! hwloc XML of real machines, compared with what hwloc itself reads from it.

use expect_test::{Expect, expect};
use hitm_topology::{NodeId, Topology, parse};

use crate::invariants;
use crate::oracle::{Shape, data, data_text};

fn read(name: &str) -> Topology {
    let machine = parse(&data(&format!("hwloc/{name}.xml"))).unwrap();
    invariants::check(&machine);
    machine
}

/// Compares every membership and distance with hwloc, and pins the rest.
fn check(name: &str, expect: Expect) {
    let machine = read(name);
    assert_eq!(machine.name(), format!("{name}.xml"));
    let expected = Shape::expected(&data_text(&format!("hwloc/{name}.expected")));
    assert_eq!(Shape::of(&machine), expected, "{name}");
    let model = machine.model().unwrap_or("unknown");
    let family = machine.vendor_family().map_or("unknown".to_string(), |family| {
        format!("{} {}/{} {:?}", family.vendor, family.family, family.model, family.stepping)
    });
    let (excluded, source) = (machine.excluded(), machine.source());
    expect.assert_eq(&format!("{machine}; {excluded} left out; {source}; {model}; {family}\n"));
}

#[test]
fn two_epyc_9654() {
    check(
        "AMD-19h-Zen4-2xEpyc-9654",
        expect![[r#"
            2 packages, 24 LLCs, 192 cores, 384 CPUs, 1 node; 0 left out; hwloc XML, format 3; AMD EPYC 9654 96-Core Processor; AuthenticAMD 25/17 Some(1)
        "#]],
    );
}

#[test]
fn two_epyc_7763() {
    check(
        "AMD-19h-Zen3-2xEpyc-7763",
        expect![[r#"
            2 packages, 16 LLCs, 128 cores, 128 CPUs, 1 node; 0 left out; hwloc XML, format 3; AMD EPYC 7763 64-Core Processor; AuthenticAMD 25/1 Some(1)
        "#]],
    );
}

#[test]
fn two_broadwell_e5_2650l() {
    check(
        "Intel-Broadwell-2xXeon-E5-2650Lv4",
        expect![[r#"
            2 packages, 2 LLCs, 28 cores, 56 CPUs, 1 node; 0 left out; hwloc XML, format 3; Intel(R) Xeon(R) CPU E5-2650L v4 @ 1.70GHz; GenuineIntel 6/79 Some(1)
        "#]],
    );
}

#[test]
fn two_cascade_lake_6230() {
    check(
        "Intel-CascadeLake-2xXeon6230",
        expect![[r#"
            2 packages, 2 LLCs, 40 cores, 80 CPUs, 1 node; 0 left out; hwloc XML, format 3; Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz; GenuineIntel 6/85 Some(7)
        "#]],
    );
}

#[test]
fn two_skylake_6140() {
    check(
        "Intel-Skylake-2xXeon6140",
        expect![[r#"
            2 packages, 2 LLCs, 36 cores, 72 CPUs, 1 node; 0 left out; hwloc XML, format 3; Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz; GenuineIntel 6/85 Some(4)
        "#]],
    );
}

#[test]
fn twenty_four_nodes_with_distances() {
    check(
        "192em64t-24n8c2t",
        expect![[r#"
            24 packages, 24 LLCs, 192 cores, 384 CPUs, 24 nodes; 0 left out; hwloc XML, format 3; Intel(R) Xeon(R) CPU E5-4640 0 @ 2.40GHz; unknown
        "#]],
    );
    let machine = read("192em64t-24n8c2t");
    assert_eq!(machine.node_distance(NodeId(0), NodeId(1)), Some(50.0));
    assert_eq!(machine.node_distance(NodeId(0), NodeId(23)), Some(79.0));
}

#[test]
fn nodes_inside_an_llc_behind_memory_side_caches() {
    check(
        "memorysidecaches",
        expect![[r#"
            2 packages, 2 LLCs, 40 cores, 80 CPUs, 4 nodes; 0 left out; hwloc XML, format 3; Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz; GenuineIntel 6/85 Some(7)
        "#]],
    );
}

#[test]
fn several_matrices() {
    check(
        "16amd64-4distances",
        expect![[r#"
            8 packages, 16 LLCs, 16 cores, 16 CPUs, 8 nodes; 0 left out; hwloc XML, format 3; Dual Core AMD Opteron(tm) Processor 865; AuthenticAMD 15/33 Some(0)
        "#]],
    );
}

#[test]
fn several_matrices_of_format_1() {
    // hwloc 2 treats every matrix of format 1 with as many rows as there are nodes as one between
    // nodes: here first that of the packages, then the right one. `relative_depth` distinguishes
    // them.
    let expected = data_text("hwloc/16amd64-4distances.v1.expected");
    let (levels, matrices) = expected.split_once("Relative latency matrix").unwrap();
    let (_, right) = matrices.split_once("Relative latency matrix").unwrap();
    let machine = read("16amd64-4distances.v1");
    assert_eq!(Shape::of(&machine), Shape::expected(&format!("{levels}Relative latency matrix{right}")));
    assert_eq!(Shape::of(&machine), Shape::of(&read("16amd64-4distances")));
    assert_eq!(machine.source(), "hwloc XML, format 1");
}

#[test]
fn nodes_are_numbered_by_their_lowest_cpu() {
    let machine = read("16amd64-4distances");
    let os_indices: Vec<u32> = (0..8).map(|node| machine.node_os_index(NodeId(node))).collect();
    assert_eq!(os_indices, [1, 0, 2, 5, 4, 3, 6, 7]);
}

#[test]
fn offline_cpus() {
    check(
        "16em64t-4s2c2t-offlines",
        expect![[r#"
            4 packages, 4 LLCs, 6 cores, 7 CPUs, 1 node; 9 left out; hwloc XML, format 2; unknown; unknown
        "#]],
    );
}

#[test]
fn cpus_that_are_not_allowed() {
    check(
        "64intel64-3g2n+2n-irregulargroups+pci",
        expect![[r#"
            2 packages, 2 LLCs, 16 cores, 16 CPUs, 2 nodes; 48 left out; hwloc XML, format 2; Intel(R) Xeon(R) CPU E5-4640 0 @ 2.40GHz; GenuineIntel 6/45 Some(7)
        "#]],
    );
}

#[test]
fn nodes_whose_memory_is_not_allowed() {
    // hwloc drops the nodes from the file and leaves their CPUs without a node; the CPUs'
    // `complete_nodeset` still names it.
    let machine = read("16amd64-8n2c-cpusets");
    let mut expected = data_text("hwloc/16amd64-8n2c-cpusets.expected");
    expected.push_str("numanode 0 0,1\nnumanode 6 12,13\nnumanode 7 14,15\n");
    assert_eq!(Shape::of(&machine), Shape::expected(&expected));
    assert_eq!(machine.excluded(), 6);
}

#[test]
fn node_without_cpus_has_a_row_in_the_matrix() {
    check(
        "8ia64-2n2s2c+1n.v1",
        expect![[r#"
            4 packages, 4 LLCs, 8 cores, 8 CPUs, 2 nodes; 8 left out; hwloc XML, format 1; Dual-Core Intel(R) Itanium(R) Processor 9140N; GenuineIntel 32/1 None
        "#]],
    );
    let machine = read("8ia64-2n2s2c+1n.v1");
    assert_eq!(machine.node_distance(NodeId(0), NodeId(1)), Some(17.0));
}

#[test]
fn node_as_root() {
    check(
        "2intel64-1n2c-numaroot.v1",
        expect![[r#"
            2 packages, 2 LLCs, 2 cores, 2 CPUs, 1 node; 0 left out; hwloc XML, format 1; QEMU Virtual CPU version (cpu64-rhel6); GenuineIntel 6/13 Some(3)
        "#]],
    );
}

#[test]
fn nodes_inside_packages_without_caches() {
    check(
        "28intel64-2p2g7c-CoDgroups.v1",
        expect![[r#"
            2 packages, 2 LLCs, 28 cores, 28 CPUs, 4 nodes; 0 left out; hwloc XML, format 1; Intel(R) Xeon(R) CPU E5-2683 v3 @ 2.00GHz; GenuineIntel 6/63 Some(2)
        "#]],
    );
}

#[test]
fn matrices_between_objects_of_different_types() {
    check(
        "fakeheterodistances",
        expect![[r#"
            4 packages, 8 LLCs, 8 cores, 8 CPUs, 8 nodes; 0 left out; hwloc XML, format 2; AMD Engineering Sample; unknown
        "#]],
    );
}

#[test]
fn no_nodes() {
    check(
        "8em64t-2p2ca2co-nonodesets.v1",
        expect![[r#"
            2 packages, 4 LLCs, 8 cores, 8 CPUs, 1 node; 0 left out; hwloc XML, format 1; Intel(R) Xeon(R) CPU           E5420  @ 2.50GHz; unknown
        "#]],
    );
}

#[test]
fn no_packages_no_caches_no_cores() {
    check(
        "8intel64-4n2t-memattrs",
        expect![[r#"
            1 package, 1 LLC, 8 cores, 8 CPUs, 4 nodes; 0 left out; hwloc XML, format 2; unknown; unknown
        "#]],
    );
}

#[test]
fn two_kinds_of_memory() {
    check(
        "64intel64-fakeKNL-SNC4-hybrid",
        expect![[r#"
            1 package, 4 LLCs, 16 cores, 64 CPUs, 4 nodes; 0 left out; hwloc XML, format 2; 06/57; GenuineIntel 6/87 Some(0)
        "#]],
    );
}
