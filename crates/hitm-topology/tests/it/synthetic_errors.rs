//! Synthetic strings that are refused, with their errors.

use expect_test::{Expect, expect};
use hitm_topology::parse;

fn check(text: &str, expect: Expect) {
    let error = parse(text).unwrap_err().to_string();
    assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    expect.assert_eq(&format!("{error}\n"));
}

#[test]
fn nothing() {
    check(
        "(memory=1GB)",
        expect![[r#"
            `(memory=1GB)`, offset 12: the string has no level; write at least a number of CPUs
        "#]],
    );
    check(
        "[numa]",
        expect![[r#"
            `[numa]`, offset 6: the string has no level; write at least a number of CPUs
        "#]],
    );
}

#[test]
fn types() {
    check(
        "pack:2 chip:2",
        expect![[r#"
            `pack:2 chip:2`, offset 7: `chip` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "p:2",
        expect![[r#"
            `p:2`, offset 0: `p` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "machine:2",
        expect![[r#"
            `machine:2`, offset 0: `machine` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "pack:2 :2",
        expect![[r#"
            `pack:2 :2`, offset 7: `:2` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "pack:2 pu",
        expect![[r#"
            `pack:2 pu`, offset 9: the end stands where `:` should, after the object type; write `:` there
        "#]],
    );
    check(
        "pack:2 core 2",
        expect![[r#"
            `pack:2 core 2`, offset 11: a blank stands where `:` should, after the object type; write `:` there
        "#]],
    );
    check(
        "l6:2",
        expect![[r#"
            `l6:2`, offset 0: `l6` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "pack:2 \u{e9}:2",
        expect![[r#"
            `pack:2 é:2`, offset 7: `é:2` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
}

#[test]
fn numbers() {
    check(
        "pack:",
        expect![[r#"
            `pack:`, offset 5: the end stands where a number should; write how many of them each object above has, as in `core:4`
        "#]],
    );
    check(
        "pack:two",
        expect![[r#"
            `pack:two`, offset 5: `two` stands where a number should; write how many of them each object above has, as in `core:4`
        "#]],
    );
    check(
        "pack:0",
        expect![[r#"
            `pack:0`, offset 5: the number `0` begins with 0; write a decimal number from 1
        "#]],
    );
    check(
        "pack:0x10",
        expect![[r#"
            `pack:0x10`, offset 5: the number `0` begins with 0; write a decimal number from 1
        "#]],
    );
    check(
        "pack:-1",
        expect![[r#"
            `pack:-1`, offset 5: `-1` stands where a number should; write how many of them each object above has, as in `core:4`
        "#]],
    );
    check(
        "pack:2core:2",
        expect![[r#"
            `pack:2core:2`, offset 6: `core:2` follows the number; put a blank between two levels
        "#]],
    );
}

#[test]
fn sizes() {
    check(
        "pack:2 core:4097",
        expect![[r#"
            `pack:2 core:4097`, offset 12: the machine has more than 8192 of these; describe a machine of at most 8192 CPUs
        "#]],
    );
    check(
        "1000000000000",
        expect![[r#"
            `1000000000000`, offset 0: the machine has more than 8192 of these; describe a machine of at most 8192 CPUs
        "#]],
    );
    check(
        "pack:99999999999999999999999999",
        expect![[r#"
            `pack:99999999999999999999999999`, offset 5: the machine has more than 8192 of these; describe a machine of at most 8192 CPUs
        "#]],
    );
    check(
        "4096 4096 4096 4096 4096 4096",
        expect![[r#"
            `4096 4096 4096 4096 4096 4096`, offset 5: the machine has more than 8192 of these; describe a machine of at most 8192 CPUs
        "#]],
    );
    check(
        &"group:1 ".repeat(33),
        expect![[r#"
            `group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 group:1 ...`, offset 256: there are more than 32 levels; leave out levels of one object each
        "#]],
    );
    check(
        "[numa] pu:1025 [numa]",
        expect![[r#"
            `[numa] pu:1025 [numa]`, offset 15: there are more than 1024 nodes; describe a machine with fewer nodes
        "#]],
    );
    check(
        "numa:1025 pu:1",
        expect![[r#"
            `numa:1025 pu:1`, offset 0: there are more than 1024 nodes; describe a machine with fewer nodes
        "#]],
    );
}

#[test]
fn levels() {
    check(
        "pu:2 core:2",
        expect![[r#"
            `pu:2 core:2`, offset 0: the `pu` level is not the last; move it to the end
        "#]],
    );
    check(
        "pack:2 core:2 pack:2 pu:1",
        expect![[r#"
            `pack:2 core:2 pack:2 pu:1`, offset 14: a level of the same type stands further left; use every type once, or `group`
        "#]],
    );
    check(
        "pack:2 l3:2 L3Cache:2 pu:1",
        expect![[r#"
            `pack:2 l3:2 L3Cache:2 pu:1`, offset 12: a level of the same type stands further left; use every type once, or `group`
        "#]],
    );
    check(
        "pack:2 3 pu:2",
        expect![[r#"
            `pack:2 3 pu:2`, offset 7: levels with and without a type are mixed; give every level a type, or none
        "#]],
    );
    check(
        "numa:2 [numa] pu:2",
        expect![[r#"
            `numa:2 [numa] pu:2`, offset 0: nodes are a level and attached as well; use one of the two
        "#]],
    );
    check(
        "l3:1 pack:2 pu:2",
        expect![[r#"
            `l3:1 pack:2 pu:2`: CPUs 0 and 2 share an LLC but not a package; keep every LLC inside one package
        "#]],
    );
    check(
        "core:4 l3:2 pu:1",
        expect![[r#"
            `core:4 l3:2 pu:1`: CPUs 0 and 1 share a core but not an LLC; keep every core inside one LLC
        "#]],
    );
    check(
        "core:2 numa:2 pu:2",
        expect![[r#"
            `core:2 numa:2 pu:2`: CPUs 0 and 2 share a core but not a node; keep every core inside one node
        "#]],
    );
}

#[test]
fn attached() {
    check(
        "pack:2 [core] pu:2",
        expect![[r#"
            `pack:2 [core] pu:2`, offset 8: only nodes can be attached; write `[numa]`
        "#]],
    );
    check(
        "pack:2 [numa pu:2",
        expect![[r#"
            `pack:2 [numa pu:2`, offset 12: a blank stands where `]` should, after the attached node; write `]` there
        "#]],
    );
    check(
        "pack:2 [numa(indexes=0,1) pu:2",
        expect![[r#"
            `pack:2 [numa(indexes=0,1) pu:2`, offset 25: a blank stands where `]` should, after the attached node; write `]` there
        "#]],
    );
    check(
        "pack:2 [] pu:2",
        expect![[r#"
            `pack:2 [] pu:2`, offset 8: `]` is no object type; use `package`, `die`, `numanode`, `group`, `l1` to `l5`, `core` or `pu`
        "#]],
    );
    check(
        "pack:2 [numa(indexes=0,0)] pu:2",
        expect![[r#"
            `pack:2 [numa(indexes=0,0)] pu:2`, offset 21: index 0 comes twice; give every object an index of its own
        "#]],
    );
    check(
        "pack:2 [numa(indexes=pack)] pu:2",
        expect![[r#"
            `pack:2 [numa(indexes=pack)] pu:2`, offset 21: there is no level of type `pack` above; name a level that stands further left
        "#]],
    );
}

#[test]
fn attributes() {
    check(
        "pack:2(",
        expect![[r#"
            `pack:2(`, offset 7: the end is no attribute; write `indexes=`, `size=` or `memory=`, or close the parenthesis
        "#]],
    );
    check(
        "pack:2(color=red) pu:2",
        expect![[r#"
            `pack:2(color=red) pu:2`, offset 7: `color` is no attribute; write `indexes=`, `size=` or `memory=`, or close the parenthesis
        "#]],
    );
    check(
        "pack:2(memory) pu:2",
        expect![[r#"
            `pack:2(memory) pu:2`, offset 13: `)` stands where `=` should, after the attribute; write `=` there
        "#]],
    );
    check(
        "pack:2(memory=much) pu:2",
        expect![[r#"
            `pack:2(memory=much) pu:2`, offset 14: `much` is no size; write bytes, or a number and kB, MiB, GB or the like
        "#]],
    );
    check(
        "pack:2(size=1MB) pu:2",
        expect![[r#"
            `pack:2(size=1MB) pu:2`, offset 7: `size` does not fit the level; write `size=` for caches and `memory=` for all others
        "#]],
    );
    check(
        "l3:2(memory=1MB) pu:2",
        expect![[r#"
            `l3:2(memory=1MB) pu:2`, offset 5: `memory` does not fit the level; write `size=` for caches and `memory=` for all others
        "#]],
    );
    check(
        "l3:2(size=1MB pu:2",
        expect![[r#"
            `l3:2(size=1MB pu:2`, offset 14: `pu` is no attribute; write `indexes=`, `size=` or `memory=`, or close the parenthesis
        "#]],
    );
    check(
        "l3:2(=) pu:2",
        expect![[r#"
            `l3:2(=) pu:2`, offset 5: `=)` is no attribute; write `indexes=`, `size=` or `memory=`, or close the parenthesis
        "#]],
    );
}

#[test]
fn lists_of_indexes() {
    check(
        "pu:4(indexes=)",
        expect![[r#"
            `pu:4(indexes=)`, offset 13: `` is no index; write numbers separated by commas
        "#]],
    );
    check(
        "pu:4(indexes=0,1,2)",
        expect![[r#"
            `pu:4(indexes=0,1,2)`, offset 13: 3 indices are given where the level has 4 objects; give one index for each object
        "#]],
    );
    check(
        "pu:4(indexes=0,1,2,2)",
        expect![[r#"
            `pu:4(indexes=0,1,2,2)`, offset 13: index 2 comes twice; give every object an index of its own
        "#]],
    );
    check(
        "pu:4(indexes=0,1,2,65536)",
        expect![[r#"
            `pu:4(indexes=0,1,2,65536)`, offset 19: index 65536 is above 65535; use smaller indices
        "#]],
    );
    check(
        "pu:4(indexes=0,1,2,4294967296)",
        expect![[r#"
            `pu:4(indexes=0,1,2,4294967296)`, offset 19: `4294967296` is no index; write numbers separated by commas
        "#]],
    );
    check(
        "pu:4(indexes=0,,1,2)",
        expect![[r#"
            `pu:4(indexes=0,,1,2)`, offset 15: `` is no index; write numbers separated by commas
        "#]],
    );
}

#[test]
fn loops_of_indexes() {
    check(
        "pu:4(indexes=1*3)",
        expect![[r#"
            `pu:4(indexes=1*3)`, offset 13: the loops cover 3 objects where the level has 4; make the counts multiply to that number
        "#]],
    );
    check(
        "pu:8(indexes=2*2)",
        expect![[r#"
            `pu:8(indexes=2*2)`, offset 13: the loops cover 2 objects where the level has 8; make the counts multiply to that number
        "#]],
    );
    check(
        "pu:4(indexes=1*4:1*4)",
        expect![[r#"
            `pu:4(indexes=1*4:1*4)`, offset 13: the loops cover 16 objects where the level has 4; make the counts multiply to that number
        "#]],
    );
    check(
        "pu:4(indexes=0*4)",
        expect![[r#"
            `pu:4(indexes=0*4)`, offset 13: `0*4` is no loop over 4 objects; write step and count of each loop, as in `4*2:1*4`
        "#]],
    );
    check(
        "pu:4(indexes=2*2:2*2)",
        expect![[r#"
            `pu:4(indexes=2*2:2*2)`, offset 13: index 0 comes twice; give every object an index of its own
        "#]],
    );
    check(
        "pu:4(indexes=2x2)",
        expect![[r#"
            `pu:4(indexes=2x2)`, offset 13: `2x2` is no loop over 4 objects; write step and count of each loop, as in `4*2:1*4`
        "#]],
    );
}

#[test]
fn levels_as_indexes() {
    check(
        "pack:2 pu:4(indexes=core)",
        expect![[r#"
            `pack:2 pu:4(indexes=core)`, offset 20: there is no level of type `core` above; name a level that stands further left
        "#]],
    );
    check(
        "pack:2 pu:4(indexes=pack:pack)",
        expect![[r#"
            `pack:2 pu:4(indexes=pack:pack)`, offset 25: `pack` comes twice; name every level once
        "#]],
    );
    check(
        "pack:2 pu:4(indexes=pu)",
        expect![[r#"
            `pack:2 pu:4(indexes=pu)`, offset 20: there is no level of type `pu` above; name a level that stands further left
        "#]],
    );
    check(
        "pack:2(indexes=0,0) pu:4",
        expect![[r#"
            `pack:2(indexes=0,0) pu:4`, offset 15: index 0 comes twice; give every object an index of its own
        "#]],
    );
}
