//! Tests of the scheduler core from outside.

mod alive;
mod bench;
mod contention;
mod costs;
mod deadlines;
mod equivalence;
mod fair;
mod group_costs;
mod groups;
mod id_allocator;
mod idle_costs;
mod loom;
mod offered;
mod push;
mod quotas;
mod real_time_groups;
mod recipes;
mod run;
#[path = "../../../hitm-machine/tests/it/seeds.rs"]
mod seeds;
mod slices;

// It has compiled what these tests use.
use hitm_lab as _;

/// The options that make `cargo test` run these tests.
const TARGET: &str = "-p hitm-sched --test it";
