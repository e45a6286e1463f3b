//! The workloads on both hosts.

mod determinism;
mod loom;
mod probes;
mod simulated;
mod trust;

mod order;
mod wakes;
