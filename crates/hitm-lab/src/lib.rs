//! Experiments: the place that knows both the programs and the machines that they run on.
//!
//! - [`Program`]: which probe, with its parameters. Data, so that an experiment can be a row of a table.
//! - [`simulate`] and [`measure`]: the same program on a simulated machine, and on this one.
//! - [`this`]: this machine beside a simulation of it, built from what is measured here.
//! - [`validate`]: published experiments beside what the model gives.

mod host;
mod program;
pub mod this;
pub mod validate;

pub use host::{Given, Setting, mean_nanos, measure, simulate};
pub use program::Program;

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
