//! `hitm run cid-bursts`: what it prints, writes and refuses.

use expect_test::expect;
use serde_json::Value;

use crate::command::{check_refused, result_of};

/// The share of the bursts of a run whose area was last used by `who`, and how long they took.
fn kind(run: &Value, who: &str) -> (f64, f64) {
    let kinds = run["bursts"]["kinds"].as_array().unwrap();
    let kind = kinds.iter().find(|kind| kind["name"] == who);
    kind.map_or((0.0, f64::NAN), |kind| (kind["share"].as_f64().unwrap(), kind["nanos"].as_f64().unwrap()))
}

fn nanos(run: &Value) -> f64 {
    run["metric"]["value"].as_f64().unwrap()
}

/// With 240 ms between two bursts of a thread the baseline's ids expire while other threads warm
/// up; the others' stay.
#[test]
fn ids_that_move_make_bursts_slow() {
    let (text, runs) = result_of("run cid-bursts --threads one-per-llc --delay 10ms --seeds 2");
    assert!(
        text.starts_with("cid-bursts, simulated on epyc-9654-2x96, seeds [1, 2], arbitration local-first"),
        "{text}"
    );
    let names: Vec<&str> = runs.iter().map(|run| run["mitigation"].as_str().unwrap()).collect();
    assert_eq!(names, ["per-cpu", "baseline", "cid-recent", "cid-owned", "shipped"]);
    let [per_cpu, baseline, recent, owned, shipped] = [0, 1, 2, 3, 4].map(|run| &runs[run]);
    assert_eq!(per_cpu["bursts"]["threads"], "24-core/24-L3");
    assert_eq!(baseline["bursts"]["published"], 3648.0);
    assert!(shipped["bursts"]["published"].is_null());
    let away = |run| kind(run, "another LLC").0 + kind(run, "another package").0;
    assert!(away(baseline) > 0.05, "{baseline}");
    for other in [per_cpu, recent, owned, shipped] {
        assert_eq!(away(other), 0.0, "{other}");
        assert!((kind(other, "the same core").0 - 0.8).abs() < 1e-9, "{other}");
        // What ids cost is not a part of a burst.
        assert!((nanos(other) / nanos(per_cpu) - 1.0).abs() < 0.02, "{other}");
    }
    assert!(nanos(baseline) > 1.5 * nanos(per_cpu), "{baseline}");
    assert!(kind(baseline, "another package").1 > kind(baseline, "another LLC").1, "{baseline}");
}

/// With 80 ms between two bursts nothing expires.
#[test]
fn ids_that_stay_cost_nothing() {
    let (_, runs) = result_of("run cid-bursts --threads llc --delay 10ms --seeds 1 --mitigation baseline --tick 1ms");
    assert_eq!(runs.len(), 2);
    assert!((nanos(&runs[1]) / nanos(&runs[0]) - 1.0).abs() < 0.02);
    assert_eq!(runs[1]["bursts"]["threads"], "8-core/1-L3");
}

#[test]
fn natively_it_is_the_same_program() {
    let (text, runs) =
        result_of("run cid-bursts --host native --delay 2ms --threads llc --mitigation baseline,shipped");
    assert!(text.starts_with("cid-bursts, measured here on "), "{text}");
    assert!(runs.len() >= 3, "per-cpu and two kinds of ids: {text}");
    for run in &runs {
        assert!(nanos(run) > 0.0 && run["bursts"]["published"].is_null(), "{run}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    check_refused(
        "run cid-bursts --delay 0ms",
        expect![[r#"
        hitm: invalid value '0ms' for '--delay <T>': no time at all: give more, as in `24ms`; `hitm run cid-bursts --help` shows what there is
    "#]],
    );
    check_refused(
        "run cid-bursts --mitigation baseline,baseline",
        expect![[r#"
            hitm: mitigation `baseline`: is there twice; name each once
        "#]],
    );
    check_refused(
        "run cid-bursts --mitigation cid-none",
        expect![[r#"
            hitm: mitigation `cid-none`: `cid-none` is not known; `hitm list mitigations` shows what there is
        "#]],
    );
    check_refused(
        "run cid-bursts --machine gnr-2x120",
        expect![[r#"
            hitm: --machine: `gnr-2x120` cannot have caches of limited size: its cost table `gnr` has no sizes with a source; take a machine of genoa or clx
        "#]],
    );
}
