//! Measures, on this machine and without contention, a CPU's change of its level in cpupri.
//!
//! `cargo run --release -p hitm-sched --example set_level`
//!
//! One thread moves one CPU between two levels and measures the time: four read-modify-writes on
//! lines that its core has. It tells nothing about contention; that is the simulated machine's
//! task. A test of `hitm-cli` checks the instructions of [`change`].

use std::hint::black_box;
use std::time::Instant;

use hitm_memory::Native;
use hitm_sched::internals::{Cpupri, CpupriForm, Level, PACKED};
use hitm_topology::CpuId;

/// Changes per measurement.
const CHANGES: u32 = 1_000_000;

/// Changes the level once. The test checks the instructions of this function.
#[inline(never)]
fn change(cpupri: &Cpupri<Native>, level: Level) {
    cpupri.set_level(CpuId(0), Some(level));
}

fn main() {
    let topology = hitm_topology::parse("core:4").expect("a machine of four CPUs");
    let cpupri = Cpupri::new(&topology, &PACKED, CpupriForm::WHOLE, Level::COUNT);
    let begin = Instant::now();
    for turn in 0..CHANGES {
        change(black_box(&cpupri), Level(1 + turn % 2));
    }
    let nanos = begin.elapsed().as_nanos() as f64 / f64::from(CHANGES);
    println!("{nanos:.1} ns a change, measured here, on lines that this CPU has");
}
