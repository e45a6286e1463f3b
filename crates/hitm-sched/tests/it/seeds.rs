//! Cases by seed, how many of them, and how to see one again.
//!
//! `HITM_SEED=17` runs seed 17 alone; `HITM_CASES=100` runs a hundred times as many seeds as usual; `HITM_MITIGATION=all` has random
//! runs use that mitigation alone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// Runs `case` for the seeds 1 to `usual` and those that `once` failed, or for those that the environment asks for. `test` is
/// the test's path, for the command that shows a failure again.
pub(crate) fn each(test: &str, usual: u64, once: &[u64], case: impl Fn(u64)) {
    let (seeds, once) = match number("HITM_SEED") {
        Some(seed) => (seed..=seed, &[][..]),
        None => (1..=usual * number("HITM_CASES").unwrap_or(1), once),
    };
    for seed in seeds.chain(once.iter().copied()) {
        // The case is over when it panics; nothing of it is looked at again.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            let mitigation = std::env::var("HITM_MITIGATION")
                .map_or_else(|_| String::new(), |name| format!("HITM_MITIGATION={name} "));
            eprintln!(
                "seed {seed} fails; again: {mitigation}HITM_SEED={seed} cargo test -p hitm-sched --test it -- --exact {test}"
            );
            resume_unwind(panic);
        }
    }
}
