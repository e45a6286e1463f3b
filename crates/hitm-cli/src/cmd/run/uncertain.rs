//! `hitm run --uncertainty`: what mitigations gain on machines that are drawn from the ranges of
//! the model's parameters, and which parameters decide it.
//!
//! Every mitigation runs on every machine with that machine's seed, so that a gain is a comparison
//! on one machine. What is fitted is fitted again on each machine's baseline.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hitm_lab::uncertainty::{self, TRAJECTORIES, trials};
use hitm_machine::{Arbitration, Clock, Costs, Range, policy};
use hitm_report::relative::is_baseline;
use hitm_report::uncertainty::{Drawn, Parameter, SCHEMA, Study, Uncertainty};
use hitm_report::uncertainty_state::{self, Finished};
use hitm_sched::Mitigation;
use hitm_topology::Topology;

use crate::args::{CoherenceArg, HostArg};
use crate::campaign::{self, Job};
use crate::cases::CaseArgs;
use crate::failure::Failure;
use crate::output::Target;
use crate::progress::Progress;
use crate::record::{empty_file, machine_of};
use crate::simulate::Case;
use crate::state::{self, StateFile};
use crate::terminal::{fitted, width};
use crate::workload::{Fit, Program, Setting, Stretch};
use crate::{digest, interrupt, print};

/// Machines that are drawn from the ranges of the model's parameters.
#[derive(Args, Debug)]
pub(crate) struct UncertainArgs {
    /// Draw this many machines from what the model's sources allow.
    ///
    /// Each parameter of the model has a range (docs/uncertainty.md), and the policy is drawn where
    /// the family's is not known. All mitigations run on each machine, for an eighth of the usual
    /// time. The output has intervals that hold the model's doubt and the seeds', what survives on
    /// 95 % of the machines, and the five parameters that decide it. Every machine is kept in a
    /// state file as soon as it has run; the same command goes on where it was interrupted.
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000),
        conflicts_with_all = ["quick", "max_seeds", "seeds", "roles", "lines", "layout", "html"]
    )]
    uncertainty: Option<u64>,
    /// Trajectories that find which parameters decide, each of about 33 machines [default: 4].
    #[arg(long, value_name = "N", requires = "uncertainty", value_parser = clap::value_parser!(u64).range(0..=1000), hide_short_help = true)]
    trajectories: Option<u64>,
    /// Keep finished runs in this file, and skip the runs that it has [default: a file in this
    /// folder, named by the setting].
    #[arg(long, value_name = "FILE", requires = "uncertainty", hide_short_help = true)]
    state: Option<PathBuf>,
}

impl UncertainArgs {
    pub(crate) fn is_asked(&self) -> bool {
        self.uncertainty.is_some()
    }
}

/// A machine in the middle with one load, and what is drawn around it.
struct Field {
    topology: Arc<Topology>,
    costs: Costs,
    policies: Vec<Arbitration>,
    /// The place of the load among the workload's.
    load: usize,
    ranges: Vec<Range>,
}

/// A machine to be run.
struct Trial<'a> {
    study: usize,
    field: &'a Field,
    own: uncertainty::Trial,
}

impl Job for &Trial<'_> {
    fn name(&self) -> String {
        let machine = self.field.topology.name();
        match self.own.moved {
            Some(moved) => format!("machine {} like {machine}, another {moved}", self.own.index),
            None => format!("machine {} like {machine}", self.own.index),
        }
    }
}

/// What all trials have in common.
struct Common<'a> {
    cases: &'a CaseArgs,
    program: &'a dyn Program,
    setting: &'a Setting,
    mitigations: &'a [Mitigation],
    /// Parameters that the user set: they are not drawn.
    fixed: Vec<&'a str>,
}

