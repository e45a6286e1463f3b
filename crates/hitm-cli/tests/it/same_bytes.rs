//! The same command, the same bytes: whatever the number of host threads, the folder and where
//! things lie in memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::{Ended, end, folder, hitm, words};

/// Two packages, so that lines are near and far, and calibration, so that runs depend on earlier
/// ones.
const LINE: &str = "run ffmpeg --machine 'package:2 l3:1 core:4 pu:2' --mitigation baseline,all,cpupri-mask=llc --seeds 2 \
                    --duration 2ms --warm-up 1ms --roles --lines 3";

/// A result without what may differ.
fn timeless(path: &Path) -> Value {
    let mut file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for run in file["runs"].as_array_mut().unwrap() {
        let seconds = run.as_object_mut().unwrap().remove("wall_seconds");
        assert!(seconds.is_some_and(|seconds| seconds.is_number()));
    }
    file
}

/// Runs the line in a folder of its own; what it printed and wrote.
fn result_of(command: &mut Command, rest: &str) -> (Ended, Value) {
    let folder = folder();
    command.current_dir(folder.path()).args(words(&format!("{LINE} {rest} --json result.json")));
    let ended = end(command);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    (ended, timeless(&folder.path().join("result.json")))
}

#[test]
fn host_threads_folders_and_addresses_change_nothing() {
    let one = result_of(&mut hitm(), "--jobs 1");
    assert!(one.0.stdout.starts_with("ffmpeg simulated on package:2 l3:1 core:4 pu:2 "), "{}", one.0.stdout);
    for rest in ["--jobs 2", "--jobs=5", ""] {
        assert!(result_of(&mut hitm(), rest) == one, "{rest}: other bytes than with one host thread");
    }
    // A larger environment moves the stack.
    assert!(result_of(hitm().env("ROOM", "x".repeat(50_000)), "--jobs 1") == one, "another environment, other bytes");
    if let Some(mut fixed) = without_randomisation() {
        assert!(result_of(&mut fixed, "--jobs 2") == one, "another address-space layout, other bytes");
    }
}

/// The command under the one address-space layout that it has without randomisation, where that can
/// be switched off.
fn without_randomisation() -> Option<Command> {
    // Also in CI it may be forbidden: a container's filter of system calls often has it.
    crate::tool::runs("setarch", &["-R", "true"], false).then(|| {
        let mut command = Command::new("setarch");
        command.env("COLUMNS", "240").arg("-R").arg(env!("CARGO_BIN_EXE_hitm"));
        command
    })
}

/// What the lines cost that are free in a run was paid in what was published, which a calibration
/// aims at.
#[test]
fn what_is_fitted_does_not_depend_on_which_lines_are_free() {
    let fitted = |coherence: &str| {
        let line = "run ffmpeg --machine 'package:2 l3:1 core:4 pu:2' --mitigation baseline --seeds 1 --duration 1ms --warm-up 0s \
                    --json result.json --coherence";
        let folder = folder();
        let ended = end(hitm().current_dir(folder.path()).args(words(line)).arg(coherence));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{coherence}");
        timeless(&folder.path().join("result.json"))["calibrations"].take()
    };
    let full = fitted("full");
    assert_eq!(full.as_array().map(Vec::len), Some(1));
    assert_eq!(fitted("scheduler-free"), full);
    assert_eq!(fitted("free"), full);
}

#[test]
fn another_seed_gives_other_bytes() {
    let of_seed = |seed: u64| {
        let line = "run ffmpeg --machine core:4 --mitigation baseline --seeds 1 --duration 1ms --warm-up 0s --burst-factor 0.1";
        end(hitm().args(words(line)).args(["--seed".to_owned(), seed.to_string()])).stdout
    };
    let table = |text: String| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(table(of_seed(1)), table(of_seed(2)));
}

/// What a run prints of its lines, and what is made of the saved file.
#[test]
fn a_saved_result_gives_the_same_report() {
    let folder = folder();
    let command = |line: &str| end(hitm().current_dir(folder.path()).args(words(line)));
    for layout in ["full", "mail"] {
        let line = format!("{LINE} --burst-factor 0.05 --layout {layout} --json result.json");
        let printed = command(&line).stdout;
        let (_, lines) = printed.split_once("\nsimulated: ").expect("a line report");
        let again = command(&format!("c2c result.json --mitigation baseline --lines 3 --layout {layout}"));
        assert_eq!(again.stdout, format!("simulated: {lines}"), "{layout}");
    }
}

/// Results of next to nothing have figures that are no numbers; the file is read all the same.
#[test]
fn a_run_of_a_microsecond_can_be_saved_and_read() {
    let folder = folder();
    let command = |line: &str| end(hitm().current_dir(folder.path()).args(words(line)));
    let line = "run ffmpeg --machine core:2 --duration 1us --warm-up 0s --burst-factor 1 --roles --json result.json";
    assert_eq!(command(line).status, Some(0));
    let again = command("c2c result.json");
    assert_eq!((again.status, again.stderr.as_str()), (Some(0), ""));
}
