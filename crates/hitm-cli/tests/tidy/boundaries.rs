//! The table of crates in ARCHITECTURE.md, compared with the manifests and the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use toml::{Table, Value};

use crate::workspace::{crates, files, require_none, root};

/// What the page says of a crate.
struct Row {
    uses: BTreeSet<String>,
    has_unsafe: bool,
}

/// Returns the rows of the table, by the name of the crate.
fn rows() -> BTreeMap<String, Row> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let table = page.split_once("| crate | uses (`hitm-`) | unsafe | must not know |").expect("the table").1;
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let full = |name: &str| if name == "hitm" { name.to_owned() } else { format!("hitm-{name}") };
        let uses = cells[1].split(',').map(str::trim).filter(|name| !name.is_empty()).map(full).collect();
        (cells[0].trim_matches('`').to_owned(), Row { uses, has_unsafe: cells[2] == "yes" })
    };
    lines.map(row).collect()
}

/// Returns the crates of this workspace that a crate uses outside its tests and its build script.
fn uses(folder: &std::path::Path) -> BTreeSet<String> {
    let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    let manifest: Table = text.parse().expect("cargo reads it too");
    let of_platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = of_platforms.filter_map(Value::as_table).chain([&manifest]);
    let own = tables.filter_map(|table| table.get("dependencies").and_then(Value::as_table));
    own.flat_map(Table::keys).filter(|name| name.starts_with("hitm")).cloned().collect()
}

#[test]
fn crates_use_what_the_page_says() {
    let rows = rows();
    let mut broken = Vec::new();
    let folders = crates();
    for folder in &folders {
        let name = folder.file_name().expect("a folder").to_string_lossy().into_owned();
        let Some(row) = rows.get(&name) else {
            broken.push(format!("{name}: it has no row"));
            continue;
        };
        let found = uses(folder);
        if found != row.uses {
            broken.push(format!("{name}: the page says that it uses {:?}, its manifest {found:?}", row.uses));
        }
        let top = ["src/lib.rs", "src/main.rs"].map(|file| fs::read_to_string(folder.join(file)).unwrap_or_default());
        let forbids = top.iter().any(|text| text.contains("#![forbid(unsafe_code)]"));
        if forbids == row.has_unsafe {
            broken.push(format!("{name}: the page says unsafe code {}, the crate otherwise", row.has_unsafe));
        }
    }
    assert_eq!(rows.len(), folders.len(), "rows of crates that do not exist");
    require_none("ARCHITECTURE.md and the crates agree", &broken);
}

#[test]
fn one_crate_reads_the_command_line() {
    let reads = |text: &str| text.contains("env::args");
    let sources = files("rs");
    let of_cli = |path: &str| path.starts_with("crates/hitm-cli/src/");
    let in_src = sources.iter().filter(|file| file.path.contains("/src/"));
    let (cli, others): (Vec<_>, Vec<_>) = in_src.filter(|file| reads(&file.text)).partition(|file| of_cli(&file.path));
    assert!(!cli.is_empty(), "the command reads it somewhere");
    // The main function, and the two programs that are `hitm` under another name.
    let allowed = ["src/main.rs", "src/bin/cargo-hitm.rs", "src/bin/hitm-cc.rs"];
    let elsewhere = cli.into_iter().filter(|file| !allowed.iter().any(|end| file.path.ends_with(end)));
    let broken: Vec<String> = elsewhere.chain(others).map(|file| file.path.clone()).collect();
    require_none("clap alone reads the command line", &broken);
}
