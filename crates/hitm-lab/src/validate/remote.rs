//! Local and remote HITMs of the root domain under ffmpeg: the counts of `perf c2c` for the four
//! hot lines of the baseline (Pan Deng, LKML, 2025-07-21), on 480 CPUs of a machine that is not
//! described further.
//!
//! `perf` takes *remote* from the processor, and whether the caches of another cluster of the same
//! package count so is not documented: see `docs/model.md`. So there are two machines. On the one
//! of six nodes another die is remote, on the one of two nodes only the other package is.
//!
//! Which report is of which line is known of one of the four. So published and simulated lines are
//! compared in the order of their number of HITMs.

use std::sync::{Arc, Mutex, PoisonError};

use hitm::{Handle, Mitigation};
use hitm_machine::{Arbitration, Hitm, Kind, Machine, Results, Simulated, Stalled};
use hitm_memory::Span;
use hitm_topology::CpuId;
use hitm_workloads::ffmpeg::{Config, Ffmpeg, Profile};
use hitm_workloads::meter::Window;

use super::bench::Bench;
use super::finding::{Criterion, Finding};
use crate::Setting;

/// Remote and local HITMs of the four lines, the most first.
const PUBLISHED: [(f64, f64); 4] = [(353.0, 44.0), (231.0, 43.0), (155.0, 39.0), (149.0, 43.0)];

/// The objects whose lines the reports are of: the root domain's words, and the bitmaps of cpupri.
const OBJECTS: [&str; 2] = ["root_domain", "cpupri_mask"];

/// Pictures of an instance before the measured stretch, and in it.
const PICTURES: u64 = 8;

/// Returns the factor on lengths of work with which the baseline's kernel share is the published
/// one, as `hitm run ffmpeg` fits it on `gnr-2x120`.
fn burst_factor(arbitration: Arbitration) -> f64 {
    if arbitration == Arbitration::Fifo { 0.1004 } else { 0.0515 }
}

/// The share of remote HITMs, with nodes of a die and of a package: of the four lines together, and
/// of each.
pub(super) fn shares(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let mut findings = Vec::new();
    for (machine, nodes) in [("gnr-2x120-snc3", "six nodes"), ("gnr-2x120", "two nodes")] {
        let setting = bench.machine(machine);
        let lines = hottest(&baseline(&setting)?);
        let name = format!("remote HITMs of the root domain, {nodes}");
        let mut add = |name: String, published: (f64, f64), simulated: Hitm| {
            let simulated = simulated.remote as f64 / simulated.both() as f64;
            let published = published.0 / (published.0 + published.1);
            findings.push(setting.finding(name, "share", Criterion::Within(0.15), published, simulated));
        };
        let sum = |side: fn(&(f64, f64)) -> f64| PUBLISHED.iter().map(side).sum::<f64>();
        add(name.clone(), (sum(|line| line.0), sum(|line| line.1)), lines.iter().copied().sum());
        for (place, (published, simulated)) in PUBLISHED.into_iter().zip(lines).enumerate() {
            add(format!("{name}, line {}", place + 1), published, simulated);
        }
    }
    Ok(findings)
}

/// Runs the baseline.
fn baseline(setting: &Setting) -> Result<Results, Stalled> {
    let profile = Profile::X264;
    let burst_factor = burst_factor(setting.config.arbitration);
    let pictures = Span::from_nanos_f64(profile.picture().as_nanos_f64() * burst_factor) * PICTURES;
    let window = Window { warm_up: pictures, measured: pictures };
    let (measure_from, measure_until) = (window.warm_up, window.warm_up + window.measured);
    let config = hitm_machine::Config { measure_from, measure_until, ..setting.config.clone() };
    let workload = Config { profile, scale: false, threads_for: None, burst_factor, seed: config.seed, window };
    let machine = Machine::new(setting.topology.clone(), setting.costs.clone(), config);
    let baseline = Mitigation::baseline();
    let runtime = machine.enter(|| Handle::<Simulated>::new(setting.topology.clone(), &baseline, None));
    let started = Arc::new(Mutex::new(None));
    let (handle, slot) = (runtime.clone(), started.clone());
    machine.run(move |cpu| {
        if cpu == CpuId(0) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ffmpeg::start(&handle, workload));
        }
        handle.run_cpu(cpu);
    })?;
    Ok(machine.results())
}

/// Returns the HITMs of loads, which are those that `perf` counts, of the four lines with the most.
fn hottest(results: &Results) -> Vec<Hitm> {
    let of_loads = |line: &hitm_machine::LineResult| -> Hitm {
        line.accesses.iter().filter(|access| access.kind != Kind::Store).map(|access| access.misses().hitm).sum()
    };
    let own = results.lines.iter().filter(|line| OBJECTS.contains(&line.object.as_str()));
    let mut lines: Vec<Hitm> = own.map(of_loads).collect();
    lines.sort_by_key(|hitm| std::cmp::Reverse(hitm.both()));
    lines.truncate(PUBLISHED.len());
    lines
}
