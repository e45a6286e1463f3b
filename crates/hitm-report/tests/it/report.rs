//! Reports that a program makes from a machine's results.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Machine, Results, Simulated};
use hitm_memory::{AtomicWord, Placed, Span, described};
use hitm_report::ToReport;
use hitm_report::c2c::Layout;

described! {
    /// Written by all.
    struct Flags<M: Memory> as "flags" {
        /// Set once.
        set: M::Atomic<bool>,
        /// The largest number of a CPU.
        most: M::Atomic<u8>,
    }
}

fn machine_of(topology: &str) -> Machine {
    let topology = Arc::new(hitm_topology::parse(topology).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
    Machine::new(topology, costs, config)
}

/// Two objects with names given by the caller, on a machine of two packages; the CPUs write to
/// both.
fn results() -> Results {
    let machine = machine_of("pack:2 l3:1 core:2 pu:1");
    let flags = |number: usize| {
        let flags = Flags::<Simulated> { set: AtomicWord::new(false), most: AtomicWord::new(0) };
        Placed::<Simulated, _>::named(format!("flags of {number}"), flags, Some(number), None)
    };
    let both = machine.enter(|| [flags(0), flags(1)]);
    let write = move |cpu: u8| {
        for flags in &both {
            // Relaxed: nothing is published.
            flags.most.fetch_max(cpu, Ordering::Relaxed);
            flags.set.fetch_or(true, Ordering::Relaxed);
        }
    };
    machine.run(move |cpu| write(cpu.0 as u8)).expect("it ends");
    machine.results()
}

#[test]
fn a_report_is_written_and_displayed() {
    let results = results();
    let report = results.report().title("mine").lines(1);
    let mut written = Vec::new();
    report.write(&mut written).expect("a vector takes all");
    expect_test::expect![[r#"
        mine
                          waits    cycles  local  remote
        object, line        [%]  per miss  HITMs   HITMs  loads  stores
        ----------------  -----  --------  -----  ------  -----  ------
        flags of 0[0], 0   59.5       969      2       1      8       8

        flags of 0[0], line 0
                                 waits    cycles
        offset  field, function    [%]  per miss  misses
        ------  ---------------  -----  --------  ------
           0x1  most
                  results (RMW)  100.0       969       4
    "#]]
    .assert_eq(std::str::from_utf8(&written).expect("text"));
    assert_eq!(report.to_string().as_bytes(), written);
}

#[test]
fn a_report_has_the_lines_that_are_asked_for() {
    let results = results();
    let lines = |report: hitm_report::Report<'_>| report.to_string().matches(", line 0").count();
    assert_eq!(lines(results.report()), 2);
    assert_eq!(lines(results.report().lines(1)), 1);
    assert_eq!(lines(results.report().object("flags of 1")), 1);
    let none = results.report().object("gone").to_string();
    assert_eq!(none, "Contended lines, most waited for first\nNo line was contended.\n");
    assert!(results.report().layout(Layout::Full).to_string().contains("Shared Cache Line Distribution Pareto"));
}

described! {
    /// One of many, each of which two CPUs write.
    struct Cells<M: Memory> as "cells" {
        /// Counted up by all.
        counts: [M::Atomic<u32>; 2] = words,
    }
}

#[test]
fn a_report_sums_all_objects_of_a_kind() {
    let machine = machine_of("pack:1 l3:1 core:2 pu:1");
    let cells = |number: usize| {
        let cells = Cells::<Simulated> { counts: [0, 0].map(AtomicWord::new) };
        Placed::<Simulated, _>::new(cells, Some(number), None)
    };
    let all: Vec<_> = machine.enter(|| (0..8).map(cells).collect());
    let count = move |cpu: usize| {
        for cells in &all {
            // Relaxed: nothing is published.
            cells.counts[cpu].fetch_add(1, Ordering::Relaxed);
        }
    };
    machine.run(move |cpu| count(cpu.index())).expect("it ends");
    let results = machine.results();
    expect_test::expect![[r#"
        Contended lines, most waited for first
        objects                                  waits    cycles
        field, function                            [%]  per miss  HITMs  misses  lines
        ---------------------------------------  -----  --------  -----  ------  -----
        cells                                    100.0       381      8      16      8
          counts[], a_report_sum...ts_of_a_kind  100.0       381      8      16

                      waits    cycles  local  remote
        object, line    [%]  per miss  HITMs   HITMs  loads  stores
        ------------  -----  --------  -----  ------  -----  ------
        cells[0], 0    15.2       461      1       0      2       2

        cells[0], line 0
                                                             waits    cycles
        offset  field, function                                [%]  per miss  misses
        ------  -------------------------------------------  -----  --------  ------
           0x0  counts[0]
                  a_report_sums_all_objects_of_a_kind (RMW)   39.9       368       1
           0x4  counts[1]
                  a_report_sums_all_objects_of_a_kind (RMW)   60.1       555       1
    "#]]
    .assert_eq(&results.report().lines(1).to_string());
    let has_sums = |report: hitm_report::Report<'_>| report.to_string().contains("\nobjects ");
    assert!(!has_sums(results.report().lines(8)), "each line is shown");
    assert!(!has_sums(results.report().lines(1).object("cells")), "one object was asked for");
    assert!(!has_sums(results.report().lines(1).layout(Layout::Mail)), "perf has no such table");
    let mut kept = results.clone();
    kept.keep_hottest(3);
    kept.keep_hottest(1);
    assert_eq!((kept.lines.len(), kept.waited()), (1, results.waited()), "shares are still those of all waits");
}
