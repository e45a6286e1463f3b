//! The scheduler core from outside.

mod alive;
mod bench;
mod costs;
mod equivalence;
mod fair;
mod group_costs;
mod groups;
mod idle_costs;
mod loom;
mod numbers;
mod push;
mod quotas;
mod real_time_groups;
mod recipes;
mod run;

/// How `cargo test` is told to run these.
const TARGET: &str = "-p hitm-sched --test it";
