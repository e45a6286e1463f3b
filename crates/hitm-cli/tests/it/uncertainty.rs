//! Machines that are drawn from the ranges of the model's parameters.

use std::fs;
use std::path::Path;

use expect_test::expect;
use serde_json::Value;

use crate::command::{Ended, check_refused, folder, read_checked, run, words};

/// Eight CPUs for a short time: a machine takes milliseconds.
const SHORT: &str = "run tbench --work 4us --machine clx-2x20 --cpus 8 --clients 8 --warm-up 200us --duration 200us \
                     --mitigation idle-single-pass,shipped --uncertainty 5 --trajectories 1";

/// Runs a study, with its files in `folder`.
fn study(line: &str, folder: &Path) -> (Ended, Value) {
    let (json, state) = (folder.join("found.json"), folder.join("state.jsonl"));
    let files = ["--json", json.to_str().expect("plain text"), "--state", state.to_str().expect("plain text")];
    let ended = run(words(line).iter().map(String::as_str).chain(files));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    (ended, read_checked(&json, "uncertainty"))
}

fn machines(found: &Value) -> &Vec<Value> {
    found["studies"][0]["machines"].as_array().expect("machines")
}

#[test]
fn every_mitigation_runs_on_every_machine_and_a_study_goes_on_where_it_ended() {
    let place = folder();
    let (ended, found) = study(SHORT, place.path());
    let study_of = |found: &Value| found["studies"][0].clone();
    let parameters = study_of(&found)["parameters"].as_array().expect("parameters").clone();
    let all = machines(&found);
    // Five of the intervals; a trajectory moves each parameter, the policy and the seed once.
    assert_eq!(all.len(), 5 + 1 + parameters.len() + 2);
    for machine in all {
        let figures = machine["figures"].as_array().expect("figures");
        assert!(figures.len() == 3 && figures.iter().all(|figure| figure.as_f64() > Some(0.0)), "{machine}");
        for parameter in &parameters {
            let name = parameter["name"].as_str().expect("a name");
            let value = machine["parameters"][name].as_f64().expect("drawn");
            let [low, high] = ["low", "high"].map(|end| parameter[end].as_f64().expect("an end"));
            assert!((low * 0.999..=high * 1.001).contains(&value), "{name}: {value} of {low} to {high}");
        }
    }
    let moved: Vec<&str> = all.iter().filter_map(|machine| machine["moved"].as_str()).collect();
    assert!(["seed", "arbitration", "same_llc_ns"].iter().all(|name| moved.contains(name)), "{moved:?}");
    let conclusions = found["studies"][0]["conclusions"].as_array().expect("conclusions");
    assert_eq!(conclusions.len(), 3, "two gains and their order");
    for conclusion in conclusions {
        assert!(ended.stdout.contains(conclusion["words"].as_str().expect("words")), "{}", ended.stdout);
        assert!(!conclusion["decided_by"].as_array().expect("effects").is_empty(), "{conclusion}");
    }

    // What is left of an interrupted study is not run again, and the rest gives the same bytes.
    let path = place.path().join("state.jsonl");
    let lines = fs::read_to_string(&path).expect("kept");
    let kept: Vec<&str> = lines.split_inclusive('\n').take(11).collect();
    fs::write(&path, kept.concat()).expect("cut");
    let (again, resumed) = study(SHORT, place.path());
    assert!(again.stderr.contains("resumed: 10 of"), "{}", again.stderr);
    assert_eq!((again.stdout, resumed), (ended.stdout, found));
}

#[test]
fn what_the_user_sets_is_not_drawn() {
    let place = folder();
    let line = SHORT.replace("--trajectories 1", "--trajectories 0 --arbitration fifo --model other_package_ns=200");
    let (ended, found) = study(&line, place.path());
    assert_eq!(machines(&found).len(), 5);
    assert!(machines(&found).iter().all(|machine| machine["arbitration"] == "fifo"));
    let names = found["studies"][0]["parameters"].as_array().expect("parameters");
    assert!(names.iter().all(|parameter| parameter["name"] != "other_package_ns"));
    assert_eq!(found["studies"][0]["machine"]["model"]["other_package_ns"], 200.0);
    assert!(!ended.stdout.contains("decided by"), "no trajectory says what decides: {}", ended.stdout);
}

#[test]
fn another_study_does_not_continue_a_state() {
    let place = folder();
    let state = place.path().join("state.jsonl");
    study(&SHORT.replace("--trajectories 1", "--trajectories 0"), place.path());
    let line = SHORT.replace("--uncertainty 5", "--uncertainty 6");
    let files = ["--state", state.to_str().expect("plain text")];
    let ended = run(words(&line).iter().map(String::as_str).chain(files));
    assert_eq!(ended.status, Some(2), "{}", ended.stdout);
    let why = "it is of another study of uncertainty: machines for the intervals `5` there and `6` here";
    assert!(ended.stderr.contains(why) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
}

#[test]
fn published_figures_stand_beside_the_intervals_of_drawn_machines() {
    let place = folder();
    let path = place.path().join("found.json");
    let ended = run(["validate", "V2", "curves", "--uncertainty", "4", "--json", path.to_str().expect("plain text")]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let found = read_checked(&path, "validate-uncertainty");
    let rows = found["rows"].as_array().expect("rows");
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).expect("a row");
    let figures = of("load then CAS same package")["simulated"].as_array().expect("figures");
    assert_eq!(figures.len(), 4);
    assert!(figures.windows(2).any(|pair| pair[0] != pair[1]), "the machines differ: {figures:?}");
    // What set the model is never a prediction.
    let used = rows.iter().filter(|row| row["was_used"] == true).count();
    let coverage = &found["coverage"];
    assert!(used > 10 && coverage["predictions"] == 2, "{coverage}");
    let words = format!("{} of 2 predictions are inside", coverage["inside"]);
    assert!(ended.stdout.contains(&words), "{}", ended.stdout);
}

#[test]
fn what_a_study_cannot_do_is_refused() {
    check_refused(
        "run ffmpeg --uncertainty 5 --mitigation baseline",
        expect![[r#"
            hitm: --uncertainty: the baseline alone is compared with nothing; name a mitigation
        "#]],
    );
    check_refused(
        "run ffmpeg --uncertainty 1",
        expect![[r#"
            hitm: invalid value '1' for '--uncertainty <N>': 1 is not in 2..=10000; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check_refused(
        "run ffmpeg --trajectories 4",
        expect![[r#"
            hitm: the following required arguments were not provided: --uncertainty <N>; `hitm run ffmpeg --help` shows what there is
        "#]],
    );
    check_refused(
        "run ffmpeg --uncertainty 5 --host native",
        expect![[r#"
            hitm: --uncertainty: a native run has no use for it; leave it out, or leave out --host native
        "#]],
    );
    check_refused(
        "validate --uncertainty 5 --arbitration fifo",
        expect![[r#"
            hitm: the argument '--uncertainty <N>' cannot be used with '--arbitration <POLICY>'; `hitm validate --help` shows what there is
        "#]],
    );
}
