//! This machine beside a simulation of it: the costs are measured here, a machine is built from them, and the same programs run on
//! both.
//!
//! | what | file |
//! |---|---|
//! | the smallest loops | `loops.rs` |
//! | what is measured, and which number of the machine it sets | `costs.rs` |
//! | what then runs on both | `experiments.rs`, tasks in `runtime.rs` |
//! | median, quartiles, outliers | `sample.rs` |
//! | a figure on both hosts, and whether they agree | `row.rs` |
//!
//! **What is honest here.** The simulated machine has no number that was chosen by a row that it is to predict; rows that set a number say so
//! and count for nothing. Every measurement is repeated, one repetition of each after the other, so that a slow minute is everybody's;
//! a repetition in which Linux took a CPU away is done again. What a hypervisor takes away nobody tells.

mod costs;
mod experiments;
mod loops;
mod row;
mod runtime;
mod sample;

use std::sync::Arc;

use hitm_machine::{Config, Stalled};
use hitm_memory::Span;
use hitm_topology::Topology;
use serde::Serialize;

pub use costs::Quantity;
pub use row::{Row, TOLERANCE, Verdict};
pub use sample::Sample;

use crate::{Setting, measure, simulate};
use costs::Bench;
use experiments::{Body, Experiment};

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Repetitions of every measurement; one at least.
    pub runs: usize,
    /// Seeds of every simulation, from 1; one at least.
    pub seeds: u64,
}

impl Default for Options {
    /// Under a minute on two CPUs that are left alone.
    fn default() -> Self {
        Self { runs: 30, seeds: 3 }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine's name and shape.
    pub machine: String,
    /// Its processor, as it calls itself.
    pub processor: Option<String>,
    /// Processes that wanted a CPU on the mean of the last minute, before and after, where Linux says so.
    pub load: Option<[f64; 2]>,
    /// Repetitions.
    pub runs: usize,
    /// Seeds.
    pub seeds: u64,
    /// Repetitions done again because the operating system took a CPU away.
    pub done_again: usize,
    /// What was measured to build the machine from.
    pub quantities: Vec<Quantity>,
    /// What could not be.
    pub not_measured: Vec<String>,
    /// The cost table of all else.
    pub note: Option<String>,
    /// Every number of the simulated machine.
    pub model: std::collections::BTreeMap<String, f64>,
    /// The figures on both hosts.
    pub rows: Vec<Row>,
}

impl Report {
    /// How many rows came out so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict() == verdict).count()
    }
}

/// A step is about to begin: how many are done of how many, and what it is.
pub type OnStep<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// How long CPUs contend in a repetition here, after a quarter of that which does not count: short, so that most repetitions
/// fit between two turns of the operating system.
const MEASURED: Span = Span::from_micros(500);

/// The same in simulated time.
const SIMULATED: Span = Span::from_micros(100);

/// How often a repetition is done again in which the operating system took a CPU away.
const TRIES: usize = 8;

/// The part of a repetition that its threads may have waited for a CPU: the wake-ups that belong to it.
const TOLERATED_WAIT: Span = Span::from_micros(20);

/// Measures this machine, `topology`, simulates it, and compares.
///
/// # Errors
/// When the simulated machine stalls.
///
/// # Panics
/// When there is nothing to do: no runs or no seeds.
pub fn run(topology: &Arc<Topology>, options: Options, on_step: OnStep<'_>) -> Result<Report, Stalled> {
    assert!(options.runs > 0 && options.seeds > 0, "{options:?}: one run and one seed at least");
    let mut bench = Bench::new(topology, MEASURED);
    let here = experiments::all(topology, MEASURED);
    let steps = options.runs + here.len();
    let load_before = load();
    let mut tally =
        Tally { quantities: vec![Series::default(); bench.len()], rows: vec![Vec::new(); here.len()], done_again: 0 };
    for round in 0..options.runs {
        on_step(round, steps, "measures this machine");
        tally.round(topology, &mut bench, &here, round);
    }
    let load = load_before.zip(load()).map(|(before, after)| [before, after]);
    let samples: Vec<Option<Sample>> = tally.quantities.iter().map(Series::sample).collect();
    let (costs, quantities) = bench.machine(&samples);
    let model = costs.parameters();
    let note = costs.note.clone();
    let setting = Setting { topology: topology.clone(), costs, config: Config::default() };
    let mut rows = Vec::new();
    for (index, experiment) in experiments::all(topology, SIMULATED).iter().enumerate() {
        on_step(options.runs + index, steps, &experiment.rows[0].0);
        let simulated = simulated(&setting, experiment, options.seeds)?;
        rows.extend(experiment.rows.iter().enumerate().map(|(place, (name, _))| Row {
            name: name.clone(),
            unit: "ns",
            measured: tally.rows[index].get(place).and_then(Series::sample),
            simulated: Sample::of(&simulated[place]).map(|sample| sample.median),
            was_used: experiment.was_used,
            lacks: experiment.lacks,
        }));
    }
    Ok(Report {
        machine: format!("{} ({topology})", topology.name()),
        processor: topology.model().map(str::to_owned),
        load,
        runs: options.runs,
        seeds: options.seeds,
        done_again: tally.done_again,
        quantities,
        not_measured: bench.not_measured(),
        note,
        model,
        rows,
    })
}

