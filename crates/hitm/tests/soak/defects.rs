//! Deliberate defects, and the checker that must catch each.

use std::fmt::Write;

use expect_test::expect;
use hitm_machine::{Faults, Simulated};

use crate::ledger::Check;
use crate::plan::Plan;
use crate::run::{self, Outcome};

/// The defect. Each is rare enough that the run reaches its next rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// One unpark in this number is dropped.
    LosesUnparks,
    /// One abort in this number is dropped.
    ForgetsAborts,
    /// One wakeup in this number does not reach the scheduler.
    LosesWakeups,
    /// Now and then, a lent priority is not taken back.
    KeepsWhatWasLent,
    /// One task in this number is treated as a task of another tenant.
    MixesTenants,
    /// One interrupt in this number never arrives: see [`Faults::lost`].
    LosesInterrupts,
}

/// The seeds that are tried before a defect counts as unnoticed.
const SEEDS: u64 = 20;

/// For a defect: the checker that must report it, and the text of the finding.
struct Row {
    name: &'static str,
    flaw: Flaw,
    check: Check,
    says: &'static str,
}

fn run(plan: &Plan, flaw: Flaw) -> Outcome {
    match flaw {
        Flaw::LosesInterrupts => {
            let mut plan = plan.clone();
            plan.faults.lost = 1.0 / 40.0;
            run::run::<Simulated>(&plan, flaw)
        }
        _ => run::run::<Simulated>(plan, flaw),
    }
}

#[test]
fn each_is_caught() {
    let row = |name, flaw, check, says| Row { name, flaw, check, says };
    let rows = [
        row("an unpark in 20 is dropped", Flaw::LosesUnparks, Check::LostWake, "was unparked and is parked"),
        row("an abort in 4 is forgotten", Flaw::ForgetsAborts, Check::Abort, "was aborted and lives"),
        row("a wakeup in 150 is dropped", Flaw::LosesWakeups, Check::LostWake, "should have ceased to wait"),
        row("an interrupt in 40 never comes", Flaw::LosesInterrupts, Check::Inversion, "runs nothing"),
        row("a task in 10 is another tenant's", Flaw::MixesTenants, Check::Ids, "with which task"),
        row("one time in 8 what was lent stays", Flaw::KeepsWhatWasLent, Check::Urgency, "it ought to be"),
    ];
    let mut table = String::new();
    for Row { name, flaw, check, says } in rows {
        let mut others = Vec::new();
        let caught = (1..=SEEDS).any(|seed| {
            let findings = run(&Plan::small(seed), flaw).findings;
            let is_meant = findings.iter().any(|(found, what)| *found == check && what.contains(says));
            others.extend(findings.into_iter().next());
            is_meant
        });
        assert!(caught, "`{name}` is not caught by {check:?} but {others:#?}");
        writeln!(table, "{name:34} | {check:?}: {says}").expect("a string takes everything");
    }
    expect![[r#"
        an unpark in 20 is dropped         | LostWake: was unparked and is parked
        an abort in 4 is forgotten         | Abort: was aborted and lives
        a wakeup in 150 is dropped         | LostWake: should have ceased to wait
        an interrupt in 40 never comes     | Inversion: runs nothing
        a task in 10 is another tenant's   | Ids: with which task
        one time in 8 what was lent stays  | Urgency: it ought to be
    "#]]
    .assert_eq(&table);
}

/// Without a defect the same seeds find nothing, and CPU look-ahead changes nothing.
#[test]
fn small_runs_are_clean_and_the_same_again() {
    for seed in 1..=SEEDS {
        let mut plan = Plan::small(seed);
        plan.faults = Faults { late: 0.1, taken_after_rmw: 0.01, taken_on_path: 0.01, ..plan.faults };
        let outcomes = [true, false].map(|look_ahead| {
            plan.look_ahead = look_ahead;
            run(&plan, Flaw::None)
        });
        let [ahead, in_turn] = outcomes.map(|Outcome { findings, counts }| (findings, counts));
        assert!(ahead.0.is_empty(), "{}", run::describe(&plan, &ahead.0));
        assert_eq!(ahead, in_turn, "{plan:#?}");
    }
}
