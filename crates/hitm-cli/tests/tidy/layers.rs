//! The parts of the scheduler, and which of them each may name.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{files, require_none};

/// The parts of `hitm-sched`, from the bottom to the top. A part names those before it. `linux` and
/// `shipped` never name each other.
const PARTS: [&str; 9] = ["base", "linux", "shipped", "cid", "fair", "config", "scheduler", "check", "mitigation"];

fn rank(part: &str) -> Option<usize> {
    PARTS.iter().position(|&own| own == part)
}

fn may_name(part: &str, named: &str) -> bool {
    let are_apart = part == "shipped" && named == "linux";
    part == named || (rank(named) < rank(part) && !are_apart)
}

/// A module, by its path from the crate's root on.
type Module = Vec<String>;

/// A module's code, without comments and tests.
struct Source {
    path: String,
    module: Module,
    /// By the number of the line.
    code: Vec<(usize, String)>,
}

/// The modules of `hitm-sched`, except the root.
fn sources() -> Vec<Source> {
    let source = |file: &crate::workspace::Text| {
        let path = file.path.strip_prefix("crates/hitm-sched/src/")?;
        let module: Module =
            path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').map(str::to_owned).collect();
        if path.contains("loom") || path.ends_with("tests.rs") || rank(&module[0]).is_none() {
            return None;
        }
        let shipped = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = shipped.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        let code = lines.map(|(index, line)| (index + 1, line.to_owned())).collect();
        Some(Source { path: file.path.clone(), module, code })
    };
    files("rs").iter().filter_map(source).collect()
}

/// The items that a line of `own` names by a path of this crate, as paths from its root on.
fn named_by(own: &Module, line: &str) -> Vec<Module> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let paths = words.filter(|word| ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start)));
    let item = |path: &str| {
        let mut item = if path.starts_with("crate::") { Module::new() } else { own.clone() };
        for name in path.split("::").filter(|name| !["", "crate", "self"].contains(name)) {
            if name == "super" {
                item.pop();
            } else {
                item.push(name.to_owned());
            }
        }
        item
    };
    paths.map(item).collect()
}

#[test]
fn the_parts_of_the_scheduler_name_only_parts_below() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for Source { path, module, code } in sources() {
        let part = &module[0];
        for (number, line) in code {
            for named in named_by(&module, &line).iter().filter_map(|item| item.first()) {
                seen += usize::from(rank(named).is_some());
                if rank(named).is_some() && !may_name(part, named) {
                    broken.push(format!("{path}:{number}: `{part}` names `{named}`"));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} paths were found");
    require_none("the parts of the scheduler name only parts below them", &broken);
}

/// A module and those inside it are one in this: a type in `mod.rs` has its methods in the files
/// beside it.
#[test]
fn no_modules_of_the_scheduler_name_each_other_in_a_circle() {
    let sources = sources();
    let modules: BTreeSet<&Module> = sources.iter().map(|source| &source.module).collect();
    let mut left: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for Source { module, code, .. } in &sources {
        let items = code.iter().flat_map(|(_, line)| named_by(module, line));
        let known =
            |item: Module| (1..=item.len()).rev().find_map(|names| modules.get(&item[..names].to_vec()).copied());
        let apart = |named: &&Module| !named.starts_with(module) && !module.starts_with(named);
        left.insert(module, items.filter_map(known).filter(apart).collect());
    }
    let paths: usize = left.values().map(BTreeSet::len).sum();
    assert!(paths > 100, "only {paths} paths were found");
    // What names nothing that is left, or what nothing left names, is in no circle.
    let is_free = |module: &Module, left: &BTreeMap<&Module, BTreeSet<&Module>>| {
        !left[module].iter().any(|named| left.contains_key(named)) || !left.values().any(|named| named.contains(module))
    };
    while let Some(free) = left.keys().copied().find(|module| is_free(module, &left)) {
        left.remove(free);
    }
    let circle = |(module, named): (&&Module, &BTreeSet<&Module>)| {
        let named: Vec<String> =
            named.iter().filter(|named| left.contains_key(*named)).map(|named| named.join("::")).collect();
        format!("`{}` names {}", module.join("::"), named.join(", "))
    };
    require_none("no modules name each other in a circle", &left.iter().map(circle).collect::<Vec<_>>());
}
