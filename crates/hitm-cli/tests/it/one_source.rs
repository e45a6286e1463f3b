//! One source makes both worlds: one memory operation of cpupri is another one, and both the native
//! instructions and the simulated line report change, at that operation and in the kind of access.
//!
//! The feature `other-operation` of `hitm-sched` turns the add to a level's count into a load and a
//! compare-exchange. The test builds with it, in a target folder of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{end, folder, hitm, words, workspace};

/// Which operation is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Usual,
    Other,
}

/// Cargo with settings that build fast: our crates optimised a little, since instructions are
/// looked at, the others not at all.
fn cargo(target: &Path, verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace("")).arg(verb).args(["--quiet", "--locked"]);
    let settings = ["opt-level=1", "debug=false", "incremental=false", "package.'*'.opt-level=0"];
    command.args(settings.iter().flat_map(|setting| ["--config".to_owned(), format!("profile.dev.{setting}")]));
    // What a caller has set for its own build is not for this one.
    command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

fn with_feature(mut command: Command, operation: Operation, feature: &str) -> Command {
    if operation == Operation::Other {
        command.args(["--features", feature]);
    }
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("cargo is there: it runs this test");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The instructions of the function `change` of the example and of what it calls in cpupri, by
/// name.
fn instructions(target: &Path, operation: Operation) -> Vec<String> {
    let mut command = with_feature(cargo(target, "rustc"), operation, "other-operation");
    let assembly = target.join(format!("{operation:?}.s"));
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
fn accesses(binary: &mut Command) -> (BTreeSet<(String, String)>, String) {
    let folder = folder();
    let line = "run ffmpeg --machine core:4 --mitigation baseline --seeds 1 --burst-factor 0.05 --duration 1ms --warm-up 0s \
                --lines 100 --json result.json";
    let ended = end(binary.current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("result.json")).unwrap()).unwrap();
    let lines = file["runs"][0]["lines"].as_array().unwrap();
    let fields = lines.iter().flat_map(|line| line["fields"].as_array().unwrap());
    let counts = fields.filter(|field| field["field"] == "cpupri.pri_to_cpu[0].count");
    let sites = counts.flat_map(|field| field["sites"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (sites.map(|site| (text(&site["function"]), text(&site["kind"]))).collect(), ended.stdout)
}

#[test]
fn another_operation_shows_in_the_instructions_and_in_the_line_report() {
    let target: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other-operation");

    let (usual, other) = (instructions(&target, Operation::Usual), instructions(&target, Operation::Other));
    assert!(!usual.is_empty() && !other.is_empty(), "the functions have other names");
    assert_ne!(usual, other);
    if cfg!(target_arch = "x86_64") {
        let counts = |own: &[String]| [times(own, "lock incl"), times(own, "lock decl"), times(own, "lock cmpxchg")];
        // The add becomes a loop; the subtraction stays.
        assert_eq!(counts(&usual), [1, 1, 0], "{}", usual.join("\n"));
        assert_eq!(counts(&other), [0, 1, 1], "{}", other.join("\n"));
    }

    let mut build = with_feature(cargo(&target, "build"), Operation::Other, "hitm-sched/other-operation");
    succeed(build.args(["-p", "hitm-cli"]));
    let mut binary = Command::new(target.join("debug").join(format!("hitm{}", std::env::consts::EXE_SUFFIX)));
    binary.stdin(std::process::Stdio::null());
    let (usual, usual_report) = accesses(&mut hitm());
    let (other, other_report) = accesses(&mut binary);
    let new: Vec<_> = other.difference(&usual).cloned().collect();
    assert_eq!(new, [("set_level".to_owned(), "load".to_owned())], "usual: {usual:?}");
    assert!(usual.is_subset(&other), "usual: {usual:?}, other: {other:?}");
    assert_ne!(usual_report, other_report);
}
