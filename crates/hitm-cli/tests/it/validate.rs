//! `hitm validate`: the recorded score is what is reached, the README says the same, and every miss
//! is explained.

use std::fs;
use std::path::PathBuf;

use expect_test::{expect, expect_file};

use crate::command::{check_refused, folder, read_checked, run};

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

    let file = read_checked(&PathBuf::from(path("validate.json")), "validate");
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

/// The experiments that are run by name only: each is in none of the usual ones.
#[test]
fn the_recorded_score_of_what_is_run_by_name_is_reached() {
    let folder = folder();
    let path = folder.path().join("score.toml");
    let ended = run(["validate", "HITMs", "scaling", "--record", path.to_str().expect("plain text")]);
    expect_file!["../../../hitm-lab/score-by-name.toml"].assert_eq(&fs::read_to_string(&path).expect("written"));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    // What was known before confirms nothing, and the six loops have all of their points.
    let rows = |start: &str| ended.stdout.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    assert!(rows("scaling count_atomic,").iter().all(|row| !row.contains("pass")), "{}", ended.stdout);
    assert_eq!(rows("scaling route_seqlock, 420 threads").len(), 1, "{}", ended.stdout);
}

/// With another parameter nothing is held against the score, and the output says what was changed.
#[test]
fn a_changed_model_says_so() {
    let ended = run(["validate", "V4", "--model", "invalidation_each_ns=10", "--arbitration", "fifo"]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("note: invalidation_each_ns is 10"), "{}", ended.stdout);
    assert!(ended.stdout.contains("(used, off)"), "80 sharers at 10 ns each are not within 5 %: {}", ended.stdout);
}

/// What this machine gives is asserted nowhere: only that all is there, and that rows which set a
/// number never count.
#[test]
fn this_machine_stands_beside_its_own_simulation() {
    let folder = folder();
    let path = folder.path().join("this.json");
    let ended = run(["validate", "--this", "--runs", "2", "--json", path.to_str().expect("plain text")]);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let file = read_checked(&path, "validate-this");
    assert_eq!((&file["schema"], &file["runs"]), (&"hitm-this/1".into(), &2.into()));
    let quantities = file["quantities"].as_array().expect("quantities");
    let sets: Vec<&str> = quantities
        .iter()
        .flat_map(|quantity| quantity["sets"].as_array().expect("a list"))
        .map(|set| {
            let (name, value) = (set[0].as_str().expect("a name"), &set[1]);
            assert_eq!(&file["model"][name], value, "{name} is the machine's");
            name
        })
        .collect();
    // Which ones depends on how busy the machine is: a quantity of which no run gave a figure sets
    // nothing.
    assert!(!sets.is_empty(), "no number of the machine was measured");
    let rows = file["rows"].as_array().expect("rows");
    if sets.contains(&"same_llc_ns") {
        let row = rows.iter().find(|row| row["name"] == "ping-pong same LLC, waits by trying").expect("it is run");
        assert!(row["verdict"] == "(used)" || row["measured"].is_null(), "{row}");
    }
    let mut counts = [("pass", 0), ("FAIL", 0)];
    for row in rows {
        let (name, verdict) = (row["name"].as_str().expect("a name"), &row["verdict"]);
        assert!(ended.stdout.contains(name), "{name} is printed");
        counts.iter_mut().filter(|(word, _)| verdict == word).for_each(|(_, count)| *count += 1);
        let ratio = row["ratio"].as_f64().map(|ratio| (ratio - 1.0).abs() <= 0.25);
        assert!(verdict != "pass" || ratio == Some(true), "{row}");
        assert!(verdict != "FAIL" || ratio == Some(false), "{row}");
        assert!(row["lacks"].is_null() || verdict == "FAIL", "{row}");
    }
    let [(_, passed), (_, failed)] = counts;
    let last = format!("{passed} of {} predictions are within 25 % of what was measured", passed + failed);
    assert!(ended.stdout.contains(&last), "{}", ended.stdout);
}

#[test]
fn refusals_are_one_line() {
    check_refused(
        "validate V99",
        expect![[r#"
        hitm: experiment `V99`: there is no such one; name some of V1, V2, V3, V4, V5, V6, V7, V11, V12, V13, V14, V15, curves, HITMs, scaling
    "#]],
    );
    check_refused(
        "validate --arbitration fifo,fifo",
        expect![[r#"
        hitm: --arbitration `fifo`: is there twice; give it once
    "#]],
    );
    check_refused(
        "validate --model nothing",
        expect![[r#"
        hitm: invalid value 'nothing' for '--model <NAME=VALUE>': give a name and a value, as in `follow_up_hits=0`; `hitm validate --help` shows what there is
    "#]],
    );
    check_refused(
        "validate --json /nowhere/at/all.json",
        expect![[r#"
            hitm: --json `/nowhere/at/all.json`: No such file or directory (os error 2); name a file in a folder that can be written
        "#]],
    );
    check_refused(
        "validate V12 --plot /dev/null",
        expect![[r#"
        hitm: --plot `/dev/null`: File exists (os error 17); name a folder that can be written to
    "#]],
    );
    check_refused(
        "validate --this V1",
        expect![[r#"
        hitm: the argument '--this' cannot be used with '[V1]...'; `hitm validate --help` shows what there is
    "#]],
    );
    check_refused(
        "validate --this --plot plots",
        expect![[r#"
        hitm: the argument '--this' cannot be used with '--plot <FOLDER>'; `hitm validate --help` shows what there is
    "#]],
    );
    check_refused(
        "validate --this --arbitration fifo,local-first",
        expect![[r#"
        hitm: --arbitration `local-first`: is one too many; give one with --this
    "#]],
    );
    check_refused(
        "validate --this --runs 0",
        expect![[r#"
        hitm: invalid value '0' for '--runs <N>': 0 is not in 1..=10000; `hitm validate --help` shows what there is
    "#]],
    );
    check_refused(
        "validate --runs 5",
        expect![[r#"
        hitm: the following required arguments were not provided: --this; `hitm validate --help` shows what there is
    "#]],
    );
    // Which parameters there are depends on the processor.
    let ended = run(["validate", "--this", "--model", "follow_ups=1"]);
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.lines().count()), (Some(2), "", 1));
    assert!(ended.stderr.starts_with("hitm: --model `follow_ups=1`: `follow_ups` is no parameter"), "{}", ended.stderr);
    check_refused(
        "validate --model follow_up_hits=-1",
        expect![[r#"
        hitm: --model `follow_up_hits=-1`: `follow_up_hits` cannot be -1: give a number from 0 to 255
    "#]],
    );
    check_refused(
        "validate --model follow_ups=1",
        expect![[r#"
            hitm: --model `follow_ups=1`: `follow_ups` is no parameter of this machine's model: take one of clock_ghz, cold_fault_factor, follow_up_hits, idle_exit_ns, idle_notice_ns, interrupt_delivery_ns, interrupt_delivery_other_package_ns, interrupt_entry_ns, interrupt_send_ns, invalidation_each_ns, llc_read_ns, load_hit_ns, load_window, memory_local_ns, memory_remote_ns, other_package_ns, overlapped_misses, page_copy_ns, page_fault_ns, queued_factor, refill_each_ns, rmw_hit_ns, same_core_ns, same_llc_ns, same_package_ns_hop_1, same_package_ns_hop_2, shared_core_factor, store_buffer, switch_ns, system_call_ns, timer_slack_ns, transfer_spread, upgrade_other_package_factor
        "#]],
    );
}
