//! The workloads on both hosts.

mod determinism;
mod inversions;
mod loom;
mod probes;
mod simulated;

mod order;
mod wakes;
