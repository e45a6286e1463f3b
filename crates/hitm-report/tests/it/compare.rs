//! Comparisons of files with known answers, and properties that hold for any two.

use std::collections::BTreeMap;

use expect_test::{expect, expect_file};
use hitm_report::compare::{Change, Comparison, THRESHOLD, Verdict, compare};
use hitm_report::result::{Better, Field, Host, Line, Machine, Metric, Objects, ResultFile, Run, SCHEMA, Site};
use proptest::prelude::*;

fn metric(value: f64, interval: f64) -> Metric {
    let (name, unit, better) = ("frames_per_second".into(), "1/s".into(), Better::Higher);
    Metric { name, value, interval, unit, better }
}

/// A run of two seconds.
fn run(mitigation: &str, value: f64, interval: f64) -> Run {
    Run {
        workload: "ffmpeg".into(),
        mitigation: mitigation.into(),
        host: Host::Simulated,
        machine: "core:4".into(),
        arbitration: "fifo".into(),
        coherence: "full".into(),
        seeds: vec![1],
        metric: metric(value, interval),
        kernel_share: 0.2,
        simulated_seconds: 2.0,
        ..Run::default()
    }
}

fn file(runs: Vec<Run>) -> ResultFile {
    ResultFile { schema: SCHEMA.into(), version: "0.1.0".into(), runs, ..ResultFile::default() }
}

/// A line of one field. Every load of it missed and waited `cycles`.
fn line(object: &str, line: u32, field: &str, misses: u64, cycles: f64) -> Line {
    let text = format!(
        r#"{{"object": "{object}", "line": {line}, "loads": {misses}, "stores": 0, "misses": {misses}, "ownership_transfers": {misses},
        "hitm_local": {misses}, "hitm_remote": 0, "cycles_per_load": {{"mean": {cycles}, "p50": 0, "p99": 0, "max": 0}}, "fields": []}}"#
    );
    let mut line: Line = serde_json::from_str(&text).unwrap();
    let text = format!(
        r#"{{"function": "f", "location": "f.rs:1", "share": 1, "kind": "load", "misses": {misses}, "cycles": [0, 0, {cycles}]}}"#
    );
    let site: Site = serde_json::from_str(&text).unwrap();
    line.fields.push(Field {
        field: field.into(),
        offset: line.line * 64,
        owner: None,
        hitm: line.hitm,
        touched: line.touched,
        sites: vec![site],
        invalidated_by: Vec::new(),
    });
    line
}

fn compared(before: &ResultFile, after: &ResultFile) -> Comparison {
    compare(("before.json", before), ("after.json", after), THRESHOLD).unwrap()
}

#[test]
fn a_difference_counts_beyond_both_intervals_together() {
    // Intervals of 3 and 4 combine to 5.
    let check = |better: Better, after: f64, expect: Verdict| {
        let of = |value: f64, interval: f64| {
            let mut run = run("all", value, interval);
            run.metric.better = better;
            file(vec![run])
        };
        let judged = compared(&of(100.0, 3.0), &of(after, 4.0)).pairs[0].judged[0].clone();
        assert_eq!((judged.verdict, judged.interval), (expect, 5.0), "{better} {after}");
    };
    check(Better::Higher, 105.0, Verdict::Within);
    check(Better::Higher, 105.1, Verdict::Better);
    check(Better::Higher, 95.0, Verdict::Within);
    check(Better::Higher, 94.9, Verdict::Worse);
    check(Better::Lower, 105.1, Verdict::Worse);
    check(Better::Lower, 94.9, Verdict::Better);
}

#[test]
fn what_has_no_interval_decides_nothing() {
    let of = |kernel_share: f64, cycles: f64| {
        let lines = vec![line("o", 0, "f", 100, cycles)];
        file(vec![Run { kernel_share, lines, ..run("all", 100.0, 1.0) }])
    };
    let comparison = compared(&of(0.1, 100.0), &of(0.9, 9000.0));
    assert!(!comparison.is_worse());
    assert!(comparison.pairs[0].figures.iter().any(|figure| figure.name == "kernel_share" && figure.moved));
    assert!(comparison.pairs[0].fields[0].moved);
    // A metric without an interval is not judged either.
    let without = compared(&file(vec![run("all", 100.0, f64::NAN)]), &file(vec![run("all", 1.0, f64::NAN)]));
    assert_eq!(without.verdicts, BTreeMap::from([(Verdict::NotComparable, 1)]));
}

