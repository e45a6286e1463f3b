//! Operations of a runtime on any number of CPUs, by hitm, Tokio and Rayon: how many are made per
//! second.
//!
//! The tasks share nothing, so whatever they wait for belongs to the runtime. `spawn`: one task per
//! CPU spawns a task that does nothing, and joins it. `yield`: four tasks per CPU yield to each
//! other; a yield counts if another task ran on the thread since the task's last one. `ping-pong`:
//! one pair per CPU sends a number back and forth through two channels of capacity one, those of
//! the crate async-channel for all runtimes. `join`: one task computes the 25th Fibonacci number by
//! recursion, again and again; the two halves of each step are closures that may run at the same
//! time. `burst`: one task spawns four tasks per CPU, each of which computes for 100 us, or for
//! `TASK_US`, and ends. What is printed is how long after the first spawn the tasks begin.
//!
//! Natively, on two CPUs:
//!
//! ```console
//! $ cargo run --release -p hitm --example operations -- tokio yield 2
//! ```
//!
//! On a simulated machine of 32 CPUs, with the lines that the threads wait for:
//!
//! ```console
//! $ cargo hitm build --release -p hitm --example operations
//! $ cp target/hitm/x86_64-unknown-linux-gnu/release/examples/operations .
//! $ hitm exec --cpus 32 ./operations tokio yield 32 300 200
//! ```
//!
//! The last two numbers are the microseconds of the warm-up and of the measured stretch.

use std::cell::Cell;
use std::future::Future;
use std::hint::{black_box, spin_loop};
use std::mem::forget;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use hitm::{NativeRuntime, Priority};

#[path = "measuring/mod.rs"]
mod measuring;

const USAGE: &str = "\
usage: operations hitm|fair|tokio spawn|yield|ping-pong CPUS [WARM_UP_US MEASURED_US]
       operations hitm|fair|rayon join CPUS [WARM_UP_US MEASURED_US]
       operations hitm|fair|tokio burst CPUS [TASK_US]";

/// The tasks per CPU of `yield` and `burst`.
const PER_CPU: usize = 4;

/// How long each task of a burst computes, unless the command line says it.
const BURST: Duration = Duration::from_micros(100);

/// The number that `join` computes: 121,392 joins.
const FIB: u64 = 25;

/// What the tasks do.
#[derive(Clone, Copy)]
enum Operation {
    Spawn,
    Yield,
    PingPong,
}

/// The runtime of the calling task.
trait Runtime: 'static {
    /// Spawns a task at once. The future that is returned ends with it: with an error if a runtime
    /// that shuts down has aborted it.
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = Result<(), impl Sized>> + Send;
    fn yield_now() -> impl Future<Output = ()> + Send;
}

struct Hitm;

impl Runtime for Hitm {
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = Result<(), impl Sized>> + Send {
        hitm::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        hitm::yield_now()
    }
}

struct Tokio;

