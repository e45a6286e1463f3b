//! The public behaviour of the crate.
//!
//! - `oracle`: hwloc's facts about a machine, for comparison; `data/README.md` says how they were
//!   recorded;
//! - `invariants`: properties of every machine;
//! - `tree`: sysfs trees, unpacked from dumps or made from a topology;
//! - `allocation`: the memory that a piece of code uses;
//! - the others: one input or one question each.

mod allocation;
mod invariants;
mod oracle;
mod tool;
mod tree;

mod argument;
mod grow;
mod hostile;
mod presets;
mod random;
mod restrict;
mod scope;
mod synthetic;
mod synthetic_errors;
mod sysfs;
mod sysfs_errors;
mod this;
mod xml;
mod xml_errors;
mod xml_matrices;
