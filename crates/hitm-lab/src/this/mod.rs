//! Compares this machine with a simulation of it: measures the costs here, builds a machine from
//! them, and runs the same programs on both.
//!
//! | contents | file |
//! |---|---|
//! | the smallest loops | `loops.rs`, `interrupts.rs` |
//! | the measured quantities, and the numbers that they set | `costs.rs` |
//! | the programs that run on both | `experiments.rs`, tasks in `runtime.rs` |
//! | repetitions, and which of them count | `tally.rs` |
//! | median, quartiles, outliers | `sample.rs` |
//! | a figure on both hosts, and the verdict | `row.rs` |
//! | reasons of failures | `lacks.rs` |
//!
//! **Honesty.** No number of the simulated machine was chosen by a row that it is to predict. A row
//! that set a number says so and does not count. Measurements are repeated in rounds, so that a
//! slow minute affects all of them alike. A repetition in which Linux preempted a thread is made
//! again. Preemption by a hypervisor is not visible.

mod costs;
mod experiments;
mod interrupts;
mod lacks;
mod loops;
mod row;
mod runtime;
mod sample;
mod tally;

use std::sync::Arc;

pub use costs::Quantity;
use hitm_machine::{Arbitration, Config, Stalled};
use hitm_memory::{NativeWorkers, Span};
use hitm_topology::{CpuId, Topology};
pub use row::{Row, TOLERANCE, Verdict};
pub use sample::Sample;

use crate::{Setting, measure, simulate};
use costs::Bench;
use experiments::{Body, Experiment, Figure};
use tally::{Series, Tally};

/// The amount of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Repetitions of every measurement; one at least.
    pub runs: usize,
    /// Random seeds per simulation, from 1; one at least.
    pub seeds: u64,
    /// The arbitration policy of the simulated machine.
    pub arbitration: Arbitration,
    /// Numbers of the simulated machine that are given, not measured.
    pub model: Vec<(String, f64)>,
}

impl Default for Options {
    /// Under a minute on two idle CPUs.
    fn default() -> Self {
        Self { runs: 30, seeds: 3, arbitration: Arbitration::default(), model: Vec::new() }
    }
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine's name and shape.
    pub machine: String,
    /// Its processor's name.
    pub processor: Option<String>,
    /// The load average of one minute, before and after, where Linux has it.
    pub load: Option<[f64; 2]>,
    /// The share of the CPUs' time that a hypervisor gave to other guests (steal time), where Linux
    /// has it.
    pub stolen: Option<f64>,
    /// Repetitions.
    pub runs: usize,
    /// Random seeds.
    pub seeds: u64,
    /// The arbitration policy of the simulated machine.
    pub arbitration: Arbitration,
    /// Repetitions that were made again because the operating system preempted a thread.
    pub done_again: usize,
    /// The largest number of rounds that were left out for a quantity because the CPUs were at
    /// another distance.
    pub moved: usize,
    /// The range of nine of ten transfer times of the same two CPUs, in nanoseconds, where there
    /// are two.
    pub hand_offs: Option<[f64; 2]>,
    /// The quantities that the machine is built from.
    pub quantities: Vec<Quantity>,
    /// Quantities that could not be measured.
    pub not_measured: Vec<String>,
    /// The cost table of all other numbers.
    pub note: Option<String>,
    /// Every number of the simulated machine.
    pub model: std::collections::BTreeMap<String, f64>,
    /// The figures on both hosts.
    pub rows: Vec<Row>,
}

impl Report {
    /// Returns the number of rows with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict() == verdict).count()
    }
}

/// Called when a step begins: the number of finished steps, of all steps, and the step's name.
pub type OnStep<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// The measured time of contention here, after a quarter of it as warm-up: short, so that most
/// repetitions fit between two preemptions.
const MEASURED: Span = Span::from_micros(500);

/// The same in simulated time.
const SIMULATED: Span = Span::from_micros(100);

/// The largest number of rounds per repetition that is wanted, when a hypervisor moves the CPUs.
const MOST_ROUNDS: usize = 2;

