//! One run: a machine, a runtime on it, its tasks, and the checks after all tasks have ended.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hitm::{Handle, Mitigation};
use hitm_machine::{Config, Costs, FaultCounts, Machine};
use hitm_memory::{Platform, Span};

use crate::control::{CONTROLLER, control};
use crate::counted::{Branch, Counted};
use crate::defects::Flaw;
use crate::ledger::Check;
use crate::plan::Plan;
use crate::tally::{Fault, RunCounts};
use crate::world::World;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) findings: Vec<(Check, String)>,
    pub(crate) counts: RunCounts,
}

impl Outcome {
    /// The result of a run that did not reach its end.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        Self { findings: vec![(Check::Panic, text_of(payload))], counts: RunCounts::default() }
    }
}

/// Shuts the runtime down when the controller ends, also when it panics.
struct Stops<P: Platform>(Handle<P>);

impl<P: Platform> Drop for Stops<P> {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

thread_local! {
    /// Unplanned panics of this thread; the hook ignores planned ones.
    static UNPLANNED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Installs a hook that records panics on threads that run machines.
pub(crate) fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        UNPLANNED.with_borrow_mut(|unplanned| unplanned.push(panic.to_string()));
        before(panic);
    }));
}

fn machine(plan: &Plan) -> Machine {
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let costs = Costs::of(&topology, plan.costs);
    let config = Config {
        seed: plan.seed,
        arbitration: plan.arbitration,
        jitter: plan.jitter,
        faults: Some(plan.faults),
        check_races: plan.check_races,
        look_ahead: plan.look_ahead,
        // The costs of accesses are not used here.
        measure_from: Span::from_picos(u64::MAX),
        livelock_after: 20_000_000,
        ..Config::default()
    };
    Machine::new(topology, costs, config)
}

/// Runs `plan` over `P`, whose machine is the simulated one.
pub(crate) fn run<P: Platform>(plan: &Plan, flaw: Flaw) -> Outcome {
    UNPLANNED.take();
    let machine = machine(plan);
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let mitigation = Mitigation::parse(&plan.mitigation).unwrap_or_else(|error| panic!("{error}"));
    let mitigation = mitigation.keeping_wakeups(plan.keeps_wakeups);
    let world = machine.enter(|| {
        let sched = mitigation.scheduler(topology);
        let counted = Counted::new(sched.clone(), flaw);
        World::new(Handle::<P>::through(sched, counted.clone(), None), counted, plan.clone())
    });
    let runner = world.clone();
    // Unwind safety: after a panic, the remaining state is only read where it is consistent, and
    // leaked.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        machine.run(move |cpu| {
            let handle = &runner.handle;
            if cpu.0 == 0 {
                let stops = Stops(handle.clone());
                let controls = control(runner.clone());
                drop(handle.spawn(CONTROLLER, async move {
                    let _stops = stops;
                    controls.await;
                }));
            }
            handle.run_cpu(cpu);
        })
    }));
    let is_whole = match ended {
        Ok(Ok(())) => true,
        Ok(Err(stalled)) => {
            world.ledger.find(Check::Stall, stalled.to_string());
            false
        }
        Err(payload) => {
            world.ledger.find(Check::Panic, text_of(&*payload));
            false
        }
    };
    for panic in UNPLANNED.take() {
        world.ledger.find(Check::Panic, panic);
    }
    for race in machine.races() {
        world.ledger.find(Check::Race, race);
    }
    machine.check();
    if is_whole {
        machine.enter(|| look_at_the_end(&world));
    }
    let findings = world.ledger.books().findings.clone();
    let outcome = Outcome { findings, counts: counts(&world, machine.faults()) };
    if is_whole {
        machine.enter(|| drop(world));
    } else {
        // CPUs that never return still refer to it.
        std::mem::forget((world, machine));
    }
    outcome
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// Checks that no task is left, and no state of any task.
fn look_at_the_end<P: Platform>(world: &World<P>) {
    let snapshot = world.handle.diagnostics().snapshot();
    let mut books = world.ledger.books();
    // An interrupt to a CPU that had left was not taken: a push chain may have ended there.
    let violations = snapshot.violations().into_iter().filter(|what| !what.contains("a push chain is under way"));
    violations.for_each(|what| books.find(Check::Snapshot, format!("at the end: {what}")));
    if !snapshot.tasks.is_empty() {
        books.find(Check::LostTask, format!("at the end {} tasks live", snapshot.tasks.len()));
    }
    let kept: Vec<u32> = books.living().map(|(serial, _)| serial).collect();
    if !kept.is_empty() {
        books.find(Check::Drops, format!("the futures of tasks {kept:?} were never dropped"));
    }
    if books.mutexes.owner.iter().chain(&books.pi_mutexes.owner).any(Option::is_some) {
        let text = format!("{:?} and {:?} are owned at the end", books.mutexes.owner, books.pi_mutexes.owner);
        books.find(Check::Owner, text);
    }
}

fn counts<P: Platform>(world: &World<P>, machine: FaultCounts) -> RunCounts {
    use std::sync::atomic::Ordering::Relaxed;

    let fault = |&(fault, name): &(Fault, &'static str)| {
        let count = match fault {
            Fault::LateInterrupt => machine.late_interrupts,
            Fault::LateTimer => machine.late_timers,
            Fault::TakenWithLock => machine.taken_after_rmw,
            Fault::TakenOnPath => machine.taken_on_path,
            own => world.count(own),
        };
        (name, count)
    };
    // Relaxed: the machine has ended.
    let seen = [&world.lent, &world.chains, &world.deadlocks, &world.deaths_told].map(|count| count.load(Relaxed));
    let seen = ["lent_at_rest", "chains_at_rest", "deadlocks_refused", "deaths_told"].into_iter().zip(seen);
    let own = Branch::ALL.into_iter().map(|(branch, name)| (name, world.sched.branch(branch)));
    let of_scheduler = world.sched.sums().into_iter().map(|(count, sum)| (count.name(), sum));
    let ids = world.tenants.counts(&world.plan.mitigation);
    let groups = world.groups.counts();
    let books = world.ledger.books();
    RunCounts {
        faults: Fault::ALL.iter().map(fault).collect(),
        branches: of_scheduler.chain(own).chain(seen).chain(ids).chain(groups).collect(),
        settled: books.settled.clone(),
        operations: world.sched.operations(),
        tasks: books.entries.len() as u64,
    }
}

/// Formats the findings with the plan, for a person.
pub(crate) fn describe(plan: &Plan, findings: &[(Check, String)]) -> String {
    let mut text = format!("{plan:#?}\n");
    for (check, what) in findings {
        writeln!(text, "{check:?}: {what}").expect("a string takes everything");
    }
    text
}
