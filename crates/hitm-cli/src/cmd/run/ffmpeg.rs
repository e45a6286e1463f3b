//! `hitm run ffmpeg`.

use clap::Args;
use hitm_topology::Topology;
use hitm_workloads::ffmpeg;
use hitm_workloads::meter::Window;

use super::series::{Fitted, Program, SeriesArgs};
use crate::args::factor;
use crate::calibrate;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::Case;
use crate::workload::Workload;

/// Transcoders, and the root domain that they share.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run ffmpeg                                             the published table
  hitm run ffmpeg --mitigation baseline,all --lines 3 --json result.json
  hitm run ffmpeg --arbitration local-first,fifo --machine gnr-2x120 --machine gnr-2x120-snc3
  hitm run ffmpeg --machine this --host native --duration 5s --roles")]
pub(crate) struct Ffmpeg {
    #[command(flatten)]
    series: SeriesArgs,
    #[command(flatten)]
    options: FfmpegOptions,
    /// Multiply all CPU bursts by this factor; without it a simulated run calibrates the factor,
    /// and a native run uses 1.
    #[arg(long, value_name = "F", value_parser = factor, allow_negative_numbers = true)]
    burst_factor: Option<f64>,
}

/// Which program transcodes, and how.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FfmpegOptions {
    /// The program: x264 medium under FFmpeg 7, under FFmpeg before 7, or an encoder like x265.
    #[arg(long, value_enum, default_value = "x264")]
    profile: ProfileArg,
    /// Scale frames between decoder and encoder, with the filter's slice workers.
    #[arg(long)]
    scale: bool,
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

impl From<ProfileArg> for ffmpeg::Profile {
    fn from(arg: ProfileArg) -> Self {
        match arg {
            ProfileArg::X264 => Self::X264,
            ProfileArg::SingleMain => Self::SingleMain,
            ProfileArg::X265Like => Self::X265Like,
        }
    }
}

impl FfmpegOptions {
    /// Returns the workload with these options.
    pub(crate) fn config(&self, burst_factor: f64, seed: u64, window: Window) -> ffmpeg::Config {
        ffmpeg::Config { profile: self.profile.into(), scale: self.scale, burst_factor, seed, window }
    }

    /// Returns the default measured window of a simulated run.
    pub(crate) fn usual_window(&self, burst_factor: f64) -> Window {
        let pictures = |count| calibrate::pictures(self.profile.into(), burst_factor, count);
        Window { warm_up: pictures(calibrate::WARM_UP_PICTURES), measured: pictures(PICTURES) }
    }
}

impl Ffmpeg {
    fn config(&self, burst_factor: f64) -> ffmpeg::Config {
        let window = self.series.window(self.options.usual_window(burst_factor));
        self.options.config(burst_factor, self.series.seed(), window)
    }
}

impl Program for Ffmpeg {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, _topology: &Topology) -> Vec<Workload> {
        vec![Workload::Ffmpeg(self.config(self.burst_factor.unwrap_or(1.0)))]
    }

    fn fitting_runs(&self) -> usize {
        if self.burst_factor.is_none() { calibrate::RUNS } else { 0 }
    }

    fn fit(&self, case: &Case, threads: usize, progress: &Progress) -> Result<Fitted, Failure> {
        if self.burst_factor.is_some() {
            return Ok((self.workloads(&case.topology), None));
        }
        let (factor, calibration) = calibrate::burst_factor(case, self.config(1.0), threads, progress)?;
        Ok((vec![Workload::Ffmpeg(self.config(factor))], Some(calibration)))
    }
}
