//! Linux's own description of a machine: `/sys/devices/system/{cpu,node}`, here or in a dumped
//! copy.
//!
//! The facts, their files, and the replacement of a missing file:
//!
//! | fact | files | else |
//! |---|---|---|
//! | CPUs in use | `cpu/online` | every `cpu/cpuN` whose own `online` is not 0 |
//! | CPUs in all (counted as excluded) | `cpu/present` | every `cpu/cpuN` |
//! | package | `package_cpus_list`, `core_siblings_list`, `package_cpus` or `core_siblings`, else `physical_package_id` | one package |
//! | core | `core_cpus_list`, `thread_siblings_list`, `core_cpus` or `thread_siblings`, else `core_id` within package and die | each CPU a core |
//! | LLC | `cache/indexN` of the L3, else of the highest data or unified cache: `shared_cpu_list` or `shared_cpu_map` | the package |
//! | node | `node/nodeN/cpulist` or `cpumap` of the nodes in `node/online`, else of every `node/nodeN`; the entry `cpu/cpuN/nodeM` of a CPU that none lists | one node |
//! | distances | `node/nodeN/distance` | none |
//! | processor | `proc/cpuinfo` beside `sys`, its first entry | unknown |
//!
//! A fact that only some CPUs have, or on which two CPUs disagree, is refused. Lists may name
//! offline CPUs, which are ignored. Empty lists and an id of -1 count as missing: Linux writes them
//! for unknown values.
//!
//! - `this`: the running machine, less the CPUs on which the process may not run;
//! - `dump`: locates and reads the files of a directory;
//! - `cpus`: packages, cores and LLCs;
//! - `nodes`: nodes and distances;
//! - `cpuinfo`: the processor;
//! - `write`: the same files, written from a machine.

mod cpuinfo;
mod cpus;
mod dump;
mod nodes;
mod this;
mod write;

pub(crate) use dump::read_dump;
pub(crate) use this::read_this;
pub use write::ranges;
