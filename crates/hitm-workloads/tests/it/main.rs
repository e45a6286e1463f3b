//! The workloads on both hosts.

// It has compiled what these tests use.
use hitm_lab as _;

mod cyclic;
mod determinism;
mod futex;
mod hackbench;
mod host;
mod inversions;
mod loom;
mod loopback;
mod probes;
mod runtime;
mod schbench;
mod simulated;
mod threads;

mod order;
mod wakes;
