//! `pi_stress`: the wakeups, switches, calls and priority changes per inversion, compared with
//! measurements of the original.

use std::future::pending;
use std::sync::{Arc, Mutex};

use hitm::{Handle, RoleCounts};
use hitm_machine::{Arbitration, Config, Simulated};
use hitm_memory::Span;
use hitm_sched::Count;
use hitm_workloads::meter::{BATCHES, Window};
use hitm_workloads::pi_stress::{self, Order, PiStress};

use crate::host;

/// The result of a run.
struct Outcome {
    inversions: f64,
    rates: [f64; BATCHES],
    roles: Vec<RoleCounts>,
    /// The scheduler's counts, including the warm-up.
    switches: u64,
    wakes: u64,
    races: Vec<String>,
    violations: Vec<String>,
    tasks_left: usize,
}

/// A simulated run.
#[derive(Clone, Copy, Debug)]
struct Case {
    machine: &'static str,
    mitigation: &'static str,
    arbitration: Arbitration,
    groups: Option<usize>,
    seed: u64,
    micros: u64,
    look_ahead: bool,
    check_races: bool,
}

const CASE: Case = Case {
    machine: "core:2 pu:1",
    mitigation: "baseline",
    arbitration: Arbitration::LocalFirst,
    groups: Some(1),
    seed: 1,
    micros: 10_000,
    look_ahead: true,
    check_races: false,
};

impl Case {
    fn run(self) -> Outcome {
        let window = Window { warm_up: Span::from_micros(500), measured: Span::from_micros(self.micros) };
        let config = Config {
            seed: self.seed,
            arbitration: self.arbitration,
            look_ahead: self.look_ahead,
            check_races: self.check_races,
            ..Config::default()
        };
        let workload = pi_stress::Config { groups: self.groups, order: Order::Numbered, seed: self.seed, window };
        let start = move |handle: &Handle<Simulated>| PiStress::start(handle, workload);
        let ran = host::run(self.machine, self.mitigation, window, config, pi_stress::roles(), start);
        let running = &ran.workload;
        assert!(!running.is_stuck());
        let snapshot = ran.snapshot();
        let stats = ran.runtime.diagnostics().stats();
        let rates = running.inversions_per_second();
        Outcome {
            inversions: rates.iter().sum::<f64>() / BATCHES as f64 * window.measured.as_secs_f64(),
            rates,
            roles: ran.roles().counts(),
            switches: stats.sum(Count::ContextSwitch),
            wakes: stats.sum(Count::Wake),
            races: ran.machine.races(),
            violations: snapshot.violations(),
            tasks_left: snapshot.tasks.len(),
        }
    }
}

/// Returns the wakeups, context switches, calls and priority changes of the three tasks per
/// inversion.
fn each(outcome: &Outcome) -> [f64; 4] {
    let sum =
        |what: fn(&RoleCounts) -> u64| outcome.roles[..3].iter().map(what).sum::<u64>() as f64 / outcome.inversions;
    [sum(|role| role.woken), sum(|role| role.switches), sum(|role| role.futex_calls), sum(|role| role.priority_changes)]
}

/// Measured with rt-tests 2.2 on Linux 6.18 (`docs/workloads.md`): wakeups, context switches, futex
/// system calls, priority changes.
const MEASURED: [f64; 4] = [9.0, 14.0, 16.0, 2.0];

fn check_each(outcome: &Outcome, what: &str) {
    let each = each(outcome);
    for (own, measured) in each.iter().zip(MEASURED) {
        assert!((own - measured).abs() < 0.1, "{what}: {each:?} an inversion, measured {MEASURED:?}");
    }
}

#[test]
fn ten_thousand_inversions_of_one_group_cost_what_was_measured() {
    let outcome = Case { micros: 300_000, ..CASE }.run();
    assert!(outcome.inversions >= 10_000.0, "{} inversions", outcome.inversions);
    check_each(&outcome, "one group");
    // The scheduler's own counts agree.
    let all = outcome.inversions * (300.5 / 300.0);
    assert!((outcome.switches as f64 / all - 14.0).abs() < 0.1 && (outcome.wakes as f64 / all - 9.0).abs() < 0.1);
}

#[test]
fn nothing_else_happens_under_any_mitigation() {
    for mitigation in ["baseline", "cpupri-split", "all", "pull-by-locks", "shipped"] {
        for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
            let outcome = Case { mitigation, arbitration, ..CASE }.run();
            check_each(&outcome, mitigation);
            assert_eq!((outcome.violations, outcome.tasks_left), (Vec::new(), 0));
        }
    }
}

/// Four groups on four cores of two packages.
const CROWD: Case = Case { machine: "pack:2 l3:1 core:2 pu:2", groups: None, micros: 2_000, ..CASE };

#[test]
fn nothing_is_touched_without_its_lock() {
    assert_eq!(Case { check_races: true, ..CROWD }.run().races, [""; 0]);
}

#[test]
fn same_seed_same_run_with_and_without_look_ahead() {
    let fingerprint = |case: Case| {
        let Outcome { rates, roles, switches, wakes, .. } = case.run();
        format!("{rates:?} {roles:?} {switches} {wakes}")
    };
    for arbitration in [Arbitration::LocalFirst, Arbitration::Fifo] {
        let case = Case { arbitration, ..CROWD };
        let first = fingerprint(case);
        assert_eq!(first, fingerprint(case));
        assert_eq!(first, fingerprint(Case { look_ahead: false, ..case }));
        assert_ne!(first, fingerprint(Case { seed: 2, ..case }));
    }
}

#[test]
fn it_runs_natively_and_takes_the_same() {
    let runtime = host::native("core:2 pu:1", "all", Some(pi_stress::roles()));
    let handle = runtime.handle().clone();
    let window = Window { warm_up: Span::from_micros(50_000), measured: Span::from_micros(300_000) };
    let started = Arc::new(Mutex::new(None));
    let slot = started.clone();
    let ended = runtime.run(move |handle| async move {
        let config = pi_stress::Config { groups: Some(1), order: Order::Numbered, seed: 1, window };
        *slot.lock().expect("no panic holds it") = Some(PiStress::start(&handle, config));
        pending::<()>().await;
    });
    assert!(ended.expect_err("the workload shuts its runtime down").is_aborted());
    drop(runtime);
    let running = started.lock().expect("no panic holds it").take().expect("started");
    let rates = running.inversions_per_second();
    let snapshot = handle.diagnostics().snapshot();
    let outcome = Outcome {
        inversions: rates.iter().sum::<f64>() / BATCHES as f64 * window.measured.as_secs_f64(),
        rates,
        roles: handle.roles().expect("made with roles").counts(),
        switches: 0,
        wakes: 0,
        races: Vec::new(),
        violations: snapshot.violations(),
        tasks_left: snapshot.tasks.len(),
    };
    assert!(outcome.inversions > 100.0, "{rates:?}");
    // A window that begins or ends within an inversion counts a part of it.
    let slack = 16.0 / outcome.inversions;
    for (own, measured) in each(&outcome).iter().zip(MEASURED) {
        assert!((own - measured).abs() < 0.1 + slack, "{:?} an inversion, measured {MEASURED:?}", each(&outcome));
    }
    assert_eq!((outcome.violations, outcome.tasks_left), (Vec::new(), 0));
}
