//! Every output and table in the documents comes from a command or from saved results.
//!
//! `UPDATE_EXPECT=1 cargo test -p hitm-cli --test it documents` writes them again. How a block is
//! added: `results/README.md`.

mod page;
mod saved;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use self::page::{Source, rewritten};
use crate::command::{end, hitm, words, workspace};

/// Pages that another test writes as a whole, each with that test.
const GENERATED: [(&str, &str); 3] = [
    ("docs/costs.md", "crates/hitm-sched/tests/it/costs.rs"),
    ("docs/groups.md", "crates/hitm-sched/tests/it/group_costs.rs"),
    ("docs/idle-search.md", "crates/hitm-sched/tests/it/idle_costs.rs"),
];

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Returns the README, the pages in `docs` but for those in [`GENERATED`], and the crates' own.
fn pages() -> Vec<PathBuf> {
    let crates = fs::read_dir(workspace("crates")).expect("the crates");
    let mut pages: Vec<PathBuf> = crates.map(|own| own.expect("a crate").path().join("README.md")).collect();
    pages.push(workspace("README.md"));
    add_pages(&workspace("docs"), &mut pages);
    let generated = GENERATED.map(|(page, _)| workspace(page));
    pages.retain(|page| !generated.contains(page));
    pages.sort();
    pages
}

/// Returns what `line` prints in the workspace's folder, 100 columns wide.
fn printed(line: &str) -> Result<String, String> {
    let words = words(line);
    let Some(("hitm", arguments)) = words.split_first().map(|(name, arguments)| (name.as_str(), arguments)) else {
        return Err(format!("`{line}`: no command of hitm"));
    };
    let ended = end(hitm().env("COLUMNS", "100").current_dir(workspace("")).args(arguments));
    match ended.status {
        // 1: the command found what it was asked about, as `hitm compare` does.
        Some(0 | 1) => Ok(ended.stdout),
        status => Err(format!("`{line}`: status {status:?}: {}", ended.stderr.trim_end())),
    }
}

fn text_of(source: &Source) -> Result<page::Block, String> {
    match source {
        Source::Output { command, lines } => {
            Ok(page::Block::Console { command: command.clone(), text: lines.cut(&printed(command)?) })
        }
        Source::Saved { file, name } => {
            saved::block(&workspace(file), name).map_err(|error| format!("{file}: {error}"))
        }
    }
}

#[test]
fn blocks_of_documents_are_current() {
    let update = env::var_os("UPDATE_EXPECT").is_some();
    let mut broken = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let page = rewritten(&text, text_of);
        let name = path.strip_prefix(workspace("")).expect("found below it").display();
        broken.extend(page.errors.iter().map(|error| format!("{name}:{error}")));
        if page.text == text {
            continue;
        }
        if update {
            fs::write(&path, page.text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        } else {
            let first = text.lines().zip(page.text.lines()).position(|(old, new)| old != new).unwrap_or(0);
            let (old, new) = (text.lines().nth(first), page.text.lines().nth(first));
            broken.push(format!("{name}:{}: stale\n    is      {old:?}\n    should be {new:?}", first + 1));
        }
    }
    assert!(
        broken.is_empty(),
        "blocks without a source, or stale ones (`UPDATE_EXPECT=1 cargo test -p hitm-cli --test it documents` \
         writes them again; results/README.md has the markers):\n  {}\n",
        broken.join("\n  ")
    );
}

#[test]
fn generated_pages_have_their_tests() {
    for (page, test) in GENERATED {
        let source = fs::read_to_string(workspace(test)).unwrap_or_else(|error| panic!("{test}: {error}"));
        assert!(source.contains(&format!("expect_file![\"../../../../{page}\"]")), "{test}: does not write {page}");
    }
}

/// Saved results of which no page has a block are not kept.
#[test]
fn saved_results_are_shown() {
    let pages: String = pages().iter().map(|path| fs::read_to_string(path).expect("read above")).collect();
    for file in fs::read_dir(workspace("results")).expect("results").map(|file| file.expect("a file").path()) {
        if file.extension().is_some_and(|extension| extension == "toml") {
            let stem = file.file_name().expect("a file").to_string_lossy().into_owned();
            for name in saved::names(&file) {
                assert!(pages.contains(&format!("<!-- rendered: results/{stem} {name} -->")), "{stem}: {name}");
            }
        }
    }
}

/// Every command of hitm in a `console` block is one that parses.
#[test]
fn commands_of_documents_parse() {
    let mut count = 0;
    for path in pages() {
        let text = fs::read_to_string(&path).expect("read above");
        for line in page::commands(&text) {
            count += 1;
            // With `--help` at its end nothing runs, but the options before it are parsed.
            // What follows a program or a compiler's name is theirs.
            let verb = line.split(' ').find(|word| ["exec", "cc", "c++"].contains(word));
            let line = verb.map_or_else(|| line.clone(), |verb| format!("hitm {verb}"));
            let help = printed(&format!("{line} --help")).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(help.contains("Usage: hitm"), "{}: {line}", path.display());
        }
    }
    assert!(count > 10, "{count}");
}
