//! What results have for pictures: who takes lines from whom, each core's time, and what each CPU
//! did when.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Account, Config, CostSet, Costs, Doing, Machine, Part, Results, Simulated, Timeline};
use hitm_memory::{AtomicWord, Memory, Mode, Placed, Platform, Span, Time, described};
use hitm_topology::CpuId;

described! {
    struct Words<M: Memory> as "words" {
        first: M::Atomic<u32>,
        word: M::Atomic<u32>,
    }
}

/// Every CPU of `shape` adds to a word, as task `100 + CPU`, and computes between. Keeps a timeline
/// of the first `window` if that is asked for.
fn run(shape: &str, window: Option<Span>) -> (Results, Option<Timeline>) {
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let machine = Machine::new(topology, costs, Config::default());
    if let Some(window) = window {
        machine.keep_timeline(Time::START, Time::START + window);
    }
    let words = machine.enter(|| {
        let new = || <Simulated as Memory>::Atomic::new(0);
        Arc::new(Placed::<Simulated, _>::new(Words::<Simulated> { first: new(), word: new() }, None, None))
    });
    let main = move |cpu: CpuId| {
        for _ in 0..40 {
            Simulated::runs(Some((100 + cpu.0, Some("adder"))));
            let before = Simulated::enter(Mode::User);
            Simulated::compute(Span::from_nanos(300));
            // Relaxed: only the counts matter.
            words.word.fetch_add(1, Ordering::Relaxed);
            Simulated::enter(before);
            Simulated::runs(None);
            words.word.load(Ordering::Relaxed);
        }
        Simulated::wakes((100, Some("adder")));
    };
    machine.run(main).expect("it ends");
    let timeline = machine.timeline();
    (machine.results(), timeline)
}

#[test]
fn exchanges_are_by_core_on_a_small_machine_and_by_llc_on_a_large_one() {
    for (shape, parts) in [("l3:2 core:2 pu:1", 4), ("l3:2 core:33 pu:1", 2)] {
        let (results, _) = run(shape, None);
        let line = results.line("words", 0).expect("it missed");
        assert_eq!(line.exchanged, results.exchanged, "there is one line");
        let all: u64 = line.exchanged.values().map(|exchange| exchange.times).sum();
        let invalidated: u64 = line
            .accesses
            .iter()
            .filter_map(|access| access.missed.as_ref())
            .flat_map(|missed| &missed.invalidated_by)
            .map(|by| by.times)
            .sum();
        assert_eq!(all, invalidated, "{shape}: each invalidation has a taker");
        assert!(all > 0);
        for &(loser, taker) in line.exchanged.keys() {
            assert!(loser < parts && taker < parts, "{shape}: {loser} {taker}");
            assert!(parts == 2 || loser != taker, "{shape}: no core invalidates its own copy");
        }
        for missed in line.accesses.iter().filter_map(|access| access.missed.as_ref()) {
            assert_eq!(missed.cpus_by_part.len(), usize::from(parts));
            assert_eq!(missed.cpus_by_part.iter().sum::<u32>(), missed.cpus);
        }
    }
}

#[test]
fn the_time_of_cores_is_that_of_the_machine() {
    let (results, _) = run("core:3 pu:2", None);
    let mut sum = Account::default();
    results.cores.iter().for_each(|core| sum.merge(core));
    assert_eq!((results.cores.len(), sum), (3, results.account.clone()));
}

#[test]
fn a_timeline_has_no_gaps_and_changes_nothing() {
    let (plain, none) = run("l3:2 core:2 pu:1", None);
    assert!(none.is_none(), "none is kept unless it is asked for");
    let (results, timeline) = run("l3:2 core:2 pu:1", Some(Span::from_micros(1_000_000)));
    let timeline = timeline.expect("it was asked for");
    assert_eq!(results.account, plain.account);
    assert_eq!(results.totals, plain.totals);
    let mut times = [0; 3];
    for slices in &timeline.cpus {
        assert!(slices.windows(2).all(|pair| pair[0].until == pair[1].from && pair[0].from < pair[0].until));
        for slice in slices {
            times[slice.doing as usize] += slice.until - slice.from;
            let named = slice.task.map(|task| timeline.tasks[task as usize].role.as_deref());
            assert!(slice.doing != Doing::Task || named == Some(Some("adder")), "{slice:?}");
        }
    }
    let kernel: u64 = Part::ALL.into_iter().filter(|part| part.is_kernel()).map(|part| results.account[part]).sum();
    // The account has what is measured, which begins at the start.
    assert_eq!(times, [results.account[Part::User], kernel, results.account[Part::Idle]]);
    assert_eq!(timeline.wakeups.len(), 4);
    assert!(
        timeline.waits.iter().all(|wait| wait.from < wait.until && wait.field == "words.word"),
        "{:?}",
        timeline.waits[0]
    );
    // Loads and read-modify-writes that missed.
    assert_eq!(timeline.waits.len() as u64, results.totals.misses.count());
    let (_, short) = run("l3:2 core:2 pu:1", Some(Span::from_nanos(700)));
    let last = short.expect("it was asked for").cpus.iter().flatten().map(|slice| slice.until).max();
    assert!(last <= Some(700_000), "{last:?}");
}
