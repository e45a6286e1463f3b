//! The reports of runs, for people and for programs.
//!
//! [`ResultFile`](result::ResultFile) is the one form of results: all output is made from it, so a
//! saved file can be reported again. This crate does not know how a run is made. [`ToReport`] makes
//! a report of a machine's counters, for other programs.
#![forbid(unsafe_code)]

pub mod advice;
pub mod agreement;
mod brief;
pub mod c2c;
pub mod check;
pub mod columns;
pub mod compare;
pub mod functions;
mod heading;
pub mod html;
pub mod id_bursts;
pub mod import;
pub mod job;
mod json;
pub mod latency;
pub mod layout;
mod line;
pub mod load;
pub mod loads;
pub mod measured;
pub mod messaging;
pub mod objects;
mod owners;
#[cfg(feature = "parquet")]
mod parquet;
pub mod perfetto;
pub mod plot;
pub mod probe;
pub mod published;
mod read_error;
pub mod relative;
mod reordered;
mod report;
pub mod result;
pub mod rules;
pub mod sampled;
pub mod schema;
pub mod statistics;
pub mod summary;
pub mod sweep;
pub mod sweep_state;
pub mod tables;
pub mod this_machine;
pub mod uncertainty;
pub mod uncertainty_state;
pub mod validation;
pub mod validation_uncertainty;

pub use report::{Report, ToReport};

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
