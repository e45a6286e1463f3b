//! `schbench`: workers that spin and sleep, and messengers that wake them all at once: fair tasks.
//!
//! **Origin.** Chris Mason's schbench in its revisions up to September 2021, the ones that the results of seed 004 fit: `schbench -m M -t T`
//! with spins and sleeps of 30 ms. Later programs of the name measure something else.
//!
//! | who | over and over |
//! |---|---|
//! | a worker | spins for [`Config::cputime`]; puts itself on its messenger's list; posts the messenger; sleeps until it is posted |
//! | a messenger | forgets posts; takes the whole list, notes the time, posts each worker on it; sleeps until it is posted; spins for [`Config::cputime`]; sleeps for [`Config::sleeptime`] and up to a quarter of it more |
//!
//! Spins are of the clock, not of work: whoever is preempted meanwhile has the less left.
//!
//! **Metric.** The wakeup latency: from the time that the messenger noted until the worker runs again and looks at the clock. It has in it what
//! the messenger takes to wake those before on the list. Judged is the 99th percentile of the samples that end in the window.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | worker, compare-exchange of `head` | messenger, swap of `head` | `next` of the worker and of those that pushed before it: each continues the release sequence of the one before |
//! | messenger, swap of `head` | worker that comes after it, compare-exchange of `head` | that posts were forgotten before: the worker's own post is not |
//! | who posts, swap of the futex's word | who waits, swap of the word | what was done before: to a messenger the list, to a worker `woken_at` |
//!
//! **Differences.** Each messenger begins at a time that the seed draws from a round. The original's all begin at once, and take hundreds of
//! rounds, most of its run, to drift apart.
//!
//! **What is left out.** What the clock's reads and the histogram's update take; the creation of threads, since a task's beginning costs less; the main thread,
//! which sleeps.

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

/// What a run of the workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many messengers.
    pub messengers: usize,
    /// How many workers each has; none for a quarter of the CPUs.
    pub workers: Option<usize>,
    /// How long workers and messengers spin.
    pub cputime: Span,
    /// How long a messenger sleeps at least.
    pub sleeptime: Span,
    /// How deep the group of all tasks is: 0 for no group, 1 for a group, 2 for a group in a group.
    pub depth: usize,
    /// Seeds what it sleeps beyond that.
    pub seed: u64,
    /// When to measure.
    pub window: Window,
}

impl Config {
    /// The original's default, of workers and of messengers.
    pub const CPUTIME: Span = Span::from_micros(30_000);
    /// The original's default.
    pub const SLEEPTIME: Span = Span::from_micros(30_000);

    /// As the seed ran it, with so many messengers.
    #[must_use]
    pub const fn new(messengers: usize, seed: u64, window: Window) -> Self {
        Self { messengers, workers: None, cputime: Self::CPUTIME, sleeptime: Self::SLEEPTIME, depth: 0, seed, window }
    }

    /// How many workers a messenger has on `topology`.
    #[must_use]
    pub fn workers_on(&self, topology: &Topology) -> usize {
        self.workers.unwrap_or_else(|| (topology.cpus() / 4).max(1))
    }
}

/// All are fair tasks of nice 0; who ends the run is more urgent.
const PRIORITY: Priority = Priority::fair(0);
const ENDS: Priority = Priority::fifo(99);

/// The roles that tasks are counted as.
pub const ROLES: [&str; 2] = ["messenger", "worker"];

const MESSENGER: Role = Role(0);
const WORKER: Role = Role(1);

/// Counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

described! {
    /// Who waits for a messenger, the last to come first.
    struct ListWords<M: Memory> as "messenger_list" {
        /// The last worker to come, counted from 1; 0 for nobody. Written by all workers of the messenger, and by it.
        head: M::Atomic<u32>,
    }
}

described! {
    /// A worker's words.
    struct WorkerWords<M: Memory> as "schbench_worker" {
        /// Who came before it, as in `head`. Written by the worker, read by its messenger.
        next: M::Atomic<u32>,
        /// When its messenger began to wake those on the list, in picoseconds. Written by the messenger, read by the worker.
        woken_at: M::Atomic<u64>,
    }
}

/// The two values of a futex's word here.
const BLOCKED: u32 = 0;
const POSTED: u32 = 1;

/// Lets whoever waits for `futex` go, or who next will.
fn post<P: Platform>(futex: &Futex<P>) {
    // Release: publishes what was done before. Pairs with the Acquire in `wait`.
    if futex.word().swap(POSTED, Ordering::Release) == BLOCKED {
        futex.wake(1);
    }
}