/// Draws machines around each of `machines`, runs the mitigations on them, prints what follows, and
/// writes to `target` if there is one.
///
/// # Errors
/// When the state file cannot be used, or a machine fails.
pub(crate) fn run(
    args: &UncertainArgs,
    cases: &CaseArgs,
    program: &dyn Program,
    setting: &Setting,
    mitigations: Vec<Mitigation>,
    machines: &[(Arc<Topology>, Costs)],
    target: Option<Target>,
) -> Result<(), Failure> {
    let mitigations = with_baseline(program, mitigations)?;
    let fixed = cases.machine.model().iter().map(|(name, _)| name.as_str()).collect();
    let common = Common { cases, program, setting, mitigations: &mitigations, fixed };
    let fields = common.fields(machines)?;
    let count = args.uncertainty.unwrap_or(0) as usize;
    let paths = args.trajectories.map_or(TRAJECTORIES, |count| count as usize);
    let trials: Vec<Trial<'_>> =
        fields.iter().enumerate().flat_map(|(study, field)| common.trials(study, field, count, paths)).collect();
    let head = common.head(&fields, count, paths);
    let usual = || state::usual_path("uncertainty", &head.workload, &head);
    let path = args.state.clone().unwrap_or_else(usual);
    let state = StateFile::<Finished>::open(&path, &head)?;
    interrupt::keeps(format!("finished machines are in `{}`; the same command goes on", path.display()));
    let (finished, failed) = common.finish(&trials, &state);
    if let Some(failure) = failed.iter().position(|failure| failure.status() == 2) {
        return Err(failed.into_iter().nth(failure).expect("it was found there"));
    }
    let file = empty_file();
    let found = Uncertainty {
        schema: SCHEMA.to_owned(),
        version: file.version,
        command: file.command,
        studies: fields.iter().enumerate().map(|(study, field)| common.study(study, field, &finished)).collect(),
        failures: failed.iter().map(ToString::to_string).collect(),
    };
    let printed = print(&fitted(&found.render(width())));
    target.map_or(Ok(()), |target| target.write(&found.write())).and(printed)?;
    campaign::ended(&found.failures)
}

/// Puts the baseline before the other mitigations.
fn with_baseline(program: &dyn Program, mitigations: Vec<Mitigation>) -> Result<Vec<Mitigation>, Failure> {
    let others: Vec<Mitigation> =
        mitigations.into_iter().filter(|mitigation| !is_baseline(mitigation.name())).collect();
    if others.is_empty() {
        return Err(Failure::new("--uncertainty: the baseline alone is compared with nothing; name a mitigation"));
    }
    Ok(std::iter::once(program.adapt(Mitigation::baseline())).chain(others).collect())
}

