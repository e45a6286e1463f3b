//! The operations of the scheduler whose accesses are reported together.
//!
//! A search and a look are the readers of the words that mitigations split. A change of level and
//! an advertisement are the writers. A placement chooses the CPU of a fair task that wakes or
//! begins. Each is a scope that its code begins ([`Operation::begin`]).

use hitm_memory::Operation;

use crate::base::stats::Count;

/// The search for a CPU that runs something less urgent.
pub(crate) const SEARCH: Operation = Operation::new("search");
/// The change of a CPU's level in cpupri.
pub(crate) const LEVEL_CHANGE: Operation = Operation::new("level change");
/// The look for tasks that wait on other CPUs.
pub(crate) const LOOK: Operation = Operation::new("look");
/// The advertisement of a waiting task, and its end.
pub(crate) const SET_OR_CLEAR: Operation = Operation::new("set or clear");
/// The choice of the CPU of a fair task.
pub(crate) const PLACE: Operation = Operation::new("place");
/// The work on concurrency ids.
pub const IDS: Operation = Operation::new("ids");

/// Each operation that is counted, in the order of reports, with the counters whose sum says how
/// often it was done.
pub const COUNTED: [(Operation, &[Count]); 5] = [
    (SEARCH, &[Count::Find]),
    (LEVEL_CHANGE, &[Count::LevelChange]),
    (LOOK, &[Count::Look]),
    (SET_OR_CLEAR, &[Count::OverloadSet, Count::OverloadClear]),
    (PLACE, &[Count::Place]),
];
