//! What is listed, and what is made of a saved result.

use expect_test::{expect, expect_file};
use serde_json::Value;

use crate::command::{result_of, run, stdout_of};

#[test]
fn lists() {
    expect_file!["data/list/workloads.txt"].assert_eq(&stdout_of("list workloads"));
    expect_file!["data/list/machines.txt"].assert_eq(&stdout_of("list machines"));
    expect_file!["data/list/mitigations.txt"].assert_eq(&stdout_of("list mitigations"));
    expect_file!["data/list/objects.txt"].assert_eq(&stdout_of("list objects"));
}

#[test]
fn layouts() {
    expect_file!["data/layout/root_domain.txt"].assert_eq(&stdout_of("layout root_domain"));
    let all = stdout_of("layout root_domain --mitigation all+as-posted");
    expect_file!["data/layout/root_domain-all-as-posted.txt"].assert_eq(&all);
    // What `hitm list objects` names has a layout.
    for line in stdout_of("list objects").lines().skip(2) {
        let object = line.split_whitespace().next().expect("a name");
        let text = stdout_of(&format!("layout {object}"));
        assert!(text.starts_with(&format!("{object} (baseline): ")), "{text}");
    }
}

/// Short runs of every workload that has lines.
const WITH_LINES: [&str; 10] = [
    "ffmpeg --cpus 16 --burst-factor 0.05 --mitigation baseline,shipped --warm-up 1ms --duration 2ms",
    "cyclic --cpus 8 --mitigation baseline,shipped --warm-up 100us --duration 1ms",
    "pi_stress --cpus 8 --mitigation baseline,shipped --warm-up 100us --duration 2ms",
    "tbench --cpus 8 --clients 8 --work 3us --mitigation baseline,shipped --warm-up 1ms --duration 2ms",
    "netperf --cpus 8 --work 1us --mitigation shipped --warm-up 100us --duration 1ms",
    "schbench --cpus 8 --message-threads 1 --mitigation shipped",
    "cid-storms --cpus 8 --mitigation baseline,shipped --warm-up 100us --duration 1ms",
    "context1 --cpus 8 --mitigation baseline,shipped --warm-up 1ms --duration 2ms",
    "hackbench --cpus 8 --groups 1 --fds 4 --mitigation baseline,shipped --channels pipes",
    "hackbench --cpus 8 --groups 1 --fds 4 --mitigation baseline,shipped --channels sockets",
];

#[test]
fn every_contended_word_has_a_name() {
    for line in WITH_LINES {
        let (_, runs) = result_of(&format!("run {line} --seeds 1"));
        let each = |value: &Value, key: &str| value[key].as_array().expect(key).clone();
        let lines: Vec<Value> = runs.iter().flat_map(|run| each(run, "lines")).collect();
        assert!(!lines.is_empty(), "{line}");
        for shared in lines {
            for field in each(&shared, "fields") {
                let name = field["field"].as_str().expect("a field");
                assert!(!name.starts_with('+'), "{line}: {}[{}]: {field}", shared["object"], shared["index"]);
            }
        }
    }
}

fn c2c(rest: &[&str]) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/small.json");
    let ended = run(["c2c", file].iter().chain(rest));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    ended.stdout
}

#[test]
fn a_saved_result_in_both_forms() {
    expect_file!["data/c2c/full.txt"].assert_eq(&c2c(&["--mitigation", "baseline", "--lines", "3"]));
    expect_file!["data/c2c/mail.txt"].assert_eq(&c2c(&["--mitigation", "baseline", "--layout", "mail"]));
}

#[test]
fn all_runs_of_a_file_stand_below_each_other() {
    let both = c2c(&["--lines", "1"]);
    let single = |mitigation| c2c(&["--lines", "1", "--mitigation", mitigation]);
    assert_eq!(both, format!("{}\n{}", single("baseline"), single("all")));
    let heads: Vec<&str> = both.lines().filter(|line| line.starts_with("simulated: ")).collect();
    expect![[r#"
        [
            "simulated: ffmpeg, baseline on package:2 core:2, arbitration local-first",
            "simulated: ffmpeg, all on package:2 core:2, arbitration local-first",
        ]
    "#]]
    .assert_debug_eq(&heads);
}
