//! `hitm sweep`: a workload on several numbers of CPUs.

mod folded;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use hitm_machine::Clock;
use hitm_memory::Span;
use hitm_report::html::Document;
use hitm_report::job::Job;
use hitm_report::plot::Plot;
use hitm_report::relative::relative;
use hitm_report::statistics::mean_of_batches;
use hitm_report::sweep::{self, Point};
use hitm_report::sweep_state::{self, Finished, Head, Setting};
use hitm_topology::Topology;
use hitm_workloads::meter::Window;

use self::folded::Folded;
use crate::args::HostArg;
use crate::campaign;
use crate::cases::CaseArgs;
use crate::cmd::job;
use crate::cmd::report as page;
use crate::failure::Failure;
use crate::output::{self, Target};
use crate::progress::Progress;
use crate::record::{empty_file, finished, key, machine_of};
use crate::simulate::Case;
use crate::state::{self, StateFile};
use crate::terminal::{fitted, width};
use crate::workload::{Chosen, Command, Entry, Program, Stretch, Workload};
use crate::{digest, interrupt, print};

/// Run a workload on growing numbers of simulated CPUs: its scaling curve.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{REFERENCE}\n\n{EXAMPLES}"))]
pub(crate) struct Sweep {
    #[command(subcommand)]
    workload: Chosen<SweepArgs>,
}

const EXAMPLES: &str = "\
Examples:
  hitm sweep cyclic --mitigation baseline,all
  hitm sweep cyclic --cpus 2..4096 --seeds 1 --csv curve.csv --plot curve.svg
  hitm sweep ffmpeg --burst-factor 0.0627 --cpus 8..480 --arbitration local-first,fifo
  hitm sweep cyclic --emit-jobs jobs.jsonl           for other programs: see `hitm job`
  hitm sweep cyclic --results done --csv curve.csv   what they have finished so far";

const REFERENCE: &str = "\
--cpus 2..480 stands for 2, the powers of two between, and 480; without --cpus a sweep goes from the
CPUs of one core to the whole machine. For fewer CPUs whole cores, dies and packages are taken, for
more packages are added.

Every finished run is written to a state file at once. The same command, started again after an
interrupt, reads the file and makes only the missing runs; its results are the same bytes. A sweep
can be extended by more CPUs, seeds, policies or mitigations in the same way. Without --state the
file is in the current folder and named by the setting. It is kept: remove it when the sweep is done.";

/// The runs of a sweep, and its output files.
#[derive(Args, Debug)]
struct SweepArgs {
    #[command(flatten)]
    cases: CaseArgs,
    /// Write the points to this file as comma-separated values.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the points to this file as JSON: see `hitm schema sweep`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the points to this file, as a page for a browser: see `hitm report`.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw the curves into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keep finished runs in this file, and skip the runs that it has [default: a file in this
    /// folder, named by the setting].
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write the sweep's runs to this file, one specification per line for `hitm job`, and run
    /// nothing. With `--results`, those without a result.
    #[arg(long, value_name = "FILE")]
    emit_jobs: Option<PathBuf>,
    /// Take the results of `hitm job` in this folder, whoever ran them, and run nothing.
    #[arg(long, value_name = "DIR", conflicts_with = "state")]
    results: Option<PathBuf>,
}

impl Command for SweepArgs {
    fn takes(entry: &Entry) -> bool {
        entry.swept.is_some()
    }

    fn describe(command: clap::Command, entry: &Entry) -> clap::Command {
        let (name, options) = (command.get_name(), entry.swept.unwrap_or_default());
        let examples = format!(
            "Examples:\n  hitm sweep {name} {options}--mitigation baseline,all\n  hitm sweep {name} {options}--cpus 8..480 --seeds 1 --state curve.jsonl"
        );
        command.after_help(examples)
    }
}

impl Sweep {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Chosen { program, args } = self.workload;
        args.run(&*program)
    }
}

