//! `ffmpeg`: instances of a transcoder, each on eight CPUs of its own, with every thread at FIFO
//! 99.
//!
//! **Origin.** Deng, cover letter and patch 4/4, LKML 2025-07-21: 60 instances on 480 CPUs. An
//! instance's threads and their interaction follow the sources of FFmpeg 5.1 to 7, x264 build 164
//! and x265 3.5, as described in `docs/workloads.md`. The lengths of their work come from the
//! measurements of 1080p30 H.264 to x264 medium there.
//!
//! | group | threads for 8 CPUs | module |
//! |---|---|---|
//! | main | 1 | [`instance`] |
//! | demuxer, decoder, filter, encoder, muxer | 5 | [`pipeline`] |
//! | decoder frame threads | 9 | [`decoder`] |
//! | filter slice workers | 8 | [`slices`] |
//! | x264 pool | 12 | [`encoder`] |
//! | x264 lookahead, and its pool | 1 + 2 | [`lookahead`] |
//! | x265 pool, instead | 8 | [`wavefront`], [`sleepers`] |
//! | x265 frame encoders | 3 | [`wavefront`] |
//!
//! **Metric.** Frames per second, summed over all instances, computed as encoded macroblock rows
//! divided by rows per frame: a run of milliseconds has few frames and many rows.

mod decoder;
mod encoder;
mod instance;
mod lookahead;
mod pipeline;
mod progress;
mod sleepers;
mod slices;
mod threads;
mod wavefront;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm::{CpuSet, Handle, Priority, Role, Roles};
use hitm_memory::{Platform, Span};
use hitm_topology::{Scope, Topology};

use crate::bursts::Burst;
use crate::meter::{Meter, Window};

/// The published priority of every thread.
const PRIORITY: Priority = Priority::fifo(99);

/// The CPUs per instance.
const CPUS_PER_INSTANCE: usize = 8;

/// The macroblock rows per 1080p frame.
pub const ROWS: u32 = 68;

/// The program whose threads are modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// x264 medium under the pipeline of FFmpeg 7.
    #[default]
    X264,
    /// x264 medium under FFmpeg before 7: main demuxes, filters and calls the encoder itself.
    SingleMain,
    /// FFmpeg 7 with an encoder that works on rows of blocks in a wavefront and wakes one worker
    /// per row, as x265 does.
    X265Like,
}

impl Profile {
    /// Returns the name for commands and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X264 => "x264",
            Self::SingleMain => "single-main",
            Self::X265Like => "x265-like",
        }
    }

    /// Returns the time per picture at burst factor 1 while all CPUs of an instance work. A run's
    /// length is given in this unit, so that runs at any factor begin after start-up and have the
    /// same number of pictures.
    #[must_use]
    pub fn picture(self) -> Span {
        // CPU time per picture, all threads: 52 ms with x264 medium, 104 ms with x265 medium.
        let micros = match self {
            Self::X264 | Self::SingleMain => 52_000,
            Self::X265Like => 104_000,
        };
        Span::from_micros(micros / CPUS_PER_INSTANCE as u64)
    }

    /// All profiles.
    pub const ALL: [Self; 3] = [Self::X264, Self::SingleMain, Self::X265Like];
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The program.
    pub profile: Profile,
    /// Whether the filter's slice workers scale frames between decoder and encoder.
    pub scale: bool,
    /// The number of CPUs for which an instance has threads; `None` for the CPUs that it may use.
    pub threads_for: Option<usize>,
    /// Multiplies all work: the calibration.
    pub burst_factor: f64,
    /// The random seed for lengths of work.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

/// The names of the threads' roles.
pub const ROLES: [&str; 12] = [
    "main",
    "demuxer",
    "decoder",
    "decoder frame thread",
    "filter",
    "filter slice worker",
    "encoder",
    "encoder worker",
    "lookahead",
    "lookahead worker",
    "muxer",
    "frame encoder",
];

pub(crate) const MAIN: Role = Role(0);
pub(crate) const DEMUXER: Role = Role(1);
pub(crate) const DECODER: Role = Role(2);
pub(crate) const DECODER_FRAME: Role = Role(3);
pub(crate) const FILTER: Role = Role(4);
pub(crate) const FILTER_SLICE: Role = Role(5);
pub(crate) const ENCODER: Role = Role(6);
pub(crate) const ENCODER_WORKER: Role = Role(7);
pub(crate) const LOOKAHEAD: Role = Role(8);
pub(crate) const LOOKAHEAD_WORKER: Role = Role(9);
pub(crate) const MUXER: Role = Role(10);
pub(crate) const FRAME_ENCODER: Role = Role(11);

/// Lengths of the threads' work at factor 1. Means are CPU milliseconds per frame divided by pieces
/// per frame, for 1080p medium. Spreads of half the mean are an assumption (the sources give means
/// only).
pub(crate) mod work {
    use super::lookahead::ESTIMATES;
    use super::wavefront::{BLOCK_ROWS, BLOCKS};
    use super::{Burst, ROWS};

