//! Threads of one core share what executes instructions.

use std::sync::{Arc, Mutex};

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{Interrupts, PathCost, Platform, Span, Time};
use hitm_topology::CpuId;

/// What CPU 1 does while CPU 0 works.
#[derive(Clone, Copy)]
enum Other {
    Idles,
    Works,
}

const WORK: Span = Span::from_micros(10);

/// How long CPU 0 takes for [`WORK`], for a system call and for a delay as long as the work, on a
/// machine of `shape`.
fn times(shape: &str, other: Other) -> [Span; 3] {
    let topology = Arc::new(hitm_topology::parse(shape).expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let took = Arc::new(Mutex::new([Span::ZERO; 3]));
    let slot = took.clone();
    machine
        .run(move |cpu| match (cpu, other) {
            (CpuId(0), _) => {
                // The other has begun whatever it does.
                Simulated::compute(Span::from_micros(1));
                let began = Simulated::now();
                assert!(Simulated::compute(WORK).is_zero(), "nobody interrupts it");
                let worked = Simulated::now();
                Simulated::charge(PathCost::SystemCall);
                let called = Simulated::now();
                assert!(Simulated::delay(WORK).is_zero(), "nobody interrupts it");
                let times = [worked.since(began), called.since(worked), Simulated::now().since(called)];
                *slot.lock().expect("nobody panics with it") = times;
                Simulated::interrupt(CpuId(1), Interrupts::RESCHEDULE);
            }
            (_, Other::Idles) => Simulated::wait_for_interrupt(),
            (_, Other::Works) => {
                Simulated::compute(Span::from_micros(1_000));
            }
        })
        .expect("it ends");
    *took.lock().expect("nobody panics with it")
}

#[test]
fn a_thread_is_slower_while_another_of_its_core_executes() {
    let call = Span::from_nanos(100);
    let alone = [WORK, call, WORK];
    assert_eq!(times("core:1 pu:2", Other::Idles), alone);
    assert_eq!(times("core:1 pu:2", Other::Works), [WORK.scale(1.6), call.scale(1.6), WORK]);
    assert_eq!(times("core:2 pu:1", Other::Works), alone);
}

#[test]
fn what_an_interrupt_leaves_of_work_is_work_not_time() {
    let topology = Arc::new(hitm_topology::parse("core:1 pu:2").expect("a machine"));
    let costs = Costs::of(&topology, CostSet::Linux);
    let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let left = Arc::new(Mutex::new(Span::ZERO));
    let slot = left.clone();
    machine
        .run(move |cpu| {
            if cpu == CpuId(1) {
                Simulated::compute(Span::from_micros(1_000));
                return;
            }
            Simulated::compute(Span::from_micros(1));
            // Half of the time that the work takes in the shared core, less the slack of the timer.
            const SLACK: u64 = 50;
            Simulated::set_timer(Simulated::now() + Span::from_nanos(8_000 - SLACK));
            *slot.lock().expect("nobody panics with it") = Simulated::compute(WORK);
            assert_eq!(Simulated::take_interrupts(), Interrupts::TIMER);
            assert!(Simulated::now() > Time::START + Span::from_micros(8));
        })
        .expect("it ends");
    assert_eq!(*left.lock().expect("nobody panics with it"), Span::from_micros(5));
}