impl Runtime for Tokio {
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = Result<(), impl Sized>> + Send {
        tokio::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// The pool of the calling thread.
trait Pool: 'static {
    fn join(a: impl FnOnce() -> u64 + Send, b: impl FnOnce() -> u64 + Send) -> (u64, u64);
}

impl Pool for Hitm {
    fn join(a: impl FnOnce() -> u64 + Send, b: impl FnOnce() -> u64 + Send) -> (u64, u64) {
        hitm::join(a, b)
    }
}

struct Rayon;

impl Pool for Rayon {
    fn join(a: impl FnOnce() -> u64 + Send, b: impl FnOnce() -> u64 + Send) -> (u64, u64) {
        rayon::join(a, b)
    }
}

/// The operations of one task or one thread, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        // Relaxed, both: a statistic that one task or one thread writes.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

thread_local! {
    /// The task that ran last on this thread.
    static LAST: Cell<usize> = const { Cell::new(usize::MAX) };

    /// The joins of this thread.
    static JOINS: Cell<Option<&'static Count>> = const { Cell::new(None) };
}

/// Starts the tasks, one count for each that counts. A task of the runtime calls. They end when the
/// runtime shuts down.
fn start<R: Runtime>(operation: Operation, counts: &'static [Count]) {
    for (me, count) in counts.iter().enumerate() {
        match operation {
            Operation::Spawn => drop(R::spawn(async move {
                while R::spawn(async {}).await.is_ok() {
                    count.add();
                }
            })),
            Operation::Yield => drop(R::spawn(async move {
                loop {
                    if LAST.replace(me) != me {
                        count.add();
                    }
                    R::yield_now().await;
                }
            })),
            Operation::PingPong => {
                let [(there, arrives), (back, returns)] = [(); 2].map(|()| async_channel::bounded::<usize>(1));
                drop(R::spawn(async move {
                    while let Ok(number) = arrives.recv().await {
                        if back.send(number).await.is_err() {
                            return;
                        }
                    }
                }));
                drop(R::spawn(async move {
                    while there.send(me).await.is_ok()
                        && let Ok(number) = returns.recv().await
                    {
                        assert_eq!(number, me);
                        count.add();
                    }
                }));
            }
        }
    }
}

/// Computes Fibonacci numbers until the program ends. Each thread counts its joins, in one of
/// `counts`.
fn compute<P: Pool>(counts: &'static [Count]) {
    fn fib<P: Pool>(n: u64, counts: &'static [Count], threads: &AtomicUsize) -> u64 {
        if n < 2 {
            return n;
        }
        let (one, other) = P::join(|| fib::<P>(n - 1, counts, threads), || fib::<P>(n - 2, counts, threads));
        let joins = JOINS.get().unwrap_or_else(|| {
            // Relaxed: a number for each thread.
            let own = &counts[threads.fetch_add(1, Ordering::Relaxed)];
            JOINS.set(Some(own));
            own
        });
        joins.add();
        one + other
    }
    let threads = AtomicUsize::new(0);
    loop {
        black_box(fib::<P>(black_box(FIB), counts, &threads));
    }
}

/// Returns the operations per second of tasks that were started.
fn measure(counts: &[Count], warm_up: Duration, measured: Duration) -> f64 {
    // Relaxed: statistics.
    let sum = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum::<u64>();
    measuring::do_not_wait_for_workers();
    sleep(warm_up);
    let (begin, before) = (Instant::now(), sum());
    measuring::hitm_begin();
    sleep(measured);
    measuring::hitm_end();
    (sum() - before) as f64 / begin.elapsed().as_secs_f64()
}

/// hitm's runtime with `cpus` workers.
fn hitm_runtime(cpus: usize) -> NativeRuntime {
    let builder = NativeRuntime::builder();
    // By default it uses all CPUs, knows which share a cache, and pins its threads.
    let has_all = available_parallelism().is_ok_and(|available| available.get() == cpus);
    if has_all { builder } else { builder.cpus(cpus) }.build().expect("threads")
}

/// When the tasks of a burst began, in nanoseconds after the first spawn: 0 before. The last one is
/// the time of the last spawn.
type Begun = &'static [AtomicU64];

/// Spawns the tasks of a burst. A task of the runtime calls.
fn burst<R: Runtime>(begun: Begun, computes: Duration) {
    let first = Instant::now();
    let note = move |begun: &AtomicU64| {
        // Release: all tasks are spawned before the last time is seen. Pairs with `run_burst`.
        begun.store(first.elapsed().as_nanos().max(1) as u64, Ordering::Release);
    };
    let (spawned, tasks) = begun.split_last().expect("one time for the spawns");
    for task in tasks {
        drop(R::spawn(async move {
            note(task);
            let begin = Instant::now();
            while begin.elapsed() < computes {
                spin_loop();
            }
        }));
    }
    note(spawned);
}

/// Runs a burst on the runtime that `words` name. Returns what it has measured.
fn run_burst(words: &[&str]) -> Option<String> {
    let &[runtime, "burst", cpus, ref computes @ ..] = words else { return None };
    let computes = match computes {
        [] => BURST,
        [us] => Duration::from_micros(us.parse().ok()?),
        _ => return None,
    };
    let cpus: usize = cpus.parse().ok().filter(|&cpus| cpus > 0)?;
    let tasks = cpus * PER_CPU;
    let begun: Begun = Vec::leak((0..=tasks).map(|_| AtomicU64::new(0)).collect());
    let wait = || {
        // Acquire: pairs with `burst`.
        while begun.iter().any(|begun| begun.load(Ordering::Acquire) == 0) {
            sleep(BURST);
        }
    };
    match runtime {
        "hitm" | "fair" => {
            let priority = if runtime == "fair" { Priority::fair(0) } else { Priority::default() };
            let runtime = hitm_runtime(cpus);
            sleep(BURST);
            drop(runtime.handle().spawn(priority, async move { burst::<Hitm>(begun, computes) }));
            wait();
        }
        "tokio" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cpus).build().expect("threads");
            sleep(BURST);
            drop(runtime.spawn(async move { burst::<Tokio>(begun, computes) }));
            wait();
        }
        _ => return None,
    }
    let (spawned, begun) = begun.split_last()?;
    // Relaxed, both: acquired above.
    let mut times: Vec<u64> = begun.iter().map(|begun| begun.load(Ordering::Relaxed)).collect();
    times.sort_unstable();
    let [spawned, half, all] =
        [spawned.load(Ordering::Relaxed), times[tasks / 2], times[tasks - 1]].map(|ns| ns as f64 / 1e3);
    Some(format!("{tasks} tasks, all spawned after {spawned:.1} us, half began by {half:.1} us, all by {all:.1} us"))
}

