//! The cases that are timed.

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hitm::{Priority, SpawnOptions};

use crate::rivals::{AsyncExecutor, Hitm, Pipe, Rival, Tokio, threads};
use crate::{compare, compare_latencies, kernel};

/// The amount of work.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rounds: usize,
    /// The operations per round, in cases that time them together.
    pub(crate) operations: u64,
    /// The operations per round, in cases that time each one.
    pub(crate) events: usize,
}

impl Size {
    /// Half a minute in all on two CPUs.
    pub(crate) const FULL: Self = Self { rounds: 7, operations: 100_000, events: 300 };
    /// For tests: a minimal amount.
    pub(crate) const TINY: Self = Self { rounds: 1, operations: 2_000, events: 3 };

    /// The number of round trips. They are expensive when both ends sleep, so a tenth of the
    /// operations suffices.
    pub(crate) const fn trips(self) -> u64 {
        self.operations / 10
    }

    /// The messages of a sender to each receiver.
    pub(crate) const fn loops(self) -> usize {
        self.operations as usize / (GROUP * GROUP)
    }

    /// The messages of a group.
    pub(crate) const fn messages(self) -> u64 {
        (self.loops() * GROUP * GROUP) as u64
    }
}

/// The name of a runtime, and its function for a case.
pub(crate) type Contender<T> = (&'static str, fn(Size) -> T);

/// A case: its name and what runs it.
pub(crate) type Case = (&'static str, fn(&'static str, Size));

pub(crate) const ALL: [Case; 6] = [
    ("spawn_join", |case, size| {
        let others: [Contender<f64>; 4] = [
            ("hitm", spawn_join::<Hitm>),
            ("tokio", spawn_join::<Tokio>),
            ("async-executor", spawn_join::<AsyncExecutor>),
            ("rayon", spawn_join_rayon),
        ];
        compare(case, size, &others);
    }),
    ("ping_pong", |case, size| {
        let mut others: Vec<Contender<f64>> = vec![
            ("hitm", ping_pong::<Hitm>),
            ("hitm, fair", ping_pong::<Hitm<true>>),
            ("tokio", ping_pong::<Tokio>),
            ("async-executor", ping_pong::<AsyncExecutor>),
            ("threads, pipes", kernel::ping_pong),
            ("processes, pipes", kernel::ping_pong_of_processes),
        ];
        others.extend(kernel::programs_that_ping_pong());
        compare(case, size, &others);
    }),
    ("messages", |case, size| {
        let mut others: Vec<Contender<f64>> = vec![
            ("hitm", messages::<Hitm>),
            ("hitm, fair", messages::<Hitm<true>>),
            ("tokio", messages::<Tokio>),
            ("async-executor", messages::<AsyncExecutor>),
            ("threads, pipes", kernel::messages),
        ];
        others.extend(kernel::programs_that_message());
        compare(case, size, &others);
    }),
    ("crowd", |case, size| {
        let others: [Contender<Vec<Duration>>; 5] = [
            ("hitm", crowd::<Hitm>),
            ("hitm, fair", crowd::<Hitm<true>>),
            ("tokio", crowd::<Tokio>),
            ("async-executor", crowd::<AsyncExecutor>),
            ("threads", kernel::crowd),
        ];
        compare_latencies(case, size, &others);
    }),
    ("yield_storm", |case, size| {
        let others: [Contender<f64>; 3] = [
            ("hitm", yield_storm::<Hitm>),
            ("tokio", yield_storm::<Tokio>),
            ("async-executor", yield_storm::<AsyncExecutor>),
        ];
        compare(case, size, &others);
    }),
    ("wake_latency", |case, size| {
        let others: [Contender<Vec<Duration>>; 4] = [
            ("hitm", wake_latency_urgent),
            ("hitm, equals", wake_latency::<Hitm>),
            ("tokio", wake_latency::<Tokio>),
            ("async-executor", wake_latency::<AsyncExecutor>),
        ];
        compare_latencies(case, size, &others);
    }),
];

/// Returns nanoseconds per operation, by the time that `f` measures inside the runtime.
pub(crate) fn nanos_each(operations: u64, elapsed_nanos: u64) -> f64 {
    elapsed_nanos as f64 / operations as f64
}

pub(crate) fn nanos_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// The tasks that are alive at the same time.
const BATCH: u64 = 1_000;

