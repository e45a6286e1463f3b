//! Test cases by seed: how many of them, and how to see one again.
//!
//! `HITM_SEED=17` runs seed 17 alone; `HITM_CASES=100` runs a hundred times as many seeds as usual. Tests may read more from the
//! environment; what they read so far is repeated in the command that shows a failure again.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The number in an environment variable; none when it is not set.
///
/// # Panics
/// When it is no number.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// What narrows a test down beside its seed.
const ALSO_READ: &str = "HITM_MITIGATION";

/// The command that shows `seed` of a test again. `target` is what `cargo test` is to run, `-p hitm-sched --test it` say, and `test`
/// the test's path there.
#[must_use]
pub fn again(target: &str, test: &str, seed: u64) -> String {
    let also = env::var(ALSO_READ).map_or_else(|_| String::new(), |value| format!("{ALSO_READ}={value} "));
    format!("{also}HITM_SEED={seed} cargo test {target} -- --exact {test} --nocapture")
}

/// Runs `case` for the seeds 1 to `usual` and those that `once` failed, or for those that the environment asks for. A case that
/// panics ends the test, with the command of [`again`].
///
/// # Panics
/// When a case does, or the environment holds no numbers.
pub fn each(target: &str, test: &str, usual: u64, once: &[u64], case: impl Fn(u64)) {
    let (seeds, once) = match number("HITM_SEED") {
        Some(seed) => (seed..=seed, &[][..]),
        None => (1..=usual * number("HITM_CASES").unwrap_or(1), once),
    };
    for seed in seeds.chain(once.iter().copied()) {
        // The case is over when it panics; nothing of it is looked at again.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            eprintln!("seed {seed} fails; again: {}", again(target, test, seed));
            resume_unwind(panic);
        }
    }
}

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
