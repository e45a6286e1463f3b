//! `hitm run pi_stress`: what it refuses, what it prints, what it saves.

use std::fs;

use expect_test::expect;
use serde_json::Value;

use crate::command::{check_refused as check, end, folder, hitm, stdout_of, words};

#[test]
fn what_cannot_be_had_is_refused() {
    check(
        "run pi_stress --groups 0",
        expect![[r#"
            hitm: --groups 0: nobody would do anything; ask for one or more
        "#]],
    );
    check(
        "run pi_stress --groups 5 --machine core:4",
        expect![[r#"
        hitm: --groups 5: `core:4` has 4 CPUs and a group takes one; ask for fewer, or take a larger machine
    "#]],
    );
    check(
        "run pi_stress --groups -1",
        expect![[r#"
        hitm: invalid value '-1' for '--groups <N>': not a whole number; `hitm run pi_stress --help` shows what there is
    "#]],
    );
    check(
        "run pi_stress --burst-factor 1",
        expect![[r#"
        hitm: unexpected argument '--burst-factor' found; `hitm run pi_stress --help` shows what there is
    "#]],
    );
    check(
        "run pi_stress --duration 0s",
        expect![[r#"
        hitm: invalid value '0s' for '--duration <T>': no time at all: give more, as in `24ms`; `hitm run pi_stress --help` shows what there is
    "#]],
    );
}

/// A small run, whose shape is all that is looked at.
const SMALL: &str =
    "run pi_stress --machine core:4 --mitigation baseline,all --seeds 2 --duration 500us --warm-up 200us";

/// The words of the line that begins with `name`, in the part after `heading`.
fn row(text: &str, heading: &str, name: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let line = lines.skip(1).find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_inversion_takes_what_was_measured() {
    let text = stdout_of(&format!("{SMALL} --lines 0"));
    assert!(
        text.starts_with("pi_stress simulated on core:4 (1 package, 1 LLC, 4 cores, 4 CPUs, 1 node), seeds [1, 2], ")
    );
    for mitigation in ["baseline", "all"] {
        let row = row(&text, "operations per inversion", mitigation);
        let figures: Vec<f64> = row[1..].iter().map(|word| word.parse().unwrap()).collect();
        let [total, seconds, each @ ..] = figures.as_slice() else { panic!("{row:?}") };
        assert!(*total > 20.0 && *seconds == 0.001, "{row:?}");
        // So few inversions are cut by the window's ends.
        for (own, measured) in each.iter().zip([9.0, 14.0, 16.0, 2.0]) {
            assert!((own - measured).abs() < 16.0 * 8.0 / total, "{row:?}");
        }
    }
    assert_eq!(row(&text, "operations per inversion", "measured of rt-tests")[5..], ["9.00", "14.00", "16.00", "2.00"]);
}

#[test]
fn a_run_is_saved_and_the_same_again() {
    let folder = folder();
    let run = || {
        let line = format!("{SMALL} --groups 3 --roles --arbitration local-first,fifo --json result.json");
        let ended = end(hitm().current_dir(folder.path()).args(words(&line)));
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        let mut file: Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join("result.json")).unwrap()).unwrap();
        file["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["wall_seconds"] = 0.into());
        (ended.stdout, file)
    };
    let (text, file) = run();
    assert_eq!((text.clone(), file.clone()), run());
    assert!(text.contains("pi_stress simulated, baseline: per inversion\n"), "{text}");
    let runs = file["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!(run["workload"], "pi_stress");
        assert_eq!(run["profile"], "--groups 3");
        assert_eq!(run["metric"]["name"], "inversions_per_second");
        assert!(run["metric"]["value"].as_f64().unwrap() > 1e3, "{run}");
        assert!(run.get("published").is_none(), "nothing was published of this machine");
        let roles = run["roles"].as_array().unwrap();
        assert_eq!(
            roles.iter().map(|role| role["name"].as_str().unwrap()).collect::<Vec<_>>(),
            ["low", "med", "high", "admin"]
        );
        let changes: Vec<f64> = roles.iter().map(|role| role["priority_changes"].as_f64().unwrap()).collect();
        assert!(changes[0] > 1.0 && changes[1..] == [0.0; 3], "{changes:?}");
    }
    assert_eq!(file["calibrations"].as_array().unwrap().len(), 0, "nothing is fitted");
}

#[test]
fn it_runs_for_real() {
    let text =
        stdout_of("run pi_stress --host native --mitigation baseline --duration 200ms --warm-up 50ms --groups 1");
    assert!(text.starts_with("pi_stress measured natively on this ("), "{text}");
    let row = row(&text, "operations per inversion", "baseline");
    let total: f64 = row[1].parse().unwrap();
    assert!(total > 10.0, "{text}");
}
