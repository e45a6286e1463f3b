//! The tests of what is built on the seam.

mod contention;
mod locks;
mod macros;
mod record;
mod splits;

use hitm_topology::Topology;

/// Eight CPUs with parts at every scope: two packages of two cores of two CPUs.
fn topology() -> Topology {
    hitm_topology::parse("package:2 l3:1 core:2 pu:2").expect("eight CPUs")
}
