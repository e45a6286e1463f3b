//! Properties of random machines and random damage.

use std::io::Write;

use hitm_topology::{Scope, Topology, parse};
use proptest::prelude::*;

use crate::allocation::most_bytes;
use crate::invariants;
use crate::oracle::{Shape, data_text};
use crate::tree::Tree;

/// Checks the result of an argument: a machine that does not contradict itself, or an error of one
/// line; and little memory.
fn check(argument: &str) {
    let (result, most) = most_bytes(|| parse(argument));
    assert!(most < 64 << 20, "{most} bytes");
    match result {
        Ok(machine) => invariants::check(&machine),
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains(|c: char| c.is_control()) && error.contains("; "), "{error}");
        }
    }
}

fn check_file(bytes: &[u8]) {
    let mut file = tempfile::Builder::new().suffix(".xml").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    check(file.path().to_str().unwrap());
}

/// A piece of text is cut out, doubled, or replaced by another.
#[derive(Clone, Debug)]
struct Damage {
    at: prop::sample::Index,
    length: usize,
    by: &'static str,
    doubled: bool,
}

fn damage() -> impl Strategy<Value = Damage> {
    const PIECES: &[&str] = &[
        "",
        "\"",
        "<",
        ">",
        "/>",
        "&",
        ",",
        ":",
        "(",
        ")",
        "[",
        "]",
        "*",
        "0",
        "-1",
        "9999999999",
        "0x",
        "NaN",
        "\u{0}",
        "\u{e9}",
        "PU",
        "Core",
        "NUMANode",
        "L3Cache",
        "</object>",
        "<object type=\"PU\" os_index=\"3\">",
        "cpuset",
        "indexes=",
        "pack:2 ",
    ];
    (any::<prop::sample::Index>(), 0..40usize, prop::sample::select(PIECES), any::<bool>())
        .prop_map(|(at, length, by, doubled)| Damage { at, length, by, doubled })
}

fn damaged(text: &str, damages: &[Damage]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for damage in damages {
        let start = damage.at.index(bytes.len() + 1);
        let end = (start + damage.length).min(bytes.len());
        let mut by = damage.by.as_bytes().to_vec();
        if damage.doubled {
            by.extend_from_slice(&bytes[start..end]);
            by.extend_from_slice(&bytes[start..end]);
        }
        bytes.splice(start..end, by);
    }
    bytes
}

/// Counts of packages, LLCs, cores and threads, where nodes are attached, and in which order CPUs
/// are numbered.
fn machine() -> impl Strategy<Value = Topology> {
    let counts = (1..4usize, 1..4usize, 1..4usize, 1..3usize);
    const ORDERS: &[&str] =
        &["", "(indexes=core:l3:pack)", "(indexes=pack:l3:core)", "(indexes=l3:core)", "(indexes=pack)"];
    (counts, 0..4usize, prop::sample::select(ORDERS)).prop_map(|((packages, llcs, cores, threads), nodes, order)| {
        let node = |level: usize| if nodes == level { " [numa]" } else { "" };
        let text =
            format!("pack:{packages}{} l3:{llcs}{} core:{cores}{} pu:{threads}{order}", node(1), node(2), node(3));
        parse(&text).unwrap_or_else(|error| panic!("{error}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_arguments(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn random_files(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check_file(&bytes);
    }

    #[test]
    fn damaged_synthetic_strings(
        text in prop::sample::select(vec![
            "pack:2 l3:3 core:40 pu:2",
            "pack:2 numa:2(memory=256GiB indexes=pack) l3u:1(size=20mib) l2:2 l1i:1(size=16kiB) l1d:2 core:1 pu:2(indexes=l2)",
            "pack:2 [numa(memory=1GiB)] [numa] core:2 [numa(indexes=8,7,5,6,4,3,1,2)] pu:4(indexes=4*2:1*4)",
            "2 3 4 5",
        ]),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        if let Ok(text) = String::from_utf8(damaged(text, &damages)) {
            check(&text);
        }
    }

    #[test]
    fn machines_survive_text_and_shrinking(machine in machine(), share in 1..=100usize) {
        invariants::check(&machine);
        let text = machine.to_synthetic().expect("it is regular");
        prop_assert_eq!(Shape::of(&parse(&text).unwrap()), Shape::of(&machine));
        let threads = machine.cpus() / machine.cores();
        let cpus = (machine.cores() * share).div_ceil(100) * threads;
        let smaller = machine.restrict(cpus).unwrap();
        invariants::check(&smaller);
        prop_assert_eq!(smaller.cpus(), cpus);
        let larger = machine.restrict(machine.cpus() + cpus).unwrap();
        invariants::check(&larger);
        // CPUs of one part stay in one part.
        for scope in [Scope::Llc, Scope::Core] {
            prop_assert!(larger.parts(scope) >= machine.parts(scope) + smaller.parts(scope).min(1));
        }
        prop_assert_eq!(larger.restrict(machine.cpus()).unwrap().packages(), machine.packages());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_xml(
        name in prop::sample::select(vec![
            "16em64t-4s2c2t-offlines", "8ia64-2n2s2c+1n.v1", "fakeheterodistances", "16amd64-4distances.v1", "8intel64-4n2t-memattrs",
        ]),
        damages in prop::collection::vec(damage(), 1..8),
    ) {
        check_file(&damaged(&data_text(&format!("hwloc/{name}.xml")), &damages));
    }

    #[test]
    fn damaged_trees(damages in prop::collection::vec((0..40usize, damage()), 1..6)) {
        let tree = Tree::showing(&parse("pack:2 [numa] l3:1 core:1 pu:2(indexes=core:pack)").unwrap());
        let mut files: Vec<std::path::PathBuf> = Vec::new();
        list_files(&tree.system(), &mut files);
        files.sort();
        for (at, damage) in damages {
            let path = &files[at % files.len()];
            let text = std::fs::read_to_string(path).unwrap_or_default();
            std::fs::write(path, damaged(&text, &[damage])).unwrap();
        }
        check(tree.path());
    }

    #[test]
    fn machines_survive_sysfs(machine in machine()) {
        prop_assert_eq!(Shape::of(&parse(Tree::showing(&machine).path()).unwrap()), Shape::of(&machine));
    }
}

fn list_files(directory: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}
