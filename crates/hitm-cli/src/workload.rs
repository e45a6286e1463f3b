//! What is run: one of the workloads with its parameters, and what both hosts need of whichever it is.

use hitm::{Handle, Roles};
use hitm_memory::Platform;
use hitm_report::result::Metric;
use hitm_report::statistics::Mean;
use hitm_workloads::ffmpeg::{self, Ffmpeg};
use hitm_workloads::meter::{BATCHES, Window};

/// A workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    Ffmpeg(ffmpeg::Config),
}

/// A workload that was started.
#[derive(Debug)]
pub(crate) enum Running {
    Ffmpeg(Ffmpeg),
}

impl Workload {
    /// Its name in commands and reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ffmpeg(_) => "ffmpeg",
        }
    }

    /// Which program it is like, as its options say it; empty where it is like one only.
    pub(crate) fn profile(&self) -> String {
        match self {
            Self::Ffmpeg(config) if config.scale => format!("{} --scale", config.profile.name()),
            Self::Ffmpeg(config) => config.profile.name().to_owned(),
        }
    }

    /// The options, beside those that all workloads have, that make it again: each with a space before it.
    pub(crate) fn options(&self) -> String {
        match self {
            Self::Ffmpeg(config) => format!(" --burst-factor {}", config.burst_factor),
        }
    }

    /// When it is measured.
    pub(crate) fn window(&self) -> Window {
        match self {
            Self::Ffmpeg(config) => config.window,
        }
    }

    /// The seed of its random numbers.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Ffmpeg(config) => config.seed,
        }
    }

    /// The same with another seed.
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        match &mut self {
            Self::Ffmpeg(config) => config.seed = seed,
        }
        self
    }

    /// Counters for what its tasks are for.
    pub(crate) fn roles(&self) -> Roles {
        match self {
            Self::Ffmpeg(_) => ffmpeg::roles(),
        }
    }

    /// What it is judged by.
    pub(crate) fn metric(&self, mean: Mean) -> Metric {
        let name = match self {
            Self::Ffmpeg(_) => "frames_per_second",
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
        }
    }
}

impl Running {
    /// What it is judged by, by batch.
    pub(crate) fn rates(&self) -> [f64; BATCHES] {
        match self {
            Self::Ffmpeg(ffmpeg) => ffmpeg.frames_per_second(),
        }
    }
}
