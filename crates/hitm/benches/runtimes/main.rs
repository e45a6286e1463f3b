//! Compares the native runtime with others in one run:
//! `cargo bench -p hitm --bench runtimes [CASE]`.
//!
//! | case | one operation |
//! |---|---|
//! | `spawn_join` | the main task spawns a task and joins it, 1,000 at a time |
//! | `ping_pong` | an item goes back and forth between two tasks, through two queues of capacity one |
//! | `messages` | a message from one of 20 senders to one of 20 receivers; each sender sends to all: hackbench's group |
//! | `crowd` | a task wakes four tasks per thread; the time until each of them ran; each then works 50 us |
//! | `yield_storm` | a yield of one of 64 tasks that do nothing else |
//! | `wake_latency` | an event until the waiting task is polled, while every thread has four tasks that work 50 us at a time |
//!
//! The module `suites` has the shapes of async-executor's and Tokio's own benchmarks, and
//! fork-join; `services` has an urgent task among 100 hogs per thread, sleeps beside a blocked
//! thread, and the memory and CPU time of tasks that wait; `deadlines` has bursts of requests with
//! deadlines. `--busy=8` runs eight processes beside that compute all the time, and `--rounds=15`
//! makes as many rounds.
//!
//! Each runtime has one thread per CPU that this process may use. hitm pins them, which is its
//! default; the operating system places those of the others. A round runs every runtime once,
//! so that a disturbance of the machine affects all of them. The figures are the medians of the
//! rounds. For `wake_latency` and `urgent`, the figures are the median and the 99th percentile of
//! the events of all rounds. A run ends after two seconds, so a runtime in which an event takes
//! long has fewer events.
//!
//! In `wake_latency`, hitm's waiting task has priority 90 and preempts the load at its checkpoints,
//! as priorities are meant to be used. The other runtimes have no priorities; their load yields
//! after each piece of work, as their users do. `hitm, equals` does the same without priorities,
//! for comparison. In rows named `apart`, the waiting task of `urgent` is on a second runtime, with
//! one thread. The operating system runs that thread beside the load's, so no piece of work delays
//! the task. hitm asks for short turns of this thread (`Builder::thread_slice`); the peers have no
//! such setting.
//!
//! **What it does not show.** Input and output, timers, thousands of CPUs. Two of hitm's properties
//! cost time here: each task is picked by priority under its CPU's lock, and queues are the simple
//! ones of the workloads, with one mutex and one condition variable with a broadcast.
//!
//! The kernel's threads run `ping_pong`, `messages` and `crowd` too, over pipes of bytes, and its
//! processes run `ping_pong`. `perf bench sched` and `hackbench` do the same where they are
//! installed. `hitm, fair` uses fair tasks; hitm's other rows use real-time tasks of one priority.
//! Rayon has no tasks that wait, so it only takes part in `spawn_join`, with closures.

mod busy;
mod cases;
mod deadlines;
mod kernel;
mod rivals;
mod services;
mod suites;

use std::time::{Duration, Instant};

use cases::{Contender, Size};

/// The figures of one runtime in one case.
struct Row {
    name: &'static str,
    /// By round.
    nanos: Vec<f64>,
    /// Only where single operations are timed.
    p99: Option<f64>,
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self { name, nanos: Vec::new(), p99: None }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `contenders` round by round and prints the results. Each returns the time per operation.
fn compare(case: &str, size: Size, contenders: &[Contender<f64>]) {
    let mut rows: Vec<Row> = contenders.iter().map(|&(name, _)| Row::new(name)).collect();
    for _ in 0..size.rounds {
        for (row, (_, run)) in rows.iter_mut().zip(contenders) {
            row.nanos.push(run(size));
        }
    }
    print(case, rows);
}

/// Compares as `compare` does, for cases that time each operation.
fn compare_latencies(case: &str, size: Size, contenders: &[Contender<Vec<Duration>>]) {
    let mut rows: Vec<Row> = contenders.iter().map(|&(name, _)| Row::new(name)).collect();
    for _ in 0..size.rounds {
        for (row, (_, run)) in rows.iter_mut().zip(contenders) {
            row.nanos.extend(run(size).iter().map(|latency| latency.as_secs_f64() * 1e9));
        }
    }
    for row in &mut rows {
        row.nanos.sort_by(f64::total_cmp);
        row.p99 = Some(row.nanos[row.nanos.len() * 99 / 100]);
    }
    print(case, rows);
}

fn print(case: &str, mut rows: Vec<Row>) {
    let ours = median(&mut rows[0].nanos);
    println!("{case:<14} {:<22} {:>12} {:>12} {:>10}", "runtime", "median (ns)", "p99 (ns)", "over hitm");
    for row in &mut rows {
        let nanos = median(&mut row.nanos);
        let p99 = row.p99.map_or(String::new(), |nanos| format!("{nanos:.0}"));
        println!("{:<14} {:<22} {nanos:>12.0} {p99:>12} {:>10.2}", "", row.name, nanos / ours);
    }
}

fn main() {
    // Cargo passes `--bench` when it measures. In `cargo test` it does not, and every case runs
    // with a minimal size.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == kernel::ECHO) {
        return kernel::echo();
    }
    if arguments.iter().any(|argument| argument == busy::BURN) {
        return busy::burn();
    }
    let mut size = if arguments.iter().any(|argument| argument == "--bench") { Size::FULL } else { Size::TINY };
    if let Some(rounds) = arguments.iter().find_map(|argument| argument.strip_prefix("--rounds=")?.parse().ok()) {
        size.rounds = rounds;
    }
    let wanted = arguments.iter().find(|argument| !argument.starts_with("--"));
    let threads = rivals::threads();
    println!("runtimes: {threads} threads each, {} rounds; measured, this machine, this run", size.rounds);
    println!("load average at the beginning: {}", busy::load_average());
    let start = Instant::now();
    let _busy = busy::Neighbours::start(arguments.iter().find_map(|argument| busy::asked(argument)).unwrap_or(0));
    for (case, run) in cases::ALL.into_iter().chain(suites::ALL).chain(services::ALL).chain(deadlines::ALL) {
        if wanted.is_none_or(|wanted| case.contains(wanted.as_str())) {
            run(case, size);
        }
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}
