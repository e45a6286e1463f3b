//! Runs ffmpeg on a simulated machine, for the tests of this crate.

use std::sync::{Arc, Mutex};

use hitm::{Handle, Mitigation, RoleCounts, Roles};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Machine, Results, Simulated};
use hitm_memory::Span;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::{BATCHES, Window};

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) machine: &'static str,
    pub(crate) mitigation: &'static str,
    pub(crate) arbitration: Arbitration,
    pub(crate) profile: Profile,
    pub(crate) scale: bool,
    pub(crate) burst_factor: f64,
    pub(crate) window: Window,
    pub(crate) seed: u64,
    pub(crate) look_ahead: bool,
    pub(crate) check_races: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            machine: "pack:2 l3:1 core:4 pu:2",
            mitigation: "baseline",
            arbitration: Arbitration::LocalFirst,
            profile: Profile::X264,
            scale: false,
            burst_factor: 0.05,
            window: Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(2_000) },
            seed: 1,
            look_ahead: true,
            check_races: false,
        }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) rates: [f64; BATCHES],
    pub(crate) frames: u64,
    pub(crate) results: Results,
    pub(crate) roles: Vec<RoleCounts>,
    pub(crate) wakes: Vec<(Option<&'static str>, &'static str, u64)>,
    pub(crate) races: Vec<String>,
    pub(crate) violations: Vec<String>,
    pub(crate) tasks_left: usize,
}

impl Case {
    pub(crate) fn run(&self) -> Outcome {
        let topology = Arc::new(hitm_topology::parse(self.machine).expect("a machine"));
        let config = Config {
            seed: self.seed,
            arbitration: self.arbitration,
            measure_from: self.window.warm_up,
            measure_until: self.window.warm_up + self.window.measured,
            look_ahead: self.look_ahead,
            check_races: self.check_races,
            ..Config::default()
        };
        let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), config);
        let mitigation = Mitigation::parse(self.mitigation).expect("a mitigation");
        let runtime =
            machine.enter(|| Handle::<Simulated>::new(mitigation.scheduler(topology.clone()), Some(ffmpeg::roles())));
        let workload = ffmpeg::Config {
            profile: self.profile,
            scale: self.scale,
            burst_factor: self.burst_factor,
            seed: self.seed,
            window: self.window,
        };
        let started = Arc::new(Mutex::new(None));
        let (handle, slot) = (runtime.clone(), started.clone());
        let ended = machine.run(move |cpu| {
            if cpu.index() == 0 {
                *slot.lock().expect("no panic holds it") = Some(Ffmpeg::start(&handle, workload));
            }
            handle.run_cpu(cpu);
        });
        ended.expect("the workload ends");
        machine.check();
        let workload = started.lock().expect("no panic holds it").take().expect("started");
        let roles: &Roles = runtime.roles().expect("made with roles");
        let snapshot = machine.enter(|| runtime.scheduler().snapshot());
        let mut violations = snapshot.violations();
        // An interrupt that was under way to a CPU that had left was not taken: a push chain may have ended there.
        violations.retain(|violation| !violation.contains("a push chain is under way"));
        Outcome {
            rates: workload.frames_per_second(),
            frames: workload.frames(),
            results: machine.results(),
            roles: roles.counts(),
            wakes: roles.wakes(),
            races: machine.races(),
            violations,
            tasks_left: snapshot.tasks.len(),
        }
    }

    /// Everything that a run gives but how often the host switched, as text.
    pub(crate) fn fingerprint(&self) -> String {
        let mut outcome = self.run();
        outcome.results.totals.resumes = 0;
        format!("{:?} {} {:?} {:?} {:?}", outcome.rates, outcome.frames, outcome.roles, outcome.wakes, outcome.results)
    }
}
