//! `cyclic` on both hosts: the parts of an operation, its duration, the initial placement, and that
//! one random seed always gives the same bytes.

use hitm::{Handle, NativeRuntime, RoleCounts};
use hitm_machine::{Coherence, Config as Machinery, CostSet, Costs, Results, Simulated};
use hitm_memory::Span;
use hitm_sched::Count;
use hitm_workloads::cyclic::{self, Config, Cyclic, Placement};
use hitm_workloads::meter::{BATCHES, Window};

use crate::host::{self, violations_at_the_end};

const WINDOW: Window = Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(4_000) };

/// The result of a run.
struct Outcome {
    rates: [f64; BATCHES],
    latencies: Vec<Span>,
    roles: Vec<RoleCounts>,
    wakes: Vec<(Option<&'static str>, &'static str, u64)>,
    results: Results,
    /// The wakeups and switches of the whole run.
    wakeups: u64,
    switches: u64,
    violations: Vec<String>,
}

impl Outcome {
    fn operations(&self) -> u64 {
        (self.rates.iter().sum::<f64>() / BATCHES as f64 * WINDOW.measured.as_secs_f64()).round() as u64
    }
}

fn run_with(machine: &str, mitigation: &str, config: Config, machinery: Machinery) -> Outcome {
    let machinery = Machinery { seed: config.seed, ..machinery };
    let start = move |handle: &Handle<Simulated>| Cyclic::start(handle, config);
    let ran = host::run(machine, mitigation, WINDOW, machinery, cyclic::roles(), start);
    let (roles, workload) = (ran.roles(), &ran.workload);
    let stats = ran.runtime.diagnostics().stats();
    Outcome {
        rates: workload.operations_per_second(),
        latencies: workload.latencies(),
        roles: roles.counts(),
        wakes: roles.wakes(),
        results: ran.machine.results(),
        wakeups: stats.sum(Count::Wake),
        switches: stats.sum(Count::ContextSwitch),
        violations: violations_at_the_end(&ran.snapshot()),
    }
}

fn run(machine: &str, config: Config) -> Outcome {
    run_with(machine, "baseline", config, Machinery::default())
}

#[test]
fn an_operation_is_one_wakeup_by_a_timer_and_two_switches() {
    let outcome = run("pack:2 l3:1 core:4 pu:2", Config::new(1, WINDOW));
    let operations = outcome.operations();
    // 16 instances, 4 ms, a little over 100 us each.
    assert!((550..=640).contains(&operations), "{operations} operations");
    let [counts] = outcome.roles.as_slice() else { panic!("one role") };
    let near = |count: u64| count.abs_diff(operations) <= 16;
    assert!(near(counts.activations) && near(counts.switches) && near(counts.woken), "{operations}: {counts:?}");
    let [(waker, woken, times)] = outcome.wakes.as_slice() else { panic!("{:?}", outcome.wakes) };
    assert!((waker, *woken) == (&None, "cyclic") && near(*times), "only timers wake: {:?}", outcome.wakes);
    // One switch to the task and one away from it. At the end every task is woken once more to be
    // dropped, with a switch to it.
    let (wakeups, switches) = (outcome.wakeups, outcome.switches);
    assert!(switches.abs_diff(2 * wakeups) <= 32, "{switches} switches for {wakeups} wakeups");
    assert!(wakeups > operations, "{wakeups} wakeups in 6 ms, {operations} operations in 4 ms of them");
    assert_eq!(outcome.violations, [""; 0]);
}

#[test]
fn a_machine_whose_lines_cost_nothing_takes_the_paths_of_the_kernel_and_the_work() {
    let free = Machinery { coherence: Coherence::Free, jitter: 0.0, ..Machinery::default() };
    let outcome = run_with("core:1", "baseline", Config::new(1, WINDOW), free);
    let Costs { family, paths, .. } = Costs::of(&hitm_topology::parse("core:1").expect("a machine"), CostSet::Linux);
    // From the timer's expiry until the task reads the clock.
    let parts = [&paths.timer_slack, &family.idle_exit, &paths.interrupt_entry, &paths.switch];
    let least: f64 = parts.iter().map(|cost| cost.value).sum();
    assert!(!outcome.latencies.is_empty());
    for latency in &outcome.latencies {
        let late = latency.as_nanos_f64();
        // Beside the paths there are accesses; all of them hit and cost some cycles each.
        assert!((least..least + 400.0).contains(&late), "{late} ns late, and the paths take {least}");
    }
}

#[test]
fn instances_that_have_a_cpu_each_stay_there() {
    let migrations = |placement| {
        let config = Config { placement, work: Span::from_micros(20), ..Config::new(1, WINDOW) };
        run("pack:2 l3:1 core:4 pu:2", config).roles.iter().map(|role| role.migrations).sum::<u64>()
    };
    assert_eq!(migrations(Placement::Spread), 0);
    assert!(migrations(Placement::Drawn) > 0, "two on a CPU come into each other's way");
}

#[test]
fn more_instances_than_cpus_share_them() {
    let config = Config { instances: Some(12), work: Span::from_micros(90), ..Config::new(1, WINDOW) };
    let outcome = run("core:4", config);
    // Four CPUs do 90 us of work in a little more than that; with 12 tasks at a time it would be
    // 190 us each.
    let operations = outcome.operations() as f64;
    let most = 4.0 * WINDOW.measured.as_nanos_f64() / 90e3;
    assert!((0.75 * most..=1.02 * most).contains(&operations), "{operations} of {most}");
    assert_eq!(outcome.violations, [""; 0]);
}

#[test]
fn a_seed_gives_the_same_bytes_whatever_the_look_ahead() {
    let fingerprint = |seed, look_ahead, placement| {
        let config = Config { placement, ..Config::new(seed, WINDOW) };
        let machinery = Machinery { look_ahead, ..Machinery::default() };
        let mut outcome = run_with("pack:2 l3:2 core:2 pu:2", "baseline", config, machinery);
        outcome.results.totals.resumes = 0;
        format!("{:?} {:?} {:?} {:?}", outcome.rates, outcome.latencies, outcome.roles, outcome.results)
    };
    for placement in [Placement::Spread, Placement::Drawn] {
        let first = fingerprint(1, true, placement);
        assert!(first == fingerprint(1, true, placement), "the same run");
        assert!(first == fingerprint(1, false, placement), "without looking ahead");
        assert!(first != fingerprint(2, true, placement), "another seed is another run");
    }
}

#[test]
fn natively_it_sleeps_as_long_as_asked() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    let window = Window { warm_up: Span::from_micros(5_000), measured: Span::from_micros(50_000) };
    let config = Config { instances: Some(4), ..Config::new(1, window) };
    let (send, receive) = std::sync::mpsc::channel();
    let ended = runtime.run(move |handle| async move {
        send.send(Cyclic::start(&handle, config)).expect("the receiver exists");
        std::future::pending::<()>().await;
    });
    assert!(ended.expect_err("it shuts its runtime down").is_aborted());
    let workload = receive.recv().expect("sent");
    let rates = workload.operations_per_second();
    let mean = rates.iter().sum::<f64>() / BATCHES as f64;
    assert!(mean > 0.0 && mean <= 4.0 * 10_000.0 * 1.01, "{mean} operations per second by four that sleep 100 us");
    assert_eq!(workload.instances(), 4);
}
