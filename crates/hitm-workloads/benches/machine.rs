//! The speed of the simulated machine on the contended baseline: accesses and misses per second of
//! one host core, at 480 CPUs over at least ten million accesses, compared with a bare loop that
//! does as many switches and loads; then the wall time per stretch and the memory from 2 to 4,096
//! CPUs.
//!
//! ```text
//! cargo bench -p hitm-workloads --bench machine [-- --quick] [--only-480] [MICROSECONDS]
//! ```
//!
//! A number is the measured stretch of 480 CPUs: the
//! instructions of one length less those of another are those of the accesses between.
//!
//! One host thread does all the work: a campaign runs several machines side by side, each on a
//! thread of its own.

#[path = "../../hitm-machine/benches/bare/mod.rs"]
mod bare;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use hitm::{Handle, Mitigation};
use hitm_machine::{Config, CostSet, Costs, Machine, Results, Simulated};
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::Window;

/// The factor on bursts with which the baseline spends a fifth of its time in the kernel on 480
/// CPUs, as calibrated by `hitm run ffmpeg`.
const BURST_FACTOR: f64 = 0.0624;
/// The accesses over which a rate is measured.
const ENOUGH: u64 = 10_000_000;
const WARM_UP: Span = Span::from_micros(2_000);

/// Runs the baseline for `measured`. Returns the counts since its start, the bytes of the table of
/// lines, and the seconds that it took.
fn run(topology: &Arc<Topology>, measured: Span) -> (Results, usize, f64) {
    let begin = Instant::now();
    let window = Window { warm_up: WARM_UP, measured };
    // Accesses are counted from the start: the rate is that of the whole run.
    let config = Config { measure_until: window.end().since(hitm::Time::START), ..Config::default() };
    let machine = Machine::new(topology.clone(), Costs::of(topology, CostSet::Linux), config);
    let mitigation = Mitigation::parse("baseline").expect("a mitigation");
    let runtime = machine.enter(|| Handle::<Simulated>::new(topology.clone(), &mitigation, None));
    let workload = ffmpeg::Config {
        profile: Profile::X264,
        scale: false,
        threads_for: None,
        burst_factor: BURST_FACTOR,
        seed: 1,
        window,
    };
    let started = Arc::new(Mutex::new(None));
    let (handle, slot) = (runtime, started.clone());
    let ended = machine.run(move |cpu| {
        if cpu.index() == 0 {
            *slot.lock().expect("no panic holds it") = Some(Ffmpeg::start(&handle, workload));
        }
        handle.run_cpu(cpu);
    });
    ended.expect("the workload ends");
    (machine.results(), machine.table_bytes(), begin.elapsed().as_secs_f64())
}

fn machine(cpus: usize) -> Arc<Topology> {
    let whole = hitm_topology::parse("gnr-2x120").expect("a preset");
    Arc::new(whole.restrict(cpus).expect("any number of CPUs"))
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let given = std::env::args().find_map(|argument| argument.parse::<u64>().ok());
    let mut measured = Span::from_micros(given.unwrap_or(if quick { 1_000 } else { 16_000 }));
    let (results, table_bytes, seconds) = loop {
        let (results, table_bytes, seconds) = run(&machine(480), measured);
        if quick || given.is_some() || results.totals.accesses() >= ENOUGH {
            break (results, table_bytes, seconds);
        }
        measured = measured * 2;
    };
    let totals = results.totals;
    println!("480 CPUs, baseline, {measured} after {WARM_UP}, kernel share {:.3}", results.account.kernel_share());
    println!(
        "  {:.1} M accesses, {:.1} M misses, {seconds:.2} s",
        millions(totals.accesses()),
        millions(totals.misses.count())
    );
    let rate = |count: u64| millions(count) / seconds;
    println!(
        "  {:.2} M accesses/s, {:.2} M misses/s, {:.2} M switches/s on one host core",
        rate(totals.accesses()),
        rate(totals.misses.count()),
        rate(totals.resumes)
    );
    println!("  {:.2} switches an access", totals.resumes as f64 / totals.accesses() as f64);
    let bare = bare::seconds(480, totals.resumes, totals.accesses(), table_bytes);
    println!(
        "  bare loop: {:.2} M accesses/s; the machine takes {:.1} times as long",
        millions(totals.accesses()) / bare,
        seconds / bare
    );
    if std::env::args().any(|argument| argument == "--only-480") {
        return;
    }
    let stretch = Span::from_micros(if quick { 500 } else { 4_000 });
    println!("wall time of {stretch} after {WARM_UP}:");
    // In ascending order, so that the largest size so far is the peak of the memory.
    for cpus in [2, 8, 32, 128, 480, 1_024, 2_048, 4_096] {
        let (results, _, seconds) = run(&machine(cpus), stretch);
        let accesses = results.totals.accesses();
        let peak = peak_mib().map_or("peak memory unknown here".to_owned(), |mib| format!("at most {mib} MiB so far"));
        println!("  {cpus:5} CPUs: {seconds:6.2} s, {:.2} M accesses/s, {peak}", millions(accesses) / seconds);
    }
}

/// Returns the peak memory of this process, as Linux reports it.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    kib.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1_024)
}

fn millions(count: u64) -> f64 {
    count as f64 * 1e-6
}
