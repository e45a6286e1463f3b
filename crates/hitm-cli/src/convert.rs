//! From a machine's counts to a run in a result file.

use hitm_machine::Results;
use hitm_report::convert;
use hitm_report::functions::Functions;
use hitm_report::result::Run;
use hitm_sched::stats::Count;

use crate::operations;

/// Lines per run that a result file keeps.
pub(crate) const LINES_KEPT: usize = 100;

/// Fills the parts of `Run` that come from the machine's counters, and what the operations in
/// `done` touched.
pub(crate) fn run(results: &Results, done: &[(Count, u64)]) -> Run {
    let functions = functions();
    Run { costs: operations::costs(results, done, &functions), ..convert::run(results, &functions, LINES_KEPT) }
}

/// Returns the functions of all crates whose code runs on the machine.
pub(crate) fn functions() -> Functions {
    Functions::of(&[
        hitm_memory::FUNCTIONS,
        hitm_machine::FUNCTIONS,
        hitm_sched::FUNCTIONS,
        hitm::FUNCTIONS,
        hitm_workloads::FUNCTIONS,
        include!(concat!(env!("OUT_DIR"), "/functions.rs")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_functions() {
        let text = include_str!("../../hitm-sched/src/cpupri.rs");
        let line = text.lines().position(|line| line.contains(".fetch_add(1, COUNT_ENTERED)")).expect("the add") + 1;
        assert_eq!(functions().known("hitm-sched/src/cpupri.rs", line as u32), Some("set_level"));
    }
}