/// Returns the default numbers of CPUs: from those of one core to all.
fn usual_counts(whole: &Topology) -> Vec<usize> {
    let least = whole.cpu_ids().next().map_or(1, |cpu| whole.siblings(cpu).len());
    let most = whole.cpus();
    let mut counts: Vec<usize> = std::iter::successors(Some(least), |count| Some((count + 1).next_power_of_two()))
        .take_while(|&count| count < most)
        .collect();
    counts.push(most);
    counts
}

/// A machine with all its cases: by policy, number of CPUs, mitigation and random seed.
struct Family {
    whole: Arc<Topology>,
    points: Vec<Vec<Case>>,
}

/// Returns the window of a workload that can be swept.
fn window(workload: &dyn Workload) -> Window {
    match workload.stretch() {
        Stretch::Window(window) => window,
        Stretch::Marked | Stretch::Whole(_) => unreachable!("a workload that is swept has a window"),
    }
}

/// Runs per point by default.
const SEEDS: u64 = 3;

impl SweepArgs {
    fn seeds(&self) -> u64 {
        self.cases.seeds(SEEDS)
    }

    fn run(&self, program: &dyn Program) -> Result<(), Failure> {
        // All arguments are checked before anything runs.
        if let Some(fitting) = program.fitted() {
            return Err(Failure::new(format!(
                "{}: a sweep does not fit it; give the value that `hitm run` prints for a machine",
                fitting.option()
            )));
        }
        let families = self.families(program)?;
        let cases = || families.iter().flat_map(|family| family.points.iter().flatten());
        cases().try_for_each(|case| program.check(&case.topology))?;
        cases().try_for_each(|case| self.cases.check_stretch(&*case.workload, HostArg::Simulated))?;
        let workload = cases().next().expect("a sweep has cases").workload.clone();
        let setting = self.setting(&*workload, &families)?;
        // These checks change no file: a sweep that is refused does not touch the files of a
        // running sweep.
        let csv = output::target("--csv", self.csv.as_deref())?;
        let json = output::target("--json", self.json.as_deref())?;
        let html = page::target(self.html.as_deref())?;
        let plot = output::target("--plot", self.plot.as_deref())?;
        let emitted = output::target("--emit-jobs", self.emit_jobs.as_deref())?;
        let (runs, failed) = if emitted.is_some() || self.results.is_some() {
            let jobs = self.jobs(&families)?;
            let folded = match &self.results {
                Some(folder) => Folded::read(jobs, folder)?,
                None => Folded::none(jobs),
            };
            if let Some(target) = emitted {
                target.write(&folded.missing().map(Job::line).collect::<String>())?;
            }
            if self.results.is_none() {
                return Ok(());
            }
            (folded.runs(), Vec::new())
        } else {
            self.run_here(&setting, &families)?
        };
        let sweep = self.sweep(&*workload, &setting, &families, &runs, &failed);
        // Each is written, whether or not the others can be.
        let written = [
            print(&fitted(&sweep.render(width()))),
            csv.map_or(Ok(()), |target| target.write(&sweep.csv())),
            json.map_or(Ok(()), |target| target.write(&sweep.json())),
            page::write(html, || vec![("this sweep".to_owned(), Document::Sweep(Box::new(sweep.clone())))]),
            self.write_plot(plot, &sweep.plot()),
        ];
        written.into_iter().collect::<Result<(), Failure>>()?;
        campaign::ended(&sweep.failures)
    }

    /// Makes the runs that are in no state file yet. Returns all runs, and the failures.
    ///
    /// # Errors
    /// When the state file cannot be used.
    fn run_here(&self, setting: &Setting, families: &[Family]) -> Result<(Vec<Finished>, Vec<Failure>), Failure> {
        let path = self.state.clone().unwrap_or_else(|| state::usual_path(Setting::WHAT, &setting.workload, setting));
        let state = StateFile::open(&path, setting)?;
        interrupt::keeps(format!("finished runs are in `{}`; the same command goes on", path.display()));
        let (runs, failed) = self.finish(families, &state);
        match failed.iter().position(|failure| failure.status() == 2) {
            Some(failure) => Err(failed.into_iter().nth(failure).expect("it was found there")),
            None => Ok((runs, failed)),
        }
    }

