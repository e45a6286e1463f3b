//! `hackbench`: groups of senders and receivers, in which every sender sends to every receiver.
//!
//! **Origin.** rt-tests' hackbench, as threads (`hackbench -T`, with `-p` over pipes), and perf's `bench sched messaging -t`. A group has as many
//! senders as receivers, and a channel for each receiver. All wait until all are there. Then each sender, so many times, writes a message to
//! each channel of its group, and each receiver reads what is meant for it; then they end.
//!
//! **Metric.** Seconds from when all are let go until the last has ended.
//!
//! **What is left out.** Processes, which differ by what a switch of the address space takes; what creating and ending a thread costs the kernel. Of a
//! system call, what it takes beside entry, exit and the lines that it touches. The channels' differences are told in [`pipe`] and [`socket`].

pub(crate) mod pipe;
mod socket;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::sync::Futex;
use hitm::{Handle, JoinHandle, Priority, SpawnOptions, Time};
use hitm_memory::{AtomicWord, Placed, Platform, described};

use self::pipe::Pipe;
use self::socket::Sockets;
use crate::nested::nested;

/// What messages go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// A pipe a receiver.
    #[default]
    Pipes,
    /// A pair of stream sockets a receiver, of which all senders have the one end.
    Sockets,
}

/// What a run of the workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many groups.
    pub groups: usize,
    /// Senders of a group, and receivers: the original's default is 20.
    pub pairs: usize,
    /// Messages of a sender to each receiver: the original's default is 100.
    pub loops: usize,
    /// Bytes of a message: the original's default is 100.
    pub bytes: usize,
    /// What they go through: the original's default is sockets.
    pub channels: Channels,
    /// How deep the group of all tasks is: 0 for no group, 1 for a group, 2 for a group in a group.
    pub depth: usize,
}

impl Config {
    /// The most bytes of a message: larger ones the original passes in parts.
    pub const BYTES_MAX: usize = 4_096;

    /// Messages of the whole run.
    #[must_use]
    pub fn messages(&self) -> u64 {
        (self.groups * self.pairs * self.pairs * self.loops) as u64
    }

    /// Tasks of the whole run, without the one that starts them.
    #[must_use]
    pub fn tasks(&self) -> usize {
        2 * self.groups * self.pairs
    }
}

described! {
    /// Who is there.
    struct ReadyWords<M: Memory> as "ready" {
        /// Tasks that wait for the start.
        count: M::Atomic<u32>,
    }
}

/// The start: all wait until all are there.
struct Start<P: Platform> {
    ready: Placed<P, ReadyWords<P>>,
    all_ready: Futex<P>,
    go: Futex<P>,
    tasks: usize,
}

/// A receiver's channel.
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
        // Relaxed: only the number counts.
        if self.ready.count.fetch_add(1, Ordering::Relaxed) as usize + 1 == self.tasks {
            // Relaxed: nothing is published.
            self.all_ready.word().store(1, Ordering::Relaxed);
            self.all_ready.wake(1);
        }
        // Relaxed: as above.
        while self.go.word().load(Ordering::Relaxed) == 0 {
            self.go.wait(0).await;
        }
    }

    async fn until_all_are_there(&self) {
        // Relaxed: as above.
        while self.all_ready.word().load(Ordering::Relaxed) == 0 {
            self.all_ready.wait(0).await;
        }
    }
}

/// The tasks of a run, which wait for the start.
pub struct Crowd<P: Platform> {
    start: Arc<Start<P>>,
    tasks: Vec<JoinHandle<P, ()>>,
}

impl<P: Platform> fmt::Debug for Crowd<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

/// Makes the groups, and waits until all are there.
///
/// # Panics
/// When there is nobody, or messages have more than [`Config::BYTES_MAX`] bytes.
pub async fn gather<P: Platform>(runtime: &Handle<P>, config: Config) -> Crowd<P> {
    assert!(config.tasks() > 0 && config.bytes <= Config::BYTES_MAX, "somebody to pass on what fits: {config:?}");
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
    /// Lets all go: when that was, and when the last had ended.
    ///
    /// # Panics
    /// When a task does.
    pub async fn pass_on(self, runtime: &Handle<P>) -> (Time, Time) {
        let Self { start, tasks } = self;
        let begin = runtime.now();
        // Relaxed: nothing is published.
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

/// Runs the groups to their ends: when all were let go, and when the last had ended.
///
/// # Panics
/// As [`gather`] and [`Crowd::pass_on`].
pub async fn run<P: Platform>(runtime: &Handle<P>, config: Config) -> (Time, Time) {
    gather(runtime, config).await.pass_on(runtime).await
}
