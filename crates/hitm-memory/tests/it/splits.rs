//! Sets and counters that are split by a scope, against the plain set and the plain sum.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuMask, CpuSet, Encoding, Form, Native, ScopedCounter, ScopedSets};
use hitm_topology::{CpuId, Scope, Topology};

use crate::topology;

/// A machine whose CPUs fill a word and begin another.
fn wide() -> Topology {
    hitm_topology::parse("package:2 l3:3 core:8 pu:2").expect("96 CPUs")
}

/// Every split of sets.
fn kinds() -> impl Iterator<Item = (Form, Encoding)> {
    Form::all().flat_map(|form| [Encoding::Zeros, Encoding::ForeignOnes].map(|encoding| (form, encoding)))
}

/// The next of a sequence that visits all numbers below 2^64; the constants are Knuth's (MMIX).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn set_of(cpus: &BTreeSet<CpuId>) -> CpuSet {
    cpus.iter().copied().collect()
}

#[test]
fn every_split_of_a_set_holds_the_same() {
    // Relaxed throughout: one thread.
    const ORDER: Ordering = Ordering::Relaxed;
    for topology in [topology(), wide()] {
        let some: BTreeSet<CpuId> = topology.cpu_ids().filter(|cpu| cpu.0 % 3 == 1).collect();
        let allowed = CpuMask::<Native>::new("allowed", None, &topology, &set_of(&some));
        for (form, encoding) in kinds() {
            let sets = ScopedSets::<Native>::new("set", "row", 2, &topology, form, encoding);
            let (row, other) = (sets.row(sets.pointer_to(1)), sets.row(sets.pointer_to(0)));
            let mut model = BTreeSet::new();
            let mut state = 1;
            for _ in 0..300 {
                let cpu = CpuId(next(&mut state) as u32 % topology.cpus() as u32);
                if next(&mut state).is_multiple_of(3) {
                    row.clear(cpu, ORDER);
                    model.remove(&cpu);
                } else {
                    row.set(cpu, ORDER);
                    model.insert(cpu);
                }
                let here = CpuId(next(&mut state) as u32 % topology.cpus() as u32);
                let common: BTreeSet<CpuId> = model.intersection(&some).copied().collect();
                assert_eq!(row.snapshot(), set_of(&model), "{form:?}, {encoding:?}");
                assert_eq!(row.intersection(&allowed, ORDER), set_of(&common), "{form:?}, {encoding:?}");
                assert_eq!(row.intersects(&allowed, here, ORDER), !common.is_empty(), "{form:?}, {encoding:?}");
                let after = model.range(CpuId(here.0 + 1)..).next().copied();
                assert_eq!(row.next_after(Some(here), ORDER), after, "{form:?}, {encoding:?}");
                assert_eq!(row.next_after(None, ORDER), model.first().copied(), "{form:?}, {encoding:?}");
            }
            assert!(other.snapshot().is_empty(), "another row has lines of its own: {form:?}, {encoding:?}");
        }
    }
}

#[test]
fn a_sum_stops_when_it_exceeds_its_limit() {
    let topology = wide();
    for scope in Scope::ALL {
        let counter = ScopedCounter::<Native>::of_parts("count", &topology, scope);
        // Relaxed: one thread.
        topology.cpu_ids().for_each(|cpu| _ = counter.cell_of(cpu).fetch_add(1, Ordering::Relaxed));
        let parts = topology.parts(scope) as i32;
        let each = topology.cpus() as i32 / parts;
        for limit in 0..parts * each {
            let sum = counter.sum_of_parts(CpuId(5), limit);
            // Whole parts, and the last of them is the one that exceeds the limit.
            assert_eq!(sum, (limit / each + 1) * each, "{scope}: beyond {limit}");
        }
    }
}

#[test]
fn a_count_of_the_whole_machine_is_the_callers_word() {
    let counter = ScopedCounter::<Native>::new("count", &topology(), Scope::Machine);
    let whole = AtomicWord::new(4);
    assert!(std::ptr::eq(counter.cell(&whole, CpuId(7)), &raw const whole));
    assert_eq!((counter.sum_beyond(&whole, CpuId(0), 1), counter.bytes()), (4, 0));
}
