//! The native runtime beside others, in one run: `cargo bench -p hitm --bench runtimes [CASE]`.
//!
//! | case | one operation |
//! |---|---|
//! | `spawn_join` | a task that is spawned by the main task and joined by it, 1,000 at a time |
//! | `ping_pong` | an item there and back between two tasks, through two queues of one |
//! | `messages` | a message from one of 20 senders to one of 20 receivers, each of which sends to all: hackbench's group |
//! | `crowd` | from when a task began to wake four a thread until each ran, of which each then works 50 us |
//! | `yield_storm` | a yield of one of 64 tasks that do nothing else |
//! | `wake_latency` | an event until a task that waits for it is polled, while every thread has four tasks that work 50 us at a time |
//!
//! Each runtime has as many threads as this process may use CPUs. A round runs every runtime once, so that what disturbs
//! the machine disturbs all of them; the medians of the rounds are compared. Of `wake_latency`, the figure is the median of
//! the events of all rounds, and beside it the 99th percentile.
//!
//! In `wake_latency` our waiting task has priority 90 and the load makes way where it checks, since that is what priorities are
//! for. The others have none; their load yields after each piece of work, which is what their users do. `hitm, equals` does the
//! same without priorities, for comparison.
//!
//! **What it does not show.** Input and output, timers, thousands of CPUs. Two of our choices cost here: each task is found by
//! priority under its CPU's lock, and queues are the simple ones of the workloads, one mutex and one condition variable with
//! a broadcast.
//! The kernel's threads do `ping_pong`, `messages` and `crowd` too, over pipes of bytes, its processes the first, and so do `perf bench sched`
//! and `hackbench` where they are installed. `hitm, fair` are fair tasks; the others of ours are real-time ones of one priority.
//! Rayon has no tasks that wait, so it is in `spawn_join` alone, with closures.

mod cases;
mod kernel;
mod rivals;

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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `contenders` round by round and prints what came of it. Each gives the time of one operation.
fn compare(case: &str, size: Size, contenders: &[Contender<f64>]) {
    let mut rows: Vec<Row> = contenders.iter().map(|&(name, _)| Row { name, nanos: Vec::new(), p99: None }).collect();
    for _ in 0..size.rounds {
        for (row, (_, run)) in rows.iter_mut().zip(contenders) {
            row.nanos.push(run(size));
        }
    }
    print(case, rows);
}

/// As `compare`, for cases that time each operation.
fn compare_latencies(case: &str, size: Size, contenders: &[Contender<Vec<Duration>>]) {
    let mut rows: Vec<Row> = contenders.iter().map(|&(name, _)| Row { name, nanos: Vec::new(), p99: None }).collect();
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
    // Cargo says `--bench` when it measures; in `cargo test` it does not, and every case runs tiny.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == kernel::ECHO) {
        return kernel::echo();
    }
    let size = if arguments.iter().any(|argument| argument == "--bench") { Size::FULL } else { Size::TINY };
    let wanted = arguments.iter().find(|argument| !argument.starts_with("--"));
    let threads = rivals::threads();
    println!("runtimes: {threads} threads each, {} rounds; measured, this machine, this run", size.rounds);
    let start = Instant::now();
    for (case, run) in cases::ALL {
        if wanted.is_none_or(|wanted| case.contains(wanted.as_str())) {
            run(case, size);
        }
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}
