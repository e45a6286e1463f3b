//! The shapes of async-executor's and Tokio's own benchmarks, written once for every runtime.
//!
//! All runtimes use the same channel, async-channel's, so that a row compares the runtimes alone.
//! `fork_join` is the recursion of Rayon's benchmarks.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::time::Instant;

use async_channel::{Receiver, Sender, bounded, unbounded};
use hitm::{NativeRuntime, Priority};

use crate::cases::{Contender, Size, nanos_each, nanos_since};
use crate::rivals::{AsyncExecutor, Hitm, Rival, StaticExecutor, Tokio, threads};
use crate::{Row, compare};

/// hitm twice, then its peers.
macro_rules! contenders {
    ($run:ident) => {
        [
            ("hitm", $run::<Hitm> as fn(Size) -> f64),
            ("hitm, fair", $run::<Hitm<true>>),
            ("tokio", $run::<Tokio>),
            ("async-executor", $run::<AsyncExecutor>),
            ("async-executor, static", $run::<StaticExecutor>),
        ]
    };
}

/// Compares one row of the suites. Ratios are to the best peer of the same round.
fn suite(case: &str, size: Size, contenders: &[Contender<f64>]) {
    let mut rows: Vec<Row> = contenders.iter().map(|&(name, _)| Row::new(name)).collect();
    for _ in 0..size.rounds {
        for (row, (_, run)) in rows.iter_mut().zip(contenders) {
            row.nanos.push(run(size));
        }
    }
    let best = |round: usize| rows[2..].iter().map(|row| row.nanos[round]).fold(f64::INFINITY, f64::min);
    let best: Vec<f64> = (0..size.rounds).map(best).collect();
    println!("{case:<14} {:<22} {:>12} {:>24}", "runtime", "median (ns)", "over best peer [quarters]");
    for row in &mut rows {
        let mut ratios: Vec<f64> = row.nanos.iter().zip(&best).map(|(nanos, best)| nanos / best).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
        let nanos = crate::median(&mut row.nanos);
        println!("{:<14} {:<22} {nanos:>12.0} {:>10.2} [{:.2} {:.2}]", "", row.name, at(2), at(1), at(3));
    }
}

pub(crate) const ALL: [crate::cases::Case; 13] = [
    ("spawn_one", |case, size| suite(case, size, &contenders!(spawn_one))),
    ("spawn_outside", |case, size| suite(case, size, &contenders!(spawn_outside))),
    ("spawn_many", |case, size| suite(case, size, &contenders!(spawn_many))),
    ("recursive", |case, size| suite(case, size, &contenders!(recursive))),
    ("chained", |case, size| suite(case, size, &contenders!(chained))),
    ("yield", |case, size| suite(case, size, &contenders!(yields))),
    ("pair", |case, size| suite(case, size, &contenders!(pair))),
    ("pairs", |case, size| suite(case, size, &contenders!(pairs))),
    ("ring", |case, size| suite(case, size, &contenders!(ring))),
    ("fan_in", |case, size| suite(case, size, &contenders!(fan_in))),
    ("web_server", |case, size| suite(case, size, &contenders!(web_server))),
    ("million", |case, size| suite(case, size, &contenders!(million))),
    ("fork_join", |case, size| {
        let contenders: [Contender<f64>; 5] = [
            ("hitm", |size| fork_join_hitm(size, Priority::default())),
            ("hitm, fair", |size| fork_join_hitm(size, Priority::fair(0))),
            ("hitm, tasks", fork_join::<Hitm>),
            ("tokio, tasks", fork_join::<Tokio>),
            ("rayon", fork_join_rayon),
        ];
        compare(case, size, &contenders);
    }),
];

/// Runs `main` as a task of a new runtime; returns the nanoseconds per operation that it took.
fn inside<R: Rival, F>(operations: u64, main: impl FnOnce(R::Handle) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = R::start();
    let elapsed = runtime.run_as_others(|handle| {
        let main = main(handle);
        async move {
            let start = Instant::now();
            main.await;
            nanos_since(start)
        }
    });
    nanos_each(operations, elapsed)
}

/// A task that is spawned and awaited, one at a time.
fn spawn_one<R: Rival>(size: Size) -> f64 {
    let tasks = size.operations;
    inside::<R, _>(tasks, |handle| async move {
        for n in 0..tasks {
            black_box(R::spawn(&handle, async move { n }).await);
        }
    })
}

/// As `spawn_one`, by a thread that is not the runtime's.
fn spawn_outside<R: Rival>(size: Size) -> f64 {
    let tasks = size.trips();
    let runtime = R::start();
    let start = Instant::now();
    for n in 0..tasks {
        black_box(runtime.run_as_others(|_| async move { n }));
    }
    nanos_each(tasks, nanos_since(start))
}

