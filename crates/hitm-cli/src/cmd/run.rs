//! `hitm run`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use clap::{Args, Subcommand};
use hitm::{RoleCounts, Roles};
use hitm_machine::{Arbitration, CostSet, Costs};
use hitm_memory::Span;
use hitm_report::published;
use hitm_report::result::{Calibration, Machine, Metric, ResultFile, Role, Run as RunResult, SCHEMA};
use hitm_report::statistics::{Mean, mean_of_batches, ratio};
use hitm_sched::mitigation::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::ffmpeg;
use hitm_workloads::meter::Window;

use crate::args::{CoherenceArg, HostArg, MachineArgs, OutputArgs, factor, span};
use crate::campaign::{self, Progress, host_threads};
use crate::cmd::probe::Probe;
use crate::failure::Failure;
use crate::simulate::{Case, Outcome};
use crate::{calibrate, convert, native, print};

/// Run a workload, simulated or for real.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// 60 transcoders on 8 CPUs each, every thread at FIFO 99.
    Ffmpeg(Box<Ffmpeg>),
    /// What one shared word, counter or bitmap costs.
    Probe(Probe),
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.workload {
            Workload::Ffmpeg(ffmpeg) => ffmpeg.run(),
            Workload::Probe(probe) => probe.run(),
        }
    }
}

/// Transcoders, and the root domain that they share.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run ffmpeg                                             the seeds' table
  hitm run ffmpeg --mitigation baseline,all --lines 3 --json result.json
  hitm run ffmpeg --arbitration local-first,fifo --machine gnr-2x120 --machine gnr-2x120-snc3
  hitm run ffmpeg --machine this --host native --duration 5s --roles")]
pub(crate) struct Ffmpeg {
    #[command(flatten)]
    machine: MachineArgs,
    /// The mitigations to run, separated by commas; `+` joins several into one run; `as-posted` stands for the posted stacking.
    #[arg(long, value_name = "A,B+C", value_delimiter = ',', default_values_t = DEFAULT_MITIGATIONS.map(str::to_owned))]
    mitigation: Vec<String>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "simulated")]
    host: HostArg,
    /// Which objects take part in the coherence model.
    #[arg(long, value_enum, default_value = "full")]
    coherence: CoherenceArg,
    /// How long each run is measured [default: 16ms simulated, 5s native].
    #[arg(long, value_name = "T", value_parser = span)]
    duration: Option<Span>,
    /// What is not measured before that [default: 8ms simulated, 1s native].
    #[arg(long, value_name = "T", value_parser = span)]
    warm_up: Option<Span>,
    /// Runs of each mitigation, with successive seeds.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Add seeds until the interval of `relative` is under a point, up to this many [default: as --seeds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    max_seeds: Option<u64>,
    /// Which program: x264 medium under FFmpeg 7, under FFmpeg before 7, or an encoder like x265.
    #[arg(long, value_enum, default_value = "x264")]
    profile: ProfileArg,
    /// Scale frames between decoder and encoder, by the filter's slice workers.
    #[arg(long)]
    scale: bool,
    /// Multiply all bursts by this instead of calibrating (natively 1 unless given).
    #[arg(long, value_name = "F", value_parser = factor)]
    burst_factor: Option<f64>,
    /// Print what the tasks of each role did, and who woke whom.
    #[arg(long)]
    roles: bool,
    /// Host threads [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The rows of the seeds' table.
const DEFAULT_MITIGATIONS: [&str; 7] = [
    "baseline",
    "cpupri-split",
    "cpupri-split-compact",
    "root-domain-reordered",
    "rto-count=node",
    "cpupri-mask=node",
    "all",
];

/// What `as-posted` alone stands for.
const AS_POSTED: [&str; 3] = ["rto-count=node+as-posted", "cpupri-mask=node+as-posted", "all+as-posted"];

/// The interval of `relative` that is good enough: a point.
const GOOD_INTERVAL: f64 = 0.01;

/// Lines that a result file keeps of a run.
const LINES_KEPT: usize = 100;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ProfileArg {
    /// x264 medium under the pipeline of FFmpeg 7.
    X264,
    /// x264 medium under FFmpeg before 7.
    SingleMain,
    /// An encoder with a wavefront of rows.
    X265Like,
}

impl From<ProfileArg> for ffmpeg::Profile {
    fn from(arg: ProfileArg) -> Self {
        match arg {
            ProfileArg::X264 => Self::X264,
            ProfileArg::SingleMain => Self::SingleMain,
            ProfileArg::X265Like => Self::X265Like,
        }
    }
}

