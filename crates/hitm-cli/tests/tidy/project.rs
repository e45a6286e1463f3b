//! Rules for manifests and documents.

use std::collections::BTreeSet;
use std::fs;

use toml::{Table, Value};

use crate::workspace::{crates, files, require_none, root};

fn manifest(folder: &std::path::Path) -> Table {
    let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    text.parse().expect("cargo reads it too")
}

#[test]
fn every_crate_has_a_page_and_a_licence() {
    let mut broken = Vec::new();
    for folder in crates() {
        let name = folder.file_name().expect("a folder").to_string_lossy().into_owned();
        let manifest = manifest(&folder);
        let package = manifest["package"].as_table().expect("a package");
        let inherits = |key: &str| {
            package
                .get(key)
                .and_then(Value::as_table)
                .is_some_and(|table| table.get("workspace") == Some(&Value::Boolean(true)))
        };
        let mut require = |holds: bool, what: &str| {
            if !holds {
                broken.push(format!("{name}: {what}"));
            }
        };
        require(package["name"].as_str() == Some(&name), "the folder has another name than the crate");
        require(package.contains_key("description"), "no description");
        for key in ["license", "rust-version", "edition", "version"] {
            require(inherits(key), &format!("`{key}` is not the workspace's"));
        }
        let lints = manifest.get("lints").and_then(Value::as_table);
        require(lints.is_some_and(|lints| lints.contains_key("workspace")), "the workspace's lints are off");
        let page = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        require(page.starts_with(&format!("# {name}\n")), "no README.md with its name at the top");
        let says_what_not = ["## What it is not", "## Limits"].iter().any(|head| page.contains(head));
        require(says_what_not, "its README.md says neither what it is not nor what its limits are");
        require(page.lines().count() <= 100, "its README.md is longer than a page");
    }
    require_none("a crate has its page, its licence and the workspace's settings", &broken);
    let workspace = manifest(&root());
    assert_eq!(workspace["workspace"]["package"]["license"].as_str(), Some("MIT OR Apache-2.0"));
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(file).is_file(), "{file}");
    }
}

/// One crate with binaries, which says which one runs, so that `cargo run` can choose; no default
/// members, so that `cargo test` tests every crate.
#[test]
fn two_commands_are_enough() {
    let workspace = manifest(&root());
    assert!(!workspace["workspace"].as_table().expect("a workspace").contains_key("default-members"));
    let has_binary = |folder: &std::path::PathBuf| {
        folder.join("src/main.rs").exists() || folder.join("src/bin").exists() || manifest(folder).contains_key("bin")
    };
    let with_binaries: Vec<_> = crates().into_iter().filter(has_binary).collect();
    let [command] = with_binaries.as_slice() else { panic!("{with_binaries:?}") };
    assert_eq!(manifest(command)["package"].get("default-run").and_then(Value::as_str), Some("hitm"));
}

/// Names of the crates.io dependencies of a manifest, of all kinds.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let of_platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    for table in of_platforms.filter_map(Value::as_table).chain([manifest]) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let own = table.get(kind).and_then(Value::as_table).into_iter().flat_map(Table::keys);
            names.extend(own.filter(|name| !name.starts_with("hitm")).cloned());
        }
    }
    names
}

#[test]
fn every_dependency_has_a_reason() {
    let used: BTreeSet<String> = crates().iter().flat_map(|folder| dependencies(&manifest(folder))).collect();
    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("docs/dependencies.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let explained: BTreeSet<String> = rows.map(str::to_owned).collect();
    let missing: Vec<String> = used.difference(&explained).cloned().collect();
    require_none("every dependency has a row in docs/dependencies.md", &missing);
    let gone: Vec<String> = explained.difference(&used).cloned().collect();
    require_none("docs/dependencies.md explains what is used", &gone);
}

#[test]
fn no_path_of_one_machine() {
    let mut broken = Vec::new();
    let folders = ["work", "tmp", "home", "root", "Users"].map(|folder| format!("/{folder}/"));
    for file in ["rs", "toml", "md"].into_iter().flat_map(files) {
        for (index, line) in file.text.lines().enumerate() {
            let is_absolute = |(at, _): (usize, &str)| {
                // Part of a longer path otherwise, as `docs/work/` is.
                !line[..at].ends_with(|char: char| char.is_alphanumeric() || "._-~/}".contains(char))
            };
            if folders.iter().any(|folder| line.match_indices(folder.as_str()).any(is_absolute)) {
                broken.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    require_none("no path that only one machine has", &broken);
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files("md") {
        let folder = root().join(&file.path).parent().expect("in a folder").to_owned();
        let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
        let dead =
            targets.filter(|target| !target.is_empty() && !target.contains("://") && !folder.join(target).exists());
        broken.extend(dead.map(|target| format!("{}: {target}", file.path)));
    }
    require_none("a relative link in a document leads to a file", &broken);
}

/// `.ci/run` runs the test command that the README names.
#[test]
fn the_readme_and_the_checks_test_the_same() {
    let script = fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    assert!(script.lines().any(|line| line.trim() == "cargo test --workspace" || line.trim() == "cargo test"));
    // Without default members both forms test every crate.
    if let Ok(page) = fs::read_to_string(root().join("README.md")) {
        assert!(page.contains("cargo test"), "README.md names no test command");
    }
}
