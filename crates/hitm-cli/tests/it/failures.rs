//! A run that comes to nothing takes nothing from the others.

use std::fs;

use expect_test::expect;
use serde_json::Value;

use crate::command::{check_refused, end, folder, hitm, run, words};

/// Starting the workload on one CPU takes about 4,000 accesses where there are others to help and
/// 6,000 where there are few: with a limit between them the larger machine gets past it and the
/// smaller one does not.
const BETWEEN: u64 = 5_000;

/// Pairs that only hand a number over get something done, although they never compute and no CPU
/// idles.
#[test]
fn a_program_that_gets_something_done_is_no_livelock() {
    let line = "run context1 --machine core:2 --mitigation baseline --seeds 1 --work 0us --livelock-after 400000 \
                --warm-up 1ms --duration 10ms --lines 0";
    let ended = run(words(line));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_machine_has_time_for_what_is_asked_for() {
    let line = "run schbench --machine 'core:1 pu:1' --message-threads 1 --threads 1 --sleeptime 10m --cputime 1ms \
                --warm-up 0s --duration 2h --seeds 1 --mitigation baseline";
    check_refused(
        line,
        expect![[r#"
        hitm: --duration 7200.00 s after --warm-up 0 ps: a simulated machine's time ends after 2251.80 s; ask for less
    "#]],
    );
    // The task sleeps past the end of the window, which comes before the end of time.
    let ended = run(words(&line.replace("2h", "30m")));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
}

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
        hitm: baseline on core:2, local-first, seed 1: livelock: CPUs go on, but for long none has computed, idled or got something done (simulated time ...; see it again, alone, with `--arbitration local-first --coherence full --mitigation baseline --seed 1 --seeds 1 --burst-factor 0.5`; and 1 more failed
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
        hitm: calibration: baseline on core:2, local-first, seed 1: livelock: CPUs go on, but for long none has computed, idled or got something done (simulated time ...; see it again, alone, with `--arbitration local-first --coherence full --mitigation baseline --seed 1 --seeds 1 --burst-factor 0.15`
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
