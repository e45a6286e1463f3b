//! The workloads on both hosts.

mod determinism;
mod simulated;

mod order;
mod wakes;
