//! Comparisons of saved results: what is printed, and what the command ends with.

use std::fs;

use expect_test::{Expect, expect, expect_file};
use serde_json::{Value, json};

use crate::command::{Ended, end, folder, hitm, read_checked};

/// Compares a saved result with itself after a change.
fn compared(change: impl Fn(&mut Value), rest: &[&str]) -> Ended {
    let folder = folder();
    let saved = include_str!("data/small.json");
    let mut file: Value = serde_json::from_str(saved).unwrap();
    // Narrow enough for a tenth to count.
    narrow(&mut file);
    fs::write(folder.path().join("before.json"), file.to_string()).unwrap();
    change(&mut file);
    fs::write(folder.path().join("after.json"), file.to_string()).unwrap();
    end(hitm().current_dir(folder.path()).args(["compare", "before.json", "after.json"]).args(rest))
}

fn narrow(file: &mut Value) {
    for run in file["runs"].as_array_mut().unwrap() {
        run["metric"]["interval"] = json!(1.0);
        run["relative_interval"] = json!(0.01);
    }
}

/// Makes a run's metric `factor` times as large.
fn times(file: &mut Value, run: usize, factor: f64) {
    let value = &mut file["runs"][run]["metric"]["value"];
    *value = json!(value.as_f64().unwrap() * factor);
}

