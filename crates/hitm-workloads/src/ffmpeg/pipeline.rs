//! The threads from the input file to the output file: demuxer, decoder, filter, encoder and muxer,
//! with a bounded queue on every edge.
//!
//! Since FFmpeg 7.0 each is a thread of its own. Before, main did the work between the decoder's
//! and the encoder's threads itself.

use std::sync::Arc;

use hitm::sync::Queue;
use hitm_memory::Platform;

use crate::ffmpeg::decoder::Decoder;
use crate::ffmpeg::encoder::Encoder;
use crate::ffmpeg::slices::Slices;
use crate::ffmpeg::threads::{Spawner, Worker};
use crate::ffmpeg::wavefront::Wavefront;
use crate::ffmpeg::{DECODER, DEMUXER, ENCODER, FILTER, MAIN, MUXER, Tally, work};

/// The packets or frames that an edge holds: as in the 7.x line.
const EDGE: usize = 8;

/// The video encoder; the encoder's thread calls it.
pub(crate) enum VideoEncoder<P: Platform> {
    /// x264.
    FrameThreads(Encoder<P>),
    /// x265.
    Wavefront(Wavefront<P>),
}

impl<P: Platform> VideoEncoder<P> {
    /// Takes a picture; returns true when an encoded one is ready.
    async fn encode(&mut self, caller: &mut Worker<P>) -> bool {
        match self {
            Self::FrameThreads(encoder) => encoder.encode(caller).await,
            Self::Wavefront(encoder) => encoder.encode(caller).await,
        }
    }
}

/// Starts the five threads of FFmpeg 7.
pub(crate) fn start<P: Platform>(
    spawner: &mut Spawner<'_, P>,
    mut decoder: Decoder<P>,
    slices: Slices<P>,
    mut encoder: VideoEncoder<P>,
    tally: &Arc<Tally>,
) {
    let runtime = spawner.runtime;
    let edge = || Arc::new(Queue::<P, ()>::new(runtime, EDGE));
    let (packets, frames, filtered, encoded) = (edge(), edge(), edge(), edge());
    let scale = spawner.config.scale;

    let out = packets.clone();
    spawner.spawn(DEMUXER, |mut worker| async move {
        loop {
            worker.work(work::DEMUX).await;
            if out.send(()).await.is_err() {
                return;
            }
        }
    });
    let out = frames.clone();
    spawner.spawn(DECODER, |_| async move {
        while packets.recv().await.is_some() {
            if decoder.decode().await && out.send(()).await.is_err() {
                return;
            }
        }
    });
    let out = filtered.clone();
    spawner.spawn(FILTER, |mut worker| async move {
        while frames.recv().await.is_some() {
            filter(&mut worker, scale.then_some(&slices)).await;
            if out.send(()).await.is_err() {
                return;
            }
        }
    });
    let out = encoded.clone();
    spawner.spawn(ENCODER, |mut worker| async move {
        while filtered.recv().await.is_some() {
            if encoder.encode(&mut worker).await && out.send(()).await.is_err() {
                return;
            }
        }
    });
    start_muxer(spawner, encoded, tally);
}

/// Starts main of FFmpeg before 7.0, and the muxer, which is a thread since 6.0.
pub(crate) fn start_single_main<P: Platform>(
    spawner: &mut Spawner<'_, P>,
    mut decoder: Decoder<P>,
    slices: Slices<P>,
    mut encoder: VideoEncoder<P>,
    tally: &Arc<Tally>,
) {
    let encoded = Arc::new(Queue::<P, ()>::new(spawner.runtime, EDGE));
    let scale = spawner.config.scale;
    let out = encoded.clone();
    spawner.spawn(MAIN, |mut worker| async move {
        loop {
            worker.work(work::DEMUX).await;
            if !decoder.decode().await {
                continue;
            }
            filter(&mut worker, scale.then_some(&slices)).await;
            if encoder.encode(&mut worker).await && out.send(()).await.is_err() {
                return;
            }
        }
    });
    start_muxer(spawner, encoded, tally);
}

fn start_muxer<P: Platform>(spawner: &mut Spawner<'_, P>, encoded: Arc<Queue<P, ()>>, tally: &Arc<Tally>) {
    let tally = tally.clone();
    spawner.spawn(MUXER, |mut worker| async move {
        while encoded.recv().await.is_some() {
            worker.work(work::MUX).await;
            tally.frame();
        }
    });
}

async fn filter<P: Platform>(worker: &mut Worker<P>, slices: Option<&Slices<P>>) {
    worker.work(work::FILTER).await;
    if let Some(slices) = slices {
        slices.run(worker).await;
    }
}
