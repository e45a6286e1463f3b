//! A workload's runs: on machines, under policies, with mitigations and with several random seeds.
//! All workloads share this.

use std::sync::Arc;

use clap::Args;
use hitm_machine::{Costs, Timeline};
use hitm_memory::Span;
use hitm_report::agreement::note_undetermined;
use hitm_report::latency::Latency;
use hitm_report::relative::{mark_empty, relate};
use hitm_report::result::{Host, ResultFile, Run as RunResult};
use hitm_report::statistics::{Mean, ratio};
use hitm_sched::Mitigation;
use hitm_topology::Topology;

use super::quick;
use super::uncertain::{self, UncertainArgs};
use crate::args::{Arbitrations, CoherenceArg, HostArg, OutputArgs, refuse_natively};
use crate::campaign;
use crate::cases::{CaseArgs, capacity};
use crate::cmd::report as page;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::record::{self, LINES_KEPT, empty_file, functions, machine_of, pairs_per_unit, per_unit, share_of_busy};
use crate::simulate::{Arrangements, Case, Outcome};
use crate::terminal::{fitted, width};
use crate::trace::{self, TraceArgs};
use crate::workload::{Chosen, Command, Ended, Fit, Program, Setting, Workload};
use crate::{native, output};

/// The runs of a workload, and what is shown of them.
#[derive(Args, Debug)]
pub(crate) struct SeriesArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Host of the run.
    #[arg(long, value_enum, default_value = "simulated")]
    host: HostArg,
    /// A quick look beside the baseline, for an eighth of the usual time.
    ///
    /// Without `--mitigation` it is a look at `all`. Runs with the same random seed are compared
    /// with each other, so that the interval tells how far the comparison would differ with other
    /// seeds. It does not tell how far a longer stretch would: a figure that is to be told to
    /// others needs the whole run.
    ///
    /// A line names each mitigation whose figure in the second half of the stretch differs from
    /// that in the first by more than chance: its warm-up was too short.
    #[arg(long, conflicts_with_all = ["max_seeds", "roles", "lines", "layout", "json", "html", "trace"])]
    quick: bool,
    /// Add random seeds until the interval of `relative` is below one point, up to this number
    /// [default: as --seeds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_negative_numbers = true)]
    max_seeds: Option<u64>,
    #[command(flatten)]
    uncertain: UncertainArgs,
    /// Print what the tasks of each role did, and wakeups by roles.
    #[arg(long)]
    roles: bool,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Command for SeriesArgs {}

/// The interval of `relative` at which `--max-seeds` stops: one point.
const GOOD_INTERVAL: f64 = 0.01;

/// All runs of one machine and policy.
struct Group {
    cases: Vec<Case>,
    /// One per case, merged over random seeds.
    outcomes: Vec<Option<Outcome>>,
}

/// What a series asks for, checked.
struct Asked {
    mitigations: Vec<Mitigation>,
    topologies: Vec<Arc<Topology>>,
    machines: Vec<(Arc<Topology>, Costs)>,
    arbitrations: Arbitrations,
    setting: Setting,
}

/// Runs a workload, and returns its results. Its runs are a part of those that `progress` counts.
///
/// # Errors
/// When an option cannot be met.
pub(crate) fn results(
    Chosen { program, args: series }: &Chosen<SeriesArgs>,
    progress: &Progress,
) -> Result<ResultFile, Failure> {
    let asked = series.asked(&**program)?;
    Ok(series.simulate(&**program, &asked, progress, &mut None))
}

/// Returns the number of runs of a workload that is simulated.
///
/// # Errors
/// When an option cannot be met.
pub(crate) fn runs(Chosen { program, args: series }: &Chosen<SeriesArgs>) -> Result<usize, Failure> {
    let asked = series.asked(&**program)?;
    Ok(series.runs(&**program, &asked))
}