/// Processes that wanted a CPU, on the mean of the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Repetitions of one measurement.
#[derive(Clone, Debug, Default)]
struct Series {
    values: Vec<f64>,
    disturbed: usize,
}

impl Series {
    fn sample(&self) -> Option<Sample> {
        Some(Sample { disturbed: self.disturbed, ..Sample::of(&self.values)? })
    }
}

/// What has been measured so far.
struct Tally {
    quantities: Vec<Series>,
    /// By experiment and row.
    rows: Vec<Vec<Series>>,
    done_again: usize,
}

impl Tally {
    /// One repetition of everything.
    fn round(&mut self, topology: &Arc<Topology>, bench: &mut Bench, experiments: &[Experiment], round: usize) {
        for index in 0..bench.len() {
            let (values, was_disturbed) = self.undisturbed(|| {
                let (value, waited) = bench.measure(index, round);
                (vec![value], waited)
            });
            put(std::slice::from_mut(&mut self.quantities[index]), &values, was_disturbed);
        }
        for (index, experiment) in experiments.iter().enumerate() {
            let (values, was_disturbed) = self.undisturbed(|| measured(topology, experiment, round));
            let series = &mut self.rows[index];
            series.resize(values.len(), Series::default());
            put(series, &values, was_disturbed);
        }
    }

    /// Values of a repetition in which the operating system took no CPU away, if there is one in so many tries; and whether
    /// there is none.
    fn undisturbed(&mut self, mut repetition: impl FnMut() -> (Vec<f64>, Span)) -> (Vec<f64>, bool) {
        for _ in 1..TRIES {
            let (values, waited) = repetition();
            if waited <= TOLERATED_WAIT {
                return (values, false);
            }
            self.done_again += 1;
        }
        let (values, waited) = repetition();
        (values, waited > TOLERATED_WAIT)
    }
}

fn put(series: &mut [Series], values: &[f64], was_disturbed: bool) {
    for (series, &value) in series.iter_mut().zip(values) {
        series.values.push(value);
        series.disturbed += usize::from(was_disturbed);
    }
}

/// The figures of an experiment's rows, here; and how long the operating system kept it waiting.
fn measured(topology: &Arc<Topology>, experiment: &Experiment, round: usize) -> (Vec<f64>, Span) {
    match &experiment.body {
        Body::Probe(cpus, program) => {
            let given = measure(topology, cpus, program);
            (experiment.rows.iter().map(|(_, figure)| figure.of(&given)).collect(), given.kept_waiting)
        }
        Body::Tasks(exercise) => exercise
            .measure(topology, round as u64 + 1)
            .map_or((vec![f64::NAN], Span::ZERO), |(nanos, waited)| (vec![nanos], waited)),
    }
}

/// The same, simulated: by row, then by seed.
fn simulated(setting: &Setting, experiment: &Experiment, seeds: u64) -> Result<Vec<Vec<f64>>, Stalled> {
    let mut rows = vec![Vec::new(); experiment.rows.len()];
    for seed in 1..=seeds {
        let config = Config { seed, ..setting.config.clone() };
        let setting = Setting { config, ..setting.clone() };
        match &experiment.body {
            Body::Probe(cpus, program) => {
                let given = simulate(&setting, cpus, program)?;
                for (values, (_, figure)) in rows.iter_mut().zip(&experiment.rows) {
                    values.push(figure.of(&given));
                }
            }
            Body::Tasks(exercise) => rows[0].push(exercise.simulate(&setting)?),
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(machine: &str) -> Report {
        let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
        let (mut steps, mut last) = (0, 0);
        let report = run(&topology, Options { runs: 2, seeds: 1 }, &mut |done, of, what| {
            assert!(done == steps && done < of && !what.is_empty(), "{what}: {done} of {of}, {steps} before");
            (steps, last) = (steps + 1, of);
        });
        let report = report.expect("a machine that does not stall");
        assert_eq!(steps, last, "every step is announced");
        report
    }

    #[test]
    fn every_row_has_a_figure_on_both_hosts() {
        let report = check("this");
        for row in &report.rows {
            let measured = row.measured.unwrap_or_else(|| panic!("{} is not measured", row.name));
            assert!(measured.median > 0.0 && measured.runs == 2, "{row:?}");
            assert!(row.simulated.is_some_and(|simulated| simulated > 0.0), "{row:?}");
        }
        let names: std::collections::BTreeSet<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), report.rows.len(), "names are unique");
        let judged = report.count(Verdict::Within) + report.count(Verdict::Off);
        assert_eq!(judged + report.count(Verdict::Used), report.rows.len());
        let set = report.quantities.iter().filter_map(|quantity| quantity.sets.as_ref());
        for (name, value) in set {
            assert_eq!(report.model[name], *value, "{name} is the machine's");
        }
    }

    #[test]
    fn one_cpu_is_measured_as_far_as_it_goes() {
        let report = check("core:1 pu:1");
        assert!(report.not_measured[0].contains("there is one"), "{:?}", report.not_measured);
        assert_eq!(report.count(Verdict::Used), 0, "nothing that two CPUs do set a number");
        assert!(report.rows.iter().any(|row| row.name.contains("reads")), "{:?}", report.rows);
        assert!(report.rows.iter().all(|row| !row.name.contains("ping-pong")), "{:?}", report.rows);
    }
}
