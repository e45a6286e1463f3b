//! Model checks of the mechanisms whose ordering matters, and of broken variants of them.
//!
//! - [`cpupri`]: the index of priorities: searches against CPUs that change level;
//! - [`overload`]: the announcement of CPUs that have too much: pullers against set and clear;
//! - [`push_token`]: the chain of interrupts: requests against the scan under way, and the work's flags;
//! - [`defects`]: for every ordering that the three promise something by, the model that notices when it is gone.
//!
//! The task's state machine is private and has its models beside it, in `src/task/loom.rs`; the spin lock has them in
//! `hitm-loom`. Models of two threads explore every execution; those of three, and the longest of two, every one with at
//! most three preemptions.

mod cpupri;
mod defects;
mod overload;
mod push_token;
