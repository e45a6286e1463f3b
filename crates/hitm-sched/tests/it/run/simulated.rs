//! On the simulated machine.

use std::fmt::Write;
use std::sync::Arc;

use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::{Platform, Span};
use hitm_sched::mitigation::Mitigation;

use crate::run::driver::{Driver, Mistake, Phase};
use crate::run::ledger::Check;
use crate::run::plan::Plan;
use crate::seeds;

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) findings: Vec<(Check, String)>,
    /// The longest time that the machine took to come to rest.
    pub(crate) settled_in: Span,
}

fn machine(plan: &Plan, look_ahead: bool) -> Machine {
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let costs = Costs::of(&topology, if plan.seed % 2 == 0 { CostSet::Linux } else { CostSet::Runtime });
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
pub(crate) fn run<P: Platform>(plan: &Plan, mistake: Mistake) -> Outcome {
    let machine = machine(plan, true);
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let mitigation = Mitigation::parse(plan.mitigation).expect("a mitigation of ours");
    let driver = machine.enter(|| Driver::<P>::new(mitigation.scheduler(topology), plan.clone(), mistake));
    let mut settled_in = Span::ZERO;
    let phases = (0..plan.phases).map(|_| Phase::Churn).chain([Phase::Drain]);
    for phase in phases {
        driver.begin(phase);
        let runner = driver.clone();
        if let Err(stalled) = machine.run(move |cpu| runner.run_cpu(cpu)) {
            driver.ledger.find(Check::Stall, stalled.to_string());
        }
        settled_in = settled_in.max(driver.settled_in());
        if !driver.ledger.is_clean() {
            break;
        }
        machine.enter(|| driver.inspect());
        for race in machine.races() {
            driver.ledger.find(Check::Race, race);
        }
        if phase == Phase::Drain && driver.ledger.living() > 0 {
            driver.ledger.find(Check::LostTask, format!("{} tasks never ended", driver.ledger.living()));
        }
        if !driver.ledger.is_clean() {
            break;
        }
    }
    machine.check();
    let findings = driver.ledger.findings();
    if findings.iter().any(|&(check, _)| check == Check::Stall) {
        // CPUs that never return still refer to it.
        std::mem::forget(driver);
    } else {
        machine.enter(|| drop(driver));
    }
    Outcome { findings, settled_in }
}

/// The findings, with the plan, for a person.
pub(crate) fn describe(plan: &Plan, findings: &[(Check, String)]) -> String {
    let mut text = format!("{plan:#?}\n");
    for (check, what) in findings {
        writeln!(text, "{check:?}: {what}").expect("a string takes everything");
    }
    text
}

#[test]
fn random_tasks() {
    seeds::each("run::simulated::random_tasks", 100, |seed| {
        let plan = Plan::new(seed);
        let outcome = run::<Simulated>(&plan, Mistake::None);
        assert!(outcome.findings.is_empty(), "{}", describe(&plan, &outcome.findings));
    });
}
