//! `hitm validate`: the recorded score is what is reached, the README says the same, and every miss is explained.

use std::fs;
use std::path::PathBuf;

use expect_test::{expect, expect_file};
use serde_json::Value;

use crate::command::{check_refused, folder, run};

#[test]
fn the_recorded_score_is_reached_and_the_readme_says_so() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).into_os_string();
    let words: [std::ffi::OsString; 7] = [
        "validate".into(),
        "--record".into(),
        path("score.toml"),
        "--json".into(),
        path("validate.json"),
        "--plot".into(),
        path("plots"),
    ];
    let ended = run(words);
    let recorded = fs::read_to_string(path("score.toml")).expect("written");
    // Updating first: a score that got worse on purpose is recorded by the same command.
    expect_file!["../../../hitm-lab/score.toml"].assert_eq(&recorded);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);

    let (_, score) = ended.stdout.split_once("\n                         predictions").expect("a score");
    let readme = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("the README");
    assert!(readme.contains(score), "README.md has another score than:\n{score}");

    let file: Value = serde_json::from_str(&fs::read_to_string(path("validate.json")).expect("written")).expect("JSON");
    assert_eq!(file["schema"], "hitm-validate/1");
    for experiment in file["experiments"].as_array().expect("experiments") {
        let fits = experiment["fits"].as_str().expect("a policy");
        let rows = experiment["rows"].as_array().expect("rows");
        let fails = rows.iter().any(|row| row["simulated"][fits]["verdict"] == "FAIL");
        let explained = !experiment["lacks"].as_array().expect("words").is_empty();
        assert_eq!(fails, explained, "{}: what fails says what the model lacks", experiment["title"]);
    }
    for curve in ["contended-add-8x8176", "sosp13-xeon-mcs-lock"] {
        let plot = folder.path().join(format!("plots/{curve}.svg"));
        assert!(fs::read_to_string(plot).expect("drawn").contains("published"));
    }
}

/// With another parameter nothing is held against the score, and the output says what was changed.
#[test]
fn a_changed_model_says_so() {
    let ended = run(["validate", "V4", "--model", "invalidation_each_ns=10", "--arbitration", "fifo"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("note: invalidation_each_ns is 10"), "{}", ended.stdout);
    assert!(ended.stdout.contains("(used, off)"), "80 sharers at 10 ns each are not within 5 %: {}", ended.stdout);
}

#[test]
fn refusals_are_one_line() {
    check_refused("validate V99", expect![[""]]);
    check_refused("validate --arbitration fifo,fifo", expect![[""]]);
    check_refused("validate --model nothing", expect![[""]]);
    check_refused("validate --json /nowhere/at/all.json", expect![[""]]);
    check_refused("validate V12 --plot /dev/null", expect![[""]]);
    check_refused("validate --model follow_up_hits=-1", expect![[""]]);
    check_refused("validate --model follow_ups=1", expect![[""]]);
}
