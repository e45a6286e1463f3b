//! `hackbench`: it ends with any capacity of pipes and sockets, gives the same result each time,
//! and leaves the scheduler consistent.

use std::sync::{Arc, Mutex};

use hitm::{Roles, Span};
use hitm_machine::{Arbitration, Config, Totals};
use hitm_sched::{Count, IDLE_SEARCHES};
use hitm_workloads::hackbench::{self, Channels};
use hitm_workloads::meter::Window;

use crate::host::{self, violations_at_the_end};

const SMALL: hackbench::Config =
    hackbench::Config { groups: 2, pairs: 3, loops: 20, bytes: 100, channels: Channels::Pipes, depth: 0 };

/// Sixteen messages fill a pipe, and each sender writes sixty messages to it.
const FULL: hackbench::Config =
    hackbench::Config { groups: 1, pairs: 3, loops: 60, bytes: 4_096, channels: Channels::Pipes, depth: 0 };

/// Both configurations above, the small one over sockets, and the large one over sockets in nested
/// groups. A pair of sockets holds 44 of the large messages.
const ALL: [hackbench::Config; 4] = [
    SMALL,
    FULL,
    hackbench::Config { channels: Channels::Sockets, ..SMALL },
    hackbench::Config { channels: Channels::Sockets, depth: 2, ..FULL },
];

/// The result of a run: its time, the touched lines, and the number of wakeups.
fn run(machine: &str, mitigation: &str, workload: hackbench::Config, config: Config) -> (Span, Totals, u64) {
    let window = Window { warm_up: Span::ZERO, measured: Span::from_micros(1_000_000) };
    let span = Arc::new(Mutex::new(Span::ZERO));
    let slot = span.clone();
    let ran = host::run(machine, mitigation, window, config, Roles::new(&["task"]), move |handle| {
        let (own, slot) = (handle.clone(), slot.clone());
        drop(handle.spawn(hackbench::PRIORITY, async move {
            let (begin, end) = hackbench::run(&own, workload).await;
            *slot.lock().expect("no holder panics") = end.since(begin);
            own.shutdown();
        }));
    });
    assert_eq!(ran.machine.races(), [""; 0]);
    let snapshot = ran.snapshot();
    assert_eq!(violations_at_the_end(&snapshot), [""; 0]);
    assert!(snapshot.tasks.is_empty(), "{:?}", snapshot.tasks);
    let span = *span.lock().expect("no holder panics");
    let totals = Totals { resumes: 0, ..ran.machine.results().totals };
    (span, totals, ran.runtime.diagnostics().stats().sum(Count::Wake))
}

#[test]
fn it_ends_with_every_search_on_every_machine() {
    for machine in ["core:1 pu:1", "core:2 pu:2", "pack:2 l3:2 core:2 pu:2"] {
        for mitigation in IDLE_SEARCHES {
            for workload in ALL {
                let config = Config { check_races: true, ..Config::default() };
                let (span, _, wakes) = run(machine, mitigation, workload, config);
                assert!(
                    !span.is_zero() && wakes >= workload.tasks() as u64,
                    "{machine}, {mitigation}: {span}, {wakes}"
                );
            }
        }
    }
}

#[test]
fn look_ahead_changes_the_speed_and_nothing_else() {
    for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
        for mitigation in ["baseline", "shipped"] {
            for channels in [Channels::Pipes, Channels::Sockets] {
                let of = |look_ahead| {
                    let config = Config { arbitration, look_ahead, ..Config::default() };
                    let workload = hackbench::Config { channels, ..SMALL };
                    run("pack:2 l3:2 core:2 pu:2", mitigation, workload, config)
                };
                assert_eq!(of(true), of(false), "{arbitration:?}, {mitigation}, {channels:?}");
            }
        }
    }
}

#[test]
fn natively_it_is_the_same_program() {
    for mitigation in ["baseline", "shipped"] {
        let runtime = host::native("core:3 pu:1", mitigation, None);
        for workload in ALL {
            let times = runtime.run(move |handle| async move { hackbench::run(&handle, workload).await });
            let (begin, end) = times.expect("it ends");
            assert!(begin < end);
        }
    }
}
