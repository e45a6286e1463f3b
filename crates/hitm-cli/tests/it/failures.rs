//! A run that comes to nothing takes nothing from the others.

use std::fs;

use expect_test::expect;
use serde_json::Value;

use crate::command::{end, folder, hitm, words};

/// Starting the workload on one CPU takes about 4,000 accesses where there are others to help and 6,000 where there are few:
/// with a limit between them the larger machine gets past it and the smaller one does not.
const BETWEEN: u64 = 5_000;

#[test]
fn runs_that_finished_are_reported() {
    let folder = folder();
    let line = format!(
        "run ffmpeg --machine core:2 --machine core:64 --mitigation baseline,all --burst-factor 0.5 --duration 200us \
         --warm-up 0s --seeds 1 --lines 0 --livelock-after {BETWEEN} --json result.json"
    );
    let ended = end(hitm().current_dir(folder.path()).args(words(&line)));
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    // One line, which names the run, says what its CPUs waited for, and how to see it again.
    assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
    expect![[r#"
        hitm: baseline on core:2, local-first, seed 1: livelock: CPUs go on, but none has computed or idled for long (simulated time ...; see it again, alone, with `--arbitration local-first --coherence full --mitigation baseline --seed 1 --seeds 1 --burst-factor 0.5`; and 1 more failed
    "#]].assert_eq(&without_waits(&ended.stderr));
    let first: Vec<&str> = ended.stdout.lines().take(1).collect();
    expect![[r#"
        [
            "ffmpeg simulated on core:64 (1 package, 1 LLC, 64 cores, 64 CPUs, 1 node), seeds [1], arbitration local-first, coherence full, hitm 0.1.0",
        ]
    "#]].assert_debug_eq(&first);
    let text = fs::read_to_string(folder.path().join("result.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let runs = file["runs"].as_array().unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run["machine"].as_str(), run["mitigation"].as_str())).collect();
    assert_eq!(runs, [(Some("core:64"), Some("baseline")), (Some("core:64"), Some("all"))]);
    let failures = file["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 2);
    assert!(failures[1].as_str().unwrap().starts_with("all on core:2, local-first, seed 1: livelock: "));
}

#[test]
fn when_nothing_finished_nothing_is_printed_and_the_file_says_why() {
    let folder = folder();
    let line = "run ffmpeg --machine core:2 --mitigation baseline --livelock-after 100 --json result.json";
    let ended = end(hitm().current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(1), ""));
    expect![[r#"
        hitm: calibration: baseline on core:2, local-first, seed 1: livelock: CPUs go on, but none has computed or idled for long (simulated time ...; see it again, alone, with `--arbitration local-first --coherence full --mitigation baseline --seed 1 --seeds 1 --burst-factor 0.15`
    "#]].assert_eq(&without_waits(&ended.stderr));
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(file["runs"].as_array().unwrap().len(), 0);
    assert!(file["failures"][0].as_str().unwrap().starts_with("calibration: baseline on core:2"));
}

/// Where CPUs were and when differs with every change of the scheduler.
fn without_waits(line: &str) -> String {
    let (head, rest) = line.split_once("(simulated time ").expect("a stall");
    let (_, tail) = rest.split_once("; see it again").expect("how to see it again");
    assert!(rest.contains("; cpu 0: ") || rest.contains("; 2 cpus (0 to 1): "), "{line}");
    format!("{head}(simulated time ...; see it again{tail}")
}