/// Measures this machine, `topology`, simulates it, and compares.
///
/// # Errors
/// When the simulated machine stalls.
///
/// # Panics
/// When there is nothing to do, no runs or no seeds, or when
/// [`Costs::set`](hitm_machine::Costs::set) refuses a given number.
pub fn run(topology: &Arc<Topology>, options: &Options, on_step: OnStep<'_>) -> Result<Report, Stalled> {
    assert!(options.runs > 0 && options.seeds > 0, "{options:?}: one run and one seed at least");
    let mut bench = Bench::new(topology, MEASURED);
    let here = experiments::all(topology, MEASURED);
    let (load_before, time_before) = (load(), cpu_time());
    let mut tally = Tally::new(topology, bench.len(), &here);
    let mut rounds = 0;
    while rounds < options.runs || rounds < MOST_ROUNDS * options.runs && tally.fewest_kept() < options.runs {
        let expected = (rounds + 1).max(options.runs);
        on_step(rounds, expected + here.len(), "measures this machine");
        tally.round(topology, &mut bench, &here, rounds);
        rounds += 1;
    }
    let load = load_before.zip(load()).map(|(before, after)| [before, after]);
    let stolen = time_before.zip(cpu_time()).map(|(before, after)| stolen(before, after));
    let hand_off = tally.hand_off();
    let sample = |series: &Series| series.sample(hand_off, options.runs);
    let samples: Vec<Option<Sample>> = tally.quantities.iter().map(sample).collect();
    let (mut costs, quantities) = bench.machine(&samples);
    for (name, value) in &options.model {
        costs.set(name, *value).unwrap_or_else(|refused| panic!("{refused}"));
    }
    let model = costs.parameters();
    let note = costs.note.clone();
    let used: Vec<bool> = here.iter().map(|experiment| bench.were_set_from(&quantities, &experiment.body)).collect();
    let setting = Setting {
        topology: topology.clone(),
        costs,
        config: Config { arbitration: options.arbitration, ..Config::default() },
    };
    let mut rows = Vec::new();
    for (index, experiment) in experiments::all(topology, SIMULATED).iter().enumerate() {
        on_step(rounds + index, rounds + here.len(), &experiment.rows[0].0);
        let simulated = simulated(&setting, experiment, options.seeds)?;
        rows.extend(experiment.rows.iter().enumerate().map(|(place, (name, _))| Row {
            name: name.clone(),
            unit: "ns",
            measured: sample(&tally.rows[index][place]),
            simulated: Sample::of(&simulated[place]).map(|sample| sample.median),
            is_alone: topology.cpus() == 1,
            was_used: used[index],
        }));
    }
    Ok(Report {
        machine: format!("{} ({topology})", topology.name()),
        processor: topology.model().map(str::to_owned),
        load,
        stolen,
        runs: options.runs,
        seeds: options.seeds,
        arbitration: options.arbitration,
        done_again: tally.done_again,
        moved: samples.iter().flatten().map(|sample| sample.moved).max().unwrap_or(0),
        hand_offs: tally.hand_offs(),
        quantities,
        not_measured: bench.not_measured(),
        note,
        model,
        rows,
    })
}

/// Returns the load average of one minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Returns the time of all CPUs since they started, and the steal time in it, in ticks.
fn cpu_time() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = text.lines().next()?.split_whitespace().skip(1).map_while(|ticks| ticks.parse().ok());
    // User, nice, system, idle, waiting for devices, two kinds of interrupts, stolen. The time of
    // guests is part of user.
    let ticks: Vec<u64> = ticks.take(8).collect();
    Some([ticks.iter().sum(), *ticks.get(7)?])
}

/// Returns the share of steal time between two readings.
fn stolen(before: [u64; 2], after: [u64; 2]) -> f64 {
    let [all, stolen] = [0, 1].map(|index| after[index].saturating_sub(before[index]) as f64);
    if all > 0.0 { stolen / all } else { 0.0 }
}

