//! `hitm run cyclic`: what it prints, writes and refuses.

use expect_test::expect;
use serde_json::Value;

use crate::command::{check_refused, result_of};

const SMALL: &str = "run cyclic --machine 'pack:2 l3:1 core:4 pu:2' --warm-up 1ms --duration 3ms --seeds 2";

#[test]
fn a_run_says_how_often_it_slept_and_how_late_it_woke() {
    let (text, runs) = result_of(&format!("{SMALL} --mitigation baseline,all --roles --lines 1"));
    assert!(text.starts_with("cyclic simulated on pack:2 l3:1 core:4 pu:2 "), "{text}");
    assert!(text.contains("\nwakeup delays of all instances, in nanoseconds\n"), "{text}");
    assert!(text.contains("\ncyclic simulated, baseline: per bogo operation\n"), "{text}");
    assert!(!text.contains("FFmpeg"), "nothing of it was measured of FFmpeg: {text}");
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!((&run["workload"], &run["profile"]), (&Value::from("cyclic"), &Value::Null));
        assert_eq!(run["metric"]["name"], "bogo_operations_per_second");
        let rate = run["metric"]["value"].as_f64().unwrap();
        // 16 instances, 100 us and what the kernel adds.
        assert!((140e3..160e3).contains(&rate), "{rate}");
        let role = &run["roles"][0];
        for (what, times) in [("wakes", 1.0), ("switches", 1.0), ("activations", 1.0), ("migrations", 0.0)] {
            let counted = role[what].as_f64().unwrap();
            assert!((counted - times).abs() < 0.03, "{what}: {counted} an operation");
        }
        let latency = &run["latency"];
        // Two seeds and 16 instances, a sample of each every 104 us.
        assert!((16 * 56..=16 * 58).contains(&latency["samples"].as_u64().unwrap()), "{latency}");
        let [min, mean, max] = ["min", "mean", "max"].map(|what| latency[what].as_f64().unwrap());
        assert!(2_000.0 < min && min < mean && mean < max && max < 20_000.0, "{latency}");
        assert!(run["published"].is_null(), "16 CPUs are not 480");
    }
}

/// What differs from stress-ng's defaults is named, does what it says, and has nothing published
/// beside it.
#[test]
fn options_change_the_workload_and_are_named() {
    let rate = |options: &str, profile: &str| {
        let (_, runs) = result_of(&format!("{SMALL} --mitigation baseline --lines 0 {options}"));
        assert_eq!(runs[0]["profile"].as_str().unwrap_or_default(), profile);
        runs[0]["metric"]["value"].as_f64().unwrap()
    };
    let usual = rate("", "");
    let near = |rate: f64, factor: f64| assert!((rate / usual / factor - 1.0).abs() < 0.05, "{rate} over {usual}");
    near(rate("--sleep 50us", "--sleep 50000ns"), 104.5 / 54.5);
    near(rate("--instances 8", "--instances 8"), 0.5);
    near(rate("--work 20us", "--work 20000ns"), 104.5 / 123.5);
    near(rate("--priority 3", "--priority 3"), 1.0);
    near(rate("--placement drawn", "--placement drawn"), 1.0);
}

#[test]
fn the_published_rows_stand_beside_480_cpus() {
    let line = "run cyclic --cpus 480 --warm-up 100us --duration 200us --seeds 1 --lines 0 --coherence free";
    let mitigations = "baseline,cpupri-split,root-domain-reordered,rto-count=node,cpupri-mask=node,all";
    let (_, runs) = result_of(&format!("{line} --mitigation {mitigations}"));
    let published: Vec<_> = runs.iter().map(|run| run["published"]["relative"].as_f64()).collect();
    assert_eq!(published, [Some(1.0), Some(1.314), Some(1.186), Some(1.504), Some(1.059), None]);
    let (_, runs) = result_of(&format!("{line} --mitigation cpupri-split --sleep 50us"));
    assert!(runs[0]["published"].is_null(), "of another sleep nothing was published");
}

#[test]
fn host_threads_change_nothing() {
    let result = |jobs: usize| {
        let (text, mut runs) = result_of(&format!("{SMALL} --mitigation baseline,all --jobs {jobs}"));
        runs.iter_mut().for_each(|run| _ = run.as_object_mut().unwrap().remove("wall_seconds"));
        (text, runs)
    };
    assert!(result(1) == result(3), "other bytes with other host threads");
}

#[test]
fn several_numbers_of_cpus_are_several_machines() {
    let (_, runs) = result_of(
        "run cyclic --machine 'core:8' --cpus 2..5,8 --mitigation baseline --lines 0 --seeds 1 --warm-up 1ms --duration 1ms",
    );
    let machines: Vec<_> = runs.iter().map(|run| run["machine"].as_str().unwrap()).collect();
    assert_eq!(machines, ["core:8@2", "core:8@4", "core:8@5", "core:8"]);
}

#[test]
fn cyclic_runs_here() {
    let (text, runs) =
        result_of("run cyclic --host native --mitigation baseline,all --duration 100ms --warm-up 20ms --roles");
    assert!(text.starts_with("cyclic measured natively on this "), "{text}");
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!(run["host"], "native");
        assert!(run["metric"]["value"].as_f64().unwrap() > 0.0);
        assert!(run["latency"]["samples"].as_u64().unwrap() > 0);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    check_refused(
        "run cyclic --instances 0",
        expect![[r#"
        hitm: invalid value '0' for '--instances <N>': 0 is not in 1..=65536; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --sleep 0us",
        expect![[r#"
        hitm: invalid value '0us' for '--sleep <T>': no time at all: give more, as in `24ms`; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --sleep 2s",
        expect![[r#"
        hitm: invalid value '2s' for '--sleep <T>': longer than a second: give less; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --work much",
        expect![[r#"
            hitm: invalid value 'much' for '--work <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run cyclic --help` shows what there is
        "#]],
    );
    check_refused(
        "run cyclic --priority 100",
        expect![[r#"
        hitm: invalid value '100' for '--priority <N>': 100 is not in 1..=99; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --placement best",
        expect![[r#"
        hitm: invalid value 'best' for '--placement <PLACEMENT>' [possible values: spread, drawn]; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --burst-factor 1",
        expect![[r#"
        hitm: unexpected argument '--burst-factor' found; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --cpus 480..2",
        expect![[r#"
        hitm: invalid value '480..2' for '--cpus <N>': it ends before it begins: write `2..480`; `hitm run cyclic --help` shows what there is
    "#]],
    );
    check_refused(
        "run cyclic --cpus 8,2..8",
        expect![[r#"
        hitm: --cpus: 8 is there twice; give it once
    "#]],
    );
    check_refused(
        "run cyclic --host native --arbitration fifo",
        expect![[r#"
        hitm: --arbitration: a native run has no use for it; leave it out, or leave out --host native
    "#]],
    );
}
