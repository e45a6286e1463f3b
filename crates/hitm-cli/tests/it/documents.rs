//! The outputs in documents are what the commands print.
//!
//! A block of a document that shows a command's output is marked by a comment above it:
//!
//! - `<!-- output: hitm ARGUMENTS -->`: the block is what this command prints, after the lines that
//!   begin with `$`. A line `[...]` stands for any number of lines. The command runs in the
//!   workspace's folder at 100 columns, so it may read a saved result below `results`.
//! - `<!-- by hand: REASON -->`: no command of this test prints the block.
//!
//! To add a block, write the comment and the lines with `$`, and run this test: it prints what the
//! block should be.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{end, hitm, words};

/// Languages of blocks that show what a program prints. Others are code.
const OUTPUTS: [&str; 2] = ["console", "text"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents: beside the workspace's manifest, in `docs`, and each crate's page.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root(), root().join("docs"), root().join("docs/results")];
    let crates = fs::read_dir(root().join("crates")).expect("crates");
    folders.extend(crates.map(|entry| entry.expect("a crate").path()).filter(|path| path.is_dir()));
    for folder in folders {
        let entries = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        found.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    found.sort();
    found
}

/// A block that shows an output.
struct Block {
    /// Its first line in the document, from 1.
    line: usize,
    /// The comment above it, without its marks.
    mark: Option<String>,
    text: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(language) = lines[at].strip_prefix("```") else {
            at += 1;
            continue;
        };
        let end = (at + 1..lines.len()).find(|&line| lines[line] == "```").expect("a block ends");
        if OUTPUTS.contains(&language) {
            let above = at.checked_sub(1).map(|above| lines[above].trim());
            let mark = above.and_then(|above| above.strip_prefix("<!-- ")?.strip_suffix(" -->"));
            let text = lines[at + 1..end].iter().map(|line| (*line).to_owned()).collect();
            found.push(Block { line: at + 1, mark: mark.map(str::to_owned), text });
        }
        at = end + 1;
    }
    found
}

/// Whether `shown` is `printed`, where `[...]` stands for any number of lines.
fn is_shown(shown: &[String], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [first, rest @ ..] if first == "[...]" => (0..=printed.len()).any(|from| is_shown(rest, &printed[from..])),
        [first, rest @ ..] => printed.first() == Some(&first.as_str()) && is_shown(rest, &printed[1..]),
    }
}

/// What is wrong with a block, if something is.
fn fault(block: &Block) -> Option<String> {
    let Some(mark) = &block.mark else {
        return Some("no comment above says which command prints it, or why none does".to_owned());
    };
    if mark.strip_prefix("by hand: ").is_some_and(|reason| !reason.is_empty()) {
        return None;
    }
    let Some(command) = mark.strip_prefix("output: hitm ") else {
        return Some(format!("the comment `{mark}` is neither `output: hitm ...` nor `by hand: ...`"));
    };
    let mut command_line = hitm();
    let ended = end(command_line.current_dir(root()).env("COLUMNS", "100").args(words(command)));
    if ended.status != Some(0) {
        return Some(format!("`hitm {command}` ends with {:?}: {}", ended.status, ended.stderr));
    }
    let shown: Vec<String> = block.text.iter().filter(|line| !line.starts_with("$ ")).cloned().collect();
    let printed: Vec<&str> = ended.stdout.lines().collect();
    (!is_shown(&shown, &printed)).then(|| format!("`hitm {command}` prints something else:\n{}", ended.stdout))
}

#[test]
fn outputs_in_documents_are_what_commands_print() {
    let mut seen = 0;
    let mut faults = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a document");
        for block in blocks(&text) {
            seen += 1;
            let name = path.strip_prefix(root()).unwrap_or(&path).display();
            faults.extend(fault(&block).map(|fault| format!("{name}:{}: {fault}", block.line)));
        }
    }
    assert!(seen > 10, "the test finds only {seen} blocks: it looks at the wrong places");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_changed_output_is_noticed() {
    let block = |mark: &str, text: &[&str]| Block {
        line: 1,
        mark: Some(mark.to_owned()),
        text: text.iter().map(|line| (*line).to_owned()).collect(),
    };
    let version = format!("hitm {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(fault(&block("output: hitm --version", &["$ hitm --version", &version])), None);
    assert_eq!(fault(&block("output: hitm --version", &["[...]"])), None);
    assert!(fault(&block("output: hitm --version", &["hitm 0.0.0"])).is_some());
    assert!(fault(&block("output: hitm list nothing", &["[...]"])).is_some());
    assert!(fault(&block("by hand: ", &[])).is_some());
    assert!(fault(&Block { line: 1, mark: None, text: Vec::new() }).is_some());
}
