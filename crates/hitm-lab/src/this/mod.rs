//! This machine beside a simulation of it: the costs are measured here, a machine is built from them, and the same programs run on
//! both.
//!
//! | what | file |
//! |---|---|
//! | the smallest loops | `loops.rs`, `interrupts.rs` |
//! | what is measured, and which number of the machine it sets | `costs.rs` |
//! | what then runs on both | `experiments.rs`, tasks in `runtime.rs` |
//! | repetitions, and which of them count | `tally.rs` |
//! | median, quartiles, outliers | `sample.rs` |
//! | a figure on both hosts, and whether they agree | `row.rs` |
//! | why they do not | `lacks.rs` |
//!
//! **What is honest here.** The simulated machine has no number that was chosen by a row that it is to predict; rows that set a number say so
//! and count for nothing. Every measurement is repeated, one repetition of each after the other, so that a slow minute is everybody's;
//! a repetition in which Linux took a CPU away is done again. What a hypervisor takes away nobody tells.

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

/// How much is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Repetitions of every measurement; one at least.
    pub runs: usize,
    /// Seeds of every simulation, from 1; one at least.
    pub seeds: u64,
    /// Who is served next on a contended line of the simulated machine.
    pub arbitration: Arbitration,
    /// Numbers of the simulated machine that are given and not measured.
    pub model: Vec<(String, f64)>,
}

impl Default for Options {
    /// Under a minute on two CPUs that are left alone.
    fn default() -> Self {
        Self { runs: 30, seeds: 3, arbitration: Arbitration::default(), model: Vec::new() }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine's name and shape.
    pub machine: String,
    /// Its processor, as it calls itself.
    pub processor: Option<String>,
    /// Processes that wanted a CPU on the mean of the last minute, before and after, where Linux says so.
    pub load: Option<[f64; 2]>,
    /// The part of the CPUs' time that a hypervisor gave to others meanwhile, where Linux is told.
    pub stolen: Option<f64>,
    /// Repetitions.
    pub runs: usize,
    /// Seeds.
    pub seeds: u64,
    /// Who is served next on the simulated machine.
    pub arbitration: Arbitration,
    /// Repetitions done again because the operating system took a CPU away.
    pub done_again: usize,
    /// Rounds that are left out for a quantity, at most, because the CPUs were at another distance then.
    pub moved: usize,
    /// Between which nine of ten hand-offs of the same two CPUs lay in the meantime, in nanoseconds, where there are two.
    pub hand_offs: Option<[f64; 2]>,
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

/// Rounds at most, for each repetition that is wanted, when a hypervisor moves the CPUs.
const MOST_ROUNDS: usize = 2;

/// Measures this machine, `topology`, simulates it, and compares.
///
/// # Errors
/// When the simulated machine stalls.
///
/// # Panics
/// When there is nothing to do, no runs or no seeds, or when [`Costs::set`](hitm_machine::Costs::set) refuses a number that is given.
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
        costs.set(name, *value).unwrap_or_else(|message| panic!("{message}"));
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

/// Processes that wanted a CPU, on the mean of the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// All time of all CPUs since they started, and what of it a hypervisor gave to others, in ticks.
fn cpu_time() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = text.lines().next()?.split_whitespace().skip(1).map_while(|ticks| ticks.parse().ok());
    // User, nice, system, idle, waiting for devices, two kinds of interrupts, stolen; what guests get is part of user.
    let ticks: Vec<u64> = ticks.take(8).collect();
    Some([ticks.iter().sum(), *ticks.get(7)?])
}

/// The part that was stolen between two looks.
fn stolen(before: [u64; 2], after: [u64; 2]) -> f64 {
    let [all, stolen] = [0, 1].map(|index| after[index].saturating_sub(before[index]) as f64);
    if all > 0.0 { stolen / all } else { 0.0 }
}

/// The figures of an experiment's rows, here; and how long the operating system kept it waiting.
fn measured(topology: &Arc<Topology>, experiment: &Experiment, round: usize) -> (Vec<f64>, Span) {
    match &experiment.body {
        Body::Probe(cpus, program) => {
            let given = measure(topology, cpus, program);
            let figure = |(_, figure): &(String, Figure)| match figure {
                // The look at the clock in it costs nothing on a simulated machine.
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

/// Nanoseconds of a look at the clock, on this thread.
fn look_nanos() -> f64 {
    NativeWorkers::new(1, false).visit(CpuId(0), loops::look_nanos)
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
            // None where a hypervisor moved the CPUs each time.
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

    /// A machine that is built from what it gives itself is that machine: the costs are found again, and programs that set
    /// none of them take as long.
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