/// Returns the figures of an experiment's rows here, and the time for which the operating system
/// kept its threads waiting.
fn measured(topology: &Arc<Topology>, experiment: &Experiment, round: usize) -> (Vec<f64>, Span) {
    match &experiment.body {
        Body::Probe(cpus, program) => {
            let given = measure(topology, cpus, program);
            let figure = |(_, figure): &(String, Figure)| match figure {
                // Reading the clock costs nothing on a simulated machine.
                Figure::MedianDelay => figure.of(&given) - look_nanos(),
                _ => figure.of(&given),
            };
            (experiment.rows.iter().map(figure).collect(), given.kept_waiting)
        }
        Body::Tasks(exercise) => exercise
            .measure(topology, round as u64 + 1)
            .map_or((vec![f64::NAN], Span::ZERO), |(nanos, waited)| (vec![nanos], waited)),
    }
}

/// Returns the nanoseconds of a read of the clock, on this thread.
fn look_nanos() -> f64 {
    NativeWorkers::new(1, false).visit(CpuId(0), loops::look_nanos)
}

/// Returns the simulated figures: by row, then by random seed.
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
    use hitm_machine::{CostSet, Costs};

    use super::*;

    fn check(machine: &str) -> Report {
        let topology = Arc::new(hitm_topology::parse(machine).expect("a machine"));
        let (mut steps, mut last) = (0, 0);
        let report = run(&topology, &Options { runs: 2, seeds: 1, ..Options::default() }, &mut |done, of, what| {
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
            // `None` where the hypervisor moved the CPUs in each round.
            let measured = row.measured.unwrap_or_default();
            assert!(measured.runs <= 2 && (measured.median > 0.0) == (measured.runs > 0), "{row:?}");
            assert!(row.simulated.is_some_and(|simulated| simulated > 0.0), "{row:?}");
        }
        assert!(report.rows.iter().any(|row| row.measured.is_some()), "{:?}", report.hand_offs);
        let names: std::collections::BTreeSet<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), report.rows.len(), "names are unique");
        let verdicts = [Verdict::Pass, Verdict::Fail, Verdict::Used, Verdict::Missing, Verdict::Disturbed];
        assert_eq!(verdicts.map(|verdict| report.count(verdict)).iter().sum::<usize>(), report.rows.len());
        let set = report.quantities.iter().flat_map(|quantity| &quantity.sets);
        for (name, value) in set {
            assert_eq!(report.model[name], *value, "{name} is the machine's");
        }
    }

    /// A machine that is built from its own measurements is the same machine: it finds its costs
    /// again, and programs that set no cost take as long.
    #[test]
    fn a_simulated_machine_is_recovered() {
        let topology = Arc::new(hitm_topology::parse("pack:1 l3:2 core:2 pu:2").expect("a machine"));
        let mut costs = Costs::of(&topology, CostSet::Runtime);
        let known = [
            ("clock_ghz", 2.9, 0.0),
            ("load_hit_ns", 0.7, 0.0),
            ("rmw_hit_ns", 3.5, 0.0),
            ("same_core_ns", 12.0, 0.1),
            ("same_llc_ns", 77.0, 0.05),
            ("same_package_ns_hop_1", 150.0, 0.05),
            ("queued_factor", 0.75, 0.05),
            ("follow_up_hits", 4.0, 0.0),
            ("interrupt_send_ns", 150.0, 0.0),
            ("interrupt_delivery_ns", 333.0, 0.0),
            ("idle_exit_ns", 0.0, 0.0),
        ];
        for (name, value, _) in known {
            costs.set(name, value).expect("a parameter");
        }
        let setting = Setting { topology: topology.clone(), costs, config: Config::default() };
        let bench = Bench::new(&topology, SIMULATED);
        let (found, _) = bench.machine(&bench.on_simulated(&setting));
        for (name, value, tolerance) in known {
            let found = found.parameters()[name];
            assert!((found - value).abs() <= tolerance * value + 1e-9, "{name} is {value}, found {found}");
        }
        let again = Setting { costs: found, ..setting.clone() };
        for experiment in experiments::all(&topology, SIMULATED) {
            if let Body::Probe(..) = experiment.body {
                let given = [&setting, &again].map(|setting| simulated(setting, &experiment, 2).expect("no stall"));
                for (place, (name, _)) in experiment.rows.iter().enumerate() {
                    let [known, found] = [&given[0], &given[1]].map(|rows| rows[place].iter().sum::<f64>());
                    assert!((found / known - 1.0).abs() < 0.15, "{name}: {known} there, {found} again");
                }
            }
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
