//! The scheduler core from outside.

mod loom;
mod run;
mod seeds;
