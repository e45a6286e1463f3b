//! Accesses count for the operation in which they were issued, on the CPU that is in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Machine, OperationResult, Results, Simulated};
use hitm_memory::{AtomicWord, Memory, Operation, Placed, Platform, Span, described};
use hitm_topology::CpuId;

described! {
    struct Words<M: Memory> as "words" {
        word: M::Atomic<u32>,
    }
}

const OUTER: Operation = Operation::new("outer");
const INNER: Operation = Operation::new("inner");

/// Runs `f` on each of two CPUs, with a word on a line of its own.
fn run(f: impl Fn(CpuId, &Words<Simulated>) + 'static) -> Results {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { start_spread: Span::ZERO, jitter: 0.0, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let words = machine.enter(|| {
        let word = <Simulated as Memory>::Atomic::new(0);
        Arc::new(Placed::<Simulated, _>::new(Words::<Simulated> { word }, None, None))
    });
    machine.run(move |cpu| f(cpu, &words)).expect("it ends");
    machine.results()
}

fn of(results: &Results, operation: Operation) -> OperationResult {
    results.operations.get(&operation).copied().unwrap_or_default()
}

/// Relaxed everywhere: only the counts matter.
const ORDER: Ordering = Ordering::Relaxed;

#[test]
fn accesses_count_for_the_innermost_operation_of_their_cpu() {
    let results = run(|cpu, words| {
        let add = |times: u32| (0..times).for_each(|_| _ = words.word.fetch_add(1, ORDER));
        if cpu == CpuId(1) {
            // In no operation, while the other CPU is in one and waits for the line.
            add(50);
            return;
        }
        add(3);
        let outer = OUTER.begin::<Simulated>();
        add(5);
        {
            let _inner = INNER.begin::<Simulated>();
            add(7);
        }
        add(11);
        drop(outer);
        add(13);
    });
    assert_eq!((of(&results, OUTER).accesses, of(&results, INNER).accesses), (5 + 11, 7));
    assert_eq!(results.totals.accesses(), 3 + 5 + 7 + 11 + 13 + 50);
    assert!(of(&results, OUTER).misses.count() > 0, "the line went over while it waited");
}

#[test]
fn a_store_counts_for_the_operation_in_which_it_was_issued() {
    let results = run(|cpu, words| {
        if cpu == CpuId(1) {
            words.word.store(1, ORDER);
            return;
        }
        // The other CPU has the line by now.
        Simulated::compute(Span::from_micros(10));
        let outer = OUTER.begin::<Simulated>();
        words.word.store(2, ORDER);
        drop(outer);
        let _inner = INNER.begin::<Simulated>();
        // SeqCst: waits for the store.
        Simulated::fence(Ordering::SeqCst);
    });
    let outer = of(&results, OUTER);
    assert_eq!((outer.accesses, outer.misses.count(), outer.misses.transfers), (1, 1, 1));
    assert_eq!(of(&results, INNER), OperationResult::default());
}
