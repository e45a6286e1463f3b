//! The scheduler core from outside.

mod bench;
mod costs;
mod equivalence;
mod loom;
mod numbers;
mod push;
mod recipes;
mod run;
mod seeds;