#[test]
fn counts_are_a_unit_of_work() {
    // Twice as long and half as fast: the same number of frames, twice the misses.
    let before = Run { lines: vec![line("o", 1, "f", 400, 50.0)], ..run("all", 100.0, 1.0) };
    let after = Run { simulated_seconds: 4.0, lines: vec![line("o", 4, "f", 800, 50.0)], ..run("all", 50.0, 1.0) };
    let comparison = compared(&file(vec![before]), &file(vec![after]));
    let pair = &comparison.pairs[0];
    assert_eq!(pair.unit, "frame");
    let change = &pair.fields[0];
    let [before, after] = [&change.before, &change.after].map(|cost| cost.clone().unwrap());
    // 400 misses in 200 frames, of 50 cycles each.
    assert_eq!((before.misses, before.hitm, before.cycles, before.cycles_per_load), (2.0, 2.0, 100.0, Some(50.0)));
    assert_eq!((after.misses, after.hitm, after.cycles, after.cycles_per_load), (4.0, 4.0, 200.0, Some(50.0)));
    assert_eq!((change.difference(), change.lines().as_str(), change.moved), (100.0, "1 -> 4", true));
    let object = pair.objects[0].before.clone().unwrap();
    assert_eq!((object.ownership_transfers, pair.objects[0].field.as_deref()), (Some(2.0), None));
}

#[test]
fn a_metric_that_counts_nothing_is_taken_a_second() {
    let of = |seconds: f64, misses: u64| {
        let mut run = Run { lines: vec![line("o", 0, "f", misses, 1.0)], ..run("all", 7.0, 1.0) };
        (run.metric.name, run.metric.unit, run.simulated_seconds) = ("latency".into(), "us".into(), seconds);
        file(vec![run])
    };
    let comparison = compared(&of(2.0, 100), &of(4.0, 200));
    assert_eq!((comparison.pairs[0].unit.as_str(), comparison.pairs[0].fields[0].difference()), ("second", 0.0));
}

#[test]
fn operations_are_a_wake_up() {
    let of = |wakes: u64, pulls: u64| {
        let operations = [("wake".to_owned(), wakes), ("pull".to_owned(), pulls)].into();
        file(vec![Run { operations, ..run("all", 100.0, 1.0) }])
    };
    let figure = |after: ResultFile| {
        let comparison = compared(&of(100, 50), &after);
        let figure = comparison.pairs[0].figures.iter().find(|figure| figure.name == "pull").cloned().unwrap();
        (figure.before, figure.after, figure.moved)
    };
    assert_eq!(figure(of(200, 100)), (Some(0.5), Some(0.5), false));
    assert_eq!(figure(of(100, 60)), (Some(0.5), Some(0.6), true));
}

#[test]
fn sums_over_other_numbers_of_instances_are_not_compared() {
    let of = |count: usize| {
        let lines = (0..count).map(|index| Line { index: Some(index), ..line("rq", 0, "lock", 10, 20.0) });
        file(vec![Run { lines: lines.collect(), ..run("all", 100.0, 1.0) }])
    };
    let comparison = compared(&of(4), &of(3));
    let change = &comparison.pairs[0].fields[0];
    assert_eq!((change.lines().as_str(), change.moved), ("0 (4 lines) -> 0 (3 lines)", false));
    assert!(compared(&of(4), &file(vec![run("all", 100.0, 1.0)])).pairs[0].fields[0].moved, "gone altogether");
}