    const fn burst(mean_micros: f64) -> Burst {
        Burst { mean_micros, spread: 0.5 }
    }

    /// Decoding: 4.2 ms per frame, "decode only, 9 frame threads".
    pub(crate) const DECODE_ROW: Burst = burst(4_200.0 / ROWS as f64);
    /// The part of a frame's decoding before the next frame may start: headers, an assumption.
    pub(crate) const DECODE_SETUP: Burst = burst(50.0);
    /// Encoding: 32 activations of 0.8 to 1.6 ms per frame.
    pub(crate) const ENCODE_ROW: Burst = burst(32.0 * 1_200.0 / ROWS as f64);
    /// Lookahead worker: 8 activations of 0.56 to 0.79 ms per frame.
    pub(crate) const LOOKAHEAD_SLICE: Burst = burst(675.0);
    /// Lookahead thread: 6.6 activations of 0.12 ms per frame, divided over the cost estimates.
    pub(crate) const LOOKAHEAD: Burst = burst(6.6 * 120.0 / ESTIMATES as f64);
    /// Main of FFmpeg before 7: 3.2 activations of 1.05 ms per frame, here divided among the
    /// threads that took over its work.
    pub(crate) const DEMUX: Burst = burst(100.0);
    /// As `DEMUX`.
    pub(crate) const FILTER: Burst = burst(300.0);
    /// As `DEMUX`: copies the picture and writes the headers.
    pub(crate) const ENCODE_CALL: Burst = burst(2_800.0);
    /// As `DEMUX`.
    pub(crate) const MUX: Burst = burst(160.0);
    /// Scaling: the difference of "1080p to 720p" to "720p", divided over nine slices; an
    /// assumption.
    pub(crate) const SCALE_SLICE: Burst = burst(3_000.0 / 9.0);
    /// Loop filters of a block row in x265: an assumption.
    pub(crate) const WAVEFRONT_FILTER: Burst = burst(300.0);
    /// x265's lookahead, per picture: as x264's.
    pub(crate) const WAVEFRONT_DECISION: Burst = burst(8.0 * 675.0);
    /// A block of 64 by 64 pixels in x265: the rest of 104 ms per frame after all other work, "x265
    /// medium, pool 8, 3 frame threads".
    pub(crate) const WAVEFRONT_BLOCK: Burst = burst(
        (104_000.0
            - 4_200.0
            - PIPELINE_MICROS
            - WAVEFRONT_DECISION.mean_micros
            - WAVEFRONT_FILTER.mean_micros * BLOCK_ROWS as f64)
            / (BLOCK_ROWS * BLOCKS) as f64,
    );

    /// The work per frame of the threads from the input file to the output file.
    const PIPELINE_MICROS: f64 = DEMUX.mean_micros + FILTER.mean_micros + ENCODE_CALL.mean_micros + MUX.mean_micros;
}

/// Counts of one run that every instance updates.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) rows: Meter,
    frames: AtomicU64,
}

/// A running workload.
#[derive(Debug)]
pub struct Ffmpeg {
    tally: Arc<Tally>,
    instances: usize,
}

/// Returns the number of instances on a machine: its CPUs divided by eight, at least one.
#[must_use]
pub fn instances(topology: &Topology) -> usize {
    (topology.cpus() / CPUS_PER_INSTANCE).max(1)
}

/// Returns the CPUs of an instance: whole cores in order, eight CPUs, or all CPUs of a smaller
/// machine.
#[must_use]
pub fn cpus_of_instance(topology: &Topology, instance: usize) -> CpuSet {
    let by_core = (0..topology.cores()).flat_map(|core| topology.cpus_of(Scope::Core, core).iter().copied());
    by_core.skip(instance * CPUS_PER_INSTANCE).take(CPUS_PER_INSTANCE).collect()
}

impl Ffmpeg {
    /// Starts all instances. They run until a task of this workload shuts the runtime down at the
    /// end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let tally = Arc::new(Tally { rows: Meter::new(config.window), frames: AtomicU64::new(0) });
        let instances = instances(runtime.topology());
        config.window.open(runtime, PRIORITY);
        for instance in 0..instances {
            instance::launch(runtime, config, instance, &tally);
        }
        Self { tally, instances }
    }

    /// Returns the frames per second of all instances, per batch.
    #[must_use]
    pub fn frames_per_second(&self) -> [f64; crate::meter::BATCHES] {
        self.tally.rows.rates().map(|rows| rows / f64::from(ROWS))
    }

    /// Returns the number of frames that were muxed since the start.
    #[must_use]
    pub fn frames(&self) -> u64 {
        // Relaxed: a statistic.
        self.tally.frames.load(Ordering::Relaxed)
    }

    /// Returns the number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances
    }
}

impl Tally {
    pub(crate) fn frame(&self) {
        // Relaxed: a statistic.
        self.frames.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}
