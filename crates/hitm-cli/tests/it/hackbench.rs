//! `hitm run hackbench`: what it prints, writes and refuses.

use expect_test::expect;
use serde_json::Value;

use crate::command::{SEARCHES, check_refused, result_of};

fn count(run: &Value, name: &str) -> f64 {
    run["operations"][name].as_f64().unwrap()
}

#[test]
fn every_search_passes_the_same_messages_on() {
    let (text, runs) =
        result_of("run hackbench --machine clx-2x20 --cpus 16 --groups 1,2 --fds 4 --loops 20 --seeds 2");
    assert!(text.starts_with("hackbench simulated on clx-2x20@16, threads over pipes, 1 group of 4 and 4"), "{text}");
    let names: Vec<&str> = runs.iter().map(|run| run["mitigation"].as_str().unwrap()).collect();
    assert_eq!(names, [SEARCHES, SEARCHES].concat());
    for (row, run) in runs.iter().enumerate() {
        let groups = 1 + row / SEARCHES.len();
        assert_eq!(count(run, "message"), (2 * groups * 4 * 4 * 20) as f64, "{run}");
        assert!(run["metric"]["value"].as_f64().unwrap() > 0.0, "{run}");
        assert!(count(run, "wake") >= (2 * groups * 8) as f64 && count(run, "probe") >= count(run, "wake"), "{run}");
        assert_eq!(count(run, "find"), 0.0, "no task is real-time: {run}");
    }
    let probes = |row: usize| count(&runs[row], "probe") / count(&runs[row], "wake");
    assert!(probes(1) <= probes(0) * 1.05, "the single pass looks at none twice: {} {}", probes(1), probes(0));
}

#[test]
fn the_same_seed_gives_the_same_time() {
    let run = || {
        let (_, runs) = result_of(
            "run hackbench --machine clx-2x20 --cpus 8 --groups 1 --fds 3 --loops 10 --seeds 1 --mitigation baseline",
        );
        (runs[0]["metric"]["value"].clone(), runs[0]["accesses"].clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn the_lines_are_those_of_the_time_that_is_measured() {
    let of = |coherence: &str| {
        let (text, mut runs) = result_of(&format!(
            "run hackbench --machine clx-2x20 --cpus 8 --groups 1 --fds 3 --loops 10 --seeds 1 --mitigation baseline \
             --coherence {coherence} --lines 3 --layout full"
        ));
        (text, runs.remove(0))
    };
    let objects = |run: &Value| -> Vec<String> {
        run["lines"].as_array().unwrap().iter().map(|line| line["object"].as_str().unwrap().to_owned()).collect()
    };
    let (text, full) = of("full");
    assert!(text.contains("simulated: hackbench, baseline on clx-2x20@8, arbitration local-first"), "{text}");
    assert!(text.contains("pipe.rs") && objects(&full).iter().any(|object| object == "pipe"), "{text}");
    assert!(objects(&full).iter().all(|object| object != "ready"), "all were there before: {text}");
    let (_, limit) = of("scheduler-free");
    assert!(objects(&limit).iter().all(|object| object != "rq"), "{limit}");
    let (text, free) = of("free");
    assert!(text.contains("coherence free") && free["misses"] == 0, "{text}");
    assert!(free["idle_share"].as_f64().unwrap() < 1.0 && free["accesses"].as_u64().unwrap() > 0, "{free}");
}

#[test]
fn natively_it_is_the_same_program() {
    let (text, runs) =
        result_of("run hackbench --host native --groups 1 --fds 3 --loops 10 --seeds 2 --mitigation baseline,shipped");
    assert!(text.starts_with("hackbench native on this"), "{text}");
    for run in &runs {
        assert_eq!(count(run, "message"), (2 * 3 * 3 * 10) as f64, "{run}");
        assert_eq!(run["accesses"], 0, "{run}");
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    check_refused(
        "run hackbench --mitigation baseline,baseline",
        expect![[r#"
            hitm: mitigation `baseline`: is there twice; name each once
        "#]],
    );
    check_refused(
        "run hackbench --duration 3ms",
        expect![[r#"
            hitm: --duration: hackbench ends when its work is done; leave it out
        "#]],
    );
    check_refused(
        "run hackbench --host native --lines 3",
        expect![[r#"
            hitm: --lines: a native run has no use for it; leave it out, or leave out --host native
        "#]],
    );
    check_refused(
        "run hackbench --host native --arbitration fifo",
        expect![[r#"
            hitm: --arbitration: a native run has no use for it; leave it out, or leave out --host native
        "#]],
    );
}
