//! `hitm run schbench`: what it prints, writes and refuses.

use expect_test::expect;
use serde_json::Value;

use crate::command::{SEARCHES, check_refused, end, folder, hitm, result_of, text_of, words};

const SHORT: &str = "--cputime 300us --sleeptime 300us --warm-up 1ms --duration 10ms --lines 0";

#[test]
fn every_load_has_a_row_with_every_search() {
    let line = format!("run schbench --machine icx-2x40 --cpus 16 --message-threads 1,3 --seeds 2 {SHORT}");
    let (text, runs) = result_of(&line);
    assert!(text.starts_with("schbench simulated on icx-2x40@16 "), "{text}");
    assert!(text.contains("\nwakeup latency p99: us, then over that of baseline ±95 %; lower is better\n"), "{text}");
    assert!(text.contains("delay from the start of the wakeup until the task ran, in microseconds\n"), "{text}");
    assert!(text.contains(" 50 %  75 %  90 %  95 %  99 %  99.5 %  99.9 %\n"), "{text}");
    assert!(text.contains("CPUs idle although a waiting task could have run there"), "{text}");
    assert!(!text.contains("NaN"), "{text}");
    let names: Vec<&str> = runs.iter().map(|run| text_of(run, "mitigation")).collect();
    assert_eq!(names, [SEARCHES, SEARCHES].concat());
    for (row, run) in runs.iter().enumerate() {
        let load = if row < SEARCHES.len() { "1 message thread" } else { "3 message threads" };
        assert_eq!(text_of(run, "profile"), format!("{load} --cputime 300000ns --sleeptime 300000ns"));
        let (metric, latency) = (&run["metric"], &run["latency"]);
        assert_eq!((text_of(metric, "better"), text_of(metric, "unit")), ("lower", "us"));
        // Ten rounds of each of four workers, with two seeds.
        assert!(latency["samples"].as_u64().unwrap() > 60, "{latency}");
        let late = latency["percentiles"].as_array().unwrap().iter().find(|pair| pair[0] == 99.0).unwrap();
        assert_eq!(late[1].as_f64().unwrap() / 1e3, metric["value"].as_f64().unwrap());
        assert!(metric["interval"].as_f64().unwrap() > 0.0, "{metric}");
    }
}

#[test]
fn the_baseline_over_itself_is_one_and_what_is_later_is_worse() {
    let folder = folder();
    let run = |threads: u32, file: &str| {
        let line = format!(
            "run schbench --machine core:4 --message-threads 1 --threads {threads} --mitigation baseline --seeds 1 {SHORT} \
             --json {file}"
        );
        let ended = end(hitm().current_dir(folder.path()).args(words(&line)));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        let path = folder.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["runs"][0]["relative"], 1.0);
        // As if both were of one load.
        std::fs::write(&path, text.replace(&format!(" --threads {threads}"), "")).unwrap();
    };
    run(2, "few.json");
    run(40, "many.json");
    let compare = |line: &str| end(hitm().current_dir(folder.path()).args(words(line)));
    let worse = compare("compare few.json many.json");
    assert_eq!(worse.status, Some(1), "{}", worse.stderr);
    assert!(worse.stderr.contains(": wakeup latency p99 is worse, +"), "{}", worse.stderr);
    assert_eq!(compare("compare many.json few.json").status, Some(0));
}

#[test]
fn natively_it_is_the_same_program() {
    let line = "run schbench --host native --message-threads 1,2 --mitigation baseline,shipped --cputime 1ms --sleeptime 1ms \
                --warm-up 10ms --duration 200ms";
    let (text, runs) = result_of(line);
    assert!(text.starts_with("schbench measured natively on this "), "{text}");
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|run| run["latency"]["samples"].as_u64().unwrap() > 0), "{text}");
}

#[test]
fn a_window_without_a_wakeup_has_no_figure() {
    let line = "run schbench --machine core:4 --message-threads 1 --mitigation baseline,shipped --warm-up 0s --duration 1ms \
                --seeds 1 --lines 0";
    let (text, runs) = result_of(line);
    assert!(!text.contains("NaN") && runs[0]["metric"]["value"].is_null(), "{text}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    check_refused(
        "run schbench --message-threads 4,4",
        expect![[r#"
        hitm: --message-threads: 4 is there twice; give it once
    "#]],
    );
    check_refused(
        "run schbench --message-threads 0",
        expect![[r#"
        hitm: invalid value '0' for '--message-threads <N>': 0 is not in 1..=1000; `hitm run schbench --help` shows what there is
    "#]],
    );
    check_refused(
        "run schbench --threads 0",
        expect![[r#"
        hitm: invalid value '0' for '--threads <N>': 0 is not in 1..=1000; `hitm run schbench --help` shows what there is
    "#]],
    );
    check_refused(
        "run schbench --cputime 0s",
        expect![[r#"
        hitm: invalid value '0s' for '--cputime <T>': no time at all: give more, as in `24ms`; `hitm run schbench --help` shows what there is
    "#]],
    );
}