fn spawn_join<R: Rival>(size: Size) -> f64 {
    let runtime = R::start();
    let elapsed = runtime.run(move |handle| async move {
        let start = Instant::now();
        for _ in 0..size.operations / BATCH {
            let tasks: Vec<_> = (0..BATCH).map(|n| R::spawn(&handle, async move { black_box(n) })).collect();
            for task in tasks {
                black_box(task.await);
            }
        }
        nanos_since(start)
    });
    nanos_each(size.operations, elapsed)
}

fn spawn_join_rayon(size: Size) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads()).build().expect("threads");
    let elapsed = pool.install(|| {
        let start = Instant::now();
        for _ in 0..size.operations / BATCH {
            rayon::scope(|scope| {
                for n in 0..BATCH {
                    scope.spawn(move |_| {
                        black_box(n);
                    });
                }
            });
        }
        nanos_since(start)
    });
    nanos_each(size.operations, elapsed)
}

fn ping_pong<R: Rival>(size: Size) -> f64 {
    let trips = size.trips();
    let runtime = R::start();
    let elapsed = runtime.run(move |handle| async move {
        let (there, back) = (R::pipe(&handle, 1), R::pipe(&handle, 1));
        let (incoming, outgoing) = (there.clone(), back.clone());
        let other = R::spawn(&handle, async move {
            for _ in 0..trips {
                outgoing.send(incoming.recv().await).await;
            }
            0
        });
        let start = Instant::now();
        for trip in 0..trips {
            there.send(trip).await;
            assert_eq!(back.recv().await, trip);
        }
        let elapsed = nanos_since(start);
        other.await;
        elapsed
    });
    nanos_each(trips, elapsed)
}

/// The senders per group, and the receivers: as in hackbench.
pub(crate) const GROUP: usize = 20;
/// The bytes per message: as in hackbench.
pub(crate) const MESSAGE_BYTES: usize = 100;
/// The capacity of a pipe: 64 KiB of messages.
const CAPACITY: usize = (64 << 10) / MESSAGE_BYTES;

/// Hackbench with tasks, and queues of numbers in place of pipes.
fn messages<R: Rival>(size: Size) -> f64 {
    let loops = size.loops();
    let runtime = R::start();
    let elapsed = runtime.run(move |handle| async move {
        let queues: Vec<R::Pipe> = (0..GROUP).map(|_| R::pipe(&handle, CAPACITY)).collect();
        let start = Instant::now();
        let receive = |queue: &R::Pipe| {
            let queue = queue.clone();
            R::spawn(&handle, async move {
                for _ in 0..GROUP * loops {
                    black_box(queue.recv().await);
                }
                0
            })
        };
        let send = |_| {
            let queues = queues.clone();
            R::spawn(&handle, async move {
                for queue in (0..loops).flat_map(|_| &queues) {
                    queue.send(1).await;
                }
                0
            })
        };
        let mut tasks: Vec<_> = queues.iter().map(receive).collect();
        tasks.extend((0..GROUP).map(send));
        for task in tasks {
            task.await;
        }
        nanos_since(start)
    });
    nanos_each(size.messages(), elapsed)
}

/// The workers per thread, in `crowd`.
pub(crate) const WORKERS: usize = 4;

/// One task wakes many tasks at once, which then work. Measures from the first wake until each task
/// ran.
fn crowd<R: Rival>(size: Size) -> Vec<Duration> {
    let (runtime, latencies) = (R::start(), Arc::new(Mutex::new(Vec::new())));
    let shared = latencies.clone();
    runtime.run(move |handle| async move {
        let (epoch, workers) = (Instant::now(), WORKERS * threads());
        let done = R::pipe(&handle, workers);
        let worker = |_| {
            let (woken, done) = (R::pipe(&handle, 1), done.clone());
            let wake = woken.clone();
            let task = R::spawn(&handle, async move {
                for _ in 0..size.events {
                    let since = woken.recv().await;
                    let latency = nanos_since(epoch) - since;
                    work();
                    done.send(latency).await;
                }
                0
            });
            (wake, task)
        };
        let (wakes, tasks): (Vec<_>, Vec<_>) = (0..workers).map(worker).unzip();
        for _ in 0..size.events {
            let now = nanos_since(epoch);
            for wake in &wakes {
                wake.send(now).await;
            }
            for _ in 0..workers {
                let latency = Duration::from_nanos(done.recv().await);
                shared.lock().expect("no holder panics").push(latency);
            }
        }
        for task in tasks {
            task.await;
        }
        0
    });
    std::mem::take(&mut *latencies.lock().expect("no holder panics"))
}

