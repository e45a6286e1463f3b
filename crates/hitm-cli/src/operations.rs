//! What the scheduler's operations touched: made from a machine's counts per place in the source,
//! and from the number of operations.
//!
//! A search and a look are the readers of the words that mitigations split; a change of level and
//! an announcement are the writers. A placement chooses the CPU of a fair task that wakes. Each
//! operation is one or a few functions, and the machine charges an access to the calling place.
//! Accesses are counted, not lines: `docs/costs.md` has the number of different lines per event.

use hitm_machine::{PlaceResult, Results};
use hitm_report::functions::Functions;
use hitm_report::result::OperationCost;
use hitm_sched::Count;

/// All functions of a folder.
const ANY: &[&str] = &[];

/// An operation: its name in reports, its counter, and its functions by file or folder.
struct Operation {
    name: &'static str,
    counts: &'static [Count],
    places: &'static [(&'static str, &'static [&'static str])],
}

const OPERATIONS: [Operation; 5] = [
    Operation {
        name: "search",
        counts: &[Count::Find],
        places: &[
            ("hitm-sched/src/linux/cpupri.rs", &["next_available", "find_at"]),
            (
                "hitm-sched/src/shipped/near.rs",
                &["look_at", "look_into", "is_in_vain", "any_less_urgent", "candidates", "find_near"],
            ),
            ("hitm-sched/src/shipped/floor.rs", &["claim", "settle"]),
        ],
    },
    Operation {
        name: "level change",
        counts: &[Count::LevelChange],
        places: &[("hitm-sched/src/linux/cpupri.rs", &["set_level"])],
    },
    Operation {
        name: "look",
        counts: &[Count::Look],
        places: &[
            ("hitm-sched/src/linux/overload.rs", &["overload_elsewhere"]),
            ("hitm-sched/src/shipped/waiting.rs", &["any_for"]),
            ("hitm-sched/src/shipped/floor.rs", &["fell"]),
        ],
    },
    Operation {
        name: "set or clear",
        counts: &[Count::OverloadSet, Count::OverloadClear],
        places: &[
            ("hitm-sched/src/linux/overload.rs", &["set_overload", "clear_overload"]),
            (
                "hitm-sched/src/shipped/waiting.rs",
                &["tell", "withdraw", "tell_all", "withdraw_from_all", "enter", "leave", "take_slot", "slot_of"],
            ),
        ],
    },
    Operation {
        name: "place",
        counts: &[Count::Place],
        places: &[
            ("hitm-sched/src/fair/idle/", ANY),
            ("hitm-sched/src/base/idle/search.rs", ANY),
            ("hitm-sched/src/base/idle/view.rs", ANY),
            ("hitm-sched/src/linux/idle/", ANY),
            ("hitm-sched/src/shipped/hints.rs", ANY),
            ("hitm-sched/src/fair/newcomer.rs", &["select_new", "least_loaded_part", "load_of_cpus"]),
            ("hitm-sched/src/base/idle/scan.rs", &["all_from"]),
        ],
    },
];

/// Returns the cost of each operation that was done.
pub(crate) fn costs(results: &Results, operations: &[(Count, u64)], functions: &Functions) -> Vec<OperationCost> {
    let cost = |operation: &Operation| {
        let counted = operations.iter().filter(|(count, _)| operation.counts.contains(count));
        let times: u64 = counted.map(|(_, times)| times).sum();
        let mut touched = PlaceResult::default();
        for (place, did) in &results.places {
            let function = functions.known(&place.file, place.line);
            let own = |(file, functions): &&(&str, &[&str])| {
                place.file.starts_with(file)
                    && function.is_some_and(|name| functions.is_empty() || functions.contains(&name))
            };
            if operation.places.iter().any(|places| own(&places)) {
                touched.add(did);
            }
        }
        (times > 0).then(|| each(results, operation.name, times as f64, &touched))
    };
    OPERATIONS.iter().filter_map(cost).collect()
}

/// Returns the cost of concurrency ids per unit of work, of which there were `units`.
pub(crate) fn ids(results: &Results, units: f64) -> Option<OperationCost> {
    let mut touched = PlaceResult::default();
    for (_, did) in results.places.iter().filter(|(place, _)| IDS.iter().any(|own| place.file.starts_with(own))) {
        touched.add(did);
    }
    (units > 0.0).then(|| each(results, "ids", units, &touched))
}

/// Returns the mean over `times` operations.
fn each(results: &Results, name: &str, times: f64, touched: &PlaceResult) -> OperationCost {
    let misses = &touched.misses;
    OperationCost {
        name: name.to_owned(),
        times: times.round() as u64,
        accesses: touched.accesses as f64 / times,
        misses: misses.count() as f64 / times,
        cycles: results.cycles(misses.wait) / times,
    }
}

/// The files that hand out ids.
const IDS: [&str; 5] = [
    "hitm-sched/src/base/cid.rs",
    "hitm-sched/src/base/id_bits.rs",
    "hitm-sched/src/cid/",
    "hitm-sched/src/linux/cid/",
    "hitm-sched/src/shipped/ids.rs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_functions_of_the_scheduler() {
        for (file, functions) in OPERATIONS.iter().flat_map(|operation| operation.places) {
            let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
            if functions.is_empty() {
                assert!(std::fs::exists(&path).is_ok_and(|there| there), "{file} is not there any more");
                continue;
            }
            let text = std::fs::read_to_string(&path).expect(file);
            for function in *functions {
                assert!(text.contains(&format!("fn {function}")), "`{function}` is not in {file} any more");
            }
        }
    }
}
