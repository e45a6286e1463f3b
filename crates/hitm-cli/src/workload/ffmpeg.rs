//! ffmpeg: transcoders, and the root domain that they share.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_report::published::On;
use hitm_report::result::Calibration;
use hitm_topology::Topology;
use hitm_workloads::ffmpeg::{self, Config, Profile};
use hitm_workloads::meter::Window;

use super::{Fit, Fitting, Merit, Program, Running, Setting, Workload, calibrate, options, starts, unusual};
use crate::args::factor;
use crate::failure::Failure;
use crate::simulate::Case;

/// Transcoders, one per 8 CPUs; every thread has priority FIFO 99.
///
/// Measured for the time of 40 pictures after 20 pictures of warm-up when simulated, for 5s after
/// 1s natively.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run ffmpeg                                             the published table
  hitm run ffmpeg --mitigation baseline,all --lines 3 --json result.json
  hitm run ffmpeg --arbitration local-first,fifo --machine gnr-2x120 --machine gnr-2x120-snc3
  hitm run ffmpeg --machine this --host native --duration 5s --roles")]
pub(crate) struct Ffmpeg {
    /// The program: x264 medium under FFmpeg 7, under FFmpeg before 7, or an encoder like x265.
    #[arg(long, value_enum, default_value = "x264")]
    profile: ProfileArg,
    /// Scale frames between decoder and encoder, with the filter's slice workers.
    #[arg(long)]
    scale: bool,
    /// Give each instance the threads that it has on N CPUs, whatever it may use: as FFmpeg's and
    /// x264's options for the number of threads do. At most 42: a pool has 64 threads at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=42), allow_negative_numbers = true, hide_short_help = true)]
    threads_for: Option<u16>,
    /// Multiply all CPU bursts by this factor; without it a simulated run calibrates the factor,
    /// and a native run uses 1.
    #[arg(long, value_name = "F", value_parser = factor, allow_negative_numbers = true)]
    burst_factor: Option<f64>,
}

/// Pictures in the measured stretch of a simulated run.
const PICTURES: u64 = 40;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ProfileArg {
    /// x264 medium under the pipeline of FFmpeg 7.
    X264,
    /// x264 medium under FFmpeg before 7.
    SingleMain,
    /// An encoder with a wavefront of rows.
    X265Like,
}

impl From<ProfileArg> for Profile {
    fn from(arg: ProfileArg) -> Self {
        match arg {
            ProfileArg::X264 => Self::X264,
            ProfileArg::SingleMain => Self::SingleMain,
            ProfileArg::X265Like => Self::X265Like,
        }
    }
}

impl Ffmpeg {
    fn config(&self, burst_factor: f64, setting: &Setting) -> Config {
        let profile = self.profile.into();
        let pictures = |count| calibrate::pictures(profile, burst_factor, count);
        let usual = Window { warm_up: pictures(calibrate::WARM_UP_PICTURES), measured: pictures(PICTURES) };
        Config {
            profile,
            scale: self.scale,
            threads_for: self.threads_for.map(usize::from),
            burst_factor,
            seed: setting.seed,
            window: setting.window(usual),
        }
    }
}

impl Program for Ffmpeg {
    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        vec![Arc::new(self.config(self.burst_factor.unwrap_or(1.0), setting))]
    }

    fn fitted(&self) -> Option<Box<dyn Fitting + '_>> {
        match self.burst_factor {
            None => Some(Box::new(self)),
            Some(_) => None,
        }
    }
}

impl Fitting for &Ffmpeg {
    fn option(&self) -> &'static str {
        "--burst-factor"
    }

    fn runs(&self) -> usize {
        calibrate::RUNS
    }

    fn first(&self, fit: &Fit<'_>) -> Result<Case, Failure> {
        Ok(calibrate::trial(fit.case, self.config(1.0, fit.setting), calibrate::FIRST[0]))
    }

    fn calibrate(&self, fit: &Fit<'_>) -> Result<Calibration, Failure> {
        calibrate::burst_factor(fit.case, self.config(1.0, fit.setting), fit.threads, fit.progress)
    }

    fn with_value(&self, value: f64, fit: &Fit<'_>) -> Vec<Arc<dyn Workload>> {
        vec![Arc::new(self.config(value, fit.setting))]
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "ffmpeg"
    }

    fn profile(&self) -> String {
        let threads = self.threads_for.map_or_else(String::new, |cpus| format!(" --threads-for {cpus}"));
        format!("{}{}{threads}", self.profile.name(), if self.scale { " --scale" } else { "" })
    }

    fn options(&self) -> String {
        let profile = unusual(self.profile, Profile::default(), |own| own.name().to_owned());
        let scale = if self.scale { " --scale" } else { "" };
        let threads = self.threads_for.map(|cpus| cpus.to_string());
        let given = options(&[("profile", profile), ("threads-for", threads)]);
        format!("{given}{scale} --burst-factor {}", self.burst_factor)
    }

    fn published_on(&self, topology: &Topology) -> Option<On> {
        // The publication does not say that it chose another number of threads.
        self.threads_for.is_none().then(|| On::Cpus(topology.cpus()))
    }

    fn roles(&self) -> Option<Roles> {
        Some(ffmpeg::roles())
    }

    fn merit(&self) -> Merit {
        Merit::rate("frames_per_second")
    }

    starts!(ffmpeg::Ffmpeg::start);
}

impl Running for ffmpeg::Ffmpeg {
    fn batches(&self) -> Vec<f64> {
        self.frames_per_second().to_vec()
    }
}
