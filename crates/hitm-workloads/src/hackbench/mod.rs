//! `hackbench`: groups of senders and receivers in which every sender sends to every receiver.
//!
//! **Origin.** rt-tests' hackbench with threads (`hackbench -T`, with `-p` over pipes), and perf's
//! `bench sched messaging -t`. A group has as many senders as receivers, and one channel per
//! receiver. All tasks wait until all of them run. In each of its loops, a sender writes one
//! message to each channel of its group. A receiver reads all messages for it. Then the tasks end.
//!
//! **Metric.** Seconds from the release of all tasks until the last task has ended.
//!
//! **What is left out.** Processes, which differ by the cost of address-space switches; the
//! kernel's cost of creating and ending a thread; the cost of a system call beside entry, exit and
//! the lines that it touches. [`pipe`] and [`socket`] describe the differences of the channels.

pub(crate) mod pipe;
mod socket;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use hitm::sync::Futex;
use hitm::{Handle, JoinHandle, Priority, SpawnOptions, Time};
use hitm_memory::{AtomicWord, Placed, Platform, described};

use self::pipe::Pipe;
use self::socket::Sockets;
use crate::nested::nested;

/// The kind of channel for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// One pipe per receiver.
    #[default]
    Pipes,
    /// One pair of stream sockets per receiver; all senders share one of its ends.
    Sockets,
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of groups.
    pub groups: usize,
    /// The number of senders per group, and of receivers: the original's default is 20.
    pub pairs: usize,
    /// The messages of a sender to each receiver: the original's default is 100.
    pub loops: usize,
    /// The bytes per message: the original's default is 100.
    pub bytes: usize,
    /// The kind of channel: the original's default is sockets.
    pub channels: Channels,
    /// The depth of the group of all tasks: 0 for no group, 1 for a group, 2 for a group in a
    /// group.
    pub depth: usize,
}

impl Config {
    /// The largest message in bytes; the original splits larger messages.
    pub const BYTES_MAX: usize = 4_096;

    /// Returns the number of messages of the whole run.
    #[must_use]
    pub fn messages(&self) -> u64 {
        (self.groups * self.pairs * self.pairs * self.loops) as u64
    }

    /// Returns the number of tasks of the whole run, without the task that starts them.
    #[must_use]
    pub fn tasks(&self) -> usize {
        2 * self.groups * self.pairs
    }
}

described! {
    /// The counter of tasks that are ready.
    struct ReadyWords<M: Memory> as "ready" {
        /// The number of tasks that wait for the start.
        count: M::Atomic<u32>,
    }
}

/// The start: all tasks wait until all of them run.
struct Start<P: Platform> {
    ready: Placed<P, ReadyWords<P>>,
    all_ready: Futex<P>,
    go: Futex<P>,
    tasks: usize,
}

/// The channel of a receiver.
enum Channel<P: Platform> {
    Pipe(Pipe<P>),
    Sockets(Sockets<P>),
}

impl<P: Platform> Channel<P> {
    fn new(runtime: &Handle<P>, index: usize, config: Config) -> Self {
        match config.channels {
            Channels::Pipes => Self::Pipe(Pipe::new(runtime, index)),
            Channels::Sockets => Self::Sockets(Sockets::new(runtime, index, config.bytes)),
        }
    }

    async fn write(&self, bytes: usize) {
        match self {
            Self::Pipe(pipe) => pipe.write(bytes).await,
            Self::Sockets(sockets) => sockets.write().await,
        }
    }

    async fn read(&self, bytes: usize) {
        match self {
            Self::Pipe(pipe) => pipe.read(bytes).await,
            Self::Sockets(sockets) => sockets.read().await,
        }
    }
}

/// All tasks are fair ones of nice 0.
pub const PRIORITY: Priority = Priority::fair(0);

impl<P: Platform> Start<P> {
    fn new(runtime: &Handle<P>, tasks: usize) -> Arc<Self> {
        let ready = Placed::new(ReadyWords { count: P::Atomic::new(0) }, None, None);
        Arc::new(Self { ready, all_ready: Futex::new(runtime, 0), go: Futex::new(runtime, 0), tasks })
    }

