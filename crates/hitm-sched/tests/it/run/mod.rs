//! The scheduler driven as by a runtime, with random tasks, and checked by checkers that are
//! independent of it.
//!
//! - [`plan`]: the content of a seed: machine, mitigation, tasks, and the operations that occur.
//! - [`driver`]: the program of each CPU: it takes interrupts, switches, "runs" its task, and
//!   idles.
//! - [`groups`]: the groups that the driver keeps and frees.
//! - [`ledger`]: the driver's own knowledge, and the events that contradict it.
//! - [`simulated`], [`native`]: the two hosts.
//!
//! A run has phases. In each phase CPUs and tasks act at random for a number of steps. Then tasks
//! stay where they are until the system is quiescent, and its state is compared with the expected
//! state. In the last phase all tasks end.

mod defects;
pub(crate) mod driver;
mod flawed;
pub(crate) mod groups;
pub(crate) mod ledger;
pub(crate) mod native;
pub(crate) mod plan;
pub(crate) mod simulated;
