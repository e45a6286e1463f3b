//! `tbench` and `netperf`: a pair exchanges its messages at the pace that its costs imply, and
//! leaves the scheduler consistent.

use std::thread;
use std::time::Duration;

use hitm::Span;
use hitm_machine::{Arbitration, Config as MachineConfig, Totals};
use hitm_sched::{Count, IDLE_SEARCHES, Mitigation};
use hitm_workloads::loopback::{self, Config, Loopback, Placement, Test};
use hitm_workloads::meter::{BATCHES, Window};

use crate::host::{self, Ran, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(200), measured: Span::from_micros(2_000) };

const TESTS: [Test; 3] = [Test::Tbench, Test::RequestReply, Test::Stream(64)];

fn config(test: Test, pairs: usize, work: u64) -> Config {
    Config {
        test,
        placement: Placement::Free,
        pairs,
        depth: 0,
        work: Span::from_nanos_f64(work as f64),
        seed: 1,
        window: WINDOW,
    }
}

fn run(machine: &str, mitigation: &str, config: Config, machine_config: MachineConfig) -> Ran<Loopback> {
    let start = move |handle: &_| Loopback::start(handle, config);
    let ran = host::run(machine, mitigation, WINDOW, machine_config, loopback::roles(), start);
    assert_eq!(ran.machine.races(), [""; 0]);
    assert_eq!(violations_at_the_end(&ran.snapshot()), [""; 0]);
    ran
}

/// Returns the operations per second.
fn rate(loopback: &Loopback) -> f64 {
    loopback.operations_per_second().iter().sum::<f64>() / BATCHES as f64
}

#[test]
fn every_test_runs_with_every_search() {
    for mitigation in IDLE_SEARCHES {
        for test in TESTS {
            for (machine, pairs) in [("core:1 pu:1", 2), ("pack:2 l3:2 core:2 pu:2", 3), ("pack:2 core:2 pu:2", 12)] {
                let checked = MachineConfig { check_races: true, ..MachineConfig::default() };
                let ran = run(machine, mitigation, config(test, pairs, 1_000), checked);
                let rate = rate(&ran.workload);
                assert!(rate > 20_000.0, "{mitigation}, {test:?} on {machine}: {rate}");
            }
        }
    }
}

#[test]
fn an_operation_takes_what_it_works_longer() {
    let each = |test, work| {
        1e9 / rate(&run("core:4 pu:1", "baseline", config(test, 1, work), MachineConfig::default()).workload)
    };
    // For a datagram, the sender does all the work; for a request, the two ends work one after the
    // other.
    for test in [Test::RequestReply, Test::Stream(64)] {
        let longer = each(test, 12_000) - each(test, 2_000);
        assert!((longer / 10_000.0 - 1.0).abs() < 0.1, "{test:?}: {longer} ns");
    }
}

#[test]
fn a_byte_there_and_back_wakes_two() {
    let ran = run("core:4 pu:1", "baseline", config(Test::RequestReply, 1, 2_000), MachineConfig::default());
    let wakes = ran.runtime.diagnostics().stats().sum(Count::Wake) as f64;
    let whole = (WINDOW.warm_up + WINDOW.measured).as_secs_f64();
    let operations = rate(&ran.workload) * whole;
    assert!((wakes / operations - 2.0).abs() < 0.1, "{wakes} wakeups of {operations}");
}

#[test]
fn what_finds_no_room_is_lost_and_keeps_nobody() {
    // The receiver shares its CPU with a sender that never sleeps.
    let ran = run("core:1 pu:1", "baseline", config(Test::Stream(16_384), 1, 1_000), MachineConfig::default());
    assert!(rate(&ran.workload) > 100_000.0, "{}", rate(&ran.workload));
}

#[test]
fn look_ahead_changes_the_speed_and_nothing_else() {
    for idle_notice in [0.0, 500.0] {
        for test in TESTS {
            let of = |look_ahead| {
                let machine = MachineConfig { look_ahead, arbitration: Arbitration::Fifo, ..MachineConfig::default() };
                let ran = host::run_with(
                    "pack:2 l3:2 core:2 pu:2",
                    &Mitigation::parse("shipped").expect("a mitigation"),
                    WINDOW,
                    machine,
                    loopback::roles(),
                    &[("idle_notice_ns", idle_notice)],
                    move |handle| Loopback::start(handle, config(test, 5, 1_000)),
                );
                let totals = Totals { resumes: 0, ..ran.machine.results().totals };
                (totals, rate(&ran.workload))
            };
            assert_eq!(of(true), of(false), "{test:?}, {idle_notice}");
        }
    }
}

#[test]
fn natively_it_is_the_same_program() {
    for mitigation in ["baseline", "shipped"] {
        let runtime = host::native("core:3 pu:1", mitigation, None);
        let window = Window { warm_up: Span::from_micros(1_000), measured: Span::from_micros(200_000) };
        let config = Config { window, ..config(Test::Tbench, 2, 1_000) };
        let running = runtime.run(move |handle| async move { Loopback::start(&handle, config) }).expect("it starts");
        while runtime.now() < window.end() {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(rate(&running) > 0.0);
    }
}
