//! The workloads of the publications that hitm reproduces, written once as tasks over the runtime,
//! for both hosts.
//!
//! A workload defines its tasks, their interaction and its metric. It is independent of the machine
//! below and names no field of the scheduler.
#![forbid(unsafe_code)]

// It has compiled what the tests use.
#[cfg(test)]
use hitm_lab as _;

pub mod bursts;
pub mod cid_bursts;
pub mod cid_storms;
pub mod context1;
pub mod cyclic;
pub mod ffmpeg;
pub mod futex;
pub mod hackbench;
pub mod loopback;
pub mod meter;
pub mod nested;
pub mod pi_stress;
pub mod probe;
pub mod runtime;
pub mod schbench;
mod system_call;

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The functions of this crate.
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
