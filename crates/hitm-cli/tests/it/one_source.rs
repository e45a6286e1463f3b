//! One source makes both worlds: what changes the count of a level of cpupri is the same operation
//! in the native instructions and in the simulated line report.

use std::collections::BTreeSet;
use std::fs;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use serde_json::Value;

use crate::built;
use crate::command::{end, folder, hitm, words};

/// The locked instructions on four bytes in the example's function `change` and in what it calls in
/// cpupri. References are counted in eight bytes.
fn locked() -> Vec<Mnemonic> {
    let example = fs::read(built::folder().join("examples/set_level")).expect("the example is built");
    let file = object::File::parse(&*example).expect("a program");
    let is_asked = |name: &str| name.contains("set_level") && (name.contains("change") || name.contains("Cpupri"));
    let symbols =
        file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.name().is_ok_and(is_asked));
    let code = symbols.flat_map(|symbol| {
        let section = file.section_by_index(symbol.section_index().expect("a section")).expect("a section");
        let bytes = section.data_range(symbol.address(), symbol.size()).expect("its bytes").expect("its bytes");
        Decoder::with_ip(64, bytes, symbol.address(), DecoderOptions::NONE).into_iter().collect::<Vec<_>>()
    });
    let locked = code.filter(|instruction| instruction.has_lock_prefix() && instruction.memory_size().size() == 4);
    locked.map(|instruction| instruction.mnemonic()).collect()
}

/// The kinds of access to the count of the lowest level, by function.
fn accesses() -> BTreeSet<(String, String)> {
    let folder = folder();
    let line = "run ffmpeg --machine core:4 --mitigation baseline --seeds 1 --burst-factor 0.05 --duration 1ms --warm-up 0s \
                --lines 100 --json result.json";
    let ended = end(hitm().current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("result.json")).unwrap()).unwrap();
    let lines = file["runs"][0]["lines"].as_array().unwrap();
    let fields = lines.iter().flat_map(|line| line["fields"].as_array().unwrap());
    let counts = fields.filter(|field| field["field"] == "cpupri.pri_to_cpu[0].count");
    let sites = counts.flat_map(|field| field["sites"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    sites.map(|site| (text(&site["function"]), text(&site["kind"]))).collect()
}

#[test]
fn a_count_is_changed_by_the_same_operations_in_both_worlds() {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        // One add and one subtraction, and neither is a loop of compare-exchanges.
        let found = locked();
        let times = |mnemonic| found.iter().filter(|&&found| found == mnemonic).count();
        assert_eq!(
            [Mnemonic::Inc, Mnemonic::Dec, Mnemonic::Cmpxchg].map(times),
            [1, 1, 0],
            "{found:?}: in the example, compiled with opt-level 1 or more"
        );
    }
    let accesses = accesses();
    let of_change: Vec<&str> =
        accesses.iter().filter(|(function, _)| function == "set_level").map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(of_change, ["rmw"], "{accesses:?}");
}
