//! Variants are parameters. After the same single-threaded history every variant gives the same
//! answers as a plain model.
//!
//! - [`cpupri`]: every placement, scope and encoding of the index;
//! - [`overload`]: every order and scope of the overload's words, and the push token;
//! - [`schedulers`]: every mitigation that can be named, driven as by a runtime; [`model`] is the
//!   expected behaviour.
//!
//! The histories run natively on one thread, which is each CPU in turn.

mod cpupri;
mod model;
mod overload;
mod schedulers;

use hitm_machine::Random;
use hitm_memory::CpuSet;
use hitm_topology::CpuId;

/// Machines: few parts, many parts, parts of one CPU, more CPUs than a word has bits.
const TOPOLOGIES: [&str; 5] = [
    "core:3 pu:1",
    "pack:2 l3:2 core:1 pu:2",
    "pack:2 numa:2 core:2 pu:1",
    "pack:3 core:2 pu:2",
    "pack:2 l3:2 core:20 pu:1",
];

/// Returns one of `items`.
fn pick<T: Copy>(random: &mut Random, items: &[T]) -> T {
    items[random.below(items.len() as u64) as usize]
}

fn any_cpu(random: &mut Random, cpus: u32) -> CpuId {
    CpuId(random.below(u64::from(cpus)) as u32)
}

/// Returns any set of `cpus` CPUs: none, some or all.
fn any_set(random: &mut Random, cpus: u32) -> CpuSet {
    let one_in = pick(random, &[1, 2, 8]);
    (0..cpus).map(CpuId).filter(|_| random.below(one_in) == 0).collect()
}
