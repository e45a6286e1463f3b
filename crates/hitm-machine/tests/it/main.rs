//! Tests of the whole machine, from outside.

mod ahead;
mod caches;
mod coroutines;
mod faults;
mod idle;
mod instructions;
mod measured;
mod moved;
mod operations;
mod pages;
mod program;
mod quick;
mod seeds;
mod shown;
mod stores;
mod stream;
mod threads;
#[path = "../../../hitm-topology/tests/it/tool.rs"]
mod tool;
mod words;

/// How `cargo test` is told to run these.
const TARGET: &str = "-p hitm-machine --test it";
