//! Larger machines.

use expect_test::{Expect, expect};
use hitm_topology::{CpuId, NodeId, Topology, parse};

use crate::invariants;

fn grown(name: &str, cpus: usize) -> Topology {
    let machine = parse(name).unwrap().restrict(cpus).unwrap();
    invariants::check(&machine);
    assert_eq!(machine.cpus(), cpus);
    assert!(machine.cpu_ids().all(|cpu| machine.cpu(cpu).os_index == cpu.0));
    machine
}

fn check(name: &str, cpus: usize, expect: Expect) {
    let machine = grown(name, cpus);
    expect.assert_eq(&format!("{}: {machine}; {}\n", machine.name(), machine.source()));
}

#[test]
fn packages_are_added() {
    check(
        "gnr-2x120",
        482,
        expect![[r#"
            gnr-2x120@482: 3 packages, 7 LLCs, 241 cores, 482 CPUs, 3 nodes; posted RT scheduler patches of July 2025 (2 sockets, 240 cores, 480 CPUs); 6979P: 2 x 120 cores, 480 CPUs; three compute dies as LLC domains inferred, extended from 480 to 482 CPUs
        "#]],
    );
    check(
        "gnr-2x120",
        720,
        expect![[r#"
            gnr-2x120@720: 3 packages, 9 LLCs, 360 cores, 720 CPUs, 3 nodes; posted RT scheduler patches of July 2025 (2 sockets, 240 cores, 480 CPUs); 6979P: 2 x 120 cores, 480 CPUs; three compute dies as LLC domains inferred, extended from 480 to 720 CPUs
        "#]],
    );
    check(
        "gnr-2x120",
        4096,
        expect![[r#"
            gnr-2x120@4096: 18 packages, 52 LLCs, 2048 cores, 4096 CPUs, 18 nodes; posted RT scheduler patches of July 2025 (2 sockets, 240 cores, 480 CPUs); 6979P: 2 x 120 cores, 480 CPUs; three compute dies as LLC domains inferred, extended from 480 to 4096 CPUs
        "#]],
    );
    check(
        "gnr-2x120-snc3",
        4096,
        expect![[r#"
            gnr-2x120-snc3@4096: 18 packages, 52 LLCs, 2048 cores, 4096 CPUs, 52 nodes; 6979P: 2 x 120 cores, 480 CPUs; node distances: `numactl --hardware` of a two-socket server with three sub-NUMA clusters a socket (gramineproject/gramine, pull request 2122), extended from 480 to 4096 CPUs
        "#]],
    );
    check(
        "epyc-9654-2x96",
        8192,
        expect![[r#"
            epyc-9654-2x96@8192: 43 packages, 512 LLCs, 4096 cores, 8192 CPUs, 43 nodes; hwloc XML of 2 x EPYC 9654 (AMD-19h-Zen4-2xEpyc-9654.xml: 24 L3s of 8 cores, 384 CPUs); node distances: two-socket Turin servers, extended from 384 to 8192 CPUs
        "#]],
    );
    check(
        "skl-1x4",
        16,
        expect![[r#"
            skl-1x4@16: 2 packages, 2 LLCs, 8 cores, 16 CPUs, 2 nodes; Downs, A Concurrency Cost Hierarchy, 2020 (i7-6700HQ), extended from 8 to 16 CPUs
        "#]],
    );
}

#[test]
fn first_threads_of_all_packages_come_first_if_they_did() {
    let machine = grown("gnr-2x120", 960);
    assert_eq!(machine.siblings(CpuId(0)), [CpuId(0), CpuId(480)]);
    assert_eq!(machine.cpu(CpuId(240)).package.0, 2);
    assert_eq!(machine.cpu(CpuId(479)).package.0, 3);
}

#[test]
fn packages_come_one_after_the_other_if_siblings_are_neighbours() {
    let machine = grown("pack:2 core:2 pu:2", 12);
    assert_eq!(machine.siblings(CpuId(8)), [CpuId(8), CpuId(9)]);
    assert_eq!(machine.cpu(CpuId(8)).package.0, 2);
}

#[test]
fn added_packages_are_one_hop_from_all_others() {
    let row = |machine: &Topology, from: u32| -> Vec<f64> {
        (0..machine.nodes() as u32).map(|to| machine.node_distance(NodeId(from), NodeId(to)).unwrap()).collect()
    };
    // The halves of this machine are 31 apart, and its packages 21: an added package is 21 from
    // all.
    let machine = grown("skx-8x28", 10 * 56);
    assert_eq!(row(&machine, 0), [10.0, 21.0, 21.0, 21.0, 31.0, 31.0, 31.0, 31.0, 21.0, 21.0]);
    assert_eq!(row(&machine, 9), [21.0, 21.0, 21.0, 21.0, 21.0, 21.0, 21.0, 21.0, 21.0, 10.0]);
    let machine = grown("gnr-2x120-snc3", 720);
    assert_eq!(row(&machine, 7), [21.0, 21.0, 21.0, 21.0, 21.0, 21.0, 15.0, 10.0, 15.0]);
    assert_eq!(grown("icl-1x4", 16).node_distance(NodeId(0), NodeId(1)), None);
}

#[test]
fn node_over_all_packages_takes_the_added_ones_in() {
    let machine = grown("pack:2 core:2", 8);
    assert_eq!((machine.packages(), machine.nodes()), (4, 1));
}

#[test]
fn too_many_nodes() {
    let machine = parse("pack:512 [numa] pu:1").unwrap();
    assert_eq!(machine.restrict(1024).unwrap().nodes(), 1024);
    expect!["`pack:512 [numa] pu:1`: with 1025 CPUs it would have 1025 nodes; ask for a machine of at most 1024 nodes"]
        .assert_eq(&machine.restrict(1025).unwrap_err().to_string());
}
