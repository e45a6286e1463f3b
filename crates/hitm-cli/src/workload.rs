//! What is run: one of the workloads with its parameters, and what both hosts need of whichever it is.

use hitm::{Handle, Roles};
use hitm_memory::Platform;
use hitm_report::result::Metric;
use hitm_report::statistics::Mean;
use hitm_workloads::ffmpeg::{self, Ffmpeg};
use hitm_workloads::meter::{BATCHES, Window};
use hitm_workloads::pi_stress::{self, PiStress};

/// A workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    Ffmpeg(ffmpeg::Config),
    PiStress(pi_stress::Config),
}

/// A workload that was started.
#[derive(Debug)]
pub(crate) enum Running {
    Ffmpeg(Ffmpeg),
    PiStress(PiStress),
}

impl Workload {
    /// Its name in commands and reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ffmpeg(_) => "ffmpeg",
            Self::PiStress(_) => "pi_stress",
        }
    }

    /// Which program it is like, as its options say it; empty where it is like one only.
    pub(crate) fn profile(&self) -> String {
        match self {
            Self::Ffmpeg(config) if config.scale => format!("{} --scale", config.profile.name()),
            Self::Ffmpeg(config) => config.profile.name().to_owned(),
            Self::PiStress(config) => config.groups.map_or_else(String::new, |groups| format!("--groups {groups}")),
        }
    }

    /// The options, beside those that all workloads have, that make it again: each with a space before it.
    pub(crate) fn options(&self) -> String {
        match self {
            Self::Ffmpeg(config) => format!(" --burst-factor {}", config.burst_factor),
            Self::PiStress(config) => config.groups.map_or_else(String::new, |groups| format!(" --groups {groups}")),
        }
    }

    /// When it is measured.
    pub(crate) fn window(&self) -> Window {
        match self {
            Self::Ffmpeg(config) => config.window,
            Self::PiStress(config) => config.window,
        }
    }

    /// The seed of its random numbers.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Ffmpeg(config) => config.seed,
            Self::PiStress(config) => config.seed,
        }
    }

    /// The same with another seed.
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        match &mut self {
            Self::Ffmpeg(config) => config.seed = seed,
            Self::PiStress(config) => config.seed = seed,
        }
        self
    }

    /// Counters for what its tasks are for.
    pub(crate) fn roles(&self) -> Roles {
        match self {
            Self::Ffmpeg(_) => ffmpeg::roles(),
            Self::PiStress(_) => pi_stress::roles(),
        }
    }

    /// Whether what a work unit takes of each operation belongs to its report.
    pub(crate) fn counts_operations(&self) -> bool {
        matches!(self, Self::PiStress(_))
    }

    /// Accesses in a row that may belong to a run on `cpus` CPUs without any of them working or idling, beyond what a machine
    /// allows by itself.
    pub(crate) fn accesses_without_work(&self, cpus: usize) -> u64 {
        match self {
            Self::Ffmpeg(_) => 0,
            // It does nothing else all its life. An access takes a tenth of a nanosecond at least.
            Self::PiStress(config) => {
                let life = config.window.warm_up + config.window.measured;
                (life.as_picos() / 100).saturating_mul(cpus as u64)
            }
        }
    }

    /// What it is judged by.
    pub(crate) fn metric(&self, mean: Mean) -> Metric {
        let name = match self {
            Self::Ffmpeg(_) => "frames_per_second",
            Self::PiStress(_) => "inversions_per_second",
        };
        Metric {
            name: name.to_owned(),
            value: mean.value,
            interval: mean.interval,
            unit: "1/s".to_owned(),
            better: "higher".to_owned(),
        }
    }

    /// Starts it. It shuts the runtime down at the end of its window.
    pub(crate) fn start<P: Platform>(&self, runtime: &Handle<P>) -> Running {
        match *self {
            Self::Ffmpeg(config) => Running::Ffmpeg(Ffmpeg::start(runtime, config)),
            Self::PiStress(config) => Running::PiStress(PiStress::start(runtime, config)),
        }
    }
}

impl Running {
    /// What it is judged by, by batch.
    pub(crate) fn rates(&self) -> [f64; BATCHES] {
        match self {
            Self::Ffmpeg(ffmpeg) => ffmpeg.frames_per_second(),
            Self::PiStress(pi_stress) => pi_stress.inversions_per_second(),
        }
    }

    /// What it found wrong with its own run.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::PiStress(pi_stress) if pi_stress.is_stuck() => Some(
                "a group got nothing done for 5 looks of the admin task in a row, 3.75s: a deadlock, or CPUs too slow",
            ),
            Self::Ffmpeg(_) | Self::PiStress(_) => None,
        }
    }
}