/// Runs a workload and reports.
///
/// # Errors
/// When an option cannot be met, or a run fails.
pub(crate) fn run(Chosen { program, args: series }: Chosen<SeriesArgs>) -> Result<(), Failure> {
    let program = &*program;
    let asked = series.asked(program)?;
    if series.quick {
        let Asked { mitigations, machines, arbitrations, setting, .. } = asked;
        return quick::run(&series.cases, program, &setting, mitigations, &machines, &arbitrations);
    }
    let target = output::target("--json", series.output.json.as_deref())?;
    if series.uncertain.is_asked() {
        let Asked { mitigations, machines, setting, .. } = asked;
        return uncertain::run(&series.uncertain, &series.cases, program, &setting, mitigations, &machines, target);
    }
    let html = page::target(series.output.html.as_deref())?;
    let trace_to = series.trace.target()?;
    let mut timeline = None;
    let file = match series.host {
        HostArg::Simulated => {
            let progress = Progress::new(series.runs(program, &asked));
            series.simulate(program, &asked, &progress, &mut timeline)
        }
        HostArg::Native => native::run(&series.native_cases(program, &asked)),
    };
    let traced = trace::write(trace_to, timeline);
    record::report(file, target, html, |file| series.report(program, file)).and(traced)
}

/// The only simulated run of a command line.
pub(crate) struct Single {
    series: SeriesArgs,
    pub(crate) case: Case,
    /// The complete machine, without what `--cpus` leaves out.
    pub(crate) whole: Arc<Topology>,
}

impl Single {
    /// Returns the run that is asked for.
    ///
    /// # Errors
    /// When an option cannot be met, or something would have to be fitted first.
    pub(crate) fn of(Chosen { program, args: series }: Chosen<SeriesArgs>) -> Result<Self, Failure> {
        if let Some(fitting) = program.fitted() {
            let option = fitting.option();
            return Err(Failure::new(format!(
                "{option}: a job does not fit it; give the value that `hitm run` prints"
            )));
        }
        let machine = series.cases.machine.or(HostArg::Simulated, program.usual_machine());
        let sizes = machine.sizes(HostArg::Simulated, &|whole| vec![whole.cpus()])?;
        let (whole, mut parts) = sizes.into_iter().next().expect("one machine was named");
        let topology = parts.pop().expect("one size was named");
        program.check(&topology)?;
        let setting = series.cases.setting(HostArg::Simulated);
        let mut workloads = program.workloads(&topology, &setting);
        let workload = workloads.swap_remove(0);
        if !workloads.is_empty() {
            let (name, loads) = (workload.name(), workloads.len() + 1);
            return Err(Failure::new(format!(
                "`options`: {name} has {loads} loads with them, and a job has one; choose one"
            )));
        }
        series.cases.check_stretch(&*workload, HostArg::Simulated)?;
        let costs = series.cases.machine.costs(&topology)?;
        let mut mitigations = series.cases.mitigations(&*program)?;
        let arbitrations = series.cases.machine.arbitrations()?.of(&costs);
        let mitigation = mitigations.swap_remove(0);
        let arbitration = arbitrations[0];
        if !mitigations.is_empty() || arbitrations.len() > 1 {
            return Err(Failure::new("a job has one mitigation and one policy; make a job for each"));
        }
        let machine = (topology, costs);
        let case = Case {
            roles: workload.counts_operations(),
            ..series.cases.case(&*program, &machine, arbitration, mitigation, workload)?
        };
        Ok(Self { series, case, whole })
    }

    /// Returns the lengths of time that were asked for: of the warm-up, and of the measured
    /// stretch.
    pub(crate) fn times(&self) -> [Option<Span>; 2] {
        let Setting { warm_up, measured, .. } = self.series.cases.setting(HostArg::Simulated);
        [warm_up, measured]
    }

    /// Returns the parameters of the model that were asked for.
    pub(crate) fn model(&self) -> &[(String, f64)] {
        self.series.cases.machine.model()
    }

    /// Returns what is kept of the run, as the command `command`. The host's time is not.
    pub(crate) fn result(&self, mut outcome: Outcome, command: Vec<String>) -> ResultFile {
        outcome.keep_hottest();
        outcome.wall_seconds = 0.0;
        let machine = machine_of(HostArg::Simulated, &self.case.topology, &self.case.costs);
        let group = Group { cases: vec![self.case.clone()], outcomes: vec![Some(outcome)] };
        let runs = self.series.runs_of(&group);
        let mut file = ResultFile { command, machines: vec![machine], runs, ..empty_file() };
        mark_empty(&mut file);
        file
    }
}

impl SeriesArgs {
    /// Sets the layouts that are tried.
    pub(crate) fn arrange(&mut self, arrangements: Arrangements) {
        self.cases.arrangements = arrangements;
    }

