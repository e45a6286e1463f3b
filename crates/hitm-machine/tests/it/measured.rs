//! What is counted begins and ends when the program says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Machine, Results, Simulated};
use hitm_memory::{AtomicWord, Memory, Placed, Platform, Span, described};
use hitm_topology::CpuId;

described! {
    struct Words<M: Memory> as "words" {
        word: M::Atomic<u32>,
    }
}

/// How often CPU 0 writes before, in and after the measured stretch, and how long it computes in
/// each.
const TIMES: [u64; 3] = [7, 5, 3];
const WORK: Span = Span::from_micros(10);

/// What a machine of two CPUs counts, of which the other one computes all the time.
fn counted(measure_from: Span, tells: bool, look_ahead: bool) -> Results {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { measure_from, look_ahead, start_spread: Span::ZERO, jitter: 0.0, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let words = machine.enter(|| {
        let word = <Simulated as Memory>::Atomic::new(0);
        Arc::new(Placed::<Simulated, _>::new(Words::<Simulated> { word }, None, None))
    });
    machine
        .run(move |cpu| {
            if cpu == CpuId(1) {
                Simulated::compute(WORK * 10);
                return;
            }
            for (stretch, times) in TIMES.into_iter().enumerate() {
                match stretch {
                    1 if tells => Simulated::measure_from_now(),
                    2 if tells => Simulated::measure_until_now(),
                    _ => {}
                }
                // Relaxed: no other thread looks.
                (0..times).for_each(|_| _ = words.word.fetch_add(1, Ordering::Relaxed));
                Simulated::compute(WORK);
            }
        })
        .expect("it ends");
    machine.results()
}

const LATER: Span = Span::from_picos(u64::MAX);

#[test]
fn what_comes_before_and_after_is_left_out() {
    for look_ahead in [false, true] {
        let results = counted(LATER, true, look_ahead);
        assert_eq!(results.totals.accesses(), TIMES[1]);
        let of_one = (results.busy() / 2) as f64 / WORK.as_picos() as f64;
        assert!((1.0..1.1).contains(&of_one), "both CPUs compute: {of_one}");
    }
}

#[test]
fn what_never_begins_is_empty() {
    let results = counted(LATER, false, true);
    assert_eq!((results.totals.accesses(), results.busy()), (0, 0));
}

#[test]
fn who_says_nothing_has_it_all() {
    let results = counted(Span::ZERO, false, true);
    assert_eq!(results.totals.accesses(), TIMES.iter().sum::<u64>());
}
