//! The same tests once more in processes in which the kernel's ids cannot be had.

use std::process::{Command, Output};

use hitm_cid::{Support, support};

/// Says that this is a child, which makes no further ones.
const CHILD: &str = "HITM_CID_CHILD";

/// This binary, with the tests whose names contain one of `tests`.
fn arguments(tests: &[&str]) -> Vec<String> {
    let fixed = ["--nocapture", "--test-threads=2", "--skip", "children::"];
    tests.iter().chain(&fixed).map(|&argument| argument.to_owned()).collect()
}

fn this() -> std::path::PathBuf {
    std::env::current_exe().expect("this binary has a path")
}

/// Runs `command`; what the child said of its source.
fn require_right(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.env(CHILD, "1").output().expect("it can be started");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    assert!(!stdout.contains("running 0 tests"), "the child ran nothing:\n{stdout}");
    let said = stdout.split("support: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    said.unwrap_or_else(|| panic!("the child did not say its source:\n{stdout}")).to_owned()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn answers_are_right_when_a_tunable_forbids_the_area() {
    if is_child() || cfg!(miri) {
        return;
    }
    let tunable = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    let said = require_right(Command::new(this()).args(arguments(&[])).env(tunable.0, tunable.1));
    // Without ids of the kernel the tunable changes nothing; other C libraries do not know it.
    let expected = if support() == Support::Kernel { Support::NotRegistered } else { support() };
    assert_eq!(said, format!("{expected:?}"));
}

#[test]
fn answers_are_right_under_valgrind() {
    if is_child() || cfg!(miri) {
        return;
    }
    if cfg!(target_env = "musl") {
        crate::tool::skip("memcheck cannot follow an allocator that is linked statically");
        return;
    }
    if !crate::tool::runs("valgrind", &["--version"], cfg!(target_os = "linux")) {
        return;
    }
    // Memcheck notices reads of memory that is not there or was never written, and what is still
    // lost at the end.
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    // It runs one thread at a time, and fairly only if asked to: some tests wait in a loop.
    valgrind.args(["--fair-sched=yes"]).arg(this()).env("HITM_CID_SLOW", "1");
    let said = require_right(valgrind.args(arguments(&["ids::", "counter::", "per_cid::", "pool::"])));
    assert!(["NotRegistered", "NoArea", "NoId"].contains(&said.as_str()), "valgrind knows no area, yet: {said}");
}