    /// Checks all arguments, before anything runs.
    fn asked(&self, program: &dyn Program) -> Result<Asked, Failure> {
        let mitigations = self.cases.mitigations(program)?;
        let topologies = self.cases.machine.or(self.host, program.usual_machine()).topologies(self.host)?;
        topologies.iter().try_for_each(|topology| program.check(topology))?;
        let arbitrations = self.cases.machine.arbitrations()?;
        self.check_natively()?;
        self.check_seeds(program)?;
        let is_quick = self.quick || self.uncertain.is_asked();
        let setting = Setting { is_quick, ..self.cases.setting(self.host) };
        for workload in topologies.iter().flat_map(|topology| program.workloads(topology, &setting)) {
            self.cases.check_stretch(&*workload, self.host)?;
        }
        let machines = self.cases.with_costs(&topologies)?;
        // The sizes of the caches must be known where the program limits them.
        if self.host == HostArg::Simulated {
            machines.iter().try_for_each(|machine| capacity(program, machine).map(drop))?;
        }
        Ok(Asked { mitigations, topologies, machines, arbitrations, setting })
    }

    fn native_cases(
        &self,
        program: &dyn Program,
        Asked { mitigations, topologies, setting, .. }: &Asked,
    ) -> Vec<native::Case> {
        let seeds = self.cases.machine.seeds(self.seeds(program));
        let mut cases = Vec::new();
        for topology in topologies {
            let mut add = |workload: &Arc<dyn Workload>, mitigation: Mitigation| {
                let (topology, workload) = (topology.clone(), workload.clone());
                cases.push(native::Case { topology, mitigation, workload, seeds: seeds.clone() });
            };
            for workload in program.workloads(topology, setting) {
                if let Some(beside) = workload.beside() {
                    add(&beside, Mitigation::baseline());
                }
                mitigations.iter().for_each(|mitigation| add(&workload, mitigation.clone()));
            }
        }
        cases
    }

    fn seeds(&self, program: &dyn Program) -> u64 {
        self.cases.seeds(program.usual_seeds(self.host))
    }

    /// Returns the number of simulated runs, with those that fit a parameter.
    fn runs(&self, program: &dyn Program, asked: &Asked) -> usize {
        let Asked { mitigations, machines, arbitrations, setting, .. } = asked;
        let workloads = program.workloads(&machines[0].0, setting);
        let beside = usize::from(workloads[0].beside().is_some());
        let runs = workloads.len() * (mitigations.len() + beside) * self.seeds(program) as usize;
        let fitting = program.fitted().map_or(0, |fitting| fitting.runs());
        machines.len() * arbitrations.count() * (fitting + runs)
    }

    fn simulate(
        &self,
        program: &dyn Program,
        Asked { mitigations, machines, arbitrations, setting, .. }: &Asked,
        progress: &Progress,
        timeline: &mut Option<(String, Timeline)>,
    ) -> ResultFile {
        let threads = self.cases.threads();
        let mut file = empty_file();
        for machine in machines {
            file.machines.push(machine_of(HostArg::Simulated, &machine.0, &machine.1));
            for arbitration in arbitrations.of(&machine.1) {
                let workload = program.workloads(&machine.0, setting).swap_remove(0);
                let roles = self.roles || self.trace.is_wanted() || workload.counts_operations();
                let case = self.cases.case(program, machine, arbitration, Mitigation::baseline(), workload);
                let case = Case { roles, ..case.expect("it was checked before") };
                // The published target was measured with real costs of every line, so the fit uses
                // them whatever `--coherence` is.
                let real = Case { coherence: CoherenceArg::Full, ..case.clone() };
                let costs = |topology: &Topology| self.cases.machine.costs(topology);
                let fit = Fit { setting, case: &real, costs: &costs, threads, progress };
                let workloads = match fit.of(program) {
                    Ok((workloads, calibration)) => {
                        file.calibrations.extend(calibration);
                        workloads
                    }
                    Err(failure) => {
                        file.failures.push(format!("calibration: {failure}"));
                        continue;
                    }
                };
                for workload in workloads {
                    let of = |(workload, mitigation): (&Arc<dyn Workload>, &Mitigation)| Case {
                        mitigation: mitigation.clone(),
                        workload: workload.clone(),
                        ..case.clone()
                    };
                    let (beside, baseline) = (workload.beside(), Mitigation::baseline());
                    let beside = beside.iter().map(|beside| (beside, &baseline));
                    let cases = beside.chain(mitigations.iter().map(|mitigation| (&workload, mitigation))).map(of);
                    let mut cases: Vec<Case> = cases.collect();
                    // One run is enough for a timeline: the first.
                    let is_first = file.runs.is_empty();
                    cases[0].timeline = self.trace.window(&*workload).filter(|_| is_first);
                    let mut group = self.run_group(program, cases, threads, progress, &mut file.failures);
                    let kept = group.outcomes[0].as_mut().and_then(|outcome| outcome.timeline.take());
                    if let Some(kept) = kept {
                        *timeline = Some((group.cases[0].name(), kept));
                    }
                    file.runs.extend(self.runs_of(&group));
                }
            }
        }
        note_undetermined(&mut file);
        file
    }