    /// Returns the job of each case, in the order of the cases.
    fn jobs(&self, families: &[Family]) -> Result<Vec<Job>, Failure> {
        let times = self.cases.setting(HostArg::Simulated);
        let model = self.cases.machine.model();
        families.iter().try_for_each(|family| job::check_anywhere(&family.whole))?;
        let cases = families.iter().flat_map(|family| family.points.iter().flatten().map(|case| (&family.whole, case)));
        Ok(cases.map(|(whole, case)| job::of_case(case, whole, times.warm_up, times.measured, model)).collect())
    }

    /// Draws the curve, if there is one.
    fn write_plot(&self, target: Option<Target>, plot: &Plot) -> Result<(), Failure> {
        match (target, &self.plot) {
            (Some(target), Some(path)) => drawn(plot, path)?.map_or(Ok(()), |text| target.write(&text)),
            _ => Ok(()),
        }
    }

    /// Returns all cases.
    fn families(&self, program: &dyn Program) -> Result<Vec<Family>, Failure> {
        let mitigations = self.cases.mitigations(program)?;
        let arbitrations = self.cases.machine.arbitrations()?;
        self.cases.check_seeds(self.seeds())?;
        let setting = self.cases.setting(HostArg::Simulated);
        let mut families = Vec::new();
        for (whole, parts) in self.cases.machine.sizes(HostArg::Simulated, &usual_counts)? {
            let parts = self.cases.with_costs(&parts)?;
            let mut points = Vec::new();
            for arbitration in arbitrations.of(&self.cases.machine.costs(&whole)?) {
                for machine in &parts {
                    let workload = program.workloads(&machine.0, &setting).swap_remove(0);
                    for mitigation in &mitigations {
                        let workloads = (0..self.seeds()).map(|seed| workload.with_seed(self.cases.seed() + seed));
                        let case =
                            |workload| self.cases.case(program, machine, arbitration, mitigation.clone(), workload);
                        points.push(workloads.map(case).collect::<Result<_, Failure>>()?);
                    }
                }
            }
            families.push(Family { whole, points });
        }
        Ok(families)
    }

    fn setting(&self, workload: &dyn Workload, families: &[Family]) -> Result<Setting, Failure> {
        let Window { warm_up, measured } = window(workload);
        let machine = |family: &Family| {
            Ok(machine_of(HostArg::Simulated, &family.whole, &self.cases.machine.costs(&family.whole)?))
        };
        Ok(Setting {
            schema: sweep_state::SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: digest::build(),
            workload: workload.name().to_owned(),
            options: workload.options(),
            warm_up: warm_up.as_picos(),
            measured: measured.as_picos(),
            coherence: self.cases.coherence.unwrap_or_default().name().to_owned(),
            machines: families.iter().map(machine).collect::<Result<_, Failure>>()?,
        })
    }

    /// Runs the cases that are not in the state yet. Returns all runs in the order of the cases,
    /// and the failures.
    fn finish(&self, families: &[Family], state: &StateFile<Finished>) -> (Vec<Finished>, Vec<Failure>) {
        let (mut runs, mut left) = (Vec::new(), Vec::new());
        for case in families.iter().flat_map(|family| family.points.iter().flatten()) {
            match state.find(&key(case)) {
                Some(run) => runs.push(run.clone()),
                None => left.push(case.clone()),
            }
        }
        let (done, all) = (runs.len(), runs.len() + left.len());
        if done > 0 {
            // Nothing can be done when stderr is closed.
            let _closed = writeln!(io::stderr(), "hitm: resumed: {done} of {all} runs were finished before");
        }
        let progress = Progress::new(left.len());
        let run = |case: &Case, clock: &Arc<Clock>| {
            let run = finished(case, &case.run(clock)?);
            state.add(&run)?;
            Ok(run)
        };
        let failed = campaign::run(&left, self.cases.threads(), &progress, run, |_, run| runs.push(run));
        runs.sort_by(|one, other| one.key.cmp(&other.key));
        (runs, failed)
    }

