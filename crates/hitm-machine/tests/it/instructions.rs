//! What a hit, a miss and a queued miss cost in instructions of the host, on the model alone and on
//! the whole machine, beside what is recorded in `instructions.txt`.
//!
//! Times vary by a factor of two from run to run on a shared host; instructions under Callgrind do
//! not. They are those of the release profile, which is what people run: inlining is half of the
//! speed, and the test profile has little of it. `UPDATE_EXPECT=1 cargo test -p hitm-machine --test
//! it` records again.
//!
//! Where valgrind is not installed the test says so on stderr, and in CI it fails.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPERATIONS: [&str; 7] = [
    "directory-hit",
    "directory-miss",
    "directory-queued",
    "machine-hit",
    "machine-switch",
    "machine-miss",
    "machine-queued",
];

/// Of each operation; it is done this often, and twice as often.
const TIMES: u64 = 8_000;

/// What a count may differ from its record: another C library copies memory in another way, and a
/// changed compiler inlines another function.
const TOLERANCE: f64 = 0.03;

/// Builds the example that does the operations.
fn build() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    // Beside the tests' own files: their folder is `target`, wherever that is.
    let target = std::env::current_exe().expect("a path").ancestors().nth(3).expect("target").to_path_buf();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked", "--example", "count", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example builds");
    target.join("release/examples/count")
}

fn instructions(program: &Path, operation: &str, times: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([operation, &times.to_string()])
        .output()
        .expect("valgrind runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{operation}: {messages}");
    let collected = messages.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("{operation}: no count in: {messages}"))
}

#[test]
fn an_access_takes_as_many_instructions_as_recorded() {
    if !crate::tool::runs("valgrind", &["--version"], cfg!(target_os = "linux")) {
        return;
    }
    let program = build();
    let each = |operation: &str| {
        let (once, twice) = (instructions(&program, operation, TIMES), instructions(&program, operation, 2 * TIMES));
        (twice - once) as f64 / TIMES as f64
    };
    let counts: Vec<(&str, f64)> = OPERATIONS.iter().map(|&operation| (operation, each(operation))).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/instructions.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut text = "# Instructions of the host for one operation: release profile, x86-64, Callgrind.\n".to_owned();
        for (operation, count) in &counts {
            writeln!(text, "{operation} {count:.1}").expect("a string grows");
        }
        std::fs::write(path, text).expect("the record can be written");
        return;
    }
    let text = std::fs::read_to_string(path).expect("the record");
    let recorded: Vec<(&str, f64)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(operation, count)| (operation, count.parse().expect("a number")))
        .collect();
    assert_eq!(recorded.iter().map(|&(operation, _)| operation).collect::<Vec<_>>(), OPERATIONS);
    let differ = counts.iter().zip(&recorded).filter(|((_, now), (_, then))| (now / then - 1.0).abs() > TOLERANCE);
    let differ: Vec<String> = differ.map(|((what, now), (_, then))| format!("{what}: {then} to {now:.1}")).collect();
    assert!(
        differ.is_empty(),
        "instructions changed, {}; if that is meant, UPDATE_EXPECT=1 records it",
        differ.join(", ")
    );
}
