//! Runs on the simulated machine.

use std::fmt::Write;
use std::sync::Arc;

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated, Totals};
use hitm_memory::{Platform, Span};
use hitm_sched::Count;
use hitm_topology::Topology;

use crate::TARGET;
use crate::run::driver::{Driver, Mistake, Phase};
use crate::run::ledger::Check;
use crate::run::plan::Plan;

/// How long a machine may go on by itself after its last operation, in addition to the burst of the
/// task that was running then. After that every task runs where it should. A dozen CPUs that switch
/// and push to each other take at most 40 us.
const SETTLES_WITHIN: Span = Span::from_micros(60);

/// As above, where six times as many CPUs contend for the same lines.
const LARGE_SETTLES_WITHIN: Span = Span::from_micros(6 * 60);

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) findings: Vec<(Check, String)>,
    /// The longest time that the machine took to become quiescent.
    settled_in: Span,
    /// The scheduler's event counts.
    sums: Vec<(Count, u64)>,
    /// The machine's counts.
    totals: Totals,
}

fn costs(plan: &Plan, topology: &Topology) -> Costs {
    Costs::of(topology, if plan.seed.is_multiple_of(2) { CostSet::Linux } else { CostSet::Runtime })
}

fn machine(plan: &Plan, look_ahead: bool) -> Machine {
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let costs = costs(plan, &topology);
    let config = Config {
        seed: plan.seed,
        arbitration: plan.arbitration,
        jitter: plan.jitter,
        check_races: true,
        look_ahead,
        livelock_after: 2_000_000,
        ..Config::default()
    };
    Machine::new(topology, costs, config)
}

/// Runs `plan` over `P`, whose machine is the simulated one.
pub(crate) fn run<P: Platform>(plan: &Plan, mistake: Mistake, look_ahead: bool) -> Outcome {
    let machine = machine(plan, look_ahead);
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let driver = machine.enter(|| Driver::<P>::new(plan.scheduler(topology), plan.clone(), mistake));
    let mut settled_in = Span::ZERO;
    let phases = (0..plan.phases).map(|_| Phase::Churn).chain([Phase::Drain]);
    for phase in phases {
        driver.begin(phase);
        let runner = driver.clone();
        if let Err(stalled) = machine.run(move |cpu| runner.run_cpu(cpu)) {
            driver.ledger.find(Check::Stall, stalled.to_string());
        }
        if phase == Phase::Churn {
            settled_in = settled_in.max(driver.settled_in());
        }
        if !driver.ledger.is_clean() {
            break;
        }
        machine.enter(|| {
            driver.inspect();
            driver.inspect_order();
        });
        for race in machine.races() {
            driver.ledger.find(Check::Race, race);
        }
        machine.enter(|| driver.inspect_drained(phase));
        if !driver.ledger.is_clean() {
            break;
        }
    }
    machine.check();
    let (findings, sums) = (driver.ledger.findings(), driver.sched.stats().sums());
    if findings.iter().any(|&(check, _)| check == Check::Stall) {
        // CPUs that never return still refer to it.
        std::mem::forget(driver);
    } else {
        machine.enter(|| drop(driver));
    }
    // The number of resumed coroutines depends on the host.
    let totals = Totals { resumes: 0, ..machine.results().totals };
    Outcome { findings, settled_in, sums, totals }
}

/// Returns the findings with the plan, for people.
pub(crate) fn describe(plan: &Plan, findings: &[(Check, String)]) -> String {
    let mut text = format!("{plan:#?}\n");
    for (check, what) in findings {
        writeln!(text, "{check:?}: {what}").expect("a string takes everything");
    }
    text
}

fn check(plan: &Plan, bound: Span) {
    let outcome = run::<Simulated>(plan, Mistake::None, true);
    assert!(outcome.findings.is_empty(), "{}", describe(plan, &outcome.findings));
    // A thread is slower beside another thread of its core.
    let topology = hitm_topology::parse(&plan.topology).expect("a machine of ours");
    let slowdown = costs(plan, &topology).structure.shared_core_factor.value;
    let bound = Span::from_nanos(plan.burst_nanos).scale(slowdown) + bound;
    assert!(outcome.settled_in <= bound, "settled in {}, not in {bound}\n{plan:#?}", outcome.settled_in);
}

#[test]
fn random_tasks() {
    let check = |seed| check(&Plan::new(seed), SETTLES_WITHIN);
    crate::seeds::each(TARGET, "run::simulated::random_tasks", 300, &[309, 1157], check);
}

#[test]
fn random_tasks_on_many_cpus() {
    let check = |seed| check(&Plan::large(seed), LARGE_SETTLES_WITHIN);
    crate::seeds::each(TARGET, "run::simulated::random_tasks_on_many_cpus", 12, &[11], check);
}

#[test]
fn looking_ahead_changes_nothing() {
    crate::seeds::each(TARGET, "run::simulated::looking_ahead_changes_nothing", 40, &[], |seed| {
        let plan = Plan::new(seed);
        let run = |look_ahead| run::<Simulated>(&plan, Mistake::None, look_ahead);
        let (ahead, in_turn) = (run(true), run(false));
        assert_eq!(ahead.settled_in, in_turn.settled_in);
        assert_eq!((ahead.sums, ahead.totals), (in_turn.sums, in_turn.totals));
    });
}