    fn check_natively(&self) -> Result<(), Failure> {
        refuse_natively(self.host, &self.cases.machine.simulated_only())?;
        refuse_natively(
            self.host,
            &[
                ("--coherence", self.cases.coherence.is_some()),
                ("--quick", self.quick),
                ("--uncertainty", self.uncertain.is_asked()),
                ("--max-seeds", self.max_seeds.is_some()),
                ("--trace", self.trace.is_wanted()),
                ("--jobs", self.cases.jobs.is_some()),
            ],
        )?;
        refuse_natively(self.host, &self.output.simulated_only())
    }

    fn check_seeds(&self, program: &dyn Program) -> Result<(), Failure> {
        let (seeds, most) = (self.seeds(program), self.max_seeds(program));
        if most < seeds {
            return Err(Failure::new(format!(
                "--max-seeds {most}: fewer than the {seeds} of --seeds; ask for more, or leave one out"
            )));
        }
        self.cases.check_seeds(most)
    }

    fn max_seeds(&self, program: &dyn Program) -> u64 {
        self.max_seeds.unwrap_or(self.seeds(program))
    }

    fn report(&self, program: &dyn Program, file: &ResultFile) -> String {
        let width = width();
        let mut text = program.render(file, width);
        if self.roles {
            for run in &file.runs {
                text.push('\n');
                text.push_str(&hitm_report::summary::render_roles(run, width));
            }
        }
        // The wide form of the line report is not fitted to the terminal.
        fitted(&text) + &self.output.lines_of(file.runs.first())
    }

    /// Runs every case with its random seeds, and with more seeds while intervals are too wide and
    /// more are allowed.
    fn run_group(
        &self,
        program: &dyn Program,
        cases: Vec<Case>,
        threads: usize,
        progress: &Progress,
        failures: &mut Vec<String>,
    ) -> Group {
        let mut group = Group { outcomes: cases.iter().map(|_| None).collect(), cases };
        let (seeds, most) = (self.seeds(program), self.max_seeds(program));
        let mut from = 0;
        while from < most {
            let to = if from == 0 { seeds } else { (from + seeds).min(most) };
            if from > 0 {
                progress.expect_more(group.cases.len() * (to - from) as usize);
            }
            let with_seed = |case: &Case, seed: u64| Case {
                timeline: case.timeline.filter(|_| seed == 0),
                workload: case.workload.with_seed(self.cases.seed() + seed),
                ..case.clone()
            };
            let cases: Vec<Case> =
                group.cases.iter().flat_map(|case| (from..to).map(move |seed| with_seed(case, seed))).collect();
            let each = (to - from) as usize;
            let failed = campaign::run(&cases, threads, progress, Case::run, |index, outcome: Outcome| {
                let own = &mut group.outcomes[index / each];
                match own {
                    Some(own) => own.merge(outcome),
                    None => *own = Some(outcome),
                }
                // Lines that are not reported are dropped once nothing more is merged.
                if let Some(own) = own.as_mut().filter(|_| to == most && index % each == each - 1) {
                    own.keep_hottest();
                }
            });
            failures.extend(failed.iter().map(ToString::to_string));
            from = to;
            if !failed.is_empty() || group.widest_interval() < GOOD_INTERVAL {
                break;
            }
        }
        group
    }

