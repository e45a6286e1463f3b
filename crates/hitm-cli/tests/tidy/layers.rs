//! The parts of the scheduler, and which of them each may name.

use crate::workspace::{files, require_none};

/// The parts of `hitm-sched`, from the bottom to the top. A part names those before it. `linux` and
/// `shipped` never name each other.
const PARTS: [&str; 9] = ["base", "linux", "shipped", "cid", "fair", "config", "scheduler", "check", "mitigation"];

/// The one circle: the scheduler's operations and the fair class call each other.
const CIRCLE: (&str, &str) = ("fair", "scheduler");

fn rank(part: &str) -> Option<usize> {
    PARTS.iter().position(|&own| own == part)
}

fn may_name(part: &str, named: &str) -> bool {
    let are_apart = part == "shipped" && named == "linux";
    part == named || (part, named) == CIRCLE || (rank(named) < rank(part) && !are_apart)
}

#[test]
fn the_parts_of_the_scheduler_name_only_parts_below() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for file in files("rs") {
        let Some(path) = file.path.strip_prefix("crates/hitm-sched/src/") else { continue };
        let part = path.split(['/', '.']).next().unwrap_or_default();
        let is_test = path.contains("loom") || path.ends_with("tests.rs");
        if is_test || rank(part).is_none() {
            continue;
        }
        let shipped = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = shipped.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (index, line) in code {
            for path in line.split("crate::").skip(1) {
                let named = path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                seen += usize::from(rank(named).is_some());
                if rank(named).is_some() && !may_name(part, named) {
                    broken.push(format!("{}:{}: `{part}` names `{named}`", file.path, index + 1));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} paths were found");
    require_none("the parts of the scheduler name only parts below them", &broken);
}
