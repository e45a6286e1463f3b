//! Result files under bad luck: several writers, a sweep that is refused, a full disk, an
//! interrupt.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use serde_json::Value;

use crate::command::{Ended, end, folder, hitm, words};

/// A run that takes well under a second.
const SHORT: &str =
    "run ffmpeg --machine core:2 --duration 100us --warm-up 0s --seeds 1 --burst-factor 1 --mitigation baseline";

/// A sweep that takes longer than any test waits.
const LONG: &str = "sweep cyclic --machine core:8 --cpus 2,4,8 --duration 20s --seeds 1 --mitigation baseline";

fn start(folder: &Path, line: &str) -> Child {
    let mut command = hitm();
    command.current_dir(folder).args(words(line)).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the binary was built")
}

fn end_in(folder: &Path, line: &str) -> Ended {
    end(hitm().current_dir(folder).args(words(line)))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Waits until a file is there and has something in it.
fn wait_for(path: &Path) {
    while fs::metadata(path).map_or(0, |metadata| metadata.len()) == 0 {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn processes_that_write_one_file_leave_a_whole_one() {
    let folder = folder();
    let line = format!("{SHORT} --json r.json");
    let children: Vec<Child> = (0..8).map(|_| start(folder.path(), &line)).collect();
    for child in children {
        assert!(child.wait_with_output().expect("it ends").status.success());
    }
    let text = fs::read_to_string(folder.path().join("r.json")).expect("a file");
    let file: Value = serde_json::from_str(&text).expect("a whole one");
    assert_eq!(file["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(names(folder.path()), ["r.json"]);
}

#[test]
fn a_sweep_that_is_refused_touches_nothing() {
    let folder = folder();
    for name in ["c.csv", "c.json", "c.svg"] {
        fs::write(folder.path().join(name), "of the sweep that runs").expect("written");
    }
    let line = format!("{LONG} --state s --csv c.csv --json c.json --plot c.svg");
    let mut running = start(folder.path(), &line);
    wait_for(&folder.path().join("s"));
    let refused = end_in(folder.path(), &line);
    running.kill().expect("it runs");
    running.wait().expect("it was killed");
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        hitm: --state `s`: another sweep writes to it; wait for its end, or name another file
    "#]]
    .assert_eq(&refused.stderr);
    assert_eq!(names(folder.path()), ["c.csv", "c.json", "c.svg", "s"]);
    for name in ["c.csv", "c.json", "c.svg"] {
        assert_eq!(fs::read_to_string(folder.path().join(name)).expect("the file"), "of the sweep that runs");
    }
}

/// The results of a run whose file cannot be written are printed, and kept elsewhere.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_nothing() {
    let folder = folder();
    let mut command = hitm();
    command.current_dir(folder.path()).env("TMPDIR", folder.path());
    let ended = end(command.args(words(&format!("{SHORT} --json /dev/full"))));
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stdout.contains("\nbaseline "), "{}", ended.stdout);
    let said = "hitm: --json `/dev/full`: No space left on device (os error 28); the results are in `";
    let (_, rest) = ended.stderr.split_once(said).expect("it says where they are");
    let (kept, advice) = rest.split_once('`').expect("a path");
    assert_eq!(advice, " instead: move them where there is room\n");
    let file: Value = serde_json::from_str(&fs::read_to_string(kept).expect("the file")).expect("JSON");
    assert_eq!(file["runs"].as_array().map(Vec::len), Some(1));
}

/// Ends a child by a signal; what it said, and its status.
#[cfg(unix)]
fn interrupted(child: Child, signal: &str) -> (Option<i32>, String) {
    let kill = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(kill.expect("every Unix has it").success());
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("messages are text"))
}

#[cfg(unix)]
#[test]
fn an_interrupt_says_what_is_kept_and_leaves_no_hidden_file() {
    let folder = folder();
    let child = start(folder.path(), &format!("{LONG} --state s --csv c.csv"));
    wait_for(&folder.path().join("s"));
    // The line that names the file is set after the file is made.
    thread::sleep(Duration::from_millis(300));
    let (status, said) = interrupted(child, "-INT");
    assert_eq!(status, Some(130));
    assert_eq!(said, "\nhitm: interrupted: finished runs are in `s`; the same command goes on\n");
    assert_eq!(names(folder.path()), ["s"]);
    // SIGTERM, and a run, of which nothing is kept.
    let long = SHORT.replace("100us", "20s");
    let child = start(folder.path(), &format!("{long} --json r.json"));
    thread::sleep(Duration::from_millis(300));
    let (status, said) = interrupted(child, "-TERM");
    assert_eq!(status, Some(130));
    assert_eq!(said, "\nhitm: interrupted: nothing was written; the same command starts again\n");
    assert_eq!(names(folder.path()), ["s"]);
}

#[test]
fn a_sweep_that_goes_on_says_so() {
    let folder = folder();
    let line = "sweep cyclic --machine core:2 --cpus 1,2 --seeds 1 --mitigation baseline --state s --warm-up 100us \
                --duration 1ms";
    assert_eq!(end_in(folder.path(), line).stderr, "");
    // One of two runs is left.
    let state = fs::read_to_string(folder.path().join("s")).expect("the state");
    let whole: Vec<&str> = state.lines().take(2).collect();
    fs::write(folder.path().join("s"), whole.join("\n") + "\n").expect("written");
    assert_eq!(end_in(folder.path(), line).stderr, "hitm: resumed: 1 of 2 runs were finished before\n");
}
