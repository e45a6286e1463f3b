//! `hitm watch`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use expect_test::expect;

use crate::command::{check_refused, folder, hitm};

/// A command that is ended with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The lines up to the one that ends with `last`. They come when they come: no time is assumed.
fn until(lines: &mut impl Iterator<Item = String>, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for line in lines {
        let is_last = line.ends_with(last);
        seen.push(line);
        if is_last {
            return seen;
        }
    }
    panic!("no line ends with `{last}`: {seen:?}");
}

#[cfg(unix)]
#[test]
fn a_change_runs_the_command_again() {
    let folder = folder();
    let file = folder.path().join("table");
    fs::write(&file, "head\none 1\ntwo 2\n").expect("it can be written");
    let mut command = hitm();
    command.arg("watch").arg(&file).arg("--").args(["cat"]).arg(&file);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built"));
    let mut printed = BufReader::new(running.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut said = BufReader::new(running.0.stderr.take().expect("a pipe")).lines().map_while(Result::ok);

    assert_eq!(until(&mut printed, "two 2"), ["head", "one 1", "two 2"]);
    until(&mut said, "Ctrl-C ends it");
    // Of another length: times of files may be coarse.
    fs::write(&file, "head\none 1\ntwo 22\n").expect("it can be written");
    assert_eq!(
        until(&mut printed, "+ two 22"),
        ["head", "one 1", "two 22", "", "since the last run:", "- two 2", "+ two 22"]
    );
    until(&mut said, "Ctrl-C ends it");

    // What is missing is waited for; what fails is told.
    fs::remove_file(&file).expect("it is there");
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::rename(&other, &file).expect("nothing is there");
    assert!(until(&mut said, "Ctrl-C ends it").iter().any(|line| line.starts_with("hitm: command `cat` ended with ")));
    assert_eq!(until(&mut printed, "- two 22"), ["", "since the last run:", "- head", "- one 1", "- two 22"]);

    let signalled = Command::new("kill").args(["-INT", &running.0.id().to_string()]).status().expect("`kill` is there");
    assert!(signalled.success());
    assert_eq!(until(&mut said, "any more"), ["", "hitm: interrupted: nothing is watched any more"]);
    assert_eq!(running.0.wait().expect("it was started").code(), Some(130));
}

#[test]
fn what_cannot_be_watched_is_refused() {
    check_refused(
        "watch nowhere -- true",
        expect![[r#"
        hitm: file `nowhere`: No such file or directory (os error 2); name files and folders that exist
    "#]],
    );
    check_refused(
        "watch Cargo.toml -- ./nothing",
        expect![[r#"
        hitm: command `./nothing`: No such file or directory (os error 2); give a program that can be run
    "#]],
    );
    check_refused(
        "watch Cargo.toml",
        expect![[r#"
        hitm: the following required arguments were not provided: <COMMAND>...; `hitm watch --help` shows what there is
    "#]],
    );
}
