//! `hitm run --quick`: what it shows is what the whole run measures.

use expect_test::expect;

use crate::command::{check_refused, result_of, stdout_of};

/// Two kinds of tasks: first-in-first-out and fair ones.
const LOOKS: [&str; 2] = [
    "run ffmpeg --burst-factor 0.02 --cpus 16 --warm-up 300us --duration 300us --seeds 1",
    "run tbench --work 4us --machine clx-2x20 --cpus 8 --clients 8 --warm-up 300us --duration 300us --seeds 1",
];

#[test]
fn a_quick_look_shows_what_the_whole_run_measures() {
    for look in LOOKS {
        let text = stdout_of(&format!("{look} --quick --mitigation shipped"));
        let (_, runs) = result_of(&format!("{look} --mitigation baseline,shipped"));
        assert_eq!(runs.len(), 2);
        for run in runs {
            let name = run["mitigation"].as_str().expect("a name");
            let row = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a row of it");
            let shares: Vec<String> = ["kernel_share", "idle_share"]
                .map(|share| format!("{:.3}", run[share].as_f64().expect("a share")))
                .into();
            let shown: Vec<&str> = row.split_whitespace().rev().take(2).collect();
            assert_eq!([shown[1], shown[0]], [&*shares[0], &*shares[1]], "{look}: {text}");
        }
        assert_eq!(text, stdout_of(&format!("{look} --quick --mitigation baseline,shipped")), "once more");
    }
}

#[test]
fn what_a_quick_look_cannot_do_is_refused() {
    check_refused(
        "run hackbench --quick",
        expect![[r#"
            hitm: --quick: hackbench ends when its work is done, so there is no shorter look; leave it out
        "#]],
    );
    check_refused(
        "run ffmpeg --quick --mitigation baseline",
        expect![[r#"
            hitm: --quick: the baseline alone is compared with nothing; name a mitigation
        "#]],
    );
    check_refused(
        "run ffmpeg --quick --host native",
        expect![[r#"
            hitm: --quick: a native run has no use for it; leave it out, or leave out --host native
        "#]],
    );
}
