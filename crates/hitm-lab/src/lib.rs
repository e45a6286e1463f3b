//! Experiments: programs on machines.
//!
//! - [`Program`]: a probe with its parameters. It is data, so that an experiment can be a row of a
//!   table.
//! - [`simulate`] and [`measure`]: run a program on a simulated machine, and on this one.
//! - [`uncertainty`]: machines drawn from the ranges of the model's parameters.
//! - [`this`]: compares this machine with a simulation that is built from its measurements.
//! - [`validate`]: compares published experiments with the model.
#![forbid(unsafe_code)]

// It has compiled what the tests use.
#[cfg(test)]
use hitm_lab as _;

mod host;
mod program;
pub mod this;
pub mod uncertainty;
pub mod validate;

pub use host::{Output, Setting, mean_nanos, measure, simulate};
pub use program::Program;

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
