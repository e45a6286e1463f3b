//! Model checks of the mechanisms whose ordering matters, and of broken variants of them.
//!
//! - [`cpupri`]: the index of priorities: searches against CPUs that change level;
//! - [`overload`]: the advertisement of overloaded CPUs: pullers against set and clear;
//! - [`push_token`]: the chain of interrupts: requests against the current scan, and the work's
//!   flags;
//! - [`defects`]: for every ordering that a promise of these three depends on, the model that fails
//!   without it.
//!
//! The task's state machine is private. Its models are in `src/base/task/loom.rs`, and those of the
//! spin lock in `hitm-loom`. Models of two threads explore every execution. Those of three threads,
//! and the longest of two, explore every execution with at most three preemptions.

mod cpupri;
mod defects;
mod overload;
mod push_token;
