//! Local and remote HITMs of the root domain under ffmpeg: the counts of `perf c2c` for the four
//! hot lines of the baseline (Pan Deng, LKML, 2025-07-21), on 480 CPUs of a machine that is not
//! described further.
//!
//! `perf` takes *remote* from the processor, and whether the caches of another cluster of the same
//! package count so is not documented: see `docs/model.md`. So there are two rows. On a machine of
//! six nodes another die is remote, on one of two nodes only the other package is.

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

/// Remote and local HITMs of the four lines.
const PUBLISHED: [(f64, f64); 4] = [(231.0, 43.0), (353.0, 44.0), (149.0, 43.0), (155.0, 39.0)];

/// Pictures of an instance before the measured stretch, and in it.
const PICTURES: u64 = 20;

/// Returns the factor on lengths of work with which the baseline's kernel share is the published
/// one, as `hitm run ffmpeg` fits it on `gnr-2x120`.
fn burst_factor(arbitration: Arbitration) -> f64 {
    if arbitration == Arbitration::Fifo { 0.1004 } else { 0.0515 }
}

/// The share of remote HITMs, with nodes of a die and of a package.
pub(super) fn shares(bench: &Bench) -> Result<Vec<Finding>, Stalled> {
    let sum = |side: fn(&(f64, f64)) -> f64| PUBLISHED.iter().map(side).sum::<f64>();
    let published = sum(|line| line.0) / (sum(|line| line.0) + sum(|line| line.1));
    let machines = [("gnr-2x120-snc3", "six nodes"), ("gnr-2x120", "two nodes")];
    let finding = |(machine, nodes): (&str, &str)| {
        let setting = bench.machine(machine);
        let simulated = remote_share(&baseline(&setting)?);
        let name = format!("remote HITMs of the root domain, {nodes}");
        Ok(setting.finding(name, "share", Criterion::Within(0.15), published, simulated))
    };
    machines.into_iter().map(finding).collect()
}

/// Runs the baseline.
fn baseline(setting: &Setting) -> Result<Results, Stalled> {
    let profile = Profile::X264;
    let burst_factor = burst_factor(setting.config.arbitration);
    let pictures = Span::from_nanos_f64(profile.picture().as_nanos_f64() * burst_factor) * PICTURES;
    let window = Window { warm_up: pictures, measured: pictures };
    let (measure_from, measure_until) = (window.warm_up, window.warm_up + window.measured);
    let config = hitm_machine::Config { measure_from, measure_until, ..setting.config.clone() };
    let workload = Config { profile, scale: false, burst_factor, seed: config.seed, window };
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

/// Returns the share of the root domain's four lines with the most HITMs of loads, which are those
/// that `perf` counts.
fn remote_share(results: &Results) -> f64 {
    let of_loads = |line: &hitm_machine::LineResult| -> Hitm {
        line.accesses.iter().filter(|access| access.kind != Kind::Store).map(|access| access.misses().hitm).sum()
    };
    let own = results.lines.iter().filter(|line| line.object == "root_domain");
    let mut lines: Vec<Hitm> = own.map(of_loads).collect();
    lines.sort_by_key(|hitm| std::cmp::Reverse(hitm.both()));
    let hot: Hitm = lines.into_iter().take(PUBLISHED.len()).sum();
    hot.remote as f64 / hot.both() as f64
}
