//! Faults: what comes late and who is taken away, seen from the programs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hitm_machine::{Config, CostSet, Costs, Faults, Machine, Simulated};
use hitm_memory::{AtomicWord, Described, Field, Interrupts, Lock, Memory, Placed, Platform, Span, Time};
use hitm_topology::CpuId;

/// Nothing goes wrong.
const NONE: Faults = Faults {
    late: 0.0,
    late_by: Span::from_micros(50),
    taken_after_rmw: 0.0,
    taken_on_path: 0.0,
    taken_for: Span::from_micros(50),
    lost: 0.0,
};

fn machine(faults: Option<Faults>) -> Machine {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    Machine::new(topology, costs, Config { faults, start_spread: Span::ZERO, ..Config::default() })
}

/// A lock on a line of its own.
struct Locked<M: Memory>(Lock<M, u32>);

impl<M: Memory> Described for Locked<M> {
    const OBJECT: &'static str = "locked";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "taken by the test")]
    }
}

/// The longest that a CPU took to take a lock and to leave it, of many times.
fn longest(faults: Faults) -> Span {
    let machine = machine(Some(faults));
    let lock = machine.enter(|| Placed::<Simulated, _>::new(Locked(Lock::<Simulated, u32>::new(0)), None, None));
    let longest = Arc::new(Mutex::new(Span::ZERO));
    let seen = longest.clone();
    let main = move |cpu: CpuId| {
        for _ in 0..200 {
            let before = Simulated::now();
            *lock.0.lock() += 1;
            if cpu.0 == 1 {
                let mut longest = seen.lock().expect("nobody panics with it");
                *longest = longest.max(Simulated::now().since(before));
            }
            Simulated::compute(Span::from_nanos(300));
        }
    };
    machine.run(main).expect("it ends");
    *longest.lock().expect("nobody panics with it")
}

#[test]
fn who_holds_a_lock_is_kept_and_others_wait() {
    assert!(longest(NONE) < Span::from_micros(2));
    let longest = longest(Faults { taken_after_rmw: 0.1, ..NONE });
    // The other's stay and the CPU's own.
    assert!((Span::from_micros(40)..Span::from_micros(101)).contains(&longest), "{longest}");
}

/// When an interrupt and a timer came, of many times.
fn arrivals(faults: Option<Faults>) -> [Vec<Span>; 2] {
    const TIMES: usize = 50;
    let machine = machine(faults);
    let came = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let log = came.clone();
    machine
        .run(move |cpu| {
            for round in 0..TIMES {
                let start = Time::START + Span::from_micros(100 * (round as u64 + 1));
                let which = if cpu.0 == 0 {
                    Simulated::compute(start.since(Simulated::now()));
                    Simulated::interrupt(CpuId(1), Interrupts::RESCHEDULE);
                    Simulated::set_timer(start);
                    Interrupts::TIMER
                } else {
                    Interrupts::RESCHEDULE
                };
                while !Simulated::take_interrupts().contains(which) {
                    Simulated::wait_for_interrupt();
                }
                let mut log = log.lock().expect("nobody panics with it");
                log[usize::from(cpu.0 == 0)].push(Simulated::now().since(start));
            }
        })
        .expect("it ends");
    std::mem::take(&mut *came.lock().expect("nobody panics with it"))
}

#[test]
fn interrupts_and_timers_come_late_by_at_most_as_long_as_said() {
    let [interrupts, timers] = arrivals(None);
    let in_time = [interrupts, timers].map(|spans| spans.into_iter().max().expect("some"));
    assert_eq!(arrivals(Some(NONE)), arrivals(None), "with no chance nothing goes wrong");
    let late = arrivals(Some(Faults { late: 0.5, ..NONE }));
    for (spans, in_time) in late.iter().zip(in_time) {
        let longest = spans.iter().max().expect("some");
        assert!(*longest > in_time + Span::from_micros(30) && *longest < in_time + Span::from_micros(52), "{spans:?}");
        let many = spans.iter().filter(|&&span| span > in_time + Span::from_micros(1)).count();
        assert!((15..35).contains(&many), "{many} of 50 late for a chance of a half");
    }
}

#[test]
fn what_runs_aside_takes_no_time() {
    let machine = machine(None);
    let make = |_| <Simulated as Memory>::Atomic::<u32>::new(7);
    let fields = || vec![Field::word("word", 0, 4, "looked at")];
    let word = machine.enter(|| hitm_memory::PlacedSlice::<Simulated, _>::new("word", None, None, 1, &fields, make));
    machine
        .run(move |cpu| {
            // Relaxed throughout: the machine orders it by time.
            if cpu.0 == 0 {
                word[0].store(8, Ordering::Relaxed);
                let before = Simulated::now();
                Simulated::aside(|| ());
                assert!(Simulated::now() > before, "its own store has taken effect first");
                let before = Simulated::now();
                assert_eq!(Simulated::aside(|| word[0].load(Ordering::Relaxed)), 8);
                assert_eq!(Simulated::now(), before);
                assert_eq!(Simulated::current_cpu(), CpuId(0));
            }
        })
        .expect("it ends");
    let totals = machine.results().totals;
    assert_eq!((totals.loads, totals.stores), (0, 1), "what runs aside is not counted");
}
