//! Smaller machines.

use expect_test::{Expect, expect};
use hitm_topology::{Topology, parse};

use crate::invariants;

fn machine(name: &str) -> Topology {
    parse(name).unwrap()
}

fn check(name: &str, cpus: usize, expect: Expect) {
    let smaller = machine(name).restrict(cpus).unwrap();
    invariants::check(&smaller);
    assert_eq!(smaller.cpus(), cpus);
    let os_indices: Vec<u32> = smaller.cpu_ids().map(|cpu| smaller.cpu(cpu).os_index).collect();
    let ends = (os_indices.first().unwrap(), os_indices.last().unwrap());
    expect.assert_eq(&format!("{}: {smaller}; CPUs {ends:?}\n", smaller.name()));
}

#[test]
fn whole_cores_then_llcs_then_packages() {
    check(
        "gnr-2x120",
        2,
        expect![[r#"
            gnr-2x120@2: 1 package, 1 LLC, 1 core, 2 CPUs, 1 node; CPUs (0, 240)
        "#]],
    );
    check(
        "gnr-2x120",
        48,
        expect![[r#"
            gnr-2x120@48: 1 package, 1 LLC, 24 cores, 48 CPUs, 1 node; CPUs (0, 263)
        "#]],
    );
    check(
        "gnr-2x120",
        80,
        expect![[r#"
            gnr-2x120@80: 1 package, 1 LLC, 40 cores, 80 CPUs, 1 node; CPUs (0, 279)
        "#]],
    );
    check(
        "gnr-2x120",
        82,
        expect![[r#"
            gnr-2x120@82: 1 package, 2 LLCs, 41 cores, 82 CPUs, 1 node; CPUs (0, 280)
        "#]],
    );
    check(
        "gnr-2x120",
        240,
        expect![[r#"
            gnr-2x120@240: 1 package, 3 LLCs, 120 cores, 240 CPUs, 1 node; CPUs (0, 359)
        "#]],
    );
    check(
        "gnr-2x120",
        242,
        expect![[r#"
            gnr-2x120@242: 2 packages, 4 LLCs, 121 cores, 242 CPUs, 2 nodes; CPUs (0, 360)
        "#]],
    );
    check(
        "gnr-2x120-snc3",
        162,
        expect![[r#"
            gnr-2x120-snc3@162: 1 package, 3 LLCs, 81 cores, 162 CPUs, 3 nodes; CPUs (0, 320)
        "#]],
    );
    check(
        "epyc-9654-2x96-nosmt",
        9,
        expect![[r#"
            epyc-9654-2x96-nosmt@9: 1 package, 2 LLCs, 9 cores, 9 CPUs, 1 node; CPUs (0, 8)
        "#]],
    );
}

#[test]
fn first_cpus_are_those_of_the_first_package_even_if_packages_alternate() {
    let machine = machine("pack:2 core:4 pu:2(indexes=pack:core)");
    let half = machine.restrict(8).unwrap();
    assert_eq!(half.packages(), 1);
    let os_indices: Vec<u32> = half.cpu_ids().map(|cpu| half.cpu(cpu).os_index).collect();
    assert_eq!(os_indices, [0, 2, 4, 6, 8, 10, 12, 14]);
}

#[test]
fn same_size_changes_nothing() {
    let machine = machine("gnr-2x120-snc3");
    assert_eq!(machine.restrict(480).unwrap(), machine);
}

#[test]
fn source_says_so() {
    let smaller = machine("pack:2 core:4").restrict(3).unwrap();
    expect!["pack:2 core:4@3 / hwloc synthetic string, restricted from 8 to 3 CPUs"].assert_eq(&format!(
        "{} / {}",
        smaller.name(),
        smaller.source()
    ));
}

#[test]
fn every_size_is_the_beginning_of_the_next() {
    let machine = machine("pack:2 l3:2 [numa] core:2 pu:2(indexes=core:l3:pack)");
    let mut before: Vec<u32> = Vec::new();
    for cpus in (2..=16).step_by(2) {
        let smaller = machine.restrict(cpus).unwrap();
        invariants::check(&smaller);
        let os_indices: Vec<u32> = smaller.cpu_ids().map(|cpu| smaller.cpu(cpu).os_index).collect();
        assert!(before.iter().all(|cpu| os_indices.contains(cpu)));
        before = os_indices;
    }
}

#[test]
fn sizes_that_cannot_be_had() {
    let check = |name: &str, cpus: usize, expect: Expect| {
        expect.assert_eq(&machine(name).restrict(cpus).unwrap_err().to_string());
    };
    check("gnr-2x120", 0, expect!["`gnr-2x120`: a machine of 0 CPUs cannot be had; ask for 1 to 8192 CPUs"]);
    check("gnr-2x120", 8193, expect!["`gnr-2x120`: a machine of 8193 CPUs cannot be had; ask for 1 to 8192 CPUs"]);
    check(
        "gnr-2x120",
        usize::MAX,
        expect!["`gnr-2x120`: a machine of 18446744073709551615 CPUs cannot be had; ask for 1 to 8192 CPUs"],
    );
    check("gnr-2x120", 1, expect!["`gnr-2x120`: with 1 of its CPUs a core would be cut in two; ask for 2 CPUs"]);
    check(
        "gnr-2x120",
        47,
        expect!["`gnr-2x120`: with 47 of its CPUs a core would be cut in two; ask for 46 or 48 CPUs"],
    );
    check(
        "gnr-2x120",
        481,
        expect!["`gnr-2x120`: with 481 of its CPUs a core would be cut in two; ask for 480 or 482 CPUs"],
    );
}
