//! What a service sees: urgent work beside much other work, sleeps beside a blocked thread, memory
//! and CPU time of tasks that wait.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::future::{Future, pending};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::cases::{Case, Contender, Size, urgent, urgent_apart, urgent_hitm, urgent_tenant};
use crate::compare_latencies;
use crate::rivals::{AsyncExecutor, Hitm, Rival, StaticExecutor, Tokio, threads};

pub(crate) const ALL: [Case; 4] = [
    ("urgent", |case, size| {
        let contenders: [Contender<Vec<Duration>>; 10] = [
            ("hitm", urgent_hitm::<false>),
            ("hitm, over fair", urgent_hitm::<true>),
            ("hitm, short turns", urgent_tenant::<true>),
            ("hitm, same turns", urgent_tenant::<false>),
            ("hitm, equals", urgent::<Hitm>),
            ("tokio", urgent::<Tokio>),
            ("async-executor", urgent::<AsyncExecutor>),
            ("hitm, apart", urgent_apart::<Hitm>),
            ("tokio, apart", urgent_apart::<Tokio>),
            ("async-executor, apart", urgent_apart::<AsyncExecutor>),
        ];
        compare_latencies(case, size, &contenders);
    }),
    ("sleeps", |case, size| {
        let contenders: [Contender<Vec<Duration>>; 3] =
            [("hitm", sleeps::<Hitm>), ("hitm, fair", sleeps::<Hitm<true>>), ("tokio", sleeps::<Tokio>)];
        compare_latencies(case, size, &contenders);
    }),
    ("bytes", |case, size| {
        println!("{case:<14} {:<22} {:>12}", "runtime", "bytes a task");
        let show = |name, bytes: f64| println!("{:<14} {name:<22} {bytes:>12.0}", "");
        show("hitm", bytes::<Hitm>(size));
        show("hitm, fair", bytes::<Hitm<true>>(size));
        show("tokio", bytes::<Tokio>(size));
        show("async-executor", bytes::<AsyncExecutor>(size));
        show("async-executor, static", bytes::<StaticExecutor>(size));
    }),
    ("idle", |case, size| {
        println!("{case:<14} {:<22} {:>12} {:>12} {:>12}", "runtime", "idle (%)", "ticker (%)", "us a tick");
        let show = |name, [idle, ticking, each]: [f64; 3]| {
            println!("{:<14} {name:<22} {idle:>12.2} {ticking:>12.2} {each:>12.1}", "");
        };
        show("hitm", idle::<Hitm>(size));
        show("hitm, fair", idle::<Hitm<true>>(size));
        show("tokio", idle::<Tokio>(size));
    }),
];

/// A runtime with timers.
trait Sleeps: Rival {
    fn sleep(handle: &Self::Handle, span: Duration) -> impl Future<Output = ()> + Send;
}

impl<const FAIR: bool> Sleeps for Hitm<FAIR> {
    async fn sleep(handle: &Self::Handle, span: Duration) {
        handle.sleep(span).await;
    }
}

impl Sleeps for Tokio {
    async fn sleep(_: &Self::Handle, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Eight sleeps of 20 ms that begin before another task blocks its thread for 400 ms. How long each
/// takes.
fn sleeps<R: Sleeps>(size: Size) -> Vec<Duration> {
    const SLEEPS: usize = 8;
    let (span, blocked) = if size.rounds == 1 { (2, 20) } else { (20, 400) };
    let (runtime, taken) = (R::start(), Arc::new(Mutex::new(Vec::new())));
    let shared = taken.clone();
    runtime.run(move |handle| async move {
        let sleep = |_| {
            let (inner, taken) = (handle.clone(), shared.clone());
            R::spawn(&handle, async move {
                let start = Instant::now();
                R::sleep(&inner, Duration::from_millis(span)).await;
                taken.lock().unwrap_or_else(PoisonError::into_inner).push(start.elapsed());
                0
            })
        };
        let tasks: Vec<_> = (0..SLEEPS).map(sleep).collect();
        let inner = handle.clone();
        let blocks = R::spawn(&handle, async move {
            R::sleep(&inner, Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_millis(blocked));
            0
        });
        for task in tasks {
            task.await;
        }
        blocks.await
    });
    std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Counts what is allocated, while it is asked to.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed, both: statistics.
        if COUNTS.load(Ordering::Relaxed) {
            BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller's duty is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // Relaxed, both: statistics.
        if COUNTS.load(Ordering::Relaxed) {
            BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        }
        // SAFETY: the caller's duty is the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that a task takes which waits, with a future of 64 bytes and a flag.
fn bytes<R: Rival>(size: Size) -> f64 {
    let tasks = size.operations as usize / 10;
    let runtime = R::start();
    let counted = runtime.run(move |handle| async move {
        let mut joins = Vec::with_capacity(tasks);
        // What the runtime itself allocates for its first tasks is not counted.
        for _ in 0..1_000 {
            R::spawn(&handle, async { 0 }).await;
        }
        // Relaxed, all: statistics.
        BYTES.store(0, Ordering::Relaxed);
        COUNTS.store(true, Ordering::Relaxed);
        for _ in 0..tasks {
            joins.push(R::spawn(&handle, async move {
                let room = [1_u8; 64];
                pending::<()>().await;
                u64::from(black_box(room)[0])
            }));
        }
        COUNTS.store(false, Ordering::Relaxed);
        joins.into_iter().for_each(R::detach);
        BYTES.load(Ordering::Relaxed) as u64
    });
    counted as f64 / tasks as f64
}

/// Returns the CPU time of this process, where the system tells it.
fn cpu_time() -> Option<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task").ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

/// The CPU time in percent of one CPU, of a runtime without a task that runs, and of one with a
/// task that sleeps for 1 ms again and again; and the microseconds of CPU time for each tick.
fn idle<R: Sleeps>(size: Size) -> [f64; 3] {
    let span = Duration::from_millis(if size.rounds == 1 { 20 } else { 3_000 });
    let used = || cpu_time().unwrap_or_default();
    let runtime = R::start();
    runtime.run(|_| async { 0 });
    std::thread::sleep(Duration::from_millis(20));
    let before = used();
    std::thread::sleep(span);
    let idle = used() - before;
    let before = used();
    let ticks = runtime.run(|handle| async move {
        let (start, mut ticks) = (Instant::now(), 0);
        while start.elapsed() < span {
            R::sleep(&handle, Duration::from_millis(1)).await;
            ticks += 1;
        }
        ticks
    });
    let ticking = used() - before;
    let share = |used: Duration| 100.0 * used.as_secs_f64() / span.as_secs_f64();
    [share(idle), share(ticking), ticking.as_secs_f64() * 1e6 / ticks as f64]
}

/// The number of threads, for the load of the `urgent` case.
pub(crate) fn hogs() -> usize {
    100 * threads()
}