/// All runs of one machine and policy.
struct Group {
    cases: Vec<Case>,
    /// By case, all seeds together.
    outcomes: Vec<Option<Outcome>>,
}

impl Ffmpeg {
    fn run(self) -> Result<(), Failure> {
        let mitigations = self.mitigations()?;
        let topologies = self.topologies()?;
        let file = match self.host {
            HostArg::Simulated => self.simulate(&mitigations, &topologies)?,
            HostArg::Native => native::run(&self.native_cases(&mitigations, &topologies))?,
        };
        self.write_json(&file)?;
        print(&self.report(&file))
    }

    fn report(&self, file: &ResultFile) -> String {
        let mut text = hitm_report::summary::render(file);
        if self.roles {
            for run in &file.runs {
                text.push('\n');
                text.push_str(&hitm_report::summary::render_roles(run));
            }
        }
        if let Some(first) = file.runs.first().filter(|run| run.host == "simulated" && self.output.lines > 0) {
            text.push('\n');
            text.push_str(&hitm_report::c2c::render(first, self.output.lines, self.output.layout.into()));
        }
        text
    }

    fn mitigations(&self) -> Result<Vec<Mitigation>, Failure> {
        let mut names: Vec<&str> = Vec::new();
        for name in &self.mitigation {
            match name.as_str() {
                "as-posted" => names.extend(AS_POSTED),
                name => names.push(name),
            }
        }
        names.into_iter().map(|name| Ok(Mitigation::parse(name)?)).collect()
    }

    fn topologies(&self) -> Result<Vec<Arc<Topology>>, Failure> {
        let read = |name: &String| {
            let topology = hitm_topology::parse(name)?;
            Ok(Arc::new(match self.machine.cpus {
                Some(cpus) => topology.restrict(cpus)?,
                None => topology,
            }))
        };
        self.machine.machines.iter().map(read).collect()
    }

    fn window(&self) -> Window {
        let (warm_up, measured) = match self.host {
            HostArg::Simulated => (Span::from_micros(8_000), Span::from_micros(16_000)),
            HostArg::Native => (Span::from_micros(1_000_000), Span::from_micros(5_000_000)),
        };
        Window { warm_up: self.warm_up.unwrap_or(warm_up), measured: self.duration.unwrap_or(measured) }
    }

    fn workload(&self) -> ffmpeg::Config {
        ffmpeg::Config {
            profile: self.profile.into(),
            scale: self.scale,
            burst_factor: self.burst_factor.unwrap_or(1.0),
            seed: self.machine.seed,
            window: self.window(),
        }
    }

    fn native_cases(&self, mitigations: &[Mitigation], topologies: &[Arc<Topology>]) -> Vec<native::Case> {
        let each = |topology: &Arc<Topology>| {
            let topology = topology.clone();
            mitigations.iter().map(move |mitigation| native::Case {
                topology: topology.clone(),
                mitigation: mitigation.clone(),
                workload: self.workload(),
            })
        };
        topologies.iter().flat_map(each).collect()
    }

    fn simulate(&self, mitigations: &[Mitigation], topologies: &[Arc<Topology>]) -> Result<ResultFile, Failure> {
        let threads = self.jobs.map_or_else(host_threads, |jobs| jobs as usize);
        let arbitrations: Vec<Arbitration> = self.machine.arbitration.iter().map(|&arg| arg.into()).collect();
        let groups = topologies.len() * arbitrations.len();
        let calibrations_each = if self.burst_factor.is_none() { calibrate::RUNS } else { 0 };
        let progress = Progress::new(groups * (calibrations_each + mitigations.len() * self.seeds as usize));
        let mut file = empty_file();
        for topology in topologies {
            file.machines.push(machine_of(topology));
            for &arbitration in &arbitrations {
                let mut case = Case {
                    topology: topology.clone(),
                    arbitration,
                    coherence: self.coherence,
                    mitigation: Mitigation::baseline(),
                    workload: self.workload(),
                    roles: self.roles,
                };
                if self.burst_factor.is_none() {
                    let (factor, calibration) = calibrate::burst_factor(&case, threads, &progress)?;
                    case.workload.burst_factor = factor;
                    file.calibrations.push(calibration);
                }
                let cases =
                    mitigations.iter().map(|mitigation| Case { mitigation: mitigation.clone(), ..case.clone() });
                let group = self.run_group(cases.collect(), threads, &progress)?;
                file.runs.extend(self.runs_of(&group, &file.calibrations));
            }
        }
        Ok(file)
    }

