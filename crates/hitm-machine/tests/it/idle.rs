//! An idle CPU is woken: by an interrupt, or because it notices.

use std::sync::{Arc, Mutex};

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{Interrupts, Platform, Span, Time};
use hitm_topology::CpuId;

/// CPU 0 wakes CPU 1, which idles or computes: how long the one takes to send, and after how long
/// the other goes on. Nanoseconds.
fn wake(idle_notice: f64, idles: bool) -> (u64, u64) {
    let topology = Arc::new(hitm_topology::parse("core:2 pu:1").expect("a machine"));
    let mut costs = Costs::of(&topology, CostSet::Linux);
    costs.set("idle_notice_ns", idle_notice).expect("a parameter");
    let config = Config { jitter: 0.0, start_spread: Span::ZERO, ..Config::default() };
    let machine = Machine::new(topology, costs, config);
    let took = Arc::new(Mutex::new((0, 0)));
    let slot = took.clone();
    let begin = Time::START + Span::from_micros(10);
    machine
        .run(move |cpu| {
            if cpu == CpuId(0) {
                Simulated::compute(begin.since(Simulated::now()));
                Simulated::interrupt(CpuId(1), Interrupts::RESCHEDULE);
                slot.lock().expect("nobody panics with it").0 = Simulated::now().since(begin).as_picos() / 1_000;
                return;
            }
            while Simulated::take_interrupts().is_empty() {
                if idles {
                    Simulated::wait_for_interrupt();
                } else {
                    Simulated::compute(Span::from_micros(100));
                }
            }
            slot.lock().expect("nobody panics with it").1 = Simulated::now().since(begin).as_picos() / 1_000;
        })
        .expect("it ends");
    *took.lock().expect("nobody panics with it")
}

#[test]
fn an_idle_cpu_is_interrupted_and_leaves_the_idle_state() {
    // Sent 400, delivered 1,200, entered 500; the machine's family leaves the idle state in 1,000.
    assert_eq!(wake(0.0, true), (400, 2_700 + 400));
}

#[test]
fn an_idle_cpu_that_monitors_needs_none_of_that() {
    assert_eq!(wake(500.0, true), (0, 500));
}

#[test]
fn who_computes_is_interrupted_in_any_case() {
    assert_eq!(wake(0.0, false), (400, 400 + 1_700));
    assert_eq!(wake(500.0, false), wake(0.0, false));
}
