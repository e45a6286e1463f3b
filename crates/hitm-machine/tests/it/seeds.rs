//! Test cases by seed: their number, and the command that repeats one.
//!
//! `HITM_SEED=17` runs only seed 17; `HITM_CASES=100` runs a hundred times as many seeds as usual.
//! Tests may read further environment variables. The command that repeats a failure includes the
//! ones that are read so far.
//!
//! The suites of `hitm-sched` and `hitm` have this file as a module too.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Returns the number in an environment variable; `None` when the variable is not set.
///
/// # Panics
/// When the value is not a number.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not `{text}`")))
}

/// The variable that restricts a test in addition to its seed.
const ALSO_READ: &str = "HITM_MITIGATION";

/// Returns the command that repeats `seed` of a test. `target` is the argument of `cargo test`, for
/// example `-p hitm-sched --test it`, and `test` is the test's path there.
pub(crate) fn again(target: &str, test: &str, seed: u64) -> String {
    let also = env::var(ALSO_READ).map_or_else(|_| String::new(), |value| format!("{ALSO_READ}={value} "));
    format!("{also}HITM_SEED={seed} cargo test {target} -- --exact {test} --nocapture")
}

/// Runs `case` for the seeds 1 to `usual` and for the seeds in `once`, which failed once, or for
/// the seeds that the environment selects. A case that panics ends the test and prints the command
/// of [`again`].
///
/// # Panics
/// When a case panics, or the environment variables are not numbers.
pub(crate) fn each(target: &str, test: &str, usual: u64, once: &[u64], case: impl Fn(u64)) {
    let (seeds, once) = match number("HITM_SEED") {
        Some(seed) => (seed..=seed, &[][..]),
        None => (1..=usual * number("HITM_CASES").unwrap_or(1), once),
    };
    for seed in seeds.chain(once.iter().copied()) {
        // A case that panics is over; its state is not used again.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            eprintln!("seed {seed} fails; again: {}", again(target, test, seed));
            resume_unwind(panic);
        }
    }
}