    fn runs_of(&self, group: &Group) -> Vec<RunResult> {
        let runs = group.cases.iter().zip(&group.outcomes);
        let mut runs: Vec<RunResult> =
            runs.filter_map(|(case, outcome)| Some(self.run_of(case, outcome.as_ref()?))).collect();
        relate(&mut runs);
        for run in &mut runs {
            if let Some(wide) = run.relative_interval.filter(|interval| *interval > GOOD_INTERVAL) {
                let points = 100.0 * wide;
                let note =
                    format!("the interval of relative is {points:.1} points; more seeds (--max-seeds) narrow it");
                run.notes.insert(0, note);
            }
        }
        runs
    }

    fn run_of(&self, case: &Case, outcome: &Outcome) -> RunResult {
        let metric = mean(case, outcome);
        let (results, measured) = (&outcome.results, outcome.seconds);
        let mut notes = Vec::new();
        notes.extend(case.workload.task_group_note(
            &case.topology,
            &case.mitigation,
            share_of_busy(results, outcome.task_group_wait),
        ));
        let (words, all) = outcome.bytes;
        let units = case.workload.units(metric, measured, outcome.latencies.len());
        let mut costs = record::costs(results, &outcome.measured);
        if case.workload.has_ids() {
            costs.extend(record::cost_of(results, hitm_sched::IDS, units));
        }
        let mut run = RunResult {
            workload: case.workload.name().to_owned(),
            profile: case.workload.profile(),
            load: case.workload.load(),
            mitigation: case.mitigation_name().to_owned(),
            host: Host::Simulated,
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().into_owned(),
            coherence: case.coherence.name().to_owned(),
            seed: self.cases.seed(),
            seeds: outcome.seeds.clone(),
            by_seed: by_seed(case, outcome),
            wall_seconds: outcome.wall_seconds,
            metric: case.workload.metric(metric),
            published: case.workload.published(&case.topology, &case.mitigation),
            simulated_seconds: measured,
            bytes: [("root_domain".to_owned(), words), ("root_domain_with_bitmaps".to_owned(), all)].into(),
            operations: record::by_name(&outcome.operations),
            roles: per_unit(&outcome.roles, units),
            wakes: pairs_per_unit(outcome.wakes.iter().copied(), units),
            latency: Latency::of(&outcome.latencies, case.workload.percents()),
            conservation: record::conservation(&outcome.conservation, case.topology.cpus(), measured),
            costs,
            objects: outcome.objects(),
            notes,
            ..RunResult::counted(results, &functions(), LINES_KEPT)
        };
        let (topology, mitigation, seeds) = (&*case.topology, case.mitigation_name(), outcome.seeds.len());
        let (batches, idle, bursts) = (&*outcome.batches, &*outcome.idle, &*outcome.bursts);
        let ended = Ended { host: HostArg::Simulated, topology, mitigation, seeds, batches, idle, bursts };
        case.workload.complete(&mut run, &ended);
        run
    }
}

impl Group {
    fn baseline(&self) -> Option<Mean> {
        let index = self.cases.iter().position(Case::is_baseline)?;
        self.outcomes[index].as_ref().map(|outcome| mean(&self.cases[index], outcome))
    }

    fn widest_interval(&self) -> f64 {
        let Some(baseline) = self.baseline() else { return 0.0 };
        let runs = self.cases.iter().zip(&self.outcomes);
        let means = runs.filter_map(|(case, outcome)| Some(mean(case, outcome.as_ref()?)));
        means.map(|mean| ratio(mean, baseline).interval).fold(0.0, f64::max)
    }
}

/// Returns the figure of merit of each random seed; nothing if a seed has none. Latencies are of
/// all seeds together.
fn by_seed(case: &Case, outcome: &Outcome) -> Vec<f64> {
    let has_own = outcome.latencies.is_empty() && outcome.batches.len() == outcome.seeds.len();
    let own = |batches: &Vec<f64>| case.workload.mean(std::slice::from_ref(batches), &[]).value;
    let figures: Vec<f64> = outcome.batches.iter().filter(|_| has_own).map(own).collect();
    if figures.iter().all(|figure| figure.is_finite()) { figures } else { Vec::new() }
}

/// Returns the figure of merit of `case`, over all batches of all random seeds.
fn mean(case: &Case, outcome: &Outcome) -> Mean {
    case.workload.mean(&outcome.batches, &outcome.latencies)
}
