//! Runs on this machine, with one thread per CPU.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hitm_memory::{Native, NativeWorkers};
use hitm_topology::CpuId;

use crate::TARGET;
use crate::run::driver::{Driver, Mistake, Phase};
use crate::run::ledger::Check;
use crate::run::plan::Plan;
use crate::run::simulated::describe;

/// A phase takes milliseconds. A phase that takes this long never ends, however busy the host is.
const LONGEST_PHASE: Duration = Duration::from_secs(60);

/// The phase that the threads are in, and how often a thread has ended one.
#[derive(Default)]
struct Progress {
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Progress {
    fn change(&self, change: impl FnOnce(&mut (u64, u64))) {
        change(&mut self.counts.lock().expect("no thread panics with it"));
        self.changed.notify_all();
    }

    /// Waits until `there` is true. Returns false when that never happens.
    fn wait(&self, there: impl Fn(&(u64, u64)) -> bool) -> bool {
        let counts = self.counts.lock().expect("no thread panics with it");
        let waited = self.changed.wait_timeout_while(counts, LONGEST_PHASE, |counts| !there(counts));
        !waited.expect("no thread panics with it").1.timed_out()
    }
}

/// The program of a thread: CPU `cpu` in every phase.
fn live(cpu: CpuId, phases: u64, workers: &Arc<NativeWorkers>, driver: &Driver<Native>, progress: &Progress) {
    workers.enter(cpu, None, || {
        for phase in 1..=phases {
            if !progress.wait(|&(begun, _)| begun >= phase) {
                return;
            }
            driver.run_cpu(cpu);
            progress.change(|(_, ended)| *ended += 1);
        }
    });
}

/// Runs `plan` on threads. Returns the findings.
fn run(plan: &Plan) -> Vec<(Check, String)> {
    let topology = Arc::new(hitm_topology::parse(&plan.topology).expect("a machine of ours"));
    let (cpus, workers) = (topology.cpus() as u64, NativeWorkers::new(topology.cpus(), false));
    let here = CpuId(0);
    let driver =
        workers.visit(here, || Driver::<Native>::new(plan.scheduler(topology.clone()), plan.clone(), Mistake::None));
    let phases: Vec<Phase> = (0..plan.phases).map(|_| Phase::Churn).chain([Phase::Drain]).collect();
    let progress = Arc::new(Progress::default());
    let start = |cpu| {
        let (workers, driver, progress) = (workers.clone(), driver.clone(), progress.clone());
        let count = phases.len() as u64;
        std::thread::spawn(move || live(cpu, count, &workers, &driver, &progress))
    };
    let threads: Vec<_> = topology.cpu_ids().map(start).collect();
    for (number, &phase) in (1..).zip(&phases) {
        driver.begin(phase);
        progress.change(|(begun, _)| *begun = number);
        if !progress.wait(|&(_, ended)| ended >= number * cpus) {
            workers.visit(here, || driver.find(Check::Stall, "the phase does not end".to_owned()));
            // The threads may spin forever, so they are abandoned.
            return driver.ledger.findings();
        }
        if driver.ledger.is_clean() {
            workers.visit(here, || {
                driver.inspect();
                // The operating system may preempt a thread in a window where a request can be
                // lost. That does happen here.
                if !plan.loses_requests() {
                    driver.inspect_order();
                }
                driver.inspect_drained(phase);
            });
        }
    }
    threads.into_iter().for_each(|thread| thread.join().expect("panics are caught on each CPU"));
    driver.ledger.findings()
}

#[test]
fn random_tasks() {
    crate::seeds::each(TARGET, "run::native::random_tasks", 200, &[], |seed| {
        let mut plan = Plan::new(seed);
        // Longer bursts only take longer here: threads are preempted often enough to use up quotas.
        plan.burst_nanos = plan.burst_nanos.min(30_000);
        let findings = run(&plan);
        assert!(findings.is_empty(), "{}", describe(&plan, &findings));
    });
}
