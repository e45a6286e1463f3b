//! Probes that cannot be run: one line each.

use expect_test::expect;

use crate::command::{check_refused, run, words};

#[test]
fn probes_that_cannot_be() {
    check_refused(
        "run probe mask --mix 101",
        expect![[r#"
        hitm: invalid value '101' for '--mix <PERCENT>': 101 is not in 0..=100; `hitm run probe mask --help` shows what there is
    "#]],
    );
    check_refused(
        "run probe mix --mix 50 --readers 2",
        expect![[r#"
        hitm: the argument '--mix <PERCENT>' cannot be used with '--readers <N>'; `hitm run probe mix --help` shows what there is
    "#]],
    );
    check_refused(
        "run probe rwlock --machine core:4 --readers 5",
        expect![[r#"
        hitm: --readers 5: only 4 CPUs take part; take fewer
    "#]],
    );
    check_refused(
        "run probe lock --kind spin",
        expect![[r#"
        hitm: invalid value 'spin' for '--kind <KIND>' [possible values: tas, ttas, ticket, ticket-back-off, mcs, queued]; `hitm run probe lock --help` shows what there is
    "#]],
    );
    check_refused(
        "run probe lock --kind mcs,mcs",
        expect![[r#"
        hitm: --kind: value 2 of 2 is there twice; give it once
    "#]],
    );
    check_refused(
        "run probe lock --turn soon",
        expect![[r#"
            hitm: invalid value 'soon' for '--turn <T>': not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond; `hitm run probe lock --help` shows what there is
        "#]],
    );
    check_refused(
        "run probe mask --encoding bit,bit",
        expect![[r#"
        hitm: --encoding: value 2 of 2 is there twice; give it once
    "#]],
    );
    check_refused(
        "run probe counter --scope llc,llc",
        expect![[r#"
        hitm: --scope: value 2 of 2 is there twice; give it once
    "#]],
    );
    check_refused(
        "run probe refcount --elements 0",
        expect![[r#"
        hitm: invalid value '0' for '--elements <N>': 0 is not in 1..=4096; `hitm run probe refcount --help` shows what there is
    "#]],
    );
    check_refused(
        "run probe writer-readers --machine core:4 --participants 1",
        expect![[r#"
        hitm: --participants 1: `writer-readers` has one writer and a reader at least; take 2 or more
    "#]],
    );
    check_refused(
        "run probe writer-readers --duration 1ms",
        expect![[r#"
        hitm: --duration: `writer-readers` has no use for it; leave it out
    "#]],
    );
    check_refused(
        "run probe ping-pong --kind sleeping",
        expect![[r#"
        hitm: invalid value 'sleeping' for '--kind <KIND>' [possible values: taking, reading]; `hitm run probe ping-pong --help` shows what there is
    "#]],
    );
    check_refused(
        "run probe mask --json nowhere/mask.json --machine core:2",
        expect![[r#"
            hitm: --json `nowhere/mask.json`: No such file or directory (os error 2); name a file in a folder that can be written
        "#]],
    );
}

/// A ratio is that of two variants on one machine, and each machine has one that is the fastest. A
/// parameter that no access of the probe meets decides nothing.
#[test]
fn drawn_machines_give_intervals() {
    let line = "run probe counter --machine 'pack:2 l3:1 core:2 pu:2' --scope machine,cpu --duration 5us";
    let ended = run(words(&format!("{line} --uncertainty 4 --trajectories 1")));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(ended.stdout.contains("simulated on 4 machines like pack:2 l3:1 core:2 pu:2 (8 CPUs)"), "{}", ended.stdout);
    let row = |start: &str| -> Vec<f64> {
        let mut rows = ended.stdout.lines().filter(|line| line.split_whitespace().count() == 8);
        let row = rows.rfind(|line| line.starts_with(start)).expect("a row");
        row.split_whitespace().skip(1).map(|cell| cell.parse().expect("a number")).collect()
    };
    let (whole, split) = (row("machine "), row("cpu "));
    assert_eq!((whole[3..].to_vec(), split[6]), (vec![1.0, 1.0, 1.0, 0.0], 100.0), "{}", ended.stdout);
    assert!(whole[0] <= whole[1] && whole[1] <= whole[2] && whole[0] < whole[2], "{whole:?}");
    assert!(split[5] < 0.5, "eight CPUs on one word: {split:?}");
    let text = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, decided) = text.split_once("cpu gains ").expect("a conclusion");
    assert!(decided.contains("on 100 % of the machines decided by "), "{decided}");
    assert!(decided.contains("rmw_hit_ns (") && !decided.contains("switch_ns"), "{decided}");
    check_refused(
        "run probe counter --host native --uncertainty 4",
        expect![[r#"
            hitm: --uncertainty: a native run has no use for it; leave it out, or leave out --host native
        "#]],
    );
}
