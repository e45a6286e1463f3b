//! `schbench`: every worker is woken, wakeup latencies follow the load of the machine, and spins
//! follow the clock.

use std::thread;
use std::time::Duration;

use hitm::Span;
use hitm_machine::{Arbitration, Config as MachineConfig, Totals};
use hitm_sched::IDLE_SEARCHES;
use hitm_workloads::meter::Window;
use hitm_workloads::schbench::{self, Config, Schbench};

use crate::host::{self, Ran, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(20_000) };

/// A cycle takes 0.6 to 0.65 ms, and a little more.
fn short(message_threads: usize, workers: usize) -> Config {
    let each = Span::from_micros(200);
    Config { workers: Some(workers), cputime: each, sleeptime: each, ..Config::new(message_threads, 1, WINDOW) }
}

fn run(machine: &str, mitigation: &str, config: Config, machine_config: MachineConfig) -> Ran<Schbench> {
    let start = move |handle: &_| Schbench::start(handle, config);
    let ran = host::run(machine, mitigation, config.window, machine_config, schbench::roles(), start);
    assert_eq!(ran.machine.races(), [""; 0]);
    assert_eq!(violations_at_the_end(&ran.snapshot()), [""; 0]);
    ran
}

/// Returns all samples, the shortest first.
fn sorted(schbench: &Schbench) -> Vec<Span> {
    let mut latencies: Vec<Span> = schbench.latencies().concat();
    latencies.sort_unstable();
    latencies
}

#[test]
fn every_worker_is_woken_with_every_search() {
    for mitigation in IDLE_SEARCHES {
        for (machine, message_threads, workers) in
            [("core:1 pu:1", 1, 1), ("pack:2 l3:2 core:2 pu:2", 3, 4), ("pack:2 core:2 pu:2", 4, 5)]
        {
            let checked = MachineConfig { check_races: true, ..MachineConfig::default() };
            let ran = run(machine, mitigation, short(message_threads, workers), checked);
            let samples: Vec<usize> = ran.workload.latencies().iter().map(Vec::len).collect();
            assert_eq!(samples.len(), message_threads * workers);
            assert!(samples.iter().all(|&samples| samples > 3), "{mitigation} on {machine}: {samples:?}");
            let by_batch: usize = ran.workload.latencies_by_batch().iter().map(Vec::len).sum();
            assert_eq!(by_batch, samples.iter().sum::<usize>());
        }
    }
}

#[test]
fn workers_are_a_quarter_of_the_cpus() {
    let workers = |machine| Config::new(1, 1, WINDOW).workers_on(&hitm_topology::parse(machine).expect("a machine"));
    assert_eq!([workers("icx-2x40"), workers("core:8 pu:1"), workers("core:2 pu:1")], [40, 2, 1]);
}

#[test]
fn on_an_idle_machine_a_wakeup_takes_microseconds() {
    let latencies = sorted(&run("core:16 pu:1", "baseline", short(1, 3), MachineConfig::default()).workload);
    assert!(latencies.len() > 60, "{}", latencies.len());
    let [least, most] = [latencies[0], latencies[latencies.len() - 1]];
    assert!(least > Span::from_nanos(200) && most < Span::from_micros(10), "{least} to {most}");
}

#[test]
fn on_an_overloaded_machine_it_takes_milliseconds() {
    let window = Window { warm_up: Span::from_micros(100_000), measured: Span::from_micros(500_000) };
    let config = Config { workers: Some(4), ..Config::new(2, 1, window) };
    let latencies = sorted(&run("core:2 pu:1", "baseline", config, MachineConfig::default()).workload);
    let late = latencies[latencies.len() * 9 / 10];
    assert!(late > Span::from_micros(1_000) && late < Span::from_micros(60_000), "{late} of {}", latencies.len());
}

#[test]
fn neither_who_shares_a_core_nor_who_shares_a_cpu_lengthens_a_spin() {
    let samples = |machine, workers| {
        let config = short(1, workers);
        sorted(&run(machine, "baseline", config, MachineConfig::default()).workload).len() / workers
    };
    // 20 ms with 0.625 ms per cycle and two wakeups: about 31 samples per worker.
    for (machine, workers) in [("core:8 pu:1", 4), ("core:2 pu:2", 4), ("core:1 pu:1", 1)] {
        let each = samples(machine, workers);
        assert!((30..=32).contains(&each), "{machine}: {each} samples of each worker");
    }
}

#[test]
fn a_seed_is_a_run() {
    let of = |seed, look_ahead| {
        let machine = MachineConfig { seed, look_ahead, arbitration: Arbitration::Fifo, ..MachineConfig::default() };
        let ran = run("pack:2 l3:2 core:2 pu:2", "shipped", Config { seed, ..short(3, 4) }, machine);
        (Totals { resumes: 0, ..ran.machine.results().totals }, ran.workload.latencies())
    };
    assert_eq!(of(1, true), of(1, true));
    assert_eq!(of(1, true), of(1, false), "look-ahead changes the speed and nothing else");
    assert_ne!(of(1, true), of(2, true));
}

#[test]
fn natively_it_is_the_same_program() {
    for mitigation in ["baseline", "shipped"] {
        let runtime = host::native("core:3 pu:1", mitigation, None);
        let window = Window { warm_up: Span::from_micros(1_000), measured: Span::from_micros(300_000) };
        let config = Config { window, ..short(2, 3) };
        let running = runtime.run(move |handle| async move { Schbench::start(&handle, config) }).expect("it starts");
        while runtime.now() < window.end() {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!sorted(&running).is_empty());
    }
}
