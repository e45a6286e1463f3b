//! The workloads on the simulated machine.

mod determinism;
mod simulated;
mod trust;
