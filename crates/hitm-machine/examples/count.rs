//! Does one thing many times, for a counter of instructions outside: `tests/it/instructions.rs`
//! runs it under Callgrind.
//!
//! ```text
//! cargo run --release -p hitm-machine --example count -- machine-miss 10000
//! ```
//!
//! What is done `N` times more costs `count(2 N) - count(N)`: setting up cancels out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::internals::{Directory, Outcome, Request};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Kind, Latencies, Machine, Simulated};
use hitm_memory::{AtomicWord, Field, Memory, PlacedSlice, Platform, Span};

/// The threads of as many cores of two packages that ask for one line in turn.
const ASKERS: [u32; 8] = [0, 120, 40, 160, 80, 200, 20, 140];
/// Longer than any transfer, picoseconds.
const LATER: u64 = 10_000_000;

fn directory(lines: usize) -> Directory {
    let topology = hitm_topology::parse("gnr-2x120").expect("a preset");
    let costs = Costs::of(&topology, CostSet::Linux);
    let mut directory = Directory::new(Latencies::new(&topology, &costs), Arbitration::LocalFirst, 1, 1);
    directory.grow(lines, 0);
    directory
}

/// A request of `cpu` for line 0 that arrives at `time`.
fn ask(directory: &mut Directory, cpu: u32, kind: Kind, time: u64) -> (Outcome, Option<u64>) {
    directory.announce(0);
    let way = directory.latencies().one_way;
    let answer =
        directory.arrive(Request { cpu, line: 0, kind, time, way, lead: 0, access: cpu, kernel: false, operation: 0 });
    directory.conclude(0);
    answer
}

fn directory_hit(times: u64) {
    let mut directory = directory(1);
    let _granted = ask(&mut directory, 0, Kind::Rmw, 0);
    for turn in 1..=times {
        let done = directory.hit(0, 0, Kind::Load, turn * LATER);
        assert!(done.is_some(), "the owner finds its line");
    }
}

fn directory_miss(times: u64) {
    let mut directory = directory(1);
    for turn in 0..times {
        let cpu = ASKERS[turn as usize % ASKERS.len()];
        let (outcome, _) = ask(&mut directory, cpu, Kind::Rmw, turn * LATER);
        assert!(matches!(outcome, Outcome::Granted(_)), "nobody else asks");
    }
}

fn directory_queued(times: u64) {
    let mut directory = directory(1);
    let mut grants = Vec::new();
    let mut served = 0;
    let mut turn = 0;
    while served < times {
        let time = turn * LATER;
        let _granted = ask(&mut directory, 239, Kind::Rmw, time);
        let asked = ASKERS.map(|cpu| ask(&mut directory, cpu, Kind::Rmw, time + 1).1);
        let mut due = asked.into_iter().flatten().next();
        while let Some(now) = due {
            due = directory.decide(0, now, &mut grants);
        }
        served += grants.len() as u64;
        grants.clear();
        turn += 1;
    }
}

/// Runs `main` on a machine of two packages of four cores with one word for all, and checks the
/// misses.
fn machine(main: impl Fn(u32, &<Simulated as Memory>::Atomic<u32>) + 'static, misses: std::ops::RangeInclusive<u64>) {
    let topology = Arc::new(hitm_topology::parse("pack:2 l3:1 core:4 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    // A run is the same to the picosecond whatever its length.
    let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let fields = || vec![Field::word("word", 0, 4, "touched by all")];
    let make = |_| <Simulated as Memory>::Atomic::<u32>::new(0);
    let word = machine.enter(|| PlacedSlice::<Simulated, _>::new("word", None, None, 1, &fields, make));
    machine.run(move |cpu| main(cpu.0, &word[0])).expect("it ends");
    let counted = machine.results().totals.misses.count();
    assert!(misses.contains(&counted), "{counted} misses");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: count WHAT TIMES";
    let what = arguments.next().expect(usage);
    let times: u64 = arguments.next().and_then(|times| times.parse().ok()).expect(usage);
    // Relaxed throughout: nothing is published, the words are there to be touched.
    let order = Ordering::Relaxed;
    match what.as_str() {
        "directory-hit" => directory_hit(times),
        "directory-miss" => directory_miss(times),
        "directory-queued" => directory_queued(times),
        "machine-hit" => {
            let load = move |cpu, word: &<Simulated as Memory>::Atomic<u32>| {
                for _ in 0..if cpu == 0 { times } else { 0 } {
                    word.load(order);
                }
            };
            machine(load, 1..=1);
        }
        // One CPU's work and the switches round it: what `machine-miss` has besides its miss.
        "machine-switch" => {
            let work = move |cpu, _: &<Simulated as Memory>::Atomic<u32>| {
                for _ in 0..if cpu < 2 { times / 2 } else { 0 } {
                    Simulated::compute(Span::from_micros(1));
                }
            };
            machine(work, 0..=0);
        }
        // Two CPUs in turn, so far apart that neither waits for the other.
        "machine-miss" => {
            let take = move |cpu, word: &<Simulated as Memory>::Atomic<u32>| {
                Simulated::compute(Span::from_nanos(500 * u64::from(cpu)));
                for _ in 0..if cpu < 2 { times / 2 } else { 0 } {
                    word.fetch_add(1, order);
                    Simulated::compute(Span::from_micros(1));
                }
            };
            machine(take, times..=times);
        }
        // Eight CPUs at once: all but the first of them wait in the queue.
        "machine-queued" => {
            let take = move |_, word: &<Simulated as Memory>::Atomic<u32>| {
                for _ in 0..times / 8 {
                    word.fetch_add(1, order);
                }
            };
            machine(take, times / 4..=times);
        }
        _ => panic!("{usage}"),
    }
}