    async fn wait(&self) {
        // Relaxed: only the count matters.
        if self.ready.count.fetch_add(1, Ordering::Relaxed) as usize + 1 == self.tasks {
            // Relaxed: this publishes nothing.
            self.all_ready.word().store(1, Ordering::Relaxed);
            self.all_ready.wake(1);
        }
        // Relaxed: the word publishes nothing.
        while self.go.word().load(Ordering::Relaxed) == 0 {
            self.go.wait(0).await;
        }
    }

    async fn until_all_are_there(&self) {
        // Relaxed: the word publishes nothing.
        while self.all_ready.word().load(Ordering::Relaxed) == 0 {
            self.all_ready.wait(0).await;
        }
    }
}

/// The tasks of a run, waiting for the start.
pub struct Crowd<P: Platform> {
    start: Arc<Start<P>>,
    tasks: Vec<JoinHandle<P, ()>>,
}

impl<P: Platform> fmt::Debug for Crowd<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

/// Makes the groups, and waits until all tasks wait for the start.
///
/// # Panics
/// When there are no tasks, or messages have more than [`Config::BYTES_MAX`] bytes.
pub async fn gather<P: Platform>(runtime: &Handle<P>, config: Config) -> Crowd<P> {
    assert!(config.tasks() > 0 && config.bytes <= Config::BYTES_MAX, "no tasks, or messages too large: {config:?}");
    let start = Start::new(runtime, config.tasks());
    let mut tasks = Vec::with_capacity(config.tasks());
    let session = nested(runtime, "hackbench", config.depth);
    let options = || SpawnOptions { group: session.clone(), ..PRIORITY.into() };
    for group in 0..config.groups {
        let channels: Arc<[Channel<P>]> =
            (0..config.pairs).map(|pair| Channel::new(runtime, group * config.pairs + pair, config)).collect();
        for pair in 0..config.pairs {
            let (clock, channels, start) = (runtime.clone(), channels.clone(), start.clone());
            let receiver = (clock.clone(), channels.clone(), start.clone());
            tasks.push(runtime.spawn(options(), async move {
                let (clock, channels, start) = receiver;
                start.wait().await;
                for _ in 0..config.pairs * config.loops {
                    channels[pair].read(config.bytes).await;
                    clock.checkpoint().await;
                }
            }));
            tasks.push(runtime.spawn(options(), async move {
                start.wait().await;
                for _ in 0..config.loops {
                    for channel in &*channels {
                        channel.write(config.bytes).await;
                        clock.checkpoint().await;
                    }
                }
            }));
        }
    }
    start.until_all_are_there().await;
    Crowd { start, tasks }
}

impl<P: Platform> Crowd<P> {
    /// Releases all tasks and waits until they have ended. Returns the time of the release and the
    /// time when the last task had ended.
    ///
    /// # Panics
    /// When a task panics.
    pub async fn pass_on(self, runtime: &Handle<P>) -> (Time, Time) {
        let Self { start, tasks } = self;
        let begin = runtime.now();
        // Relaxed: this publishes nothing.
        start.go.word().store(1, Ordering::Relaxed);
        start.go.wake(usize::MAX);
        for task in tasks {
            if let Err(error) = task.await {
                panic!("a task of the workload: {error}");
            }
        }
        (begin, runtime.now())
    }
}

/// The groups, from their start to their end.
#[derive(Clone, Debug, Default)]
pub struct Hackbench(Arc<Mutex<Option<(Time, Time)>>>);

impl Hackbench {
    /// Starts a task that runs the groups to their ends and then shuts the runtime down. The
    /// measured stretch of a simulated machine, and of the scheduler's statistics, is from the
    /// release of all tasks to the end of the last.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let (own, ended) = (runtime.clone(), Self::default());
        let slot = ended.clone();
        drop(runtime.spawn(PRIORITY, async move {
            let crowd = gather(&own, config).await;
            P::measure_from_now();
            own.diagnostics().stats().count_between(own.now(), Time::NEVER);
            let stretch = crowd.pass_on(&own).await;
            P::measure_until_now();
            *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stretch);
            own.shutdown();
        }));
        ended
    }

    /// Returns the time of the release and the time when the last task had ended; `None` until
    /// then.
    #[must_use]
    pub fn stretch(&self) -> Option<(Time, Time)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the groups to their ends. Returns the time of the release and the time when the last task
/// had ended.
///
/// # Panics
/// As [`gather`] and [`Crowd::pass_on`].
pub async fn run<P: Platform>(runtime: &Handle<P>, config: Config) -> (Time, Time) {
    gather(runtime, config).await.pass_on(runtime).await
}
