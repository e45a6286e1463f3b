//! The workloads on both hosts.

mod determinism;
mod simulated;
mod trust;

mod order;
mod wakes;
