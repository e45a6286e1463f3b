//! Tools that a test needs beside cargo. The suites of other crates have this file as a module too.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Says on stderr that a part of the tests is skipped. The harness counts the test as passed; it
/// would also hide the line if it were printed by `println!`.
pub(crate) fn skip(why: &str) {
    // Where stderr is closed, there is no reader.
    _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Returns whether `tool` runs with these arguments. If it does not, says that a part is skipped.
///
/// # Panics
/// When it does not, and this is CI (`CI` is set), where it is `expected`.
pub(crate) fn runs(tool: &str, arguments: &[&str], expected: bool) -> bool {
    let status = Command::new(tool).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let runs = status.is_ok_and(|status| status.success());
    if !runs {
        assert!(!expected || env::var_os("CI").is_none(), "`{tool}` does not run, and CI has to have it");
        skip(&format!("`{tool}` does not run here"));
    }
    runs
}
