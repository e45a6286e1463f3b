//! `schbench`: workers that spin and sleep, and message threads that wake all of their workers at
//! once. All are fair tasks.
//!
//! **Origin.** Chris Mason's schbench in its revisions up to September 2021, which the results in
//! Deng Pan, LKML 2023-08-14, fit: `schbench -m M -t T` with spins and sleeps of 30 ms. Later
//! programs of this name measure something else.
//!
//! | task | loop |
//! |---|---|
//! | worker | spins for [`Config::cputime`]; puts itself on its message thread's list; posts the message thread; sleeps until it is posted |
//! | message thread | clears its post; takes the whole list, records the time, posts each worker on the list; sleeps until it is posted; spins for [`Config::cputime`]; sleeps for [`Config::sleeptime`] and up to a quarter of it more |
//!
//! Spins last for a time on the clock, not for an amount of work. A task that is preempted while it
//! spins therefore has less work left.
//!
//! **Metric.** The wakeup latency: from the time that the message thread recorded until the worker
//! runs again and reads the clock. It includes the time that the message thread takes to wake
//! earlier workers on the list. The metric is the 99th percentile of the samples that end in the
//! window.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | worker, compare-exchange of `head` | message thread, swap of `head` | `next` of the worker and of the workers that pushed before it: each exchange continues the release sequence of the one before |
//! | message thread, swap of `head` | next worker that pushes, compare-exchange of `head` | that earlier posts were cleared; so the worker's own post is kept |
//! | poster, swap of the futex's word | waiter, swap of the word | earlier writes: the list for a message thread, `woken_at` for a worker |
//!
//! **Differences.** Each message thread begins at a randomly drawn time within one round. The
//! original's all begin at once, and take hundreds of rounds, most of its run, to drift apart.
//!
//! **What is left out.** The cost of clock reads and of the histogram's update; the creation of
//! threads, since spawning a task costs less; the main thread, which sleeps.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use hitm::sync::Futex;
use hitm::{Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{AtomicWord, Placed, Platform, Span, Time, described};
use hitm_topology::Topology;

use crate::bursts::Bursts;
use crate::meter::{BATCHES, Window};
use crate::nested::nested;

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of message threads.
    pub message_threads: usize,
    /// The number of workers per message thread; `None` for a quarter of the CPUs.
    pub workers: Option<usize>,
    /// The length of the spins of workers and message threads.
    pub cputime: Span,
    /// The minimum length of a message thread's sleep.
    pub sleeptime: Span,
    /// The depth of the group of all tasks: 0 for no group, 1 for a group, 2 for a group in a
    /// group.
    pub depth: usize,
    /// The random seed for the sleep beyond the minimum.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

impl Config {
    /// The original's default, for workers and message threads.
    pub const CPUTIME: Span = Span::from_micros(30_000);
    /// The original's default.
    pub const SLEEPTIME: Span = Span::from_micros(30_000);

    /// Returns the configuration of the published runs, with this number of message threads.
    #[must_use]
    pub const fn new(message_threads: usize, seed: u64, window: Window) -> Self {
        Self {
            message_threads,
            workers: None,
            cputime: Self::CPUTIME,
            sleeptime: Self::SLEEPTIME,
            depth: 0,
            seed,
            window,
        }
    }

    /// Returns the number of workers per message thread on `topology`.
    #[must_use]
    pub fn workers_on(&self, topology: &Topology) -> usize {
        self.workers.unwrap_or_else(|| (topology.cpus() / 4).max(1))
    }
}

/// All tasks are fair tasks of nice 0; the task that ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The names of the tasks' roles.
pub const ROLES: [&str; 2] = ["message_thread", "worker"];

const MESSENGER: Role = Role(0);
const WORKER: Role = Role(1);

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

described! {
    /// The list of the workers that wait for a message thread, the last to arrive first.
    struct ListWords<M: Memory> as "messenger_list" {
        /// The last worker to arrive, plus 1; 0 for an empty list. All workers of the message
        /// thread, and the message thread, write it.
        head: M::Atomic<u32>,
    }
}

described! {
    /// A worker's words.
    struct WorkerWords<M: Memory> as "schbench_worker" {
        /// The worker that arrived before, as in `head`. The worker writes it; its message thread
        /// reads it.
        next: M::Atomic<u32>,
        /// When its message thread began to wake the workers on the list, in picoseconds. The
        /// message thread writes it; the worker reads it.
        woken_at: M::Atomic<u64>,
    }
}

/// The two values of a futex's word in this workload.
const BLOCKED: u32 = 0;
const POSTED: u32 = 1;

/// Releases the present or the next waiter of `futex`.
fn post<P: Platform>(futex: &Futex<P>) {
    // Release: publishes earlier writes. Pairs with the Acquire in `wait`.
    if futex.word().swap(POSTED, Ordering::Release) == BLOCKED {
        futex.wake(1);
    }
}

/// Waits until `futex` has been posted since the last wait.
async fn wait<P: Platform>(futex: &Futex<P>) {
    // Acquire: pairs with the Release in `post`.
    while futex.word().swap(BLOCKED, Ordering::Acquire) == BLOCKED {
        futex.wait(BLOCKED).await;
    }
}

/// When a wakeup ended, and how long it took.
type Sample = (Time, Span);

/// A worker of a message thread.
struct Worker<P: Platform> {
    words: Placed<P, WorkerWords<P>>,
    futex: Futex<P>,
}

/// A message thread with its workers.
struct Crew<P: Platform> {
    runtime: Handle<P>,
    config: Config,
    list: Placed<P, ListWords<P>>,
    futex: Futex<P>,
    workers: Box<[Worker<P>]>,
}

/// The shortest step of a spin. Activity on other CPUs of the core may lengthen the step, and the
/// spin by the same time.
const STEP_MIN: Span = Span::from_micros(2);

impl<P: Platform> Crew<P> {
    /// Makes message thread number `index` with its workers.
    fn new(runtime: &Handle<P>, config: Config, index: usize) -> Self {
        let workers = config.workers_on(runtime.topology());
        let worker = |worker| {
            let words = WorkerWords { next: P::Atomic::new(0), woken_at: P::Atomic::new(0) };
            Worker {
                words: Placed::new(words, Some(index * workers + worker), None),
                futex: Futex::new(runtime, BLOCKED),
            }
        };
        Self {
            runtime: runtime.clone(),
            config,
            list: Placed::new(ListWords { head: P::Atomic::new(0) }, Some(index), None),
            futex: Futex::new(runtime, BLOCKED),
            workers: (0..workers).map(worker).collect(),
        }
    }

    /// Spins until `cputime` has passed on the clock, even if other tasks had the CPU meanwhile.
    ///
    /// `compute` takes an amount of work. On a simulated machine, it takes up to 1.6 times as long
    /// while another CPU of the core executes (`shared_core_factor`). The spin therefore proceeds
    /// in steps of half of the remaining time, so that no step ends too late. A task that was
    /// preempted reads the clock again and drops the rest of its step.
    async fn spin(&self) {
        let end = self.runtime.now() + self.config.cputime;
        poll_fn(|context| {
            loop {
                let now = self.runtime.now();
                if now >= end {
                    return Poll::Ready(());
                }
                let left = end.since(now);
                let half = Span::from_picos(left.as_picos() / 2);
                let step = self.runtime.compute(if half < STEP_MIN { left } else { half });
                if pin!(step).poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Puts a worker on the list.
    fn push(&self, worker: usize) {
        let ListWords { head } = &*self.list;
        // Relaxed: the value is not dereferenced; the exchange below fails on a stale value.
        let mut last = head.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange below publishes it.
            self.workers[worker].words.next.store(last, Ordering::Relaxed);
            // AcqRel: publishes `next`, and sees that posts were cleared; see the module. The list
            // is only taken whole, so there is no ABA problem. Relaxed on failure: as for the load
            // above.
            match head.compare_exchange(last, worker as u32 + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// Wakes all workers on the list, and clears their posts.
    async fn wake_all(&self) {
        // Relaxed: the swap below publishes it. A worker that posts from here on may be on the list
        // already; this causes one needless wakeup of the message thread.
        self.futex.word().store(BLOCKED, Ordering::Relaxed);
        // AcqRel: pairs in both directions with the exchange in `push`; see the module.
        let mut next = self.list.head.swap(0, Ordering::AcqRel);
        let now = self.runtime.now();
        while let Some(index) = next.checked_sub(1) {
            let Worker { words, futex } = &self.workers[index as usize];
            // Relaxed: `head` has published it. It is read before the post, since a posted worker
            // may push itself again.
            next = words.next.load(Ordering::Relaxed);
            // Relaxed: the post publishes it.
            words.woken_at.store(now.since(Time::START).as_picos(), Ordering::Relaxed);
            post(futex);
            self.runtime.checkpoint().await;
        }
    }

    /// Runs the message thread with random stream number `index`.
    async fn deliver(&self, index: usize) {
        let mut random = Bursts::new(self.config.seed, index as u64, 1.0);
        let Config { cputime, sleeptime, .. } = self.config;
        let round = cputime * 2 + sleeptime;
        self.runtime.sleep(Span::from_picos(random.below(round.as_picos()))).await;
        loop {
            self.wake_all().await;
            wait(&self.futex).await;
            self.spin().await;
            self.runtime.sleep(sleeptime + Span::from_picos(random.below(sleeptime.as_picos() / 4))).await;
        }
    }

    /// Runs a worker.
    async fn work(&self, worker: usize, samples: &Mutex<Vec<Sample>>) {
        let Worker { words, futex } = &self.workers[worker];
        let window = self.config.window;
        loop {
            self.spin().await;
            self.push(worker);
            post(&self.futex);
            wait(futex).await;
            let now = self.runtime.now();
            // Relaxed: the post has published it.
            let woken_at = Time::START + Span::from_picos(words.woken_at.load(Ordering::Relaxed));
            if window.batch(now).is_some() {
                samples.lock().unwrap_or_else(PoisonError::into_inner).push((now, now.since(woken_at)));
            }
        }
    }
}

/// A running workload.
#[derive(Debug)]
pub struct Schbench {
    window: Window,
    /// The samples of each worker.
    samples: Arc<[Mutex<Vec<Sample>>]>,
}

impl Schbench {
    /// Starts all message threads; each starts its workers. They run until the runtime shuts down
    /// at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        config.window.open(runtime, ENDS);
        let workers = config.workers_on(runtime.topology());
        let samples: Arc<[Mutex<Vec<Sample>>]> =
            (0..config.message_threads * workers).map(|_| Mutex::default()).collect();
        let group = nested(runtime, "schbench", config.depth);
        let role = |role| {
            let group = group.clone();
            SpawnOptions { priority: PRIORITY, cpus: None, role: Some(role), group, ..SpawnOptions::default() }
        };
        for message_thread in 0..config.message_threads {
            let crew = Arc::new(Crew::new(runtime, config, message_thread));
            let (samples, options) = (samples.clone(), role(WORKER));
            runtime.spawn(role(MESSENGER), async move {
                for worker in 0..workers {
                    let (own, samples) = (crew.clone(), samples.clone());
                    crew.runtime.spawn(options.clone(), async move {
                        own.work(worker, &samples[message_thread * workers + worker]).await;
                    });
                }
                crew.deliver(message_thread).await;
            });
        }
        Self { window: config.window, samples }
    }

    /// Returns the wakeup latencies, per worker.
    #[must_use]
    pub fn latencies(&self) -> Vec<Vec<Span>> {
        let of = |samples: &[Sample]| samples.iter().map(|&(_, latency)| latency).collect();
        self.samples.iter().map(|samples| of(&samples.lock().unwrap_or_else(PoisonError::into_inner))).collect()
    }

    /// Returns the wakeup latencies of all workers, per batch.
    #[must_use]
    pub fn latencies_by_batch(&self) -> [Vec<Span>; BATCHES] {
        let mut batches = [const { Vec::new() }; BATCHES];
        for samples in &*self.samples {
            for &(end, latency) in &*samples.lock().unwrap_or_else(PoisonError::into_inner) {
                if let Some(batch) = self.window.batch(end) {
                    batches[batch].push(latency);
                }
            }
        }
        batches
    }
}
