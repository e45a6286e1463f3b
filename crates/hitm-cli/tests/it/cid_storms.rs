//! `hitm run cid-storms`: what it prints, writes and refuses.

use expect_test::expect;
use serde_json::Value;

use crate::command::{check_refused, result_of};

const SMALL: &str = "run cid-storms --machine 'pack:2 l3:2 core:4 pu:2' --warm-up 100us --duration 500us --seeds 2";

/// What an operation pays for ids, of `what`.
fn ids(run: &Value, what: &str) -> f64 {
    let costs = run["costs"].as_array().unwrap();
    costs.iter().find(|cost| cost["name"] == "ids").unwrap()[what].as_f64().unwrap()
}

#[test]
fn every_load_says_what_ids_cost() {
    for load in ["create-few", "create-many", "migrate-few", "migrate-many", "affinity"] {
        let (text, runs) = result_of(&format!("{SMALL} --load {load} --lines 0"));
        assert!(text.starts_with("cid-storms simulated on pack:2 l3:2 core:4 pu:2 "), "{text}");
        assert!(text.contains("; of concurrency ids per operation\n"), "{text}");
        let names: Vec<&str> = runs.iter().map(|run| run["mitigation"].as_str().unwrap()).collect();
        assert_eq!(names, ["baseline", "cid-recent", "cid-owned", "cid-shipped", "shipped"]);
        for run in &runs {
            assert_eq!((&run["profile"], &run["metric"]["name"]), (&load.into(), &"operations_per_second".into()));
            let operations = run["metric"]["value"].as_f64().unwrap() * 0.5e-3 * 2.0;
            assert!(operations > 100.0, "{operations} operations: {run}");
            // A switch to a thread and one away from it are two accesses at the least.
            assert!(ids(run, "accesses") > 2.0 && ids(run, "misses") < ids(run, "accesses"), "{run}");
        }
        // The same ids over two schedulers take about the same accesses, where as many wake as
        // often.
        let [alone, within] = [3, 4].map(|run| ids(&runs[run], "accesses"));
        assert!((0.5..2.0).contains(&(alone / within)), "{load}: {alone} and {within}");
    }
}

#[test]
fn natively_it_is_the_same_program() {
    let line = "run cid-storms --host native --mitigation baseline,shipped --duration 500ms --warm-up 10ms";
    for load in ["create-few", "migrate-many", "affinity"] {
        let (text, runs) = result_of(&format!("{line} --load {load}"));
        assert!(text.starts_with("cid-storms measured natively on this "), "{text}");
        assert!(runs.iter().all(|run| run["metric"]["value"].as_f64().unwrap() > 0.0), "{text}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    check_refused(
        "run cid-storms --load exec",
        expect![[r#"
        hitm: invalid value 'exec' for '--load <LOAD>' [possible values: create-few, create-many, migrate-few, migrate-many, affinity]; `hitm run cid-storms --help` shows what there is
    "#]],
    );
    check_refused(
        "run cid-storms --mitigation cid-recent+cid-owned",
        expect![[r#"
        hitm: mitigation `cid-recent+cid-owned`: `cid-owned` cannot be joined to another way of handing ids out; `hitm list mitigations` shows what there is
    "#]],
    );
}
