//! The scheduler core from outside.

mod equivalence;
mod loom;
mod run;
mod seeds;
