//! A run of ffmpeg on a simulated machine with a hash of all its results, to tell whether a change
//! of the engine changes them, and with its time.
//!
//! ```text
//! cargo run --release -p hitm-workloads --example engine_trial -- [CPUS] [WARM_UP_US] [MEASURED_US] [SEED] [MITIGATION]
//! ```
//!
//! Under Callgrind with `NO_HASH=1`, one length less another has the instructions of the accesses
//! between.

use hitm::{Handle, Mitigation};
// It has compiled what this runs.
use hitm_lab as _;
use hitm_machine::{Config, CostSet, Costs, Machine, Simulated};
use hitm_memory::Span;
use hitm_workloads::ffmpeg::{self, Ffmpeg, Profile};
use hitm_workloads::meter::Window;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, usual: u64| args.get(at).map_or(usual, |text| text.parse().unwrap());
    let (cpus, warm, measured, seed) = (number(1, 480), number(2, 500), number(3, 500), number(4, 1));
    let name = args.get(5).map_or("baseline", String::as_str);
    let whole = hitm_topology::parse("gnr-2x120").unwrap();
    let topology = Arc::new(whole.restrict(cpus as usize).unwrap());
    let begin = Instant::now();
    let window = Window { warm_up: Span::from_micros(warm), measured: Span::from_micros(measured) };
    let config = Config {
        seed,
        measure_from: window.warm_up,
        measure_until: window.warm_up + window.measured,
        ..Config::default()
    };
    let machine = Machine::new(topology.clone(), Costs::of(&topology, CostSet::Linux), config);
    let mitigation = Mitigation::parse(name).unwrap();
    let runtime = machine.enter(|| Handle::<Simulated>::new(topology.clone(), &mitigation, None));
    let workload =
        ffmpeg::Config { profile: Profile::X264, scale: false, threads_for: None, burst_factor: 0.0624, seed, window };
    let started = Arc::new(Mutex::new(None));
    let (handle, slot) = (runtime.clone(), started.clone());
    machine
        .run(move |cpu| {
            if cpu.index() == 0 {
                *slot.lock().unwrap() = Some(Ffmpeg::start(&handle, workload));
            }
            handle.run_cpu(cpu);
        })
        .unwrap();
    let ran = begin.elapsed().as_secs_f64();
    let mut results = machine.results();
    // How often the host switched is no result of the model.
    let resumes = std::mem::take(&mut results.totals.resumes);
    let named = begin.elapsed().as_secs_f64();
    let mut hasher = DefaultHasher::new();
    if std::env::var_os("NO_HASH").is_none() {
        format!("{results:?} {:?}", runtime.diagnostics().stats().sums()).hash(&mut hasher);
    }
    drop((machine, runtime));
    println!(
        "{cpus} {warm}+{measured} seed {seed} {name}: hash {:016x}, {} accesses, {resumes} switches, run {ran:.3} s, results {:.3} s",
        hasher.finish(),
        results.totals.accesses(),
        named - ran
    );
}
