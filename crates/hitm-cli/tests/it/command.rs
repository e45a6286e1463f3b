//! Running the command.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::Expect;
use serde_json::Value;

/// The mitigations of workloads of fair tasks, unless told otherwise.
pub(crate) const SEARCHES: [&str; 7] =
    ["baseline", "idle-candidate", "idle-single-pass", "idle-merged", "idle-util", "idle-mask=llc", "shipped"];

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The command without a terminal, with nothing of the environment that could change what it
/// prints or keeps.
pub(crate) fn hitm() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hitm"));
    // Tables in one piece: how they fit a narrow terminal is a test of its own, `reports`.
    command.env("COLUMNS", "240").env("HITM_CACHE", "").env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    command
}

/// Runs it to its end. The lines of progress are left out of stderr: their number depends on how
/// fast this machine is.
pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the binary was built");
    let stderr = String::from_utf8(output.stderr).expect("messages are text");
    let is_progress = |line: &str| line.starts_with("hitm: ") && line.contains(" runs, ") && line.contains(" %");
    Ended {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("reports are text"),
        stderr: stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect(),
    }
}

/// Runs `hitm` with these words.
pub(crate) fn run(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    end(hitm().args(words))
}

/// The words of a line as a shell has them: separated by blanks, `'` around those with blanks in
/// them.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, piece) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(piece.split_whitespace().map(str::to_owned)),
            _ => words.push(piece.to_owned()),
        }
    }
    words
}

/// Runs a line that succeeds; what it printed.
pub(crate) fn stdout_of(line: &str) -> String {
    let ended = run(words(line));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{line}");
    ended.stdout
}

/// Runs a line that succeeds, in a folder of its own; what it printed, and the runs of its result.
pub(crate) fn result_of(line: &str) -> (String, Vec<Value>) {
    let folder = folder();
    let ended = end(hitm().current_dir(folder.path()).args(words(&format!("{line} --json result.json"))));
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""), "{line}");
    let file = read_checked(&folder.path().join("result.json"), "run");
    (ended.stdout, file["runs"].as_array().unwrap().clone())
}

/// Reads a file that `hitm FORM --json` wrote, and compares it with its schema.
pub(crate) fn read_checked(path: &Path, form: &str) -> Value {
    let schema: Value = serde_json::from_str(&stdout_of(&format!("schema {form}"))).expect("a schema is JSON");
    let file: Value = serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("a file is JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> =
        schema.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, [] as [String; 0], "{}", path.display());
    file
}

/// A line that the tool cannot do: status 2, nothing on stdout, one line on stderr.
pub(crate) fn check_refused(line: &str, expect: Expect) {
    let ended = run(words(line));
    assert_eq!((ended.status, ended.stdout.as_str()), (Some(2), ""), "{line}\n{}", ended.stderr);
    assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
    expect.assert_eq(&ended.stderr);
}

/// A text of a run.
pub(crate) fn text_of<'a>(run: &'a Value, key: &str) -> &'a str {
    run[key].as_str().unwrap()
}

/// A folder that goes with its value.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is room")
}

/// A file of the workspace.
pub(crate) fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
