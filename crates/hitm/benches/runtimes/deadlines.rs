//! Requests with deadlines, in bursts: how many are late.
//!
//! A burst has 40 requests per thread, and each works for 100 us, so the threads need 4 ms for it.
//! Every fifth request is *hurried*: its deadline is 1.5 ms after the burst began, and all hurried
//! requests together take 0.8 ms. The others are *patient*: they have 10 ms. The next burst begins
//! when all requests have ended. A request that works is not interrupted.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use hitm::{Group, Priority, SpawnOptions};

use crate::cases::{Case, Contender, Size, work};
use crate::rivals::{AsyncExecutor, Hitm, Rival, Tokio, threads};

/// Requests per thread and burst.
const BURST: usize = 40;

/// One request of so many is hurried.
const HURRIED_EVERY: usize = 5;

/// The time from the beginning of a burst to the deadlines: of hurried and of patient requests.
const DEADLINES: [Duration; 2] = [Duration::from_micros(1_500), Duration::from_millis(10)];

/// Bursts per round.
const BURSTS: usize = 20;

pub(crate) const ALL: [Case; 1] = [("deadlines", |case, size| {
    println!("{case:<14} {:<22} {:>14} {:>14}", "late, percent", "hurried", "patient");
    let contenders: [Contender<Late>; 5] = [
        ("hitm, by deadline", by_deadline),
        ("hitm", late::<Hitm>),
        ("hitm, fair", late::<Hitm<true>>),
        ("tokio", late::<Tokio>),
        ("async-executor", late::<AsyncExecutor>),
    ];
    let mut sums = contenders.map(|(name, run)| (name, run, [0; 2]));
    for _ in 0..size.rounds {
        for (_, run, sum) in &mut sums {
            let late = run(size);
            *sum = [sum[0] + late[0], sum[1] + late[1]];
        }
    }
    let hurried = bursts(size) * threads() * BURST / HURRIED_EVERY * size.rounds;
    for (name, _, late) in sums {
        let percent = |late: u64, all: usize| 100.0 * late as f64 / all as f64;
        let patient = hurried * (HURRIED_EVERY - 1);
        println!("{:<14} {name:<22} {:>14.1} {:>14.1}", "", percent(late[0], hurried), percent(late[1], patient));
    }
})];

/// How many requests were late: hurried and patient ones.
type Late = [u64; 2];

type Request = Pin<Box<dyn Future<Output = u64> + Send>>;

fn bursts(size: Size) -> usize {
    if size.rounds == 1 { 1 } else { BURSTS }
}

fn late<R: Rival>(size: Size) -> Late {
    serve(&R::start(), size, |_| (), |handle, (), _, request| R::spawn(handle, request))
}

/// As fair tasks of a deadline group.
fn by_deadline(size: Size) -> Late {
    let group = |handle: &<Hitm as Rival>::Handle| handle.deadline_group("requests");
    serve(&Hitm::<true>::start(), size, group, |handle, group: &Group, deadline, request| {
        let options = SpawnOptions::from(Priority::fair(0)).within(group).due(handle.now() + deadline);
        Hitm::<true>::spawn_with(handle, options, request)
    })
}

/// Serves the bursts. `prepare` makes what `spawn` needs. `spawn` gets the time that is left to the
/// deadline.
fn serve<R: Rival, S: Send + 'static>(
    runtime: &R,
    size: Size,
    prepare: impl FnOnce(&R::Handle) -> S + Send + 'static,
    spawn: impl Fn(&R::Handle, &S, Duration, Request) -> R::Join + Send + 'static,
) -> Late {
    let both = runtime.run(move |handle| async move {
        let (shared, mut late) = (prepare(&handle), [0; 2]);
        for burst in 0..bursts(size) {
            let start = Instant::now();
            let request = |number: usize| {
                // At another place in each burst.
                let kind = usize::from(!(number + burst).is_multiple_of(HURRIED_EVERY));
                let deadline = start + DEADLINES[kind];
                let request = Box::pin(async move {
                    work();
                    work();
                    u64::from(Instant::now() > deadline)
                });
                let left = deadline.saturating_duration_since(Instant::now());
                (kind, spawn(&handle, &shared, left, request))
            };
            for (kind, task) in (0..threads() * BURST).map(request).collect::<Vec<_>>() {
                late[kind] += task.await;
            }
        }
        late[0] << 32 | late[1]
    });
    [both >> 32, both & u64::from(u32::MAX)]
}
