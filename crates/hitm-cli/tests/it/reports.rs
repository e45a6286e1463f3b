//! What is listed, and what is made of a saved result.

use std::fs;

use expect_test::{expect, expect_file};
use serde_json::Value;

use crate::command::{end, folder, hitm, result_of, run, stdout_of, words};

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
    expect_file!["data/c2c/full.txt"].assert_eq(&c2c(&[
        "--mitigation",
        "baseline",
        "--lines",
        "3",
        "--layout",
        "full",
    ]));
    expect_file!["data/c2c/mail.txt"].assert_eq(&c2c(&["--mitigation", "baseline", "--layout", "mail"]));
}

/// Reports fit the width that they are given, down to 80 columns.
#[test]
fn reports_fit_the_terminal() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/small.json");
    let run = "run ffmpeg --machine core:2 --duration 1ms --warm-up 0s --seeds 1 --burst-factor 0.1 --mitigation baseline,all";
    let compare = format!("compare {file} {file}");
    let c2c = format!("c2c {file}");
    let lines = [
        run,
        &compare,
        &c2c,
        "list mitigations",
        "list machines",
        "list objects",
        "layout rq",
        "run probe mask --machine core:4",
    ];
    for (width, line) in [80, 100, 120].into_iter().flat_map(|width| lines.map(|line| (width, line))) {
        let ended = end(hitm().env("COLUMNS", width.to_string()).args(words(line)));
        assert_eq!(ended.status, Some(0), "{line}: {}", ended.stderr);
        let wide: Vec<&str> = ended.stdout.lines().filter(|line| line.chars().count() > width).collect();
        assert!(wide.is_empty(), "{line} in {width} columns:\n{}", wide.join("\n"));
    }
    expect_file!["data/c2c/brief.txt"].assert_eq(&c2c_in_80(&["--mitigation", "baseline", "--lines", "2"]));
}

fn c2c_in_80(rest: &[&str]) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/small.json");
    end(hitm().env("COLUMNS", "80").args(["c2c", file]).args(rest)).stdout
}

#[test]
fn a_run_that_measured_nothing_says_so() {
    let folder = folder();
    let line = "run ffmpeg --machine core:2 --duration 1us --warm-up 0s --seeds 1 --burst-factor 1 --mitigation baseline,all \
                --json r.json --lines 0";
    let ended = end(hitm().current_dir(folder.path()).args(words(line)));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    for mitigation in ["baseline", "all"] {
        let warning = format!(
            "warning: ffmpeg (x264), {mitigation}: nothing was measured; measure for longer, with --duration\n"
        );
        assert!(ended.stdout.contains(&warning), "{}", ended.stdout);
    }
    assert!(!ended.stdout.contains("1.000"), "{}", ended.stdout);
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(
        (&file["runs"][0]["measured_nothing"], &file["runs"][0]["relative"]),
        (&Value::Bool(true), &Value::Null)
    );
    let compared = end(hitm().current_dir(folder.path()).args(["compare", "r.json", "r.json"]));
    assert_eq!(compared.status, Some(3), "{}", compared.stderr);
    assert!(compared.stderr.contains("the run measured nothing"), "{}", compared.stderr);
}

/// A result file may come from anywhere, and arguments from a script.
#[test]
fn no_report_controls_the_terminal() {
    let folder = folder();
    let saved = include_str!("data/small.json").replace("\"baseline\"", "\"\\u001b[2Jbaseline\"");
    fs::write(folder.path().join("r.json"), saved).unwrap();
    for line in ["c2c r.json", "c2c r.json --layout full", "c2c r.json --layout mail", "compare r.json r.json"] {
        let ended = end(hitm().current_dir(folder.path()).args(words(line)));
        assert!(!(ended.stdout + &ended.stderr).contains('\u{1b}'), "{line}");
    }
    let ended = run(["run", "ffmpeg", "--machine", "\u{1b}[2J"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("\\u{1b}[2J") && !ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
}

#[test]
fn the_last_of_repeated_flags_counts_and_lists_add_up() {
    let ended = run(words("layout root_domain --mitigation baseline --mitigation all"));
    assert!(ended.stdout.starts_with("root_domain (all):"), "{}{}", ended.stdout, ended.stderr);
    let line = "run probe counter --machine core:2 --machine core:4 --seed 1 --seed 2 --duration 1us";
    let ended = run(words(line));
    assert!(
        ended.stdout.contains("seeds [2, 3, 4]") && ended.stdout.contains("core:2") && ended.stdout.contains("core:4"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
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
