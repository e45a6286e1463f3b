//! Limits on the size of inputs, with their reasons.
//!
//! Every limit serves one promise: reading any input takes well under 256 MiB and a few seconds.

/// The largest machine, in logical CPUs: Linux's limit on x86-64 (`CONFIG_NR_CPUS_RANGE_END` with
/// `CPUMASK_OFFSTACK` in `arch/x86/Kconfig`).
pub const MAX_CPUS: usize = 8192;

/// The largest OS index of a CPU or node. OS indices have holes (CPUs offline, SMT off on POWER):
/// eight times the largest machine covers one CPU of eight in use.
pub(crate) const MAX_OS_INDEX: u32 = 65_535;

/// The most NUMA nodes, with or without CPUs: Linux's largest `CONFIG_NODES_SHIFT` is 10. A
/// distance matrix has the square of it, 8 MiB.
pub(crate) const MAX_NODES: usize = 1024;

/// The longest bitmap text. Bits up to `MAX_OS_INDEX` take 2,048 words of eleven characters, 22
/// KiB.
pub(crate) const MAX_MASK_BYTES: usize = 32 << 10;

/// The longest sysfs file. The longest list of a machine, every second one of its CPUs by itself,
/// has 50 KiB.
pub(crate) const MAX_SYSFS_BYTES: usize = 64 << 10;

/// The largest number of bytes of all sysfs files of a machine. Where the CPU numbers of two
/// packages alternate, two lists of each CPU name its whole package one by one: 160 MiB for 8,192
/// CPUs in two packages. Reading a list takes about 5 ns per byte.
pub(crate) const MAX_SYSFS_TOTAL_BYTES: usize = 256 << 20;

/// The part of `/proc/cpuinfo` that is read: its first entry suffices and has about 2 KiB.
pub(crate) const MAX_CPUINFO_BYTES: usize = 64 << 10;

/// The largest XML file. hwloc's own description of 384 CPUs has 0.3 MiB; 8,192 CPUs, with their
/// longer bitmaps, have about 30 MiB. The whole file is held in memory.
pub(crate) const MAX_XML_BYTES: usize = 64 << 20;

/// The deepest nesting of XML elements: hwloc itself builds no more than 128 levels.
pub(crate) const MAX_XML_DEPTH: usize = 128;

/// The longest synthetic string: an explicit list of 8,192 OS indices for CPUs and another for
/// nodes has 60 KiB.
pub(crate) const MAX_SYNTHETIC_BYTES: usize = 128 << 10;

/// The most levels of a synthetic string: hwloc has eleven types, and groups may repeat.
pub(crate) const MAX_SYNTHETIC_LEVELS: usize = 32;
