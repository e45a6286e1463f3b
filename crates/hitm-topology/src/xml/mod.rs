//! hwloc's XML, formats 1 (hwloc 0.9 to 1.11), 2 (hwloc 2) and 3 (hwloc 3).
//!
//! The facts taken from a file:
//!
//! - **CPUs**: every `PU`, less those that the root object's `online_cpuset` (format 1) or
//!   `allowed_cpuset` leaves out. CPUs that only `complete_cpuset` names (offline) have no `PU`;
//!   both kinds are counted as excluded.
//! - **Cores and packages**: the `Core` and `Package` (`Socket`) around a `PU`. Without a core,
//!   each CPU is one; without any package, the machine is one.
//! - **LLCs**: the L3 around a `PU`, else the highest other data or unified cache, else the
//!   package.
//! - **Nodes**: the `NUMANode` objects with the CPU in their `cpuset`, at any position: around the
//!   CPU (format 1), or as memory beside it, possibly behind memory-side caches. Of several, the
//!   one with the fewest CPUs counts, then the lowest `os_index`. Without one, the node in the
//!   CPU's `complete_nodeset` counts (a node whose memory may not be used has no object). Without
//!   any node with CPUs, the machine is one node.
//! - **Distances**: the latency matrix between all nodes. In format 2 and 3 it is a `distances2` of
//!   type `NUMANode`, of several the one named `NUMALatency`, else the first; in format 1 a
//!   `distances` of the nodes' depth. Matrices between other objects (`distances2hetero` among
//!   them), and bandwidths, are ignored.
//! - **The processor**: `CPUModel`, `CPUVendor` and so on of the first package, or of the root.
//!
//! Two properties are checked: the bitmaps of all objects around a `PU` contain it, and the bitmap
//! of every object has as many CPUs as the object contains. Groups, dies, memory-side caches and
//! I/O are ignored; a type that hwloc 3 does not have is refused.
//!
//! - `read`: the file, event by event;
//! - `attributes`: the attributes of an element;
//! - `tree`: objects;
//! - `distances`: matrices.

mod attributes;
mod distances;
mod read;
mod tree;

pub(crate) use read::read_file;