    fn sweep(
        &self,
        workload: &dyn Workload,
        setting: &Setting,
        families: &[Family],
        runs: &[Finished],
        failed: &[Failure],
    ) -> sweep::Sweep {
        let seconds = |picos| Span::from_picos(picos).as_secs_f64();
        let file = empty_file();
        sweep::Sweep {
            schema: sweep::SCHEMA.to_owned(),
            version: file.version,
            command: file.command,
            workload: setting.workload.clone(),
            profile: workload.profile(),
            coherence: setting.coherence.clone(),
            warm_up_seconds: seconds(setting.warm_up),
            measured_seconds: seconds(setting.measured),
            seeds: (0..self.seeds()).map(|seed| self.cases.seed() + seed).collect(),
            machines: setting.machines.clone(),
            points: families.iter().flat_map(|family| points(family, runs)).collect(),
            failures: failed.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Returns the points of a machine for which all random seeds have finished.
fn points(family: &Family, runs: &[Finished]) -> Vec<Point> {
    let of = |case: &Case| {
        let found = runs.binary_search_by(|run| run.key.cmp(&key(case)));
        found.ok().map(|index| &runs[index])
    };
    let whole = |cases: &Vec<Case>| Some((cases[0].clone(), cases.iter().map(of).collect::<Option<Vec<_>>>()?));
    let all: Vec<(Case, Vec<&Finished>)> = family.points.iter().filter_map(whole).collect();
    let rate = |runs: &[&Finished]| mean_of_batches(&runs.iter().map(|run| &run.rates).collect::<Vec<_>>());
    let baseline = |case: &Case| {
        let alike = |other: &Case| {
            other.topology.cpus() == case.topology.cpus()
                && other.arbitration == case.arbitration
                && other.is_baseline()
        };
        all.iter().find(|(other, _)| alike(other)).map(|(_, runs)| rate(runs))
    };
    let point = |(case, runs): &(Case, Vec<&Finished>)| {
        let metric = rate(runs);
        let relative = baseline(case).map(|baseline| relative(case.mitigation_name(), metric, baseline));
        let sum = |what: fn(&Finished) -> u64| runs.iter().map(|run| what(run)).sum::<u64>() as f64;
        let (busy, idle) = (sum(|run| run.busy), sum(|run| run.idle));
        let units = metric.value * window(&*case.workload).measured.as_secs_f64() * runs.len() as f64;
        Point {
            machine: family.whole.name().to_owned(),
            cpus: case.topology.cpus(),
            arbitration: case.arbitration.name().into_owned(),
            mitigation: case.mitigation.name().to_owned(),
            metric: case.workload.metric(metric),
            relative: relative.map(|relative| relative.value),
            relative_interval: relative.map(|relative| relative.interval),
            kernel_share: sum(|run| run.kernel) / busy.max(1.0),
            idle_share: idle / (busy + idle).max(1.0),
            misses: sum(|run| run.misses) / units.max(f64::MIN_POSITIVE),
        }
    };
    all.iter().map(point).collect()
}

/// Draws a plot. `None` if it has no curve.
///
/// # Errors
/// When it cannot be drawn for the file at `path`.
pub(super) fn drawn(plot: &Plot, path: &Path) -> Result<Option<String>, Failure> {
    plot.render().map_err(|error| Failure::new(format!("--plot `{}`: {error}; leave it out", path.display())))
}
