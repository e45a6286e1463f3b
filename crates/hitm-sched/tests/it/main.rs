//! The scheduler core from outside.

mod loom;
