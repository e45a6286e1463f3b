//! `hitm run tbench` and `hitm run netperf`: what they print, write and refuse.

use expect_test::expect;
use serde_json::Value;

use crate::command::{SEARCHES, check_refused, result_of, text_of};

const SHORT: &str = "--warm-up 200us --duration 1ms --seeds 2 --work 2us";

/// Searches of `run`, and lines missed on in each.
fn placed(run: &Value) -> (f64, f64) {
    let cost = run["costs"].as_array().unwrap().iter().find(|cost| cost["name"] == "place").unwrap();
    (cost["times"].as_f64().unwrap(), cost["misses"].as_f64().unwrap())
}

#[test]
fn every_load_has_a_row_with_every_search() {
    let (text, runs) = result_of(&format!("run tbench --machine clx-2x20 --cpus 16 --clients 1,6 --lines 0 {SHORT}"));
    assert!(text.starts_with("tbench simulated on clx-2x20@16 "), "{text}");
    assert!(text.contains("throughput: MB/s, then over that of baseline ±95 %\n"), "{text}");
    assert!(!text.contains("beside what was published"), "another machine's figures say nothing of this one: {text}");
    let names: Vec<&str> = runs.iter().map(|run| text_of(run, "mitigation")).collect();
    assert_eq!(names, [SEARCHES, SEARCHES].concat());
    for (row, run) in runs.iter().enumerate() {
        assert_eq!(text_of(run, "profile"), if row < SEARCHES.len() { "1 client" } else { "6 clients" });
        assert_eq!(text_of(&run["metric"], "unit"), "MB/s");
        let (times, misses) = placed(run);
        assert!(times > 50.0 && misses > 0.0, "{run}");
        assert!(run["kernel_share"].as_f64().unwrap() > 0.1, "its costs are in the same account: {run}");
    }
}

#[test]
fn published_figures_stand_beside_those_of_their_machine() {
    let line = "run netperf --size 64,4096 --mitigation idle-candidate,idle-single-pass --lines 0";
    let (text, runs) = result_of(&format!("{line} {SHORT}"));
    assert!(text.starts_with("netperf simulated on bdw-2x20 "), "{text}");
    let published: Vec<&str> = text.split("beside what was published").nth(1).unwrap().lines().collect();
    let row_of = |size: &str| published.iter().find(|line| line.starts_with(size)).unwrap().to_string();
    let small = row_of("udp-stream, 64 bytes, 1 client");
    assert!(small.contains(" 232.8 ") && small.ends_with(" +10.8"), "{small}");
    assert!(row_of("udp-stream, 4096 bytes, 1 client").ends_with(" +7.2"), "{published:?}");
    assert_eq!(text_of(&runs[0]["metric"], "unit"), "Mbit/s");
}

#[test]
fn work_is_fitted_on_the_published_machine_alone() {
    let line = "run netperf --machine 'pack:2 core:2 pu:2' --test rr --clients 2 --mitigation baseline --lines 0";
    let (text, runs) = result_of(&format!("{line} --warm-up 200us --duration 1ms --seeds 1"));
    assert!(text.contains("calibration: work_us = "), "{text}");
    assert!(
        text.contains(
            " for 232.78 Mbit/s of udp-stream, 64 bytes, 1 client with idle-candidate on bdw-2x20 (reached 23"
        ),
        "{text}"
    );
    assert_eq!(text_of(&runs[0], "profile"), "rr, 2 clients");
}

#[test]
fn natively_they_are_the_same_programs() {
    for line in ["tbench --clients 1,2", "netperf --size 64", "netperf --test rr"] {
        let line = format!("run {line} --host native --mitigation baseline,shipped --warm-up 10ms --duration 200ms");
        let (text, runs) = result_of(&line);
        assert!(text.contains(" measured natively on this "), "{text}");
        assert!(runs.iter().all(|run| run["metric"]["value"].as_f64().unwrap() > 0.0), "{text}");
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    check_refused(
        "run tbench --clients 4,4",
        expect![[r#"
            hitm: --clients: 4 is there twice; give it once
        "#]],
    );
    check_refused(
        "run netperf --test rr --size 64",
        expect![[r#"
            hitm: --size: a byte goes there and back with --test rr; leave one out
        "#]],
    );
    check_refused(
        "run netperf --size 70000",
        expect![[r#"
        hitm: invalid value '70000' for '--size <N>': 70000 is not in 1..=65507; `hitm run netperf --help` shows what there is
    "#]],
    );
}
