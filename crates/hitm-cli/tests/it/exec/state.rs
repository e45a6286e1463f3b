//! `hitm exec --state`: finished runs are kept, and the same command goes on.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use tempfile::TempDir;

use super::is_possible;
use super::several::{compiled, end_in_time, exec};
use crate::command::{Ended, end, read_checked};

const STATE: [&str; 2] = ["--state", "s.jsonl"];

/// A sweep whose finished runs are kept.
fn sweep(folder: &TempDir, more: &[&str]) -> Command {
    exec(folder, &[&STATE, more, &["./main", "{N}"]].concat())
}

/// The rows of the result file, without the times of the host.
fn rows(folder: &Path) -> Vec<serde_json::Value> {
    let mut file = read_checked(&folder.join("r.json"), "run");
    let runs = file["runs"].as_array_mut().expect("runs");
    for run in &mut *runs {
        run["wall_seconds"] = 0.into();
    }
    std::mem::take(runs)
}

fn resumed(ended: &Ended, done: usize, all: usize) {
    let said = format!("hitm: resumed: {done} of {all} runs were finished before\n");
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), if done > 0 { &*said } else { "" }));
}

#[test]
fn the_same_command_goes_on_after_an_interrupt() {
    if !is_possible() {
        return;
    }
    let folder = compiled("", "");
    // Many more than run at a time.
    let seeds = 10 * thread::available_parallelism().map_or(1, usize::from);
    let (all, seeds, more) = (4 * seeds, seeds.to_string(), (seeds + 1).to_string());
    let words = ["--sweep", "1..8", "--seeds", &seeds];
    let mut command = sweep(&folder, &words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut shown = BufReader::new(child.stdout.take().expect("a pipe"));
    shown.read_line(&mut String::new()).expect("the first run prints");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a command of Linux");
    assert!(sent.success());
    std::io::copy(&mut shown, &mut std::io::sink()).expect("it can be read");
    let (status, said) = end_in_time(child);
    assert_eq!(status, Some(130), "{said}");
    assert!(said.ends_with("; the same command goes on\n") || said.contains("the same command starts again"), "{said}");
    let state = folder.path().join("s.jsonl");
    let done = fs::read_to_string(&state).expect("it is kept").lines().count() - 1;
    assert!(done < all, "all were made before the interrupt");
    resumed(&end(&mut sweep(&folder, &words)), done, all);
    let went_on = rows(folder.path());
    // The same as in one run.
    fs::remove_file(&state).expect("it is there");
    let ended = end(&mut sweep(&folder, &words));
    resumed(&ended, 0, all);
    assert_eq!(rows(folder.path()), went_on);
    // Once more from the file alone, and with more of them.
    let again = end(&mut sweep(&folder, &words));
    resumed(&again, all, all);
    // The program printed nothing, as it did not run.
    assert_eq!(ended.stdout.strip_prefix("ended 1\n"), Some(again.stdout.as_str()));
    assert_eq!(rows(folder.path()), went_on);
    resumed(&end(&mut sweep(&folder, &["--sweep", "1..8,16", "--seeds", &more])), all, 5 * (all / 4 + 1));
    // A program that has changed runs again.
    fs::copy(compiled("counts[0]++;", "").path().join("main"), folder.path().join("main")).expect("there is room");
    resumed(&end(&mut sweep(&folder, &words)), 0, all);
    assert_ne!(rows(folder.path()), went_on);
    resumed(&end(&mut sweep(&folder, &words)), all, all);
}

#[test]
fn runs_of_another_command_are_refused() {
    if !is_possible() {
        return;
    }
    let folder = compiled("", "");
    let words = ["--sweep", "1,2"];
    let mut first = sweep(&folder, &words);
    first.env("THREADS", "8").stdin(Stdio::null());
    resumed(&end(&mut first), 0, 2);
    let refused = |command: &mut Command, difference: &str| {
        let ended = end(command);
        let why = format!("hitm: --state `s.jsonl`: it is of another command: {difference}; ");
        let what = "name another file, or remove this one to begin anew\n";
        assert_eq!((ended.status, ended.stderr), (Some(2), why + what));
    };
    refused(sweep(&folder, &words).env("THREADS", "9"), "the environment variable `THREADS` is not the same");
    refused(&mut sweep(&folder, &words), "the environment variable `THREADS` is not the same");
    let mut other = sweep(&folder, &["--sweep", "1,2", "--issue-ns", "0.5"]);
    refused(other.env("THREADS", "8"), "--issue-ns `0.2` there and `0.5` here");
    fs::write(folder.path().join("input"), "a line").expect("there is room");
    let input = || fs::File::open(folder.path().join("input")).expect("it is there");
    refused(sweep(&folder, &words).env("THREADS", "8").stdin(input()), "the standard input is not the same");
    let mut other = exec(&folder, &[&STATE[..], &["./main"]].concat());
    let difference = "the program and its arguments `[\"./main\", \"{N}\"]` there and `[\"./main\"]` here";
    refused(other.env("THREADS", "8"), difference);
    // What tells of the terminal may differ.
    let mut same = sweep(&folder, &words);
    same.env("THREADS", "8").env("TERM", "another").env("SSH_CLIENT", "another").stdin(Stdio::null());
    resumed(&end(&mut same), 2, 2);
    let ended = end(exec(&folder, &STATE).args(["--trace", "t.json", "./main"]));
    assert!(ended.status == Some(2) && ended.stderr.contains("cannot be used with"), "{}", ended.stderr);
}
