//! Exercises of the runtime, the same on both hosts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hitm::sync::Queue;
use hitm::{Handle, Mitigation, NativeRuntime, SpawnOptions};
use hitm_machine::{Config, Machine, Simulated, Stalled};
use hitm_memory::{CpuSet, Platform, Span};
use hitm_topology::{CpuId, Topology};
use hitm_workloads::ffmpeg::{self, Ffmpeg};
use hitm_workloads::meter::Window;

use super::tally::TRIES;
use crate::Setting;
use crate::host::kept_waiting;

/// An exercise: what its tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exercise {
    /// Are spawned and joined.
    SpawnJoin,
    /// Yield to each other.
    Yield,
    /// Pass a message back and forth on one CPU.
    MessageOnOne,
    /// The same between two CPUs.
    MessageOnTwo,
    /// Transcode.
    Ffmpeg,
}

/// Tasks that are alive at once, and the number of repetitions.
const TASKS: u32 = 50;
const BATCHES: u32 = 4;
/// Yields of each of four tasks.
const YIELDS: u32 = 100;
/// Round trips of a message.
const ROUNDS: u32 = 100;
/// The factor on all work of the transcoder. A frame then takes five milliseconds of CPU time, so
/// that a short window has some.
const BURST_FACTOR: f64 = 0.1;
/// A frame passes the whole pipeline before the measurement.
const WINDOW: Window = Window { warm_up: Span::from_micros(50_000), measured: Span::from_micros(100_000) };

impl Exercise {
    pub(super) const ALL: [Self; 5] =
        [Self::SpawnJoin, Self::Yield, Self::MessageOnOne, Self::MessageOnTwo, Self::Ffmpeg];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SpawnJoin => "runtime, a task spawned and joined",
            Self::Yield => "runtime, a yield",
            Self::MessageOnOne => "runtime, message to and fro on one CPU",
            Self::MessageOnTwo => "runtime, message to and fro over two CPUs",
            Self::Ffmpeg => "ffmpeg, a frame",
        }
    }

    pub(super) fn fits(self, topology: &Topology) -> bool {
        self != Self::MessageOnTwo || topology.cpus() > 1
    }

    /// Returns the time for which the operating system may keep the threads waiting: a fiftieth of
    /// their time, for an exercise that runs for a time.
    pub(super) fn tolerated_wait(self, topology: &Topology) -> Span {
        let time = if self == Self::Ffmpeg { WINDOW.warm_up + WINDOW.measured } else { Span::ZERO };
        Span::from_picos(time.as_picos() * topology.cpus() as u64 / 50)
    }

    /// Returns the largest number of tries of a repetition. A long exercise is seldom undisturbed,
    /// however often it is tried.
    pub(super) fn tries(self) -> usize {
        if self == Self::Ffmpeg { 2 } else { TRIES }
    }

    /// Returns the nanoseconds of the exercise here, and the time for which the operating system
    /// kept threads waiting; `None` when no runtime can be made.
    pub(super) fn measure(self, topology: &Arc<Topology>, seed: u64) -> Option<(f64, Span)> {
        let runtime =
            NativeRuntime::builder().topology(topology.clone()).mitigation(&Mitigation::baseline()).build().ok()?;
        let before = waits_of_threads();
        let nanos = if self == Self::Ffmpeg {
            let workload = runtime.run(move |handle| async move { Ffmpeg::start(&handle, transcoder(seed)) }).ok()?;
            let left = WINDOW.end().since(runtime.now());
            std::thread::sleep(Duration::from_nanos(left.as_picos().div_ceil(1_000)));
            nanos_a_frame(&workload)
        } else {
            runtime.run(move |handle| self.tasks(handle)).ok()?
        };
        // Threads of an earlier runtime may still be ending.
        let since = |(thread, waited): (OsString, Span)| {
            waited.saturating_sub(before.get(&thread).copied().unwrap_or(Span::ZERO))
        };
        Some((nanos, waits_of_threads().into_iter().map(since).sum()))
    }

    /// Returns the nanoseconds of the exercise on the simulated machine.
    pub(super) fn simulate(self, setting: &Setting) -> Result<f64, Stalled> {
        let mut config: Config = setting.config.clone();
        if self == Self::Ffmpeg {
            (config.measure_from, config.measure_until) = (WINDOW.warm_up, WINDOW.warm_up + WINDOW.measured);
        }
        let machine = Machine::new(setting.topology.clone(), setting.costs.clone(), config);
        let baseline = Mitigation::baseline();
        let runtime = machine.enter(|| Handle::<Simulated>::new(setting.topology.clone(), &baseline, None));
        let (nanos, workload) = (Arc::new(Mutex::new(f64::NAN)), Arc::new(Mutex::new(None)));
        let (handle, slot, started, seed) = (runtime.clone(), nanos.clone(), workload.clone(), setting.config.seed);
        machine.run(move |cpu| {
            if cpu == CpuId(0) && self == Self::Ffmpeg {
                put(&started, Some(Ffmpeg::start(&handle, transcoder(seed))));
            } else if cpu == CpuId(0) {
                let (inner, slot) = (handle.clone(), slot.clone());
                handle.spawn((), async move {
                    let nanos = self.tasks(inner.clone()).await;
                    put(&slot, nanos);
                    inner.shutdown();
                });
            }
            handle.run_cpu(cpu);
        })?;
        let workload = workload.lock().unwrap_or_else(PoisonError::into_inner).take();
        let tasks = *nanos.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(workload.map_or(tasks, |workload| nanos_a_frame(&workload)))
    }

    async fn tasks<P: Platform>(self, handle: Handle<P>) -> f64 {
        match self {
            Self::SpawnJoin => spawn_join(handle).await,
            Self::Yield => yields(handle).await,
            Self::MessageOnOne => message(handle, [CpuId(0), CpuId(0)]).await,
            Self::MessageOnTwo => message(handle, [CpuId(0), CpuId(1)]).await,
            Self::Ffmpeg => f64::NAN,
        }
    }
}

