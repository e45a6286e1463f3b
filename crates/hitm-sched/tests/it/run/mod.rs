//! The scheduler driven as a runtime drives it, by random tasks, and watched by checkers that know nothing of it.
//!
//! - [`plan`]: what a seed stands for: machine, mitigation, tasks, and which operations there are.
//! - [`driver`]: what each CPU does: takes interrupts, switches, "runs" what it is given, idles.
//! - [`groups`]: the groups that it keeps, and gives back.
//! - [`ledger`]: what the driver knows by itself, and when that cannot be right.
//! - [`simulated`], [`native`]: the two hosts.
//!
//! A run has phases. In each, CPUs and tasks do as they like for a number of steps; then tasks stay where they are, until
//! nothing is in flight; then everything is compared. In the last phase all tasks end.

mod defects;
pub(crate) mod driver;
mod flawed;
pub(crate) mod groups;
pub(crate) mod ledger;
pub(crate) mod native;
pub(crate) mod plan;
pub(crate) mod simulated;
