//! The public behaviour of the crate.
//!
//! - `oracle`: what hwloc says about a machine, to compare with; `data/README.md` says how that was recorded;
//! - `invariants`: what holds for every machine;
//! - `tree`: sysfs trees, unpacked from dumps or made from a topology;
//! - `allocation`: how much memory a piece of code takes;
//! - the others: one input or one question each.

mod allocation;
mod invariants;
mod oracle;
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