#[test]
fn the_same_is_identical() {
    let ended = compared(|_| (), &[]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    expect![[r#"
        simulated: identical
        before: before.json (hitm 0.1.0)
        after: after.json (hitm 0.1.0)
    "#]]
    .assert_eq(&ended.stdout);
}

/// The same figures, of another command or made by a slower host, are no change; the files differ.
#[test]
fn identical_is_said_of_files_alone() {
    let ended = compared(|file| file["runs"][0]["wall_seconds"] = json!(77.0), &[]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout.lines().next(), Some("simulated: unchanged"));
}

/// What a gate must not be green for.
#[test]
fn what_is_not_comparable_has_a_status_of_its_own() {
    let check = |change: &dyn Fn(&mut Value), expect: Expect| {
        let ended = compared(change, &["--layout", "mail"]);
        assert_eq!(ended.status, Some(3), "{}", ended.stdout);
        expect.assert_eq(&ended.stderr);
    };
    let all = |key: &'static str, value: Value| move |file: &mut Value| file["runs"][1]["metric"][key] = value.clone();
    check(
        &|file| drop(file["runs"].as_array_mut().unwrap().pop()),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: not in `after.json`
    "#]],
    );
    check(
        &all("value", Value::Null),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: after: the metric has no number
    "#]],
    );
    check(
        &all("interval", Value::Null),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: after: the metric has no interval: more seeds or more time give one
    "#]],
    );
    check(
        &all("interval", json!(-1.0)),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: after: an interval is negative, or wider than any measurement's
    "#]],
    );
    check(
        &all("interval", json!(1e308)),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: after: an interval is negative, or wider than any measurement's
    "#]],
    );
    check(
        &all("unit", json!("1/min")),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: the metric was `frames_per_second [1/s], higher is better` and is `frames_per_second [1/min], higher is better`: two figures that cannot be compared
    "#]],
    );
    check(
        &|file| file["runs"][1]["relative_interval"] = json!(-1.0),
        expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: relative cannot be compared: after: an interval is negative, or wider than any measurement's
    "#]],
    );
    check(
        &|file| {
            file["runs"][1]["measured_nothing"] = json!(true);
        },
        expect![[r#"
            hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second cannot be compared: after: the run measured nothing
        "#]],
    );
    // What is left out is not asked about.
    let gone = |file: &mut Value| drop(file["runs"].as_array_mut().unwrap().pop());
    assert_eq!(compared(gone, &["--mitigation", "baseline"]).status, Some(0));
}

#[test]
fn better_ends_well_and_worse_does_not() {
    let ended = compared(|file| times(file, 1, 1.1), &["--layout", "mail"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    let ended = compared(|file| times(file, 1, 0.9), &["--layout", "mail"]);
    assert_eq!(ended.status, Some(1));
    expect![[r#"
        hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: frames per second is worse, -10.0 ±0.6 %
    "#]].assert_eq(&ended.stderr);
    expect![[r#"
        simulated: 1 worse, 0 better, 1 within the 95 % interval; 1 unchanged
        before.json -> after.json
        ffmpeg simulated on package:2 core:2, arbitration local-first, cohere...
        worse   all: 250 -> 225 1/s, -10.0 ±0.6 %; relative +0.0 ±1.4
        cycles waited per frame, without an interval:
        +11 %   852.4K -> 947.1K  futex_word.word, line 0 (3 lines) (all)
        +11 %   277.9K -> 308.8K  rto_mask_bits.cpus.word[0], line 0 (all)
    "#]]
    .assert_eq(&ended.stdout);
    // The other mitigation's run is what it was.
    let ended = compared(|file| times(file, 1, 0.9), &["--mitigation", "baseline"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
}

/// A field that stands on another line, a changed cost table, and a run that is gone.
fn another_layout(file: &mut Value) {
    let field = file["runs"][0]["lines"][0]["fields"].as_array_mut().unwrap().pop().unwrap();
    file["runs"][0]["lines"][1]["fields"].as_array_mut().unwrap().push(field);
    // A threshold is no matter to where a field stands.
    file["machines"][0]["model"]["same_llc_ns"] = json!(80.0);
    file["runs"].as_array_mut().unwrap().pop();
}

#[test]
fn what_moved_is_shown_and_decides_nothing() {
    let ended = compared(another_layout, &["--lines", "3"]);
    assert_eq!(ended.status, Some(3));
    let missing = "hitm: all, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full: not in `after.json`\n";
    assert_eq!(ended.stderr, missing);
    expect_file!["data/compare/full.txt"].assert_eq(&ended.stdout);
    assert!(ended.stdout.contains(" 2 -> 0 "), "{}", ended.stdout);
    let slower = |file: &mut Value| times(file, 0, 1.2);
    assert!(compared(slower, &[]).stdout.contains("misses per frame"));
    assert!(!compared(slower, &["--threshold", "1000"]).stdout.contains("misses per frame"));
}

#[test]
fn the_comparison_is_written_too() {
    let folder = folder();
    let path = folder.path().join("c.json");
    let ended = compared(|file| times(file, 1, 0.9), &["--json", path.to_str().unwrap()]);
    assert_eq!(ended.status, Some(1));
    let file: Value = read_checked(&path, "compare");
    assert_eq!((&file["schema"], &file["verdicts"]), (&json!("hitm-compare/2"), &json!({"worse": 1, "within": 1})));
}

#[test]
fn nothing_in_common_is_no_comparison() {
    let ended = compared(
        |file| file["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["arbitration"] = json!("fifo")),
        &[],
    );
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        hitm: no run is in both files: the first has baseline, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full, the second baseline, ffmpeg simulated on package:2 core:2, arbitration fifo, coherence full; run both with the same machine, mitigation and policies
    "#]].assert_eq(&ended.stderr);
    let ended = compared(
        |file| {
            let run = file["runs"][0].clone();
            file["runs"].as_array_mut().unwrap().push(run)
        },
        &[],
    );
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        hitm: result file `after.json`: it has this run twice: baseline, ffmpeg simulated on package:2 core:2, arbitration local-first, coherence full; write it again with each run once
    "#]].assert_eq(&ended.stderr);
}

#[test]
fn comparisons() {
    let check = |line: &str, expect: Expect| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data");
        let ended = end(hitm().current_dir(folder).args(crate::command::words(line)));
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{line}\n{}", ended.stderr);
        expect.assert_eq(&ended.stderr);
    };
    check(
        "compare",
        expect![[r#"
        hitm: the following required arguments were not provided: <BEFORE> <AFTER>; `hitm compare --help` shows what there is
    "#]],
    );
    check(
        "compare small.json",
        expect![[r#"
        hitm: the following required arguments were not provided: <AFTER>; `hitm compare --help` shows what there is
    "#]],
    );
    check(
        "compare small.json missing.json",
        expect![[r#"
        hitm: result file `missing.json`: No such file or directory (os error 2); give a file that `hitm run --json` wrote
    "#]],
    );
    check(
        "compare help/c2c.txt small.json",
        expect![[r#"
        hitm: result file `help/c2c.txt`: not JSON at line 1, column 1: it may be cut short; write it again with `hitm run --json`
    "#]],
    );
    check(
        "compare small.json small.json --mitigation cpupri-split",
        expect![[r#"
        hitm: result file `small.json`: no run of mitigation `cpupri-split`; name one of `baseline`, `all`
    "#]],
    );
    check(
        "compare small.json small.json --threshold -1",
        expect![[r#"
        hitm: invalid value '-1' for '--threshold <PERCENT>': not a number of percent from 0 to 1000000; `hitm compare --help` shows what there is
    "#]],
    );
    check(
        "compare small.json small.json --threshold nan",
        expect![[r#"
        hitm: invalid value 'nan' for '--threshold <PERCENT>': not a number of percent from 0 to 1000000; `hitm compare --help` shows what there is
    "#]],
    );
    check(
        "compare small.json small.json --json missing-folder/c.json",
        expect![[r#"
            hitm: --json `missing-folder/c.json`: No such file or directory (os error 2); name a file in a folder that can be written
        "#]],
    );
}
