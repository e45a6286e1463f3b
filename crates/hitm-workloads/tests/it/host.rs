//! Runs any workload on a simulated machine; makes the runtime for one on this machine.

use std::sync::{Arc, Mutex};

use hitm::{Handle, Mitigation, NativeRuntime, Roles};
use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_sched::Snapshot;
use hitm_workloads::meter::Window;

/// A finished run.
pub(crate) struct Ran<W> {
    pub(crate) machine: Machine,
    pub(crate) runtime: Handle<Simulated>,
    /// The started workload.
    pub(crate) workload: W,
}

/// Runs the workload that `start` starts on `machine`, measured in `window`.
pub(crate) fn run<W: 'static>(
    machine: &str,
    mitigation: &str,
    window: Window,
    config: Config,
    roles: Roles,
    start: impl Fn(&Handle<Simulated>) -> W + 'static,
) -> Ran<W> {
    let mitigation = Mitigation::parse(mitigation).expect("a mitigation");
    run_with(machine, &mitigation, window, config, roles, &[], start)
}

/// Runs as [`run`] does, with a mitigation that need not have a name, and with other values of some
/// model parameters.
pub(crate) fn run_with<W: 'static>(
    machine: &str,
    mitigation: &Mitigation,
    window: Window,
    config: Config,
    roles: Roles,
    parameters: &[(&str, f64)],
    start: impl Fn(&Handle<Simulated>) -> W + 'static,
) -> Ran<W> {
    let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
    let config = Config { measure_from: window.warm_up, measure_until: window.warm_up + window.measured, ..config };
    let mut costs = Costs::of(&topology, CostSet::Linux);
    parameters.iter().for_each(|&(name, value)| costs.set(name, value).expect("a parameter"));
    let machine = Machine::new(topology.clone(), costs, config);
    let runtime = machine.enter(|| Handle::<Simulated>::new(topology, mitigation, Some(roles)));
    let started = Arc::new(Mutex::new(None));
    let (handle, slot) = (runtime.clone(), started.clone());
    let ended = machine.run(move |cpu| {
        if cpu.index() == 0 {
            *slot.lock().expect("no panic holds it") = Some(start(&handle));
        }
        handle.run_cpu(cpu);
    });
    ended.expect("the workload ends");
    machine.check();
    let workload = started.lock().expect("no panic holds it").take().expect("started");
    Ran { machine, runtime, workload }
}

/// Makes a runtime on this machine with the topology `machine`.
pub(crate) fn native(machine: &str, mitigation: &str, roles: Option<Roles>) -> NativeRuntime {
    let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
    let mitigation = Mitigation::parse(mitigation).expect("a mitigation");
    NativeRuntime::builder()
        .topology(topology)
        .mitigation(&mitigation)
        .roles(roles)
        .build()
        .expect("threads for the CPUs")
}

impl<W> Ran<W> {
    pub(crate) fn roles(&self) -> &Roles {
        self.runtime.roles().expect("made with roles")
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.machine.enter(|| self.runtime.diagnostics().snapshot())
    }
}

/// Returns the violations in `snapshot`, for a run whose CPUs left while interrupts were in flight:
/// a push chain may have ended at an interrupt that was not taken.
pub(crate) fn violations_at_the_end(snapshot: &Snapshot) -> Vec<String> {
    let mut violations = snapshot.violations();
    violations.retain(|violation| !violation.contains("a push chain is under way"));
    violations
}
