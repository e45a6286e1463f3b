//! Help, as a reader without a terminal sees it.

use expect_test::expect_file;

use crate::command::stdout_of;

#[test]
fn every_command_has_help_with_examples() {
    let check = |verb: &str, file: &str| {
        let text = stdout_of(&format!("{verb} --help"));
        assert!(text.contains("\nExamples:\n  hitm "), "{verb}");
        assert!(text.lines().all(|line| line.len() <= 120), "{verb}");
        expect_file![format!("data/help/{file}.txt")].assert_eq(&text);
    };
    check("", "hitm");
    check("run", "run");
    check("run ffmpeg", "run-ffmpeg");
    check("run cyclic", "run-cyclic");
    check("run pi_stress", "run-pi-stress");
    check("run cid-bursts", "run-cid-bursts");
    check("run cid-storms", "run-cid-storms");
    check("run schbench", "run-schbench");
    check("run probe", "run-probe");
    check("run probe ping-pong", "run-probe-ping-pong");
    check("run probe counter", "run-probe-counter");
    check("run probe mask", "run-probe-mask");
    check("run probe mix", "run-probe-mix");
    check("run probe rwlock", "run-probe-rwlock");
    check("run probe refcount", "run-probe-refcount");
    check("run probe lock", "run-probe-lock");
    check("run probe writer-readers", "run-probe-writer-readers");
    check("run probe reads", "run-probe-reads");
    check("sweep", "sweep");
    check("sweep ffmpeg", "sweep-ffmpeg");
    check("sweep cyclic", "sweep-cyclic");
    check("sweep pi_stress", "sweep-pi-stress");
    check("list", "list");
    check("c2c", "c2c");
    check("compare", "compare");
    check("layout", "layout");
    check("validate", "validate");
}

/// Those whose texts are held to a length and whose examples are parsed.
const VERBS: [&str; 21] = [
    "",
    "run",
    "run ffmpeg",
    "run cyclic",
    "run pi_stress",
    "run cid-bursts",
    "run cid-storms",
    "run schbench",
    "run probe",
    "run probe mask",
    "run probe lock",
    "run probe mix",
    "sweep",
    "sweep ffmpeg",
    "sweep cyclic",
    "sweep pi_stress",
    "list",
    "c2c",
    "compare",
    "validate",
    "layout",
];

#[test]
fn short_help_fits_a_screen() {
    for verb in VERBS {
        let text = stdout_of(&format!("{verb} -h"));
        assert!(text.lines().count() <= 60, "{verb}: {} lines", text.lines().count());
    }
}

/// Every example of every help text is a command that parses.
#[test]
fn examples_are_commands() {
    for verb in VERBS {
        let text = stdout_of(&format!("{verb} --help"));
        let examples = text.lines().skip_while(|line| *line != "Examples:").skip(1);
        for example in examples.filter_map(|line| line.trim().strip_prefix("hitm ")) {
            let command = example.split("  ").next().unwrap_or(example);
            // With `--help` at its end nothing runs, but what stands before it is parsed.
            let help = stdout_of(&format!("{command} --help"));
            assert!(help.contains("Usage: hitm"), "{example}");
        }
    }
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(stdout_of("--version"), format!("hitm {}\n", env!("CARGO_PKG_VERSION")));
}
