//! `futex` on the simulated host: what ends a wait.

use hitm::Handle;
use hitm_machine::{Config as Machinery, Simulated};
use hitm_memory::Span;
use hitm_workloads::futex::{self, Config, FutexPairs};
use hitm_workloads::meter::{BATCHES, Window};

use crate::host::{self, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(500), measured: Span::from_micros(2_000) };

/// Returns the waits per second that ended by a wake and by their timeout.
fn run(machine: &str, timeout: Span) -> [[f64; BATCHES]; 2] {
    let config = Config { instances: Some(2), timeout, seed: 1, window: WINDOW };
    let start = move |handle: &Handle<Simulated>| FutexPairs::start(handle, config);
    let ran = host::run(machine, "baseline", WINDOW, Machinery::default(), futex::roles(), start);
    assert_eq!(violations_at_the_end(&ran.snapshot()), [""; 0]);
    [ran.workload.wakes_per_second(), ran.workload.timeouts_per_second()]
}

fn sum(rates: [f64; BATCHES]) -> f64 {
    rates.iter().sum()
}

#[test]
fn a_wait_with_time_enough_ends_by_a_wake() {
    let [woken, timed_out] = run("core:4 pu:1", Span::from_micros(1_000_000));
    assert!(woken.iter().all(|&rate| rate > 0.0), "{woken:?}");
    assert_eq!(sum(timed_out), 0.0);
}

#[test]
fn a_wait_too_short_for_a_wake_ends_by_its_timeout() {
    // Both wakers and both waiters share one CPU, and a slice is longer than the timeout.
    let [woken, timed_out] = run("core:1 pu:1", Span::from_nanos(1));
    assert!(sum(timed_out) > sum(woken), "{timed_out:?} {woken:?}");
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let of = || run("core:2 pu:2", Config::TIMEOUT);
    assert_eq!(of(), of());
}
