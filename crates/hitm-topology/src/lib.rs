//! The machine as a shape: CPUs, SMT siblings, LLCs, nodes, packages and the distances between
//! nodes.
//!
//! A [`Topology`] is immutable and gives the parts that CPUs share. It comes from one of five
//! inputs, all behind [`parse()`]: a preset ([`presets`]), an hwloc XML file, an hwloc synthetic
//! string, a dumped Linux sysfs tree, or this machine. [`Topology::restrict`] makes a smaller or a
//! larger machine of it.
//!
//! The crate has no notion of scheduling, time, costs or cache coherence, reads no clock and starts
//! no thread. Only [`parse()`] reads files and directories.
//!
//! # Vocabulary
//!
//! A *CPU* is the unit on which the operating system schedules (hwloc's PU); the CPUs of a *core*
//! are SMT siblings. The CPUs of an *LLC* share a last-level cache, defined at [`Cpu::llc`]. A
//! *node* is a NUMA node that has CPUs. A *package* occupies one socket. A core lies in exactly one
//! LLC, one node and one package, and an LLC in exactly one package. Nodes and LLCs may cut each
//! other (sub-NUMA clusters inside one cache), and a node may span packages (memory interleaved
//! over all of them).
//!
//! All ids are dense, from 0: CPUs are numbered by ascending OS index, every other part by its
//! lowest CPU.

#![forbid(unsafe_code)]

mod id;
mod scope;

mod family;
mod topology;

mod parse;
pub mod presets;

mod synthetic;
mod sysfs;
mod xml;

mod draft;
mod grow;
mod restrict;

mod error;
mod file;
mod index_set;
mod limits;

pub use error::Error;
pub use family::Family;
pub use id::{CoreId, CpuId, LlcId, NodeId, PackageId};
pub use limits::MAX_CPUS;
pub use parse::parse;
pub use scope::Scope;
pub use sysfs::ranges;
pub use topology::{Cpu, Topology};

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