/// Tasks that are spawned together and then awaited.
fn spawn_many<R: Rival>(size: Size) -> f64 {
    const MANY: u64 = 250;
    let rounds = size.operations / MANY;
    inside::<R, _>(rounds * MANY, |handle| async move {
        let mut tasks = Vec::with_capacity(MANY as usize);
        for _ in 0..rounds {
            tasks.extend((0..MANY).map(|n| R::spawn(&handle, async move { n })));
            for task in tasks.drain(..) {
                black_box(task.await);
            }
        }
    })
}

type Boxed = Pin<Box<dyn Future<Output = u64> + Send>>;

/// A task that spawns a task and awaits it, and so on.
fn recursive<R: Rival>(size: Size) -> f64 {
    const DEPTH: u64 = 100;
    fn go<R: Rival>(handle: R::Handle, depth: u64) -> Boxed {
        Box::pin(async move {
            if depth == 0 {
                return 0;
            }
            let below = go::<R>(handle.clone(), depth - 1);
            R::spawn(&handle, below).await + 1
        })
    }
    let chains = size.operations / DEPTH;
    inside::<R, _>(chains * DEPTH, |handle| async move {
        for _ in 0..chains / 10 {
            let tasks: Vec<_> = (0..10).map(|_| R::spawn(&handle, go::<R>(handle.clone(), DEPTH))).collect();
            for task in tasks {
                assert_eq!(task.await, DEPTH);
            }
        }
    })
}

/// A task that spawns the next one and ends; the last one tells the first.
fn chained<R: Rival>(size: Size) -> f64 {
    fn go<R: Rival>(handle: R::Handle, done: Sender<u64>, left: u64) -> Boxed {
        Box::pin(async move {
            if left == 0 {
                done.send(0).await.expect("it is open");
            } else {
                let next = go::<R>(handle.clone(), done, left - 1);
                R::detach(R::spawn(&handle, next));
            }
            0
        })
    }
    const LENGTH: u64 = 1_000;
    let chains = size.operations / LENGTH;
    inside::<R, _>(chains * LENGTH, |handle| async move {
        let (done, all_done) = bounded(1);
        for _ in 0..chains {
            R::detach(R::spawn(&handle, go::<R>(handle.clone(), done.clone(), LENGTH)));
            all_done.recv().await.expect("it is open");
        }
    })
}