fn put<T>(slot: &Mutex<T>, value: T) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

fn transcoder(seed: u64) -> ffmpeg::Config {
    let profile = ffmpeg::Profile::X264;
    ffmpeg::Config { profile, scale: false, threads_for: None, burst_factor: BURST_FACTOR, seed, window: WINDOW }
}

fn nanos_a_frame(workload: &Ffmpeg) -> f64 {
    let rates = workload.frames_per_second();
    1e9 * rates.len() as f64 / rates.iter().sum::<f64>()
}

/// Returns, by thread number, how long each thread of this process was runnable and did not run.
fn waits_of_threads() -> BTreeMap<OsString, Span> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let wait = |thread: std::fs::DirEntry| {
        (thread.file_name(), kept_waiting(&thread.path().join("schedstat").to_string_lossy()))
    };
    threads.map(wait).collect()
}

async fn spawn_join<P: Platform>(handle: Handle<P>) -> f64 {
    let begin = handle.now();
    for _ in 0..BATCHES {
        let tasks: Vec<_> = (0..TASKS).map(|number| handle.spawn((), async move { number })).collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.ok(), Some(number as u32), "a task gives its number");
        }
    }
    handle.now().since(begin).as_nanos_f64() / f64::from(BATCHES * TASKS)
}

fn on(cpu: CpuId) -> SpawnOptions {
    SpawnOptions { cpus: Some(CpuSet::from_iter([cpu])), ..SpawnOptions::default() }
}

/// Four tasks on one CPU.
async fn yields<P: Platform>(handle: Handle<P>) -> f64 {
    const YIELDERS: u32 = 4;
    let begin = handle.now();
    let task = |_| {
        let inner = handle.clone();
        handle.spawn(on(CpuId(0)), async move {
            for _ in 0..YIELDS {
                inner.yield_now().await;
            }
        })
    };
    let tasks: Vec<_> = (0..YIELDERS).map(task).collect();
    for task in tasks {
        assert!(task.await.is_ok(), "a task that yields ends");
    }
    handle.now().since(begin).as_nanos_f64() / f64::from(YIELDERS * YIELDS)
}

/// Returns the nanoseconds per round trip through two queues.
async fn message<P: Platform>(handle: Handle<P>, cpus: [CpuId; 2]) -> f64 {
    let queue = || Arc::new(Queue::<P, u32>::new(&handle, 1));
    let (there, back) = (queue(), queue());
    let (receive, answer) = (there.clone(), back.clone());
    let echo = handle.spawn(on(cpus[1]), async move {
        while let Some(message) = receive.recv().await {
            if answer.send(message).await.is_err() {
                return;
            }
        }
    });
    let clock = handle.clone();
    let asks = handle.spawn(on(cpus[0]), async move {
        let begin = clock.now();
        for round in 0..ROUNDS {
            let sent = there.send(round).await.is_ok();
            assert!(sent && back.recv().await == Some(round), "a message comes back");
        }
        let taken = clock.now().since(begin);
        there.close().await;
        taken
    });
    let taken = asks.await.map_or(f64::NAN, |taken| taken.as_nanos_f64());
    assert!(echo.await.is_ok(), "who answers ends when the queue is closed");
    taken / f64::from(ROUNDS)
}