fn yield_storm<R: Rival>(size: Size) -> f64 {
    const TASKS: u64 = 64;
    let yields = size.operations / TASKS;
    let runtime = R::start();
    let elapsed = runtime.run(move |handle| async move {
        let start = Instant::now();
        let task = |_| {
            let inner = handle.clone();
            R::spawn(&handle, async move {
                for _ in 0..yields {
                    R::yield_now(&inner).await;
                }
                0
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        for task in tasks {
            task.await;
        }
        nanos_since(start)
    });
    nanos_each(yields * TASKS, elapsed)
}

/// A piece of the load's work.
const PIECE: Duration = Duration::from_micros(50);

/// The tasks of the load per thread.
const LOAD: usize = 4;

/// The longest that a run waits for events. Where the waiting task is one among 200 equals, an
/// event takes tens of milliseconds, and all of them would take minutes.
const MOST: Duration = Duration::from_secs(2);

/// The time between two events: long enough for the last one to be over.
const BETWEEN: Duration = Duration::from_millis(1);

pub(crate) fn work() {
    work_for(PIECE);
}

fn work_for(piece: Duration) {
    let start = Instant::now();
    while start.elapsed() < piece {
        black_box(start);
    }
}

/// The load beside a task that waits for events: tasks, and how long each works at a time.
#[derive(Clone, Copy)]
struct Hogs(usize, Duration);

impl Hogs {
    fn usual() -> Self {
        Self(LOAD * threads(), PIECE)
    }

    fn many() -> Self {
        Self(crate::services::hogs(), 2 * PIECE)
    }

    /// Spawns the load: it works until it is `over`.
    fn spawn<R: Rival>(self, handle: &R::Handle, over: &Arc<AtomicBool>) -> Vec<R::Join> {
        let Self(hogs, piece) = self;
        let load = |_| {
            let (inner, over) = (handle.clone(), over.clone());
            R::spawn(handle, async move {
                // Relaxed: a flag.
                while !over.load(Ordering::Relaxed) {
                    work_for(piece);
                    R::yield_now(&inner).await;
                }
                0
            })
        };
        (0..hogs).map(load).collect()
    }
}

/// An event that a thread causes and a task waits for.
#[derive(Default)]
struct Event(Mutex<(Option<Instant>, Option<Waker>)>);

impl Event {
    fn happen(&self) {
        let waker = {
            let mut event = self.0.lock().expect("no holder panics");
            event.0 = Some(Instant::now());
            event.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the event; returns how long ago it happened.
    async fn wait(&self) -> Duration {
        poll_fn(|context| {
            let mut event = self.0.lock().expect("no holder panics");
            match event.0.take() {
                Some(at) => Poll::Ready(at.elapsed()),
                None => {
                    event.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// One run of the case: causes the events while `run` runs the waiting task and the load.
fn with_events(size: Size, run: impl FnOnce(Arc<Event>, Arc<AtomicBool>) -> Vec<Duration>) -> Vec<Duration> {
    let (event, over) = (Arc::new(Event::default()), Arc::new(AtomicBool::new(false)));
    let (happens, ends) = (event.clone(), over.clone());
    let source = std::thread::spawn(move || {
        // Relaxed: a flag.
        while !ends.load(Ordering::Relaxed) {
            std::thread::sleep(BETWEEN);
            happens.happen();
        }
    });
    let latencies = run(event, over);
    source.join().expect("it does not panic");
    assert!((1..=size.events).contains(&latencies.len()));
    latencies
}

/// Waits for the events, then ends the load.
async fn listen(size: Size, event: Arc<Event>, over: Arc<AtomicBool>, latencies: Arc<Mutex<Vec<Duration>>>) {
    let begin = Instant::now();
    for _ in 0..size.events {
        let latency = event.wait().await;
        latencies.lock().expect("no holder panics").push(latency);
        if begin.elapsed() > MOST {
            break;
        }
    }
    // Relaxed: a flag.
    over.store(true, Ordering::Relaxed);
}

fn wake_latency<R: Rival>(size: Size) -> Vec<Duration> {
    latency::<R>(size, Hogs::usual())
}

/// As `wake_latency`, among 100 tasks per thread that work 100 us at a time.
pub(crate) fn urgent<R: Rival>(size: Size) -> Vec<Duration> {
    latency::<R>(size, Hogs::many())
}

fn latency<R: Rival>(size: Size, hogs: Hogs) -> Vec<Duration> {
    with_events(size, |event, over| {
        let (runtime, latencies) = (R::start(), Arc::new(Mutex::new(Vec::new())));
        let shared = latencies.clone();
        runtime.run(move |handle| async move {
            let tasks = hogs.spawn::<R>(&handle, &over);
            R::spawn(&handle, async move {
                listen(size, event, over, shared).await;
                0
            })
            .await;
            for task in tasks {
                task.await;
            }
            0
        });
        std::mem::take(&mut *latencies.lock().expect("no holder panics"))
    })
}

/// As `urgent`, but the task that waits for events is on a runtime of its own, with one thread.
pub(crate) fn urgent_apart<R: Rival>(size: Size) -> Vec<Duration> {
    with_events(size, |event, over| {
        let (runtime, latencies) = (R::start(), Arc::new(Mutex::new(Vec::new())));
        let (shared, ends) = (latencies.clone(), over.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                R::start_beside().run(move |_| async move {
                    listen(size, event, ends, shared).await;
                    0
                })
            });
            runtime.run(move |handle| async move {
                for task in Hogs::many().spawn::<R>(&handle, &over) {
                    task.await;
                }
                0
            });
        });
        std::mem::take(&mut *latencies.lock().expect("no holder panics"))
    })
}

fn wake_latency_urgent(size: Size) -> Vec<Duration> {
    latency_urgent(size, Hogs::usual(), by_priority(Priority::default()))
}

/// As `urgent`, with a priority.
pub(crate) fn urgent_hitm<const FAIR: bool>(size: Size) -> Vec<Duration> {
    latency_urgent(size, Hogs::many(), by_priority(if FAIR { Priority::fair(0) } else { Priority::default() }))
}

/// As `urgent`, as a tenant beside four that have the hogs. It has most of the weight, and needs
/// little time. If SHORT, its turns are the shortest.
pub(crate) fn urgent_tenant<const SHORT: bool>(size: Size) -> Vec<Duration> {
    latency_urgent(size, Hogs::many(), |handle| {
        let tenant = |number: usize| SpawnOptions::from(Priority::fair(0)).within(&handle.group(number.to_string()));
        let urgent = handle.group("urgent").weight(1_000).expect("a weight");
        if SHORT {
            urgent.slice(Duration::from_micros(100)).expect("a slice");
        }
        (SpawnOptions::from(Priority::fair(0)).within(&urgent), (0..4).map(tenant).collect())
    })
}

/// The options of the urgent task, and of the hogs: these take turns.
type Roles = (SpawnOptions, Vec<SpawnOptions>);

fn by_priority(others: Priority) -> impl Fn(&<Hitm as Rival>::Handle) -> Roles + Sync {
    move |_| (Priority::fifo(90).into(), vec![others.into()])
}

fn latency_urgent(
    size: Size,
    Hogs(hogs, piece): Hogs,
    roles: impl Fn(&<Hitm as Rival>::Handle) -> Roles + Sync,
) -> Vec<Duration> {
    with_events(size, |event, over| {
        let (runtime, latencies) = (<Hitm>::start(), Arc::new(Mutex::new(Vec::new())));
        let (shared, roles) = (latencies.clone(), &roles);
        runtime.run(move |handle| {
            let (urgent, others) = roles(&handle);
            async move {
                let waits = handle.spawn(urgent, listen(size, event, over.clone(), shared));
                let load = |number: usize| {
                    let (inner, over) = (handle.clone(), over.clone());
                    handle.spawn(others[number % others.len()].clone(), async move {
                        // Relaxed: a flag.
                        while !over.load(Ordering::Relaxed) {
                            work_for(piece);
                            inner.checkpoint().await;
                        }
                    })
                };
                let tasks: Vec<_> = (0..hogs).map(load).collect();
                waits.await.expect("it does not panic");
                for task in tasks {
                    task.await.expect("it does not panic");
                }
                0
            }
        });
        std::mem::take(&mut *latencies.lock().expect("no holder panics"))
    })
}
