//! One instance with all its threads.

use std::sync::Arc;

use hitm::{CpuSet, Handle, Span, SpawnOptions};
use hitm_memory::Platform;

use crate::ffmpeg::decoder::Decoder;
use crate::ffmpeg::encoder::Encoder;
use crate::ffmpeg::pipeline::VideoEncoder;
use crate::ffmpeg::slices::Slices;
use crate::ffmpeg::threads::{Counts, Spawner};
use crate::ffmpeg::wavefront::Wavefront;
use crate::ffmpeg::{Config, MAIN, PRIORITY, Profile, Tally, cpus_of_instance, pipeline};

/// The interval at which main prints its status line.
const STATUS: Span = Span::from_micros(500_000);

/// The number of random streams per instance: more than it has threads.
const STREAMS: u64 = 1 << 10;

/// Starts a task on the CPUs of instance number `instance`. That task starts the instance's
/// threads, as a shell starts a process.
pub(crate) fn launch<P: Platform>(runtime: &Handle<P>, config: Config, instance: usize, tally: &Arc<Tally>) {
    let cpus = cpus_of_instance(runtime.topology(), instance);
    let options = SpawnOptions { priority: PRIORITY, cpus: Some(cpus.clone()), ..SpawnOptions::default() };
    let (launcher, tally) = (runtime.clone(), tally.clone());
    runtime.spawn(options, async move { start(&launcher, config, instance, &cpus, &tally) });
}

fn start<P: Platform>(runtime: &Handle<P>, config: Config, instance: usize, cpus: &CpuSet, tally: &Arc<Tally>) {
    let mut spawner = Spawner { runtime, config, cpus, stream: instance as u64 * STREAMS };
    let counts = Counts::for_cpus(config.threads_for.unwrap_or(cpus.len()));
    let decoder = Decoder::start(&mut spawner, counts.decoder_frames);
    let slices = Slices::start(&mut spawner, counts.filter_slices);
    let encoder = match config.profile {
        Profile::X264 | Profile::SingleMain => {
            let Counts { encoder_workers, lookahead_workers, .. } = counts;
            VideoEncoder::FrameThreads(Encoder::start(&mut spawner, encoder_workers, lookahead_workers, tally))
        }
        Profile::X265Like => {
            let Counts { pool_workers, frame_encoders, .. } = counts;
            VideoEncoder::Wavefront(Wavefront::start(&mut spawner, pool_workers, frame_encoders, tally, |_| {}))
        }
    };
    match config.profile {
        Profile::SingleMain => pipeline::start_single_main(&mut spawner, decoder, slices, encoder, tally),
        Profile::X264 | Profile::X265Like => {
            pipeline::start(&mut spawner, decoder, slices, encoder, tally);
            spawner.spawn(MAIN, |worker| async move {
                loop {
                    worker.runtime.sleep(STATUS).await;
                }
            });
        }
    }
}
