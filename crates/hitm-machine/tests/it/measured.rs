//! What is counted begins and ends when the program says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_machine::{Config, CostSet, Costs, Machine, Part, Random, Results, Simulated};
use hitm_memory::{AtomicWord, Memory, Mode, PathCost, Placed, Platform, Span, Time, described};
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

/// A machine of two CPUs, and a word on it.
fn two_cpus(measure_from: Span, look_ahead: bool) -> (Machine, Arc<Placed<Simulated, Words<Simulated>>>) {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { measure_from, look_ahead, start_spread: Span::ZERO, jitter: 0.0, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let words = machine.enter(|| {
        let word = <Simulated as Memory>::Atomic::new(0);
        Arc::new(Placed::<Simulated, _>::new(Words::<Simulated> { word }, None, None))
    });
    (machine, words)
}

/// What a machine of two CPUs counts, of which the other one computes all the time.
fn counted(measure_from: Span, tells: bool, look_ahead: bool) -> Results {
    let (machine, words) = two_cpus(measure_from, look_ahead);
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

/// What a machine of two CPUs counts whose CPU 0 does `steps` between writes, one more each time,
/// while CPU 1 computes and then idles.
fn between(steps: &'static [fn()]) -> Results {
    let (machine, words) = two_cpus(LATER, true);
    machine
        .run(move |cpu| {
            if cpu == CpuId(1) {
                Simulated::compute(WORK);
                Simulated::set_timer(Simulated::now() + WORK * 10);
                return Simulated::wait_for_interrupt();
            }
            for (before, step) in (1..).zip(steps) {
                // Relaxed: no other thread looks.
                (0..before * 1_000).for_each(|_| _ = words.word.fetch_add(1, Ordering::Relaxed));
                Simulated::compute(WORK);
                step();
            }
        })
        .expect("it ends");
    machine.results()
}

const FROM: fn() = Simulated::measure_from_now;
const TAIL: fn() = Simulated::begin_tail;
const GOES_ON: fn() = Simulated::end_tail;

fn nothing() {}

#[test]
fn a_tail_is_forgotten_unless_it_ends() {
    let one = |steps| {
        let results = between(steps);
        // CPU 1 idles as long as CPU 0 does not.
        let both = results.account[Part::Idle].abs_diff(results.busy()) as f64;
        assert!(both < 0.01 * results.busy() as f64, "{:?}", results.account);
        (results.totals.accesses(), (results.account[Part::User] as f64 / WORK.as_picos() as f64).round())
    };
    // 2,000 and 3,000 writes.
    assert_eq!(one(&[FROM, nothing, TAIL, nothing, nothing]), (5_000, 2.0));
    assert_eq!(one(&[FROM, TAIL, nothing, nothing]), (2_000, 1.0));
    // What follows the first tail belongs to the stretch, and what follows the second does not.
    assert_eq!(one(&[FROM, TAIL, GOES_ON, TAIL, nothing]), (9_000, 3.0));
    // Two tails without an end: the second is later.
    assert_eq!(one(&[FROM, TAIL, TAIL, nothing]), (5_000, 2.0));
}

#[test]
fn a_stretch_that_begins_again_begins_from_nothing() {
    let (once, again) = (between(&[nothing, FROM, nothing]), between(&[FROM, FROM, nothing]));
    assert_eq!(once.totals.accesses(), 3_000);
    let [once, again] = [once, again].map(|mut results| {
        results.totals.resumes = 0;
        format!("{results:#?}")
    });
    let differs = once.lines().zip(again.lines()).find(|(one, other)| one != other);
    assert!(once == again, "{differs:?}");
}

/// What is measured of CPUs that contend, compute, idle, spin and park, when the run goes on to its
/// end and when it stops with the measurement.
fn stopped(shape: &str, seed: u64, stops: bool, count_accesses: bool) -> Results {
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let (measure_from, measure_until) = (Span::from_micros(30), Span::from_micros(90));
    let config = Config { seed, measure_from, measure_until, count_accesses, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let words: Vec<_> = machine.enter(|| {
        let word = |value| {
            Placed::<Simulated, _>::new(
                Words::<Simulated> { word: <Simulated as Memory>::Atomic::new(value) },
                None,
                None,
            )
        };
        [7, 8, 9, 10, 11, 0].map(word).into()
    });
    let words = Arc::new(words);
    let own = words.clone();
    let main = move |cpu: CpuId| {
        let mut random = Random::new(seed, cpu.0.into());
        // The last CPU goes on, so that all others end.
        while Simulated::now() < Time::from_picos(150_000_000) {
            let word = &own[random.below(4) as usize].word;
            Simulated::enter(if random.below(3) == 0 { Mode::User } else { Mode::Kernel });
            // Relaxed, here and below: the machine orders, and values do not matter.
            match random.below(9) {
                0 | 1 => _ = word.load(Ordering::Relaxed),
                2 | 3 => word.store(cpu.0, Ordering::Relaxed),
                4 => _ = word.fetch_add(1, Ordering::Relaxed),
                5 => _ = Simulated::compute(Span::from_nanos(random.below(3_000))),
                6 => Simulated::charge(PathCost::SystemCall),
                7 => {
                    Simulated::set_timer(Simulated::now() + Span::from_nanos(random.below(2_000)));
                    Simulated::wait_for_interrupt();
                    Simulated::take_interrupts();
                }
                // A lock: it spins while another CPU computes with it.
                _ => {
                    let lock = &own[5].word;
                    while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                        Simulated::spin_while(lock, |held| held == 1);
                    }
                    Simulated::compute(Span::from_nanos(500));
                    lock.store(0, Ordering::Release);
                }
            }
        }
    };
    let ended = if stops { machine.run_measurement(main) } else { machine.run(main) };
    ended.expect("it ends");
    machine.check();
    let mut results = machine.results();
    // The only figure of the whole run.
    results.totals.resumes = 0;
    std::mem::forget(words);
    results
}

#[test]
fn a_run_that_stops_with_the_measurement_has_measured_the_same() {
    for (seed, shape) in (1..).zip(["core:1 pu:1", "core:2 pu:2", "l3:2 core:4 pu:1", "package:2 l3:2 core:4 pu:2"]) {
        for seed in [seed, seed + 100, seed + 200] {
            let (whole, stopped) = (stopped(shape, seed, false, true), stopped(shape, seed, true, true));
            assert!(whole.totals.accesses() > 30);
            let [whole, stopped] = [whole, stopped].map(|results| format!("{results:#?}"));
            let differs = whole.lines().zip(stopped.lines()).enumerate().find(|(_, (one, other))| one != other);
            assert!(whole == stopped, "{shape}, seed {seed}: {differs:?}");
        }
    }
}

#[test]
fn a_run_that_counts_no_accesses_has_the_same_account() {
    let shape = "package:2 l3:2 core:4 pu:2";
    let (counts, counts_not) = (stopped(shape, 1, true, true), stopped(shape, 1, true, false));
    assert_eq!(counts.account, counts_not.account);
    assert_eq!((counts_not.totals.accesses(), counts_not.lines.len()), (0, 0));
}