#[test]
fn a_relative_that_fell_because_the_baseline_gained_says_so() {
    let of = |baseline: f64| {
        let relative = |of: f64| (Some(of), Some(0.001));
        let mut all = run("all", 120.0, 1.0);
        (all.relative, all.relative_interval) = relative(120.0 / baseline);
        file(vec![run("baseline", baseline, 1.0), all])
    };
    let comparison = compared(&of(100.0), &of(110.0));
    assert!(comparison.is_worse());
    expect![[r#"
        [
            "relative is worse and frames per second is not: each is over its own file's baseline, which gained more",
        ]
    "#]]
    .assert_debug_eq(&comparison.pairs[1].notes);
}

/// Two files with entries of every kind.
fn rich() -> (ResultFile, ResultFile) {
    let machine = |hop: f64| Machine {
        name: "core:4".into(),
        cpus: 4,
        cores: 4,
        llcs: 1,
        nodes: 1,
        packages: 1,
        source: "hwloc synthetic string".into(),
        note: None,
        unknown_processor: false,
        cost_table: "gnr".into(),
        model: [("other_package_ns".to_owned(), hop), ("clock_ghz".to_owned(), 3.2)].into(),
        ..Machine::default()
    };
    let relative = |mut run: Run, value: f64, interval: f64| {
        (run.relative, run.relative_interval) = (Some(value), Some(interval));
        run
    };
    let mut before = file(vec![
        relative(run("baseline", 100.0, 1.0), 1.0, 0.0),
        Run { lines: vec![line("o", 1, "f", 400, 50.0), line("o", 0, "g", 9, 10.0)], ..run("split", 120.0, 1.0) },
        run("gone", 1.0, 0.1),
    ]);
    let mut after = file(vec![
        relative(run("baseline", 100.0, 1.0), 1.0, 0.0),
        Run {
            lines: vec![line("o", 4, "f", 800, 80.0)],
            kernel_share: 0.3,
            seeds: vec![4],
            bytes: [("o".to_owned(), 320)].into(),
            ..run("split", 110.0, 1.0)
        },
        run("new", 1.0, 0.1),
    ]);
    before.machines.push(machine(230.0));
    after.machines.push(machine(300.0));
    before.command = ["run", "ffmpeg", "--seed", "1"].map(str::to_owned).into();
    after.command = ["run", "ffmpeg", "--seed", "4"].map(str::to_owned).into();
    after.failures.push("all on core:4, seed 4: deadlock".into());
    (before, after)
}

#[test]
fn every_form_has_its_snapshot() {
    let (before, after) = rich();
    let comparison = compared(&before, &after);
    expect_file!["data/compare/full.txt"].assert_eq(&comparison.render(10, 160));
    expect_file!["data/compare/mail.txt"].assert_eq(&comparison.render_mail());
    expect_file!["data/compare/form.json"].assert_eq(&comparison.write());
    let same = compared(&before, &before);
    expect![[r#"
        simulated: identical
        before: before.json (hitm 0.1.0)
        after: after.json (hitm 0.1.0)
    "#]]
    .assert_eq(&same.render(10, 160));
    expect![[r#"
        simulated: identical
        before.json -> after.json
    "#]]
    .assert_eq(&same.render_mail());
}

#[test]
fn sources_and_host_time_are_no_figures() {
    let (before, _) = rich();
    let mut after = before.clone();
    after.runs[1].wall_seconds = 77.0;
    after.runs[1].lines[0].fields[0].sites[0].location = "f.rs:2".into();
    after.runs[1].profile = "x264".into();
    // An earlier file has no sums.
    let (waits, fields) = Default::default();
    after.runs[1].objects.push(Objects { object: "rq".into(), lines: 1, waits, fields });
    let comparison = compared(&before, &after);
    assert!(comparison.pairs.iter().all(|pair| pair.unchanged));
    assert_eq!(comparison.pairs[1].key.profile, "x264");
    after.runs[1].lines[0].fields[0].sites[0].hits += 1;
    assert!(!compared(&before, &after).pairs[1].unchanged);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let check = |before: Vec<Run>, after: Vec<Run>, expect: expect_test::Expect| {
        let error = compare(("a", &file(before)), ("b", &file(after)), THRESHOLD).unwrap_err();
        expect.assert_eq(&error.to_string());
    };
    let one = || vec![run("all", 1.0, 0.1)];
    check(one(), vec![], expect!["result file `b`: it has no runs; write it again with `hitm run --json`"]);
    check(
        vec![run("all", 1.0, 0.1), run("all", 2.0, 0.1)],
        one(),
        expect![
            "result file `a`: it has this run twice: all, ffmpeg simulated on core:4, arbitration fifo, coherence full; write it again with each run once"
        ],
    );
    check(
        one(),
        vec![Run { profile: "x264".into(), ..run("baseline", 1.0, 0.1) }],
        expect![
            "no run is in both files: the first has all, ffmpeg simulated on core:4, arbitration fifo, coherence full, the second baseline, ffmpeg (x264) simulated on core:4, arbitration fifo, coherence full; run both with the same machine, mitigation and policies"
        ],
    );
}

prop_compose! {
    fn any_line()(object in 0..4, number in 0u32..40, index in proptest::option::of(0usize..5), field in 0..4,
        misses in 0u64..1_000_000, cycles in 0.0..1e6) -> Line {
        Line { index, ..line(&format!("o{object}"), number, &format!("a_rather_long_name_of_a_field_{field}"), misses, cycles) }
    }
}

prop_compose! {
    fn any_run(name: usize)(value in prop_oneof![8 => 0.0..1e9, 1 => Just(f64::NAN)], interval in prop_oneof![8 => 0.0..1e8, 1 => Just(f64::NAN)],
        relative in proptest::option::of((0.0..3.0, 0.0..0.3)), lower: bool, seconds in 0.0..1.0, kernel_share in 0.0..1.0,
        lines in prop::collection::vec(any_line(), 0..12), machine in "[a-z]{1,60}") -> Run {
        let mut run = Run { kernel_share, lines, simulated_seconds: seconds, ..run(&format!("mitigation-{name}"), value, interval) };
        if lower {
            run.metric.better = Better::Lower;
        }
        run.operations = [("wake".to_owned(), 3), (machine, 5)].into();
        (run.relative, run.relative_interval) = relative.unzip();
        run
    }
}

prop_compose! {
    fn any_file()(runs in (any_run(0), any_run(1), any_run(2), any_run(3), any_run(4), any_run(5), any_run(6)), from in 0usize..3,
        words in prop::collection::vec("--[a-z]{1,40}", 0..8), version in "[0-9.]{1,9}") -> ResultFile {
        let runs = [runs.0, runs.1, runs.2, runs.3, runs.4, runs.5, runs.6];
        ResultFile { command: words, version, ..file(runs[from..].to_vec()) }
    }
}

fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Better => Verdict::Worse,
        Verdict::Worse => Verdict::Better,
        other => other,
    }
}

proptest! {
    #[test]
    fn a_file_is_identical_to_itself(file in any_file()) {
        let comparison = compared(&file, &file);
        prop_assert!(comparison.pairs.iter().all(|pair| pair.unchanged));
        prop_assert!(comparison.verdicts.is_empty() && comparison.differs.is_empty() && !comparison.is_worse());
        prop_assert!(comparison.pairs.iter().all(|pair| pair.fields.iter().all(|change| !change.moved)));
        prop_assert!(comparison.render_mail().starts_with("simulated: identical\n"));
    }

    #[test]
    fn better_one_way_is_worse_the_other(before in any_file(), after in any_file()) {
        let (there, back) = (compared(&before, &after), compared(&after, &before));
        prop_assert_eq!(&there.only_before, &back.only_after);
        prop_assert_eq!(there.pairs.len(), back.pairs.len());
        for (one, other) in there.pairs.iter().zip(&back.pairs) {
            for (one, other) in one.judged.iter().zip(&other.judged) {
                prop_assert_eq!(one.verdict, mirrored(other.verdict));
            }
            let moved = |pair: &hitm_report::compare::Pair| {
                let mut moved: Vec<_> = pair.fields.iter().map(|it| (it.object.clone(), it.field.clone(), it.moved)).collect();
                moved.sort();
                moved
            };
            prop_assert_eq!(moved(one), moved(other));
        }
    }

    #[test]
    fn a_mail_is_short(before in any_file(), after in any_file()) {
        let mail = compared(&before, &after).render_mail();
        prop_assert!(mail.lines().count() <= 15, "{}", mail);
        prop_assert!(mail.lines().all(|line| line.chars().count() <= 72 && !line.is_empty()), "{}", mail);
        prop_assert!(!compared(&before, &after).render(5, 100).contains("NaN"));
    }
}

/// All objects of a kind, with one field.
fn objects(object: &str, lines: u64, field: &str, misses: u64, cycles: f64) -> Objects {
    let text = format!(
        r#"{{"object": "{object}", "lines": {lines}, "misses": {misses}, "hitm_local": {misses}, "hitm_remote": 0, "cycles": {cycles}, "fields":
        [{{"field": "{field}", "misses": {misses}, "hitm_local": {misses}, "hitm_remote": 0, "cycles": {cycles}, "function": "f",
        "location": "f.rs:1", "share": 1}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

/// Blocks of one kind, of which a file keeps one line, and a variable.
fn with_blocks(at: u32, number: u32, blocks: u64, cycles: f64) -> Run {
    let mut run = run("baseline", 100.0, f64::from(at));
    let kind = format!("Node of push list.rs:{at}");
    run.lines = vec![line(&format!("{kind} #{number}"), 0, "next", 10, 100.0), line("stop", 0, "stop", 10, 100.0)];
    run.objects = vec![objects(&kind, blocks, "next", 1_000, cycles), objects("stop", 1, "stop", 10, 1_000.0)];
    run
}

/// The blocks of another build have other numbers and another place in the source, and a file keeps
/// the lines of a few of them.
#[test]
fn objects_with_numbers_are_compared_by_kind() {
    let (before, after) = (with_blocks(7, 1, 8, 400_000.0), with_blocks(9, 42, 1, 200_000.0));
    // A cold kind has a sum and no line.
    let cold = |run: &Run| {
        let mut run = run.clone();
        run.lines.remove(0);
        run
    };
    let both = [before.clone(), after.clone()];
    for [before, after] in [both, [before.clone(), cold(&after)], [cold(&before), cold(&after)]] {
        let compared = compared(&file(vec![before]), &file(vec![after]));
        let pair = &compared.pairs[0];
        let told = |change: &Change| (change.object.clone(), change.lines(), change.moved);
        let told: Vec<_> = pair.objects.iter().map(told).collect();
        let nodes = ("Node of push list.rs".to_owned(), "8 lines -> 1 line".to_owned(), true);
        assert_eq!(told, [nodes, ("stop".to_owned(), "0".to_owned(), false)]);
        let next = &pair.fields[0];
        let costs = [&next.before, &next.after].map(|cost| cost.as_ref().map(|cost| (cost.cycles, cost.hitm)));
        // In 200 frames.
        assert_eq!((next.field.as_deref(), costs), (Some("next"), [Some((2_000.0, 5.0)), Some((1_000.0, 5.0))]));
        let text = compared.render(20, 120);
        assert!(!text.contains(" #") && !text.contains("may only be colder"), "{text}");
        let mail = compared.render_mail();
        assert!(mail.contains("-50 %   2.0K -> 1.0K  Node of push list.rs.next (baseline)"), "{mail}");
    }
}

/// A file of an earlier version has no sums, and a file has the sums of 40 kinds: without a sum,
/// lines are compared.
#[test]
fn objects_with_numbers_are_compared_by_line_without_a_sum() {
    let (before, after) = (with_blocks(7, 1, 8, 400_000.0), with_blocks(9, 42, 1, 200_000.0));
    let (mut earlier, mut without) = (before.clone(), before);
    earlier.objects.clear();
    without.objects.remove(0);
    for before in [earlier, without] {
        let text = compared(&file(vec![before]), &file(vec![after.clone()])).render(20, 120);
        assert!(text.contains("list.rs:7 #1 ") && text.contains("list.rs:9 #42 "), "{text}");
    }
}