/// Waits until `futex` was posted since the last wait.
async fn wait<P: Platform>(futex: &Futex<P>) {
    // Acquire: pairs with the Release in `post`.
    while futex.word().swap(BLOCKED, Ordering::Acquire) == BLOCKED {
        futex.wait(BLOCKED).await;
    }
}

/// When a wakeup ended, and how long it took.
type Sample = (Time, Span);

/// A messenger's worker.
struct Worker<P: Platform> {
    words: Placed<P, WorkerWords<P>>,
    futex: Futex<P>,
}

/// A messenger with its workers.
struct Crew<P: Platform> {
    runtime: Handle<P>,
    config: Config,
    list: Placed<P, ListWords<P>>,
    futex: Futex<P>,
    workers: Box<[Worker<P>]>,
}

/// The shortest step of a spin. It may take longer by what other CPUs of the core add, and so may the spin.
const STEP_MIN: Span = Span::from_micros(2);

impl<P: Platform> Crew<P> {
    /// The `index`th messenger's.
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

    /// Spins until `cputime` has passed on the clock, whoever had the CPU meanwhile.
    ///
    /// `compute` takes an amount of work, which on a simulated machine takes up to 1.6 times as long while another CPU of the core executes
    /// (`shared_core_factor`). So it is done in steps of half of what is left: none ends too late. Who was preempted looks
    /// at the clock anew, and gives up what was left of the step.
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
        // Relaxed: nothing is read by way of it; a stale one fails below.
        let mut last = head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange below.
            self.workers[worker].words.next.store(last, Ordering::Relaxed);
            // AcqRel: publishes `next`, and sees that posts were forgotten; see the module. A list that is taken whole has no ABA.
            // Relaxed on failure: as above.
            match head.compare_exchange(last, worker as u32 + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// Wakes all who are on the list, and forgets what they posted.
    async fn wake_all(&self) {
        // Relaxed: published by the swap below. Who posts from here on may be on the list: one wakeup of the messenger in vain.
        self.futex.word().store(BLOCKED, Ordering::Relaxed);
        // AcqRel: pairs with the exchange in `push`, both ways; see the module.
        let mut next = self.list.head.swap(0, Ordering::AcqRel);
        let now = self.runtime.now();
        while let Some(index) = next.checked_sub(1) {
            let Worker { words, futex } = &self.workers[index as usize];
            // Relaxed: `head` has published it. Read first: who is posted may push itself anew.
            next = words.next.load(Ordering::Relaxed);
            // Relaxed: published by the post.
            words.woken_at.store(now.since(Time::START).as_picos(), Ordering::Relaxed);
            post(futex);
            self.runtime.checkpoint().await;
        }
    }

    /// The life of the messenger, whose random numbers are the `index`th.
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

    /// The life of a worker.
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

/// The workload, running.
#[derive(Debug)]
pub struct Schbench {
    window: Window,
    /// By worker.
    samples: Arc<[Mutex<Vec<Sample>>]>,
}

impl Schbench {
    /// Starts all messengers, each of which starts its workers. They run until the runtime shuts down, at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        config.window.open(runtime, ENDS);
        let workers = config.workers_on(runtime.topology());
        let samples: Arc<[Mutex<Vec<Sample>>]> = (0..config.messengers * workers).map(|_| Mutex::default()).collect();
        let group = nested(runtime, "schbench", config.depth);
        let role = |role| {
            let group = group.clone();
            SpawnOptions { priority: PRIORITY, cpus: None, role: Some(role), tenant: None, group }
        };
        for messenger in 0..config.messengers {
            let crew = Arc::new(Crew::new(runtime, config, messenger));
            let (samples, options) = (samples.clone(), role(WORKER));
            runtime.spawn(role(MESSENGER), async move {
                for worker in 0..workers {
                    let (own, samples) = (crew.clone(), samples.clone());
                    crew.runtime.spawn(options.clone(), async move {
                        own.work(worker, &samples[messenger * workers + worker]).await;
                    });
                }
                crew.deliver(messenger).await;
            });
        }
        Self { window: config.window, samples }
    }

    /// How long wakeups took, by worker.
    #[must_use]
    pub fn latencies(&self) -> Vec<Vec<Span>> {
        let of = |samples: &[Sample]| samples.iter().map(|&(_, latency)| latency).collect();
        self.samples.iter().map(|samples| of(&samples.lock().unwrap_or_else(PoisonError::into_inner))).collect()
    }

    /// The same of all workers, by batch.
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
