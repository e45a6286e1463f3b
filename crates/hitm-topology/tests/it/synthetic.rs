//! hwloc synthetic strings, compared with hwloc's reading of them.

use expect_test::expect;
use hitm_topology::{CpuId, Topology, parse, presets};

use crate::invariants;
use crate::oracle::{Shape, data_text};

fn read(text: &str) -> Topology {
    let machine = parse(text).unwrap_or_else(|error| panic!("{error}"));
    invariants::check(&machine);
    machine
}

/// Returns the blocks of a file of expectations: a string, and hwloc's facts about it.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("== ").filter(|block| !block.is_empty()).map(|block| block.split_once('\n').unwrap())
}

#[test]
fn hwloc_sees_the_same() {
    let text = data_text("synthetic.expected");
    assert_eq!(blocks(&text).count(), 30);
    for (string, expected) in blocks(&text) {
        assert_eq!(Shape::of(&read(string)), Shape::expected(expected), "{string}");
    }
}

#[test]
fn hwloc_sees_the_presets_as_they_are() {
    let text = data_text("presets.expected");
    let recorded: Vec<(&str, &str)> = blocks(&text).collect();
    let strings: Vec<String> = presets::all().iter().map(|preset| preset.topology().to_synthetic().unwrap()).collect();
    assert_eq!(recorded.iter().map(|(string, _)| *string).collect::<Vec<_>>(), strings);
    for (preset, (string, expected)) in presets::all().iter().zip(recorded) {
        // Synthetic strings have no distances.
        assert_eq!(Shape::of(&read(string)), Shape::expected(expected), "{}", preset.name());
        assert_eq!(Shape::of(&preset.topology()).without_distances(), Shape::expected(expected), "{}", preset.name());
    }
}

#[test]
fn strings_come_back() {
    let text = data_text("synthetic.expected");
    for (string, _) in blocks(&text) {
        let machine = read(string);
        let Some(written) = machine.to_synthetic() else {
            assert!(string.starts_with("core:4"), "only numbers that are no order at all cannot be written: {string}");
            continue;
        };
        assert_eq!(Shape::of(&read(&written)), Shape::of(&machine), "{string} as {written}");
    }
}

#[test]
fn written_strings() {
    let written = |text: &str| read(text).to_synthetic().unwrap();
    expect!["pack:2 l3:3 core:40 pu:2"].assert_eq(&written("pack:2 l3:3 core:40 pu:2"));
    expect!["pack:2 [numa] l3:2 core:2 pu:2"].assert_eq(&written("pack:2 [numa] l3:2 core:2 pu:2"));
    expect!["pack:2 numa:2 l3:2 core:1 pu:2"].assert_eq(&written("pack:2 numa:2 l3:2 core:1 pu:2"));
    expect!["pack:2 l3:1 numa:2 core:2 pu:1"].assert_eq(&written("pack:2 l3:1 numa:2 core:2 pu:1"));
    expect!["numa:2 pack:2 l3:1 core:2 pu:1"].assert_eq(&written("numa:2 pack:2 core:2 pu:1"));
    expect!["[numa(indexes=3)] pack:1 l3:1 core:2 pu:2"].assert_eq(&written("[numa(indexes=3)] core:2 pu:2"));
    expect!["pack:2 l3:1 core:2 pu:2(indexes=2*4:1*2)"].assert_eq(&written("pack:2 core:2 pu:2(indexes=core:pack)"));
}

#[test]
fn irregular_machines_have_no_string() {
    let machine = read("pack:2 l3:2 core:2 pu:2").restrict(10).unwrap();
    assert_eq!(machine.to_synthetic(), None);
}

#[test]
fn last_level_need_not_be_pu() {
    assert_eq!(Shape::of(&read("numa:2 core:4")), Shape::of(&read("numa:2 core:4 pu:1")));
}

#[test]
fn blanks_do_not_matter() {
    let machine = read("  pack:2\tcore:2[numa]\n pu:2 ");
    assert_eq!(machine.name(), "pack:2 core:2[numa] pu:2");
    assert_eq!((machine.source(), machine.nodes()), ("hwloc synthetic string", 4));
}

#[test]
fn llc_is_the_l3_or_the_highest_other_cache() {
    let llcs = |text: &str| read(text).llcs();
    assert_eq!(llcs("pack:2 l4:1 l3:2 l2:2 core:2"), 4);
    assert_eq!(llcs("pack:2 l4:2 l2:2 core:2"), 4);
    assert_eq!(llcs("pack:2 l2:2 l1:2 core:1"), 4);
    assert_eq!(llcs("pack:2 l1i:2 core:2"), 2);
}

#[test]
fn cpus_are_numbered_by_os_index() {
    let machine = read("pack:2 core:1 pu:2(indexes=7,1,3,5)");
    let os_indices: Vec<u32> = machine.cpu_ids().map(|cpu| machine.cpu(cpu).os_index).collect();
    assert_eq!(os_indices, [1, 3, 5, 7]);
    assert_eq!(machine.siblings(CpuId(0)), [CpuId(0), CpuId(3)]);
    assert_eq!(machine.cpu(CpuId(3)).thread, 1);
}

#[test]
fn largest_machine() {
    let machine = read("pack:32 l3:8 core:16 pu:2");
    assert_eq!((machine.cpus(), machine.llcs()), (8192, 256));
}
