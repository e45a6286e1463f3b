//! Both workloads on both hosts: that they run, and say where.

use std::fs;

use serde_json::Value;

use crate::command::{end, folder, hitm, read_checked, stdout_of, words};

/// Every probe, small.
const PROBES: [&str; 10] = [
    "ping-pong --pairs 1 --rounds 20",
    "ping-pong --pairs 1 --rounds 20 --kind reading",
    "mix --kind store --duration 2us",
    "rwlock --mix 50 --duration 2us",
    "refcount --scope machine,cpu --duration 2us --pause 100ns",
    "lock --duration 2us --seeds 2",
    "writer-readers --rounds 3",
    "counter --scope machine,llc --duration 2us",
    "mask --scope machine,core --duration 2us --readers 1",
    "reads --duration 2us",
];

#[test]
fn probes_are_simulated_with_the_same_bytes() {
    for probe in PROBES {
        let line = format!("run probe {probe} --machine 'package:2 l3:1 core:2 pu:2'");
        let text = stdout_of(&line);
        assert!(text.contains(", simulated on package:2 l3:1 core:2 pu:2 ("), "{text}");
        assert!(text.lines().next().unwrap().ends_with(concat!("hitm ", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(!text.contains("NaN"), "{text}");
        assert_eq!(text, stdout_of(&line), "{probe}");
    }
}

#[test]
fn options_stand_before_or_after_the_probe() {
    let after = stdout_of("run probe counter --machine core:2 --duration 2us --seed 3");
    let before = stdout_of("run probe --machine core:2 --duration 2us --seed 3 counter");
    assert_eq!(after, before);
    assert!(after.contains(", seeds [3, 4, 5], "), "{after}");
}

/// The table's facts are in the file, and what asks which scope is best is answered.
#[test]
fn a_probe_says_which_scope_is_best() {
    let folder = folder();
    let line = "run probe mask --encoding bit,byte --mix 50 --machine 'package:2 l3:1 core:2 pu:2' --duration 20us \
                --arbitration local-first,fifo --json mask.json";
    let ended = end(hitm().current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.contains("whatever the policy: ") || last.starts_with("undetermined on "), "{last}");
    let file: Value = read_checked(&folder.path().join("mask.json"), "run");
    let runs = file["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 5);
    for run in runs {
        assert_eq!(run["workload"], "probe mask");
        let (reads, writes) = (&run["probe"]["reads"], &run["probe"]["writes"]);
        let mean = (reads["nanos"].as_f64().unwrap() + writes["nanos"].as_f64().unwrap()) / 2.0;
        // Half of each: the mean over seeds of either side, and of both.
        assert!((run["metric"]["value"].as_f64().unwrap() / mean - 1.0).abs() < 1e-6, "{run}");
    }
}

/// A search without writers has no figure for writes, and the reverse.
#[test]
fn a_mask_may_have_readers_alone() {
    for readers in [0, 2] {
        let text = stdout_of(&format!("run probe mask --machine core:2 --duration 2us --readers {readers}"));
        assert!(!text.contains("NaN"), "{text}");
    }
}

#[test]
fn probes_run_here() {
    for probe in PROBES {
        let text = stdout_of(&format!("run probe {probe} --host native").replace("--readers 1", "--readers 0"));
        assert!(text.contains(", measured here on this ("), "{text}");
    }
}

#[test]
fn ffmpeg_runs_here() {
    let folder = folder();
    let line = "run ffmpeg --host native --mitigation baseline,all --duration 100ms --warm-up 50ms --burst-factor 0.1 --roles \
                --json result.json";
    let ended = end(hitm().current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("ffmpeg measured natively on this "), "{}", ended.stdout);
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("result.json")).unwrap()).unwrap();
    let runs = file["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["host"], "native");
        assert!(run["metric"]["value"].as_f64().unwrap() > 0.0, "no frame in a tenth of a second");
        assert!(run["operations"].as_object().unwrap().values().any(|count| count.as_u64() > Some(0)));
    }
    let again = end(hitm().current_dir(folder.path()).args(["c2c", "result.json"]));
    assert_eq!((again.status, again.stderr.as_str()), (Some(0), ""));
}