impl Common<'_> {
    /// Returns the fields: one for each machine and load.
    fn fields(&self, machines: &[(Arc<Topology>, Costs)]) -> Result<Vec<Field>, Failure> {
        let mut fields = Vec::new();
        for (topology, costs) in machines {
            let policies = self.cases.machine.arbitrations()?.or_likely(costs);
            let is_drawn = |range: &Range| !self.fixed.contains(&range.name.as_str());
            let ranges: Vec<Range> = costs.ranges().into_iter().filter(is_drawn).collect();
            for load in 0..self.program.workloads(topology, self.setting).len() {
                let (topology, costs) = (topology.clone(), costs.clone());
                fields.push(Field { topology, costs, policies: policies.clone(), load, ranges: ranges.clone() });
            }
        }
        Ok(fields)
    }

    /// Returns the machines of a field: those of the intervals, then those of the trajectories.
    fn trials<'a>(&self, study: usize, field: &'a Field, count: usize, paths: usize) -> Vec<Trial<'a>> {
        let own = trials(count, paths, &field.ranges, field.policies.len(), self.cases.seed());
        own.into_iter().map(|own| Trial { study, field, own }).collect()
    }

    fn head(&self, fields: &[Field], intervals: usize, trajectories: usize) -> uncertainty_state::Setting {
        let workload = |field: &Field| self.program.workloads(&field.topology, self.setting).swap_remove(field.load);
        let usual = workload(&fields[0]);
        uncertainty_state::Setting {
            schema: uncertainty_state::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: digest::build(),
            workload: usual.name().to_owned(),
            options: fields.iter().map(|field| workload(field).options()).collect(),
            machines: fields
                .iter()
                .map(|field| machine_of(HostArg::Simulated, &field.topology, &field.costs))
                .collect(),
            ranges: fields.iter().map(parameters).collect(),
            policies: fields.iter().map(policies).collect(),
            mitigations: self.mitigations.iter().map(|mitigation| mitigation.name().to_owned()).collect(),
            coherence: self.cases.coherence.unwrap_or_default().name().to_owned(),
            seed: self.cases.seed(),
            intervals,
            trajectories,
            stretch: format!("{:?}", usual.stretch()),
        }
    }

    /// Runs the machines that are not in the state yet. Returns all, and the failures.
    fn finish(&self, trials: &[Trial<'_>], state: &StateFile<Finished>) -> (Vec<Finished>, Vec<Failure>) {
        let (mut finished, mut left) = (Vec::new(), Vec::new());
        for (index, trial) in trials.iter().enumerate() {
            match state.find(&(trial.study, trial.own.index)) {
                Some(run) => finished.push(run.clone()),
                None => left.push(&trials[index]),
            }
        }
        if !finished.is_empty() {
            let (done, all) = (finished.len(), trials.len());
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(io::stderr(), "hitm: resumed: {done} of {all} machines had run before");
        }
        let fitting = self.program.fitted().map_or(0, |fitting| fitting.runs());
        let progress = Progress::new(left.len() * (1 + fitting));
        let run = |trial: &&Trial<'_>, clock: &Arc<Clock>| {
            let run = Finished { study: trial.study, drawn: self.trial(trial, &progress, clock)? };
            state.add(&run)?;
            Ok(run)
        };
        let failed = campaign::run(&left, self.cases.threads(), &progress, run, |_, run| finished.push(run));
        finished.sort_by_key(|run| (run.study, run.drawn.index));
        (finished, failed)
    }

    /// Runs all mitigations on a machine.
    fn trial(&self, trial: &Trial<'_>, progress: &Progress, clock: &Arc<Clock>) -> Result<Drawn, Failure> {
        let Trial { field, own: uncertainty::Trial { index, trajectory, moved, draw, seed }, .. } = trial;
        let setting = Setting { seed: *seed, ..*self.setting };
        let costs = field.costs.at(draw, &self.fixed);
        let parameters = costs.parameters();
        let arbitration = policy(draw, &field.policies);
        let machine = (field.topology.clone(), costs.clone());
        let usual = self.program.workloads(&field.topology, &setting).swap_remove(0);
        let case = self.cases.case(self.program, &machine, arbitration, Mitigation::baseline(), usual)?;
        let real = Case { coherence: CoherenceArg::Full, ..case.clone() };
        let of = |topology: &Topology| Ok(self.cases.machine.costs(topology)?.at(draw, &self.fixed));
        let fit = Fit { setting: &setting, case: &real, costs: &of, threads: 1, progress };
        let (mut workloads, calibration) = fit.of(self.program)?;
        let workload = workloads.swap_remove(field.load).with_seed(*seed);
        let figure = |mitigation: &Mitigation| {
            let (mitigation, workload) = (mitigation.clone(), workload.clone());
            figure(&Case { mitigation, workload, ..case.clone() }, clock)
        };
        let figures = self.mitigations.iter().map(figure).collect::<Result<Vec<f64>, Failure>>()?;
        let is_drawn = |name: &String| field.ranges.iter().any(|range| range.name == *name);
        Ok(Drawn {
            index: *index,
            trajectory: *trajectory,
            moved: moved.map(str::to_owned),
            seed: *seed,
            arbitration: arbitration.name().into_owned(),
            parameters: parameters.into_iter().filter(|(name, _)| is_drawn(name)).collect(),
            calibrated: calibration.map(|calibration| calibration.value),
            figures: figures.into_iter().map(|figure| figure.is_finite().then_some(figure)).collect(),
        })
    }

    fn study(&self, study: usize, field: &Field, finished: &[Finished]) -> Study {
        let workload = self.program.workloads(&field.topology, self.setting).swap_remove(field.load);
        let merit = workload.merit();
        let published = |mitigation: &Mitigation| {
            let published = workload.published(&field.topology, mitigation)?;
            Some((mitigation.name().to_owned(), published.relative))
        };
        let own = finished.iter().filter(|run| run.study == study);
        let mut found = Study {
            workload: workload.name().to_owned(),
            profile: workload.profile(),
            machine: machine_of(HostArg::Simulated, &field.topology, &field.costs),
            metric: merit.name.to_owned(),
            better: merit.better,
            seed: self.cases.seed(),
            mitigations: self.mitigations.iter().map(|mitigation| mitigation.name().to_owned()).collect(),
            published: self.mitigations[1..].iter().filter_map(published).collect(),
            policies: policies(field),
            parameters: parameters(field),
            machines: own.map(|run| run.drawn.clone()).collect(),
            ..Study::default()
        };
        found.conclude();
        found
    }
}

/// Returns the figure of merit of a run.
fn figure(case: &Case, clock: &Arc<Clock>) -> Result<f64, Failure> {
    if let Stretch::Window(_) = case.workload.stretch() {
        return Ok(case.glance(clock)?.figure);
    }
    let outcome = case.run(clock)?;
    Ok(case.workload.mean(&outcome.batches, &outcome.latencies).value)
}

fn policies(field: &Field) -> Vec<String> {
    field.policies.iter().map(|policy| policy.name().into_owned()).collect()
}

fn parameters(field: &Field) -> Vec<Parameter> {
    let parameter = |Range { name, value, low, high, source }: &Range| Parameter {
        name: name.clone(),
        value: *value,
        low: *low,
        high: *high,
        source: source.clone(),
    };
    field.ranges.iter().map(parameter).collect()
}
