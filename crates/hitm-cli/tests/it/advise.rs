//! Advice on layouts, and what a simulation of it predicts.

use std::fs;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::command::{Ended, end, folder, hitm, read_checked, words, workspace};

/// A run of ffmpeg on the root domain of Linux v6.16, on a part of the published machine.
const BASELINE: &str = "run ffmpeg --cpus 96 --mitigation baseline --seeds 1 --burst-factor 0.0624 --duration 6ms \
                        --warm-up 1ms --lines 0 --json r.json";

/// Returns whether a text has lines of the progress alone: a slow host shows some.
pub(crate) fn is_progress(text: &str) -> bool {
    text.lines().all(|line| line.starts_with("hitm: ") && line.contains(" runs, "))
}

/// Runs the baseline, and advises on it.
fn advised(rest: &str) -> (Ended, Value) {
    let folder = folder();
    let ended = end(hitm().current_dir(folder.path()).args(words(BASELINE)));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let line = format!("advise r.json --json a.json {rest}");
    let ended = end(hitm().current_dir(folder.path()).args(words(&line)));
    assert_eq!(ended.status, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(is_progress(&ended.stderr), "{}", ended.stderr);
    let advice = read_checked(&folder.path().join("a.json"), "advise");
    (ended, advice)
}

fn suggestions(advice: &Value) -> &[Value] {
    advice["suggestions"].as_array().unwrap()
}

/// The published patches, each as a layout that parts what it parts.
#[test]
fn the_four_published_patches_are_found() {
    let (_, advice) = advised("--try 0");
    let moves = |object: &str, field: &str| {
        suggestions(&advice).iter().position(|own| {
            let groups = own["plan"]["groups"].as_array().into_iter().flatten();
            let mut fields = groups.flat_map(|group| group.as_array().unwrap());
            own["object"] == object && fields.any(|own| own == field)
        })
    };
    let splits = |object: &str, field: &str| {
        suggestions(&advice).iter().position(|own| {
            let mut fields = own["plan"]["split"]["fields"].as_array().into_iter().flatten();
            own["object"] == object && fields.any(|own| own.as_str().unwrap().starts_with(field))
        })
    };
    let found = [
        ("1: counts apart from masks", moves("root_domain", "cpupri.pri_to_cpu[99].count")),
        ("2: what is read apart from what is written", moves("root_domain", "rto_mask")),
        ("3: the count of overloaded CPUs split", splits("root_domain", "rto_count")),
        ("4: the masks split", splits("cpupri_mask", "level[")),
    ];
    for (patch, place) in found {
        assert!(place.is_some_and(|place| place < 20), "patch {patch}: {place:?}");
    }
    // What is parted on one line is waited for on the next: so all lines at once are advised, too.
    let whole =
        suggestions(&advice).iter().find(|own| own["title"].as_str().unwrap().starts_with("separate on 2 lines"));
    assert!(whole.is_some(), "{:#?}", suggestions(&advice).iter().map(|own| &own["title"]).collect::<Vec<_>>());
}

/// So many as were asked for, the largest gain first, and both advisors without a reason. What they
/// gain is in docs/advise.md: a window of six milliseconds says little.
#[test]
fn layouts_are_simulated_in_pairs_and_ordered_by_their_gain() {
    let (ended, advice) = advised("--try 3 --seeds 2 --controls --together");
    let gain = |own: &Value| own["predicted"]["gain"].as_f64();
    let gains: Vec<f64> = suggestions(&advice).iter().map_while(gain).collect();
    assert_eq!(gains.len(), 3, "{}", ended.stdout);
    assert!(gains.is_sorted_by(|one, other| one >= other), "{gains:?}");
    assert!(gains.iter().any(|gain| *gain != 0.0), "a layout that moves fields changes the run");
    assert_eq!(advice["controls"].as_array().unwrap().iter().filter_map(gain).count(), 2);
    assert_eq!(advice["seeds"], json!([1, 2]));
    assert!(ended.stdout.contains("2 pairs of runs, each with the same random seed"), "{}", ended.stdout);
    // One on another: all three, and the advisor that moves fields at random.
    let together = &advice["together"];
    let steps = together["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4, "{together:#}");
    assert_eq!(steps[0]["title"], suggestions(&advice)[0]["title"], "the largest gain comes first");
    assert_eq!((&steps[3]["title"], &steps[3]["is_kept"]), (&json!("move fields at random"), &json!(false)));
    for step in steps {
        let (gain, interval) = (step["predicted"]["gain"].as_f64(), step["predicted"]["interval"].as_f64());
        let is_gain = gain.zip(interval).is_some_and(|(gain, interval)| gain > interval);
        assert!(is_gain || step["is_kept"] == false, "{step:#}");
    }
    let kept = steps.iter().filter(|step| step["is_kept"] == true).count();
    assert_eq!(together["predicted"].is_object(), kept > 0, "{together:#}");
    assert!(ended.stdout.contains("\ntogether: "), "{}", ended.stdout);
}

#[test]
fn what_cannot_be_advised_on_has_status_2() {
    let check = |change: &dyn Fn(&mut Value), rest: &str, expect: Expect| {
        let folder = folder();
        let saved = fs::read_to_string(workspace("results/ffmpeg.json")).unwrap();
        let mut file: Value = serde_json::from_str(&saved).unwrap();
        change(&mut file);
        fs::write(folder.path().join("r.json"), file.to_string()).unwrap();
        let line = format!("advise r.json {rest}");
        let ended = end(hitm().current_dir(folder.path()).args(words(&line)));
        assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        expect.assert_eq(&ended.stderr);
    };
    check(
        &|_| {},
        "--mitigation shipped",
        expect![[r#"
        hitm: result file `r.json`: it has no such run; its runs are `baseline`
    "#]],
    );
    check(
        &|file| file["runs"] = json!([]),
        "",
        expect![[r#"
        hitm: result file `r.json`: it has no runs; write it again with `hitm run --json`
    "#]],
    );
    check(
        &|_| {},
        "--together --try 0",
        expect![[r#"
        hitm: --together: --try 0 simulates nothing; leave one of the two out
    "#]],
    );
    check(
        &|file| file["command"] = json!(["sweep", "ffmpeg"]),
        "",
        expect![[r#"
        hitm: result file `r.json`: it is not of `hitm run` or `hitm exec`: give --try 0 to see what it lost
    "#]],
    );
    check(
        &|file| file["runs"][0]["host"] = json!("native"),
        "",
        expect![[r#"
        hitm: result file `r.json`: a native run has no lines; advise on a simulated one
    "#]],
    );
}
