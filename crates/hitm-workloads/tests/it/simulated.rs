//! Runs ffmpeg on a simulated machine, for the tests of this crate.

use hitm::{Handle, RoleCounts};
use hitm_machine::{Arbitration, Config, Results, Simulated};
use hitm_memory::Span;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::{BATCHES, Window};

use crate::host::{self, violations_at_the_end};

/// The configuration of a run.
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

/// The result of a run.
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
        let config = Config {
            seed: self.seed,
            arbitration: self.arbitration,
            look_ahead: self.look_ahead,
            check_races: self.check_races,
            ..Config::default()
        };
        let workload = ffmpeg::Config {
            profile: self.profile,
            scale: self.scale,
            threads_for: None,
            burst_factor: self.burst_factor,
            seed: self.seed,
            window: self.window,
        };
        let start = move |handle: &Handle<Simulated>| Ffmpeg::start(handle, workload);
        let ran = host::run(self.machine, self.mitigation, self.window, config, ffmpeg::roles(), start);
        let (roles, workload, snapshot) = (ran.roles(), &ran.workload, ran.snapshot());
        Outcome {
            rates: workload.frames_per_second(),
            frames: workload.frames(),
            results: ran.machine.results(),
            roles: roles.counts(),
            wakes: roles.wakes(),
            races: ran.machine.races(),
            violations: violations_at_the_end(&snapshot),
            tasks_left: snapshot.tasks.len(),
        }
    }

    /// Returns all results of a run as text, except how often the host switched.
    pub(crate) fn fingerprint(&self) -> String {
        let mut outcome = self.run();
        outcome.results.totals.resumes = 0;
        format!("{:?} {} {:?} {:?} {:?}", outcome.rates, outcome.frames, outcome.roles, outcome.wakes, outcome.results)
    }
}