/// A yield of one of 50 tasks.
fn yields<R: Rival>(size: Size) -> f64 {
    const TASKS: u64 = 50;
    let each = size.operations / TASKS;
    inside::<R, _>(each * TASKS, |handle| async move {
        let task = |_| {
            let inner = handle.clone();
            R::spawn(&handle, async move {
                for _ in 0..each {
                    R::yield_now(&inner).await;
                }
                0
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        for task in tasks {
            task.await;
        }
    })
}

async fn answer(there: Receiver<u64>, back: Sender<u64>) -> u64 {
    while let Ok(item) = there.recv().await {
        if back.send(item).await.is_err() {
            break;
        }
    }
    0
}

async fn ask<R: Rival>(handle: R::Handle, trips: u64) -> u64 {
    let (there, arrives) = bounded(1);
    let (returns, back) = bounded(1);
    let other = R::spawn(&handle, answer(arrives, returns));
    for trip in 0..trips {
        there.send(trip).await.expect("it is open");
        assert_eq!(back.recv().await, Ok(trip));
    }
    drop(there);
    other.await
}

/// A number goes from one task to another and back.
fn pair<R: Rival>(size: Size) -> f64 {
    let trips = size.operations;
    inside::<R, _>(trips, |handle| async move {
        ask::<R>(handle, trips).await;
    })
}

/// As `pair`, sixteen pairs at once.
fn pairs<R: Rival>(size: Size) -> f64 {
    const PAIRS: u64 = 16;
    let trips = size.operations / PAIRS;
    inside::<R, _>(trips * PAIRS, |handle| async move {
        let pairs: Vec<_> = (0..PAIRS).map(|_| R::spawn(&handle, ask::<R>(handle.clone(), trips))).collect();
        for pair in pairs {
            pair.await;
        }
    })
}

/// A number goes round 300 tasks; each passes it to the next.
fn ring<R: Rival>(size: Size) -> f64 {
    const TASKS: u64 = 300;
    let rounds = size.operations / TASKS;
    inside::<R, _>(rounds * TASKS, |handle| async move {
        let (first, mut before) = bounded(1);
        for _ in 0..TASKS {
            let (next, after) = bounded(1);
            R::detach(R::spawn(&handle, answer(std::mem::replace(&mut before, after), next)));
        }
        for round in 0..rounds {
            first.send(round).await.expect("it is open");
            assert_eq!(before.recv().await, Ok(round));
        }
    })
}

/// A message of one of four senders to one receiver, with room for 64.
fn fan_in<R: Rival>(size: Size) -> f64 {
    const SENDERS: u64 = 4;
    let each = size.operations / SENDERS;
    inside::<R, _>(each * SENDERS, |handle| async move {
        let (sender, receiver) = bounded(64);
        for _ in 0..SENDERS {
            let sender = sender.clone();
            R::detach(R::spawn(&handle, async move {
                for item in 0..each {
                    sender.send(item).await.expect("it is open");
                }
                0
            }));
        }
        drop(sender);
        while let Ok(item) = receiver.recv().await {
            black_box(item);
        }
    })
}

/// A request: the server spawns a task for it, which asks a database task and answers the client.
fn web_server<R: Rival>(size: Size) -> f64 {
    const CLIENTS: u64 = 16;
    let each = size.operations / CLIENTS / 4;
    inside::<R, _>(each * CLIENTS, |handle| async move {
        let (query, queries) = unbounded::<(u64, Sender<u64>)>();
        R::detach(R::spawn(&handle, async move {
            while let Ok((key, reply)) = queries.recv().await {
                reply.send(key + 1).await.expect("it waits");
            }
            0
        }));
        let (connect, connections) = unbounded::<(u64, Sender<u64>)>();
        let server = handle.clone();
        R::detach(R::spawn(&handle, async move {
            while let Ok((key, client)) = connections.recv().await {
                let query = query.clone();
                R::detach(R::spawn(&server, async move {
                    let (reply, replies) = bounded(1);
                    query.send((key, reply)).await.expect("it is open");
                    let value = replies.recv().await.expect("it answers");
                    client.send(value).await.expect("it waits");
                    0
                }));
            }
            0
        }));
        let client = |_| {
            let connect = connect.clone();
            R::spawn(&handle, async move {
                for key in 0..each {
                    let (reply, replies) = bounded(1);
                    connect.send((key, reply)).await.expect("it is open");
                    assert_eq!(replies.recv().await, Ok(key + 1));
                }
                0
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in clients {
            client.await;
        }
    })
}

/// Tasks that all live at once.
fn million<R: Rival>(size: Size) -> f64 {
    let tasks = size.operations * 10;
    inside::<R, _>(tasks, |handle| async move {
        let tasks: Vec<_> = (0..tasks).map(|n| R::spawn(&handle, async move { n })).collect();
        for task in tasks {
            black_box(task.await);
        }
    })
}

const FIB: u64 = 20;

fn calls(n: u64) -> u64 {
    if n < 2 { 1 } else { 1 + calls(n - 1) + calls(n - 2) }
}

/// One call of a Fibonacci number by recursion, one half of it as a task.
fn fork_join<R: Rival>(size: Size) -> f64 {
    fn fib<R: Rival>(handle: R::Handle, n: u64) -> Boxed {
        Box::pin(async move {
            if n < 2 {
                return n;
            }
            let one = R::spawn(&handle, fib::<R>(handle.clone(), n - 1));
            fib::<R>(handle.clone(), n - 2).await + one.await
        })
    }
    let n = if size.rounds == 1 { 5 } else { FIB };
    inside::<R, _>(calls(n), |handle| async move {
        black_box(fib::<R>(handle, n).await);
    })
}

/// The same recursion by closures.
fn fork_join_hitm(size: Size, priority: Priority) -> f64 {
    fn fib(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (one, other) = hitm::join(|| fib(n - 1), || fib(n - 2));
        one + other
    }
    let n = if size.rounds == 1 { 5 } else { FIB };
    let runtime = NativeRuntime::this_machine().expect("threads");
    let task = runtime.handle().spawn(priority, async move {
        let start = Instant::now();
        black_box(fib(n));
        nanos_since(start)
    });
    nanos_each(calls(n), runtime.block_on(task).expect("it does not panic"))
}

fn fork_join_rayon(size: Size) -> f64 {
    fn fib(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (one, other) = rayon::join(|| fib(n - 1), || fib(n - 2));
        one + other
    }
    let n = if size.rounds == 1 { 5 } else { FIB };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads()).build().expect("threads");
    let elapsed = pool.install(|| {
        let start = Instant::now();
        black_box(fib(n));
        nanos_since(start)
    });
    nanos_each(calls(n), elapsed)
}
