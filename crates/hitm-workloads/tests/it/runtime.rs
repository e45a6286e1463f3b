//! `runtime` on the simulated host: each operation goes on in all batches, and only there.

use hitm::{Handle, Roles};
use hitm_machine::{Config as Machinery, Simulated};
use hitm_memory::Span;
use hitm_workloads::meter::{BATCHES, Window};
use hitm_workloads::runtime::{Config, Operation, Operations};

use crate::host::{self, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(300), measured: Span::from_micros(300) };

fn run(machine: &str, operation: Operation, fair: bool) -> [f64; BATCHES] {
    let config = Config { operation, fair, seed: 1, window: WINDOW };
    let start = move |handle: &Handle<Simulated>| Operations::start(handle, config);
    let ran = host::run(machine, "shipped", WINDOW, Machinery::default(), Roles::new(&["none"]), start);
    assert_eq!(violations_at_the_end(&ran.snapshot()), [""; 0]);
    ran.workload.per_second()
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
