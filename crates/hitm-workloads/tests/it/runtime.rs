//! `runtime` on the simulated host: each operation goes on in all batches, and only there.

use hitm::{Handle, Roles};
use hitm_machine::{Config as Machinery, Simulated};
use hitm_memory::Span;
use hitm_sched::Mitigation;
use hitm_workloads::meter::{BATCHES, Window};
use hitm_workloads::runtime::{Config, Operation, Operations};

use crate::host::{self, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(300), measured: Span::from_micros(300) };

fn run_in(machine: &str, operation: Operation, fair: bool, window: Window) -> [f64; BATCHES] {
    let config = Config { operation, fair, seed: 1, window };
    let start = move |handle: &Handle<Simulated>| Operations::start(handle, config);
    // As a native runtime does.
    let mitigation = Mitigation::parse("shipped").expect("a mitigation").keeping_wakeups(true);
    let roles = Roles::new(&["none"]);
    let ran = host::run_with(machine, &mitigation, window, Machinery::default(), roles, &[], start);
    assert_eq!(violations_at_the_end(&ran.snapshot()), [""; 0]);
    ran.workload.per_second()
}

fn run(machine: &str, operation: Operation, fair: bool) -> [f64; BATCHES] {
    run_in(machine, operation, fair, WINDOW)
}

#[test]
fn every_operation_goes_on() {
    for operation in Operation::ALL {
        for fair in [false, true] {
            let rates = run("core:4 pu:1", operation, fair);
            assert!(rates.iter().all(|&rate| rate > 0.0), "{operation:?}, fair {fair}: {rates:?}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let of = || run("core:2 pu:2", Operation::Spawn, false);
    assert_eq!(of(), of());
}

/// Tasks that share nothing wait for nothing of the runtime: once they have spread, 32 CPUs do four
/// times what 8 do, but for what is lost where a CPU has fewer tasks than another.
#[test]
fn tasks_that_share_nothing_scale() {
    let window = Window { warm_up: Span::from_micros(3_000), ..WINDOW };
    for operation in Operation::ALL {
        let [few, many] = ["core:8 pu:1", "core:32 pu:1"].map(|machine| {
            let rates = run_in(machine, operation, false, window);
            rates.iter().sum::<f64>()
        });
        assert!(many >= 3.2 * few, "{operation:?}: {few} and {many}");
    }
}
