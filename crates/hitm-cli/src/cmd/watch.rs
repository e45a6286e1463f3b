//! `hitm watch`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;

use crate::failure::Failure;
use crate::terminal::{visible, width};
use crate::{interrupt, print, print_as_it_is};

/// Run a command again whenever a file changes, and show what it prints differently.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm watch counter.c -- sh -c 'hitm cc -O2 -pthread counter.c && hitm exec ./a.out 64'\n  hitm watch src -- cargo run --release\n  hitm watch crates/hitm-sched/src -- cargo run --release -- run ffmpeg --quick --mitigation shipped"
)]
pub(crate) struct Watch {
    /// Files and folders: of a folder, all in it whose names begin with no dot.
    ///
    /// What the command itself writes must not be among them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The command and its arguments.
    ///
    /// It may be any: it builds what the files are the source of, and prints a report. When what it
    /// prints on stdout differs from the last time, the lines follow that are gone, with `-`, and
    /// the new ones, with `+`. Ctrl-C ends the watch.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What tells a file that was written from what it was, by its path.
type Look = Vec<(PathBuf, Option<SystemTime>, u64)>;

impl Watch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut seen = self.look()?;
        interrupt::keeps("nothing is watched any more".to_owned());
        let mut before: Option<String> = None;
        loop {
            let printed = self.once()?;
            if let Some(before) = &before {
                print(&since(before, &printed))?;
            }
            before = Some(printed);
            let files: Vec<String> = self.files.iter().map(|file| format!("`{}`", file.display())).collect();
            say(&format!("waits for a change of {}; Ctrl-C ends it", files.join(", ")));
            seen = self.changed(seen);
        }
    }

    /// Runs the command once, and prints what it prints.
    fn once(&self) -> Result<String, Failure> {
        let name = self.command[0].to_string_lossy();
        let fail =
            |error: io::Error| Failure::new(format!("command `{name}`: {error}; give a program that can be run"));
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env("COLUMNS", width().to_string()).stderr(Stdio::inherit());
        let output = command.output().map_err(fail)?;
        print_as_it_is(&output.stdout)?;
        if !output.status.success() {
            say(&format!("command `{name}` ended with {}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns what there is, once it is another than `seen` and is not being written any more.
    fn changed(&self, seen: Look) -> Look {
        let mut last = None;
        loop {
            // A file that is replaced is missing for a moment.
            let now = self.look().ok().filter(|now| *now != seen);
            if let Some(now) = now.as_ref().filter(|now| Some(*now) == last.as_ref()) {
                return now.clone();
            }
            last = now;
            thread::sleep(LOOK_EVERY);
        }
    }

    fn look(&self) -> Result<Look, Failure> {
        let mut look = Vec::new();
        for file in &self.files {
            add(file, &mut look).map_err(|error| {
                Failure::new(format!("file `{}`: {error}; name files and folders that exist", file.display()))
            })?;
        }
        Ok(look)
    }
}

fn say(what: &str) {
    // Nothing can be done when stderr is closed.
    let _closed = writeln!(io::stderr(), "hitm: {}", visible(what));
}

/// Adds a file, or what a folder has in it.
fn add(path: &Path, look: &mut Look) -> io::Result<()> {
    let data = fs::metadata(path)?;
    if !data.is_dir() {
        look.push((path.to_owned(), data.modified().ok(), data.len()));
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let shown = entries.iter().filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    shown.map(fs::DirEntry::path).try_for_each(|entry| add(&entry, look))
}

/// What is printed differently: lines that are gone with a `-`, new ones with a `+`.
fn since(before: &str, now: &str) -> String {
    let changes = changes(&before.lines().collect::<Vec<_>>(), &now.lines().collect::<Vec<_>>());
    if changes.is_empty() {
        return "\nsince the last run: no change\n".to_owned();
    }
    format!("\nsince the last run:\n{changes}")
}

/// Pairs of lines, one of each text, that are compared at most: 40 MB of lengths.
const PAIRS_MAX: usize = 10_000_000;

/// The lines outside the longest common sequence of two texts.
fn changes(before: &[&str], now: &[&str]) -> String {
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = before.iter().zip(now).take_while(same).count();
    let (before, now) = (&before[head..], &now[head..]);
    let tail = before.iter().rev().zip(now.iter().rev()).take_while(same).count();
    let (before, now) = (&before[..before.len() - tail], &now[..now.len() - tail]);
    if before.len().saturating_mul(now.len()) > PAIRS_MAX {
        return format!("- {} lines\n+ {} lines: too many to compare\n", before.len(), now.len());
    }
    // `common[i][j]`: its length from the line `i` of the one and `j` of the other on.
    let mut common = vec![vec![0_u32; now.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..now.len()).rev() {
            common[i][j] =
                if before[i] == now[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < before.len() || j < now.len() {
        if i < before.len() && j < now.len() && before[i] == now[j] {
            (i, j) = (i + 1, j + 1);
        } else if i < before.len() && (j == now.len() || common[i + 1][j] >= common[i][j + 1]) {
            text += &format!("- {}\n", before[i]);
            i += 1;
        } else {
            text += &format!("+ {}\n", now[j]);
            j += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_what_is_not_common() {
        let of =
            |before: &str, now: &str| changes(&before.lines().collect::<Vec<_>>(), &now.lines().collect::<Vec<_>>());
        assert_eq!(of("head\na 1\nb 2\nend", "head\na 1\nb 3\nend"), "- b 2\n+ b 3\n");
        assert_eq!(of("a\nb\nc", "b\nc\nd"), "- a\n+ d\n");
        assert_eq!(of("", "a\nb"), "+ a\n+ b\n");
        assert_eq!(of("a\nb", ""), "- a\n- b\n");
        assert_eq!(of("a\nb", "a\nb"), "");
        assert_eq!(of("a\na\nb", "a\nb"), "- a\n");
        let many = |name: &str| (0..4_000).map(|line| format!("{name}{line}\n")).collect::<String>();
        assert_eq!(of(&many("a"), &many("b")), "- 4000 lines\n+ 4000 lines: too many to compare\n");
    }

    #[test]
    fn a_look_sees_what_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, file) = (folder.path().join("inner"), folder.path().join("inner/file"));
        fs::create_dir(&inner).expect("a folder");
        let watch = Watch { files: vec![folder.path().to_owned()], command: Vec::new() };
        let look = || watch.look().expect("the folder is there");
        let empty = look();
        fs::write(&file, "one").expect("it can be written");
        let first = look();
        assert_ne!(first, empty);
        fs::write(inner.join(".hidden"), "a text").expect("it can be written");
        assert_eq!(look(), first);
        fs::write(&file, "another").expect("it can be written");
        assert_ne!(look(), first);
        fs::remove_file(&file).expect("it is there");
        assert_eq!(look(), empty);
    }
}
