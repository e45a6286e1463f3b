//! The scheduler core from outside.

mod equivalence;
mod loom;
mod recipes;
mod run;
mod seeds;
