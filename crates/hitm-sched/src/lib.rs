//! The scheduler core.
//!
//! Everything is generic over [`Memory`](hitm_memory::Memory) or
//! [`Platform`](hitm_memory::Platform). The same source runs natively, on the simulated machine and
//! under model checkers. The core knows no threads, no futures and no files, and its only clock is
//! the platform's.
//!
//! Each mechanism has one file. A variant of a mechanism is a parameter.
#![forbid(unsafe_code)]

pub mod prio;

pub mod cpupri;
mod cpupri_counts;
pub mod cpupri_vecs;
pub mod overload;
pub mod push_token;
pub mod root_domain;

mod id_allocator;
mod list;
mod rq;
pub mod task;

pub mod cid;

pub mod fair;

mod announce;
mod change;
pub mod config;
mod enqueue;
mod floor;
mod hotplug;
mod near;
mod placement;
mod pull;
mod push;
mod pushable;
pub mod scheduler;
mod switch;
mod waiting;
mod wake;

pub mod mitigation;

pub mod check;
pub mod journal;
pub mod stats;

/// The table of this crate's functions: their names by file and line.
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