    /// Runs every case with its seeds, and more seeds while intervals are too wide and it is allowed.
    fn run_group(&self, cases: Vec<Case>, threads: usize, progress: &Progress) -> Result<Group, Failure> {
        let mut group = Group { outcomes: cases.iter().map(|_| None).collect(), cases };
        let most = self.max_seeds.unwrap_or(self.seeds).max(self.seeds);
        let mut from = 0;
        while from < most {
            let to = if from == 0 { self.seeds } else { (from + self.seeds).min(most) };
            if from > 0 {
                progress.expect_more(group.cases.len() * (to - from) as usize);
            }
            let seeds = from..to;
            let with_seed = |case: &Case, seed: u64| {
                let mut case = case.clone();
                case.workload.seed = self.machine.seed + seed;
                case
            };
            let cases: Vec<Case> =
                group.cases.iter().flat_map(|case| seeds.clone().map(move |seed| with_seed(case, seed))).collect();
            let each = (to - from) as usize;
            campaign::run(&cases, threads, progress, |index, outcome| {
                let own = &mut group.outcomes[index / each];
                match own {
                    Some(own) => own.merge(outcome),
                    None => *own = Some(outcome),
                }
                // What is not reported need not be kept, once nothing more is merged.
                if let Some(own) = own.as_mut().filter(|_| to == most && index % each == each - 1) {
                    own.results.keep_hottest(LINES_KEPT);
                }
            })?;
            from = to;
            if group.widest_interval() < GOOD_INTERVAL {
                break;
            }
        }
        Ok(group)
    }

    fn runs_of(&self, group: &Group, _calibrations: &[Calibration]) -> Vec<RunResult> {
        let baseline = group.baseline();
        let runs = group.cases.iter().zip(group.outcomes.iter().flatten());
        runs.map(|(case, outcome)| self.run_of(case, outcome, baseline)).collect()
    }

    fn run_of(&self, case: &Case, outcome: &Outcome, baseline: Option<Mean>) -> RunResult {
        let metric = rate(outcome);
        let relative = baseline.map(|baseline| {
            if case.mitigation.name() == "baseline" {
                Mean { value: 1.0, interval: 0.0 }
            } else {
                ratio(metric, baseline)
            }
        });
        let results = &outcome.results;
        let seeds = outcome.rates.len();
        let measured = case.workload.window.measured.as_secs_f64() * seeds as f64;
        let mut operations = BTreeMap::new();
        for (count, times) in &outcome.operations {
            *operations.entry(count.name().to_owned()).or_default() += times;
        }
        let mut notes = Vec::new();
        if let Some(wide) = relative.filter(|relative| relative.interval > GOOD_INTERVAL) {
            notes.push(format!(
                "the interval of relative is {:.1} points: more seeds narrow it (--max-seeds)",
                100.0 * wide.interval
            ));
        }
        let (words, all) = outcome.bytes;
        let frames = metric.value * measured;
        RunResult {
            workload: "ffmpeg".to_owned(),
            mitigation: case.mitigation.name().to_owned(),
            host: "simulated".to_owned(),
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().to_owned(),
            coherence: case.coherence.name().to_owned(),
            seed: self.machine.seed,
            seeds: (0..seeds as u64).map(|seed| self.machine.seed + seed).collect(),
            wall_seconds: outcome.wall_seconds,
            metric: frames_per_second(metric),
            relative: relative.map(|relative| relative.value),
            relative_interval: relative.map(|relative| relative.interval),
            kernel_share: results.account.kernel_share(),
            idle_share: results.account.idle_share(),
            kernel_parts: results.kernel_parts(),
            published: published::of("ffmpeg", case.mitigation.name()),
            simulated_seconds: measured,
            accesses: results.totals.accesses(),
            misses: results.totals.misses,
            switches: results.totals.resumes,
            bytes: [("root_domain".to_owned(), words), ("root_domain_with_bitmaps".to_owned(), all)].into(),
            operations,
            roles: per_frame(&outcome.roles, frames),
            wakes: pairs_per_frame(outcome.wakes.iter().copied(), frames),
            lines: convert::lines(results, LINES_KEPT),
            notes,
        }
    }

