//! Tests of the whole machine, from outside.

mod ahead;
mod caches;
mod faults;
mod idle;
mod instructions;
mod measured;
mod program;
mod stores;
mod stream;
mod threads;
mod words;

/// How `cargo test` is told to run these.
const TARGET: &str = "-p hitm-machine --test it";