fn operations(words: &[&str]) -> Option<f64> {
    let &[runtime, operation, cpus, ref spans @ ..] = words else { return None };
    let cpus: usize = cpus.parse().ok().filter(|&cpus| cpus > 0)?;
    // None: joins, which closures make.
    let operation = match operation {
        "spawn" => Some(Operation::Spawn),
        "yield" => Some(Operation::Yield),
        "ping-pong" => Some(Operation::PingPong),
        "join" => None,
        _ => return None,
    };
    let [warm_up, measured] = match spans {
        [] => [100_000, 1_000_000],
        [warm_up, measured] => [warm_up.parse().ok()?, measured.parse().ok()?],
        _ => return None,
    };
    let per_cpu = if matches!(operation, Some(Operation::Yield)) { PER_CPU } else { 1 };
    let counts: &[Count] = Vec::leak((0..cpus * per_cpu).map(|_| Count::default()).collect());
    let measure = || measure(counts, Duration::from_micros(warm_up), Duration::from_micros(measured));
    match (runtime, operation) {
        ("hitm" | "fair", _) => {
            let priority = if runtime == "fair" { Priority::fair(0) } else { Priority::default() };
            let runtime = hitm_runtime(cpus);
            let handle = runtime.handle();
            let Some(operation) = operation else {
                drop(handle.spawn(priority, async { compute::<Hitm>(counts) }));
                // The task does not end, so the runtime cannot.
                forget(runtime);
                return Some(measure());
            };
            // What a task spawns has its priority.
            drop(handle.spawn(priority, async move { start::<Hitm>(operation, counts) }));
            Some(measure())
        }
        ("tokio", Some(operation)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cpus).build().expect("threads");
            drop(runtime.spawn(async move { start::<Tokio>(operation, counts) }));
            Some(measure())
        }
        ("rayon", None) => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(cpus).build().expect("threads");
            pool.spawn(|| compute::<Rayon>(counts));
            forget(pool);
            Some(measure())
        }
        _ => None,
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(line) = run_burst(&words) {
        println!("{}: {line}", words[..3].join(" "));
        return ExitCode::SUCCESS;
    }
    let Some(rate) = operations(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{}: {:.2} million per second", words[..3].join(" "), rate / 1e6);
    ExitCode::SUCCESS
}