    fn write_json(&self, file: &ResultFile) -> Result<(), Failure> {
        match &self.output.json {
            Some(path) => write_json(path, file),
            None => Ok(()),
        }
    }
}

/// Writes a result file: all of it or nothing.
pub(crate) fn write_json(path: &Path, file: &ResultFile) -> Result<(), Failure> {
    let fail = |error: std::io::Error| {
        Failure::new(format!("--json `{}`: {error}; name a file in a folder that can be written", path.display()))
    };
    // A reader never sees half a file, and a failure leaves what was there.
    let temporary = path.with_extension("json.part");
    fs::write(&temporary, file.write()).map_err(fail)?;
    fs::rename(&temporary, path).map_err(fail)
}

impl Group {
    fn baseline(&self) -> Option<Mean> {
        let index = self.cases.iter().position(|case| case.mitigation.name() == "baseline")?;
        self.outcomes[index].as_ref().map(rate)
    }

    fn widest_interval(&self) -> f64 {
        let Some(baseline) = self.baseline() else { return 0.0 };
        let relative = |outcome: &Outcome| ratio(rate(outcome), baseline).interval;
        self.outcomes.iter().flatten().map(relative).fold(0.0, f64::max)
    }
}

/// Frames per second over all batches of all seeds.
fn rate(outcome: &Outcome) -> Mean {
    mean_of_batches(&outcome.rates.iter().map(|rates| rates.to_vec()).collect::<Vec<_>>())
}

/// A rate as a metric.
pub(crate) fn frames_per_second(mean: Mean) -> Metric {
    Metric {
        name: "frames_per_second".to_owned(),
        value: mean.value,
        interval: mean.interval,
        unit: "1/s".to_owned(),
        better: "higher".to_owned(),
    }
}

/// A file of this command without runs.
pub(crate) fn empty_file() -> ResultFile {
    ResultFile {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().skip(1).collect(),
        machines: Vec::new(),
        calibrations: Vec::new(),
        runs: Vec::new(),
    }
}

/// What a file says of a machine.
pub(crate) fn machine_of(topology: &Topology) -> Machine {
    let costs = Costs::of(topology, CostSet::Linux);
    Machine {
        name: topology.name().to_owned(),
        cpus: topology.cpus(),
        cores: topology.cores(),
        llcs: topology.llcs(),
        nodes: topology.nodes(),
        packages: topology.packages(),
        source: topology.source().to_owned(),
        model: costs.parameters(),
        cost_table: costs.family.name,
        note: costs.note,
    }
}

/// What the tasks of each role did a frame.
pub(crate) fn native_roles(roles: Option<&Roles>, frames: f64) -> Vec<Role> {
    roles.map_or_else(Vec::new, |roles| per_frame(&[roles.counts()], frames))
}

/// Who woke whom, times a frame.
pub(crate) fn native_wakes(roles: Option<&Roles>, frames: f64) -> Vec<(String, String, f64)> {
    roles.map_or_else(Vec::new, |roles| pairs_per_frame(roles.wakes().into_iter(), frames))
}

fn per_frame(runs: &[Vec<RoleCounts>], frames: f64) -> Vec<Role> {
    let Some(first) = runs.first() else { return Vec::new() };
    let role = |index: usize| {
        let counts = runs.iter().map(|run| &run[index]);
        let sum = |what: fn(&RoleCounts) -> f64| counts.clone().map(what).sum::<f64>();
        let activations = sum(|counts| counts.activations as f64);
        Role {
            name: first[index].name.to_owned(),
            activations: activations / frames,
            burst_micros: sum(|counts| counts.busy.as_nanos_f64()) / 1e3 / activations.max(1.0),
            wakes: sum(|counts| counts.woken as f64) / frames,
            switches: sum(|counts| counts.switches as f64) / frames,
            futex_calls: sum(|counts| counts.futex_calls as f64) / frames,
            migrations: sum(|counts| counts.migrations as f64) / frames,
        }
    };
    (0..first.len()).map(role).collect()
}

fn pairs_per_frame(
    wakes: impl Iterator<Item = (Option<&'static str>, &'static str, u64)>,
    frames: f64,
) -> Vec<(String, String, f64)> {
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (waker, woken, times) in wakes {
        *pairs.entry((waker.unwrap_or("timer"), woken)).or_default() += times;
    }
    pairs
        .into_iter()
        .map(|((waker, woken), times)| (waker.to_owned(), woken.to_owned(), times as f64 / frames))
        .collect()
}
