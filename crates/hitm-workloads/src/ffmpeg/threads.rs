//! The number of threads of an instance, by its number of CPUs, and the spawning of these threads.

use std::future::Future;

use hitm::{CpuSet, Handle, Role, SpawnOptions};
use hitm_memory::Platform;

use crate::bursts::{Burst, Bursts};
use crate::ffmpeg::sleepers::WORKERS_MAX;
use crate::ffmpeg::{Config, PRIORITY};

/// Thread counts by the sources' rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// CPUs + 1, at most 16.
    pub(crate) decoder_frames: usize,
    /// One per CPU; the caller works too.
    pub(crate) filter_slices: usize,
    /// One and a half per CPU, at least one.
    pub(crate) encoder_workers: usize,
    /// A sixth of the encoder's threads under preset medium, at least one.
    pub(crate) lookahead_workers: usize,
    /// x265's pool, limited to the CPUs of the instance: one per CPU, at most 64.
    pub(crate) pool_workers: usize,
    /// x265's frame encoders: a step function of the number of CPUs.
    pub(crate) frame_encoders: usize,
}

impl Counts {
    pub(crate) fn for_cpus(cpus: usize) -> Self {
        let encoder_workers = (cpus * 3 / 2).max(1);
        Self {
            decoder_frames: (cpus + 1).min(16),
            filter_slices: cpus,
            encoder_workers,
            lookahead_workers: (encoder_workers / 6).max(1),
            pool_workers: cpus.clamp(1, WORKERS_MAX),
            frame_encoders: match cpus {
                32.. => 5,
                16.. => 4,
                8.. => 3,
                4.. => 2,
                _ => 1,
            },
        }
    }
}

/// Spawns the threads of one instance.
pub(crate) struct Spawner<'a, P: Platform> {
    pub(crate) runtime: &'a Handle<P>,
    pub(crate) config: Config,
    pub(crate) cpus: &'a CpuSet,
    /// The first random stream of the instance, which separates its threads' random numbers from
    /// other instances'.
    pub(crate) stream: u64,
}

/// A thread's source of work: draws lengths and computes for them.
pub(crate) struct Worker<P: Platform> {
    pub(crate) runtime: Handle<P>,
    bursts: Bursts,
}

impl<P: Platform> Worker<P> {
    /// Computes for a length drawn from `burst`.
    pub(crate) async fn work(&mut self, burst: Burst) {
        let length = self.bursts.draw(burst);
        self.runtime.compute(length).await;
    }
}

impl<P: Platform> Spawner<'_, P> {
    /// Spawns a thread and gives its worker to `main`.
    pub(crate) fn spawn<F>(&mut self, role: Role, main: impl FnOnce(Worker<P>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.stream += 1;
        let bursts = Bursts::new(self.config.seed, self.stream, self.config.burst_factor);
        let worker = Worker { runtime: self.runtime.clone(), bursts };
        let options = SpawnOptions {
            priority: PRIORITY,
            cpus: Some(self.cpus.clone()),
            role: Some(role),
            ..SpawnOptions::default()
        };
        // The handle is dropped: threads end when the runtime shuts down.
        self.runtime.spawn(options, main(worker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_cpus() {
        let check = |cpus, x264: [usize; 4], x265: [usize; 2]| {
            let [decoder_frames, filter_slices, encoder_workers, lookahead_workers] = x264;
            let [pool_workers, frame_encoders] = x265;
            let expect = Counts {
                decoder_frames,
                filter_slices,
                encoder_workers,
                lookahead_workers,
                pool_workers,
                frame_encoders,
            };
            assert_eq!(Counts::for_cpus(cpus), expect, "{cpus} CPUs");
        };
        check(8, [9, 8, 12, 2], [8, 3]);
        check(2, [3, 2, 3, 1], [2, 1]);
        check(1, [2, 1, 1, 1], [1, 1]);
        check(128, [16, 128, 192, 32], [64, 5]);
    }
}
