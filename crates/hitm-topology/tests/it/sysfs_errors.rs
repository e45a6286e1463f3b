//! sysfs trees that are refused, with their errors.

use expect_test::{Expect, expect};
use hitm_topology::parse;

use crate::tree::Tree;

/// Reads a tree of two packages of two cores with two threads, one node per package, with some
/// changes.
fn check(change: impl FnOnce(&Tree), expect: Expect) {
    let machine = parse("pack:2 [numa] l3:1 core:2 pu:2(indexes=core:pack)").unwrap();
    let tree = Tree::showing(&machine);
    for (node, row) in ["10 21", "21 10"].iter().enumerate() {
        tree.write(&format!("node/node{node}/distance"), row);
    }
    assert_eq!(parse(tree.path()).unwrap().cpus(), 8);
    change(&tree);
    let error = parse(tree.path()).unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    expect.assert_eq(&format!("{}\n", tree.masked(&error)));
}

#[test]
fn directory_without_cpus() {
    check(
        |tree| tree.remove("cpu"),
        expect![[r#"
            `DUMP`: neither `sys/devices/system/cpu` nor `devices/system/cpu` nor `cpu` is in this directory; name a copy of Linux's `/sys`, or an hwloc XML file
        "#]],
    );
}

#[test]
fn everything_offline() {
    check(
        |tree| tree.write("cpu/online", ""),
        expect![[r#"
            `DUMP`: there is no CPU that may be used; bring at least one CPU online and allow it
        "#]],
    );
}

#[test]
fn cpu_without_directory() {
    check(
        |tree| tree.remove("cpu/cpu5"),
        expect![[r#"
            `DUMP`: CPU 5 is online and has no directory `cpu/cpu5`; dump the tree again, with all of `/sys/devices/system`
        "#]],
    );
}

#[test]
fn list_that_is_none() {
    check(
        |tree| tree.write("cpu/online", "all"),
        expect![[r#"
            `DUMP`, file `cpu/online`: the list is not made of indices and ranges such as `0-3,8`; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn list_that_runs_backwards() {
    check(
        |tree| tree.write("cpu/online", "7-0"),
        expect![[r#"
            `DUMP`, file `cpu/online`: the range 7-0 runs backwards; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn list_without_end() {
    check(
        |tree| tree.write("cpu/online", "0-4294967295"),
        expect![[r#"
            `DUMP`, file `cpu/online`: index 4294967295 is above 65535, the highest that is read; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn more_cpus_than_any_machine() {
    check(
        |tree| {
            tree.write("cpu/online", "0-8192");
            for cpu in 0..=8192 {
                std::fs::create_dir_all(tree.system().join(format!("cpu/cpu{cpu}"))).unwrap();
            }
        },
        expect![[r#"
            `DUMP`, file `cpu/online`: 8193 CPUs are more than 8192; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpu_number_beyond_all() {
    check(
        |tree| tree.write("cpu/cpu65536/online", "1"),
        expect![[r#"
            `DUMP`, file `cpu`: the number of `cpu65536` is above 65535; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpu_not_in_its_own_set() {
    check(
        |tree| tree.write("cpu/cpu3/topology/core_cpus_list", "1"),
        expect![[r#"
            `DUMP`, file `cpu/cpu3/topology/core_cpus_list`: CPU 3 is not in its own set; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpus_that_disagree_about_their_core() {
    check(
        |tree| tree.write("cpu/cpu5/topology/core_cpus_list", "5"),
        expect![[r#"
            `DUMP`, file `cpu/cpu5/topology/core_cpus_list`: CPUs 1 and 5 disagree about who shares it; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpu_in_two_llcs() {
    check(
        |tree| tree.write("cpu/cpu0/cache/index1/shared_cpu_list", "0-7"),
        expect![[r#"
            `DUMP`, file `cpu/cpu1/cache/index1/shared_cpu_list`: CPUs 0 and 1 disagree about who shares it; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn core_in_two_packages() {
    check(
        |tree| {
            (0..8).for_each(|cpu| tree.remove(&format!("cpu/cpu{cpu}/topology/package_cpus_list")));
            tree.write("cpu/cpu4/topology/physical_package_id", "1");
        },
        expect![[r#"
            `DUMP`: CPUs 0 and 4 share a core but not a package; keep every core inside one package
        "#]],
    );
}

#[test]
fn core_in_two_nodes() {
    check(
        |tree| {
            tree.write("node/node0/cpulist", "0-1,4-6");
            tree.write("node/node1/cpulist", "2-3,7");
        },
        expect![[r#"
            `DUMP`: CPUs 2 and 6 share a core but not a node; keep every core inside one node
        "#]],
    );
}

#[test]
fn core_in_two_llcs() {
    check(
        |tree| {
            (0..8).for_each(|cpu| tree.write(&format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), &cpu.to_string()));
        },
        expect![[r#"
            `DUMP`: CPUs 0 and 4 share a core but not an LLC; keep every core inside one LLC
        "#]],
    );
}

#[test]
fn llc_in_two_packages() {
    check(
        |tree| (0..8).for_each(|cpu| tree.write(&format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), "0-7")),
        expect![[r#"
            `DUMP`: CPUs 0 and 2 share an LLC but not a package; keep every LLC inside one package
        "#]],
    );
}

#[test]
fn cpu_without_package_while_others_have_one() {
    check(
        |tree| {
            tree.remove("cpu/cpu6/topology/package_cpus_list");
            tree.write("cpu/cpu6/topology/physical_package_id", "-1");
        },
        expect![[r#"
            `DUMP`, file `cpu/cpu6/topology`: CPU 6 is in no package while others are; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpu_in_no_node() {
    check(
        |tree| tree.write("node/node1/cpulist", "2-3,6"),
        expect![[r#"
            `DUMP`, file `node`: CPU 7 is in no node while others are; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cpu_in_two_nodes() {
    check(
        |tree| tree.write("node/node1/cpulist", "1-3,6-7"),
        expect![[r#"
            `DUMP`, file `node/node1/cpulist`: CPU 1 is in node 0 as well as in node 1; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn id_that_is_no_number() {
    check(
        |tree| {
            tree.remove("cpu/cpu2/topology/package_cpus_list");
            tree.write("cpu/cpu2/topology/physical_package_id", "one\u{1b}[31m");
        },
        expect![[r#"
            `DUMP`, file `cpu/cpu2/topology/physical_package_id`: `one\u{1b}[31m` is not a number from 0; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn cache_of_unknown_type() {
    check(
        |tree| tree.write("cpu/cpu1/cache/index0/type", "Victim"),
        expect![[r#"
            `DUMP`, file `cpu/cpu1/cache/index0/type`: `Victim` is no type of cache; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn row_of_wrong_length() {
    check(
        |tree| tree.write("node/node0/distance", "10 21 21"),
        expect![[r#"
            `DUMP`, file `node/node0/distance`: there are 3 distances where the machine has 2 nodes; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn distance_that_is_no_number() {
    check(
        |tree| tree.write("node/node1/distance", "21 -10"),
        expect![[r#"
            `DUMP`, file `node/node1/distance`: the distance `-10` is not a number from 0; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn bitmap_that_is_none() {
    check(
        |tree| {
            tree.remove("cpu/cpu1/topology/core_cpus_list");
            tree.write("cpu/cpu1/topology/core_cpus", "zz");
        },
        expect![[r#"
            `DUMP`, file `cpu/cpu1/topology/core_cpus`: the bitmap is not made of hexadecimal words of 32 bits; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn endless_file() {
    check(
        |tree| {
            let path = tree.system().join("cpu/online");
            std::fs::File::create(path).unwrap().set_len(8 << 30).unwrap();
        },
        expect![[r#"
            `DUMP`, file `cpu/online`: it has 8589934592 bytes, more than 65536; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn file_that_is_not_text() {
    check(
        |tree| std::fs::write(tree.system().join("cpu/online"), b"0-\xff").unwrap(),
        expect![[r#"
            `DUMP`, file `cpu/online`: byte 2 is not part of any UTF-8 character; correct the file, or dump the tree again
        "#]],
    );
}

#[test]
fn directory_instead_of_a_file() {
    check(
        |tree| {
            tree.remove("cpu/online");
            tree.write("cpu/online/x", "0");
        },
        expect![[r#"
            `DUMP`, file `cpu/online`: it is not a regular file; correct the file, or dump the tree again
        "#]],
    );
}
