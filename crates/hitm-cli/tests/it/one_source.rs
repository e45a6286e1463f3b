//! One source makes both worlds: what changes the count of a level of cpupri is the same operation
//! in the native instructions and in the simulated line report.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::{end, folder, hitm, words, workspace};

/// Cargo with settings that build fast. The scheduler is optimised a little, since its instructions
/// are looked at. What only other examples need is not optimised.
fn cargo(target: &Path, verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace("")).arg(verb).args(["--quiet", "--locked"]);
    let settings = [
        "opt-level=1",
        "debug=false",
        "incremental=false",
        "package.'*'.opt-level=0",
        "package.hitm-machine.opt-level=0",
        "package.loom.opt-level=0",
        "package.generator.opt-level=0",
    ];
    command.args(settings.iter().flat_map(|setting| ["--config".to_owned(), format!("profile.dev.{setting}")]));
    // What a caller has set for its own build is not for this one.
    command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("cargo is there: it runs this test");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The instructions of the function `change` of the example and of what it calls in cpupri, by
/// name.
fn instructions(target: &Path) -> Vec<String> {
    let mut command = cargo(target, "rustc");
    let assembly = target.join("set_level.s");
    command.args(["-p", "hitm-sched", "--example", "set_level", "--", "-C", "codegen-units=1", "--emit"]);
    command.arg(format!("asm={}", assembly.display()));
    succeed(&mut command);
    let text = fs::read_to_string(&assembly).expect("it was emitted");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(label) = line.strip_suffix(':').filter(|label| !label.starts_with('.')) {
            inside = label.contains("set_level") && (label.contains("change") || label.contains("Cpupri"));
        } else if inside && line.starts_with('\t') && !line.trim_start().starts_with('.') {
            found.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    found
}

/// How often instructions begin like this.
fn times(instructions: &[String], begin: &str) -> usize {
    instructions.iter().filter(|line| line.starts_with(begin)).count()
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
    let instructions = instructions(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("one-source"));
    assert!(!instructions.is_empty(), "the functions have other names");
    if cfg!(target_arch = "x86_64") {
        // One add and one subtraction, and neither is a loop of compare-exchanges.
        let counts = ["lock incl", "lock decl", "lock cmpxchg"].map(|begin| times(&instructions, begin));
        assert_eq!(counts, [1, 1, 0], "{}", instructions.join("\n"));
    }
    let accesses = accesses();
    let of_change: Vec<&str> =
        accesses.iter().filter(|(function, _)| function == "set_level").map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(of_change, ["rmw"], "{accesses:?}");
}
