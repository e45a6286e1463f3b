//! `hitm run hackbench`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, ValueEnum};
use hitm::{Handle, NativeRuntime};
use hitm_machine::{Arbitration, Config as MachineConfig, Costs, Machine, Results, Simulated};
use hitm_memory::{Span, Time};
use hitm_report::load::{Kind, Load};
use hitm_report::messaging;
use hitm_report::result::{Metric, ResultFile, Run, relate};
use hitm_report::statistics::mean;
use hitm_sched::journal::Conservation;
use hitm_sched::mitigation::{IDLE_SEARCHES, Mitigation};
use hitm_sched::stats::Count;
use hitm_topology::Topology;
use hitm_workloads::hackbench::{self, Channels, Config};
use hitm_workloads::nested;

use crate::args::{CoherenceArg, HostArg, MachineArgs, OutputArgs, refuse_natively};
use crate::campaign::{self, Job};
use crate::failure::Failure;
use crate::record::{by_name, conservation, empty_file, machine_of, on_host, report};
use crate::terminal::{fitted, width};
use crate::workload::SessionArgs;
use crate::{convert, output};

/// Groups of fair tasks in which every sender sends to every receiver, over pipes or sockets.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run hackbench
  hitm run hackbench --machine clx-2x20 --groups 1,2,4,8 --mitigation baseline,idle-single-pass
  hitm run hackbench --channels sockets --loops 1000 --mitigation baseline,shipped
  hitm run hackbench --groups 2 --mitigation shipped --seeds 1 --lines 10 --json hackbench.json
  hitm run hackbench --machine icx-2x40 --depth 1 --mitigation baseline,task-group-reordered,shipped
  hitm run hackbench --host native --groups 1 --loops 1000")]
pub(crate) struct Hackbench {
    #[command(flatten)]
    machine: MachineArgs,
    /// Where to run.
    #[arg(long, value_enum, default_value = "simulated")]
    host: HostArg,
    /// Numbers of groups, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    groups: Vec<u32>,
    /// Senders per group; there are as many receivers.
    #[arg(long, value_name = "N", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(1..=200), allow_negative_numbers = true)]
    fds: u32,
    /// Messages from each sender to each receiver.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000), allow_negative_numbers = true)]
    loops: u32,
    /// Bytes per message.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=Config::BYTES_MAX as i64), allow_negative_numbers = true)]
    datasize: u32,
    /// Channels between senders and receivers.
    #[arg(long, value_enum, default_value = "pipes")]
    channels: ChannelsArg,
    #[command(flatten)]
    session: SessionArgs,
    /// Mitigations to run, separated by commas: mostly searches for an idle CPU.
    #[arg(long, value_name = "A,B+C", value_delimiter = ',', default_values = IDLE_SEARCHES)]
    mitigation: Vec<String>,
    /// Runs per mitigation, with successive random seeds [default: 3 simulated, 5 natively].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_negative_numbers = true)]
    seeds: Option<u64>,
    /// Which objects have costs in the coherence model [default: full].
    #[arg(long, value_enum)]
    coherence: Option<CoherenceArg>,
    /// Host threads of simulated runs [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Channels between senders and receivers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ChannelsArg {
    Pipes,
    Sockets,
}

impl From<ChannelsArg> for Channels {
    fn from(channels: ChannelsArg) -> Self {
        match channels {
            ChannelsArg::Pipes => Self::Pipes,
            ChannelsArg::Sockets => Self::Sockets,
        }
    }
}

/// A run.
struct Case {
    host: HostArg,
    topology: Arc<Topology>,
    costs: Costs,
    arbitration: Arbitration,
    coherence: CoherenceArg,
    mitigation: Mitigation,
    config: Config,
    seed: u64,
}

/// The outcome of a run.
struct Outcome {
    /// From the release of all tasks to the end of the last one.
    span: Span,
    operations: Vec<(Count, u64)>,
    /// The machine's counts in that time, for a simulated run.
    watched: Option<Watched>,
    wall_seconds: f64,
}

/// A simulated machine's counts while messages are passed.
struct Watched {
    results: Results,
    operations: Vec<(Count, u64)>,
    conservation: Option<Conservation>,
}

impl Job for Case {
    fn name(&self) -> String {
        let Self { topology, mitigation, config, seed, .. } = self;
        format!("hackbench on {}, {}, {}, seed {seed}", topology.name(), profile(config), mitigation.name())
    }
}

/// The original program's senders per group, and its receivers.
const PAIRS: u32 = 20;

/// Returns the load; `None` with another number of tasks than the original's default.
pub(crate) fn load(config: &Config) -> Option<Load> {
    let Config { groups, pairs, channels, depth, .. } = *config;
    let kind = match channels {
        Channels::Pipes => Kind::PipeThreads(groups),
        Channels::Sockets => Kind::SocketThreads(groups),
    };
    (pairs == PAIRS as usize).then_some(Load { kind, depth })
}

/// Returns the load in words.
fn profile(config: &Config) -> String {
    let Config { groups, pairs, channels, depth, .. } = config;
    let plural = if *groups == 1 { "" } else { "s" };
    let channels = match channels {
        Channels::Pipes => "pipes",
        Channels::Sockets => "sockets",
    };
    format!("threads over {channels}, {groups} group{plural} of {pairs} and {pairs}{}", nested::in_words(*depth, 0))
}

impl Case {
    fn run(&self) -> Result<Outcome, Failure> {
        match self.host {
            HostArg::Simulated => self.simulate(),
            HostArg::Native => self.measure(),
        }
    }

    fn simulate(&self) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let Self { topology, costs, arbitration, coherence, config, seed, .. } = self;
        let machine_config = MachineConfig {
            seed: *seed,
            arbitration: *arbitration,
            coherence: coherence.model(),
            // Nothing is counted until all tasks exist.
            measure_from: Span::from_picos(u64::MAX),
            ..MachineConfig::default()
        };
        let machine = Machine::new(topology.clone(), costs.clone(), machine_config);
        let runtime = machine.enter(|| Handle::new(self.mitigation.scheduler::<Simulated>(topology.clone()), None));
        runtime.scheduler().stats().keep_journal();
        let times = Arc::new(Mutex::new((Time::START, Time::START)));
        let (handle, slot, config) = (runtime.clone(), times.clone(), *config);
        let ended = machine.run(move |cpu| {
            if cpu.index() == 0 {
                let (own, slot) = (handle.clone(), slot.clone());
                drop(handle.spawn(hackbench::PRIORITY, async move {
                    let crowd = hackbench::gather(&own, config).await;
                    Simulated::measure_from_now();
                    own.scheduler().stats().count_between(own.now(), Time::NEVER);
                    let times = crowd.pass_on(&own).await;
                    Simulated::measure_until_now();
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = times;
                    own.shutdown();
                }));
            }
            handle.run_cpu(cpu);
        });
        ended.map_err(|stalled| Failure::wanting(format!("{}: {stalled}", self.name())))?;
        let (begin_of_all, end_of_all) = *times.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = runtime.scheduler().stats();
        Ok(Outcome {
            span: end_of_all.since(begin_of_all),
            operations: stats.sums(),
            watched: Some(Watched {
                results: machine.results(),
                operations: stats.sums_between(),
                conservation: stats.conservation(begin_of_all, end_of_all),
            }),
            wall_seconds: begin.elapsed().as_secs_f64(),
        })
    }

    fn measure(&self) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let fail = |error: String| Failure::new(format!("native run on `{}`: {error}", self.topology.name()));
        let runtime = NativeRuntime::new(self.topology.clone(), &self.mitigation, None, true)
            .map_err(|error| fail(error.to_string()))?;
        let config = self.config;
        let run = move |handle: Handle<_>| async move {
            let own = handle.clone();
            handle.spawn(hackbench::PRIORITY, async move { hackbench::run(&own, config).await }).await
        };
        let times = runtime.run(run).map_err(|error| fail(error.to_string()))?;
        let (begin_of_all, end_of_all) = times.map_err(|error| fail(error.to_string()))?;
        Ok(Outcome {
            span: end_of_all.since(begin_of_all),
            operations: runtime.handle().scheduler().stats().sums(),
            watched: None,
            wall_seconds: begin.elapsed().as_secs_f64(),
        })
    }
}

impl Hackbench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let topologies = self.machine.or(self.host, "clx-2x20").topologies(self.host)?;
        let arbitrations = self.machine.arbitrations()?;
        refuse_natively(self.host, &self.machine.simulated_only())?;
        refuse_natively(self.host, &[("--coherence", self.coherence.is_some()), ("--jobs", self.jobs.is_some())])?;
        refuse_natively(self.host, &self.output.simulated_only())?;
        let mitigations = self.mitigations()?;
        let mut cases = Vec::new();
        let mut file = empty_file();
        for topology in &topologies {
            let costs = self.machine.costs(topology)?;
            file.machines.push(machine_of(self.host, topology, &costs));
            for &arbitration in &arbitrations {
                self.add_cases(&mut cases, topology, &costs, arbitration, &mitigations);
            }
        }
        let target = output::target("--json", self.output.json.as_deref())?;
        self.measure(&cases, &mut file);
        report(file, target, |file| fitted(&messaging::render(file, width())) + &self.output.lines_of(file))
    }

    fn mitigations(&self) -> Result<Vec<Mitigation>, Failure> {
        let mut mitigations: Vec<Mitigation> = Vec::new();
        for name in &self.mitigation {
            let mitigation = Mitigation::parse(name).map_err(|error| Failure::new(format!("--{error}")))?;
            if mitigations.iter().any(|other| other.name() == mitigation.name()) {
                return Err(Failure::new(format!("--mitigation `{name}`: is there twice; give it once")));
            }
            mitigations.push(self.session.adapt(mitigation));
        }
        Ok(mitigations)
    }

    fn seeds(&self) -> Vec<u64> {
        let usual = if self.host == HostArg::Native { 5 } else { 3 };
        self.machine.seeds(self.seeds.unwrap_or(usual))
    }

    /// Adds the runs of one machine under one policy: rows of one case per random seed.
    fn add_cases(
        &self,
        cases: &mut Vec<Case>,
        topology: &Arc<Topology>,
        costs: &Costs,
        arbitration: Arbitration,
        mitigations: &[Mitigation],
    ) {
        for &groups in &self.groups {
            let depth = self.session.depth();
            let [groups, pairs, loops, bytes] =
                [groups, self.fds, self.loops, self.datasize].map(|number| number as usize);
            for mitigation in mitigations {
                cases.extend(self.seeds().into_iter().map(|seed| Case {
                    host: self.host,
                    topology: topology.clone(),
                    costs: costs.clone(),
                    arbitration,
                    coherence: self.coherence.unwrap_or_default(),
                    mitigation: mitigation.clone(),
                    config: Config { groups, pairs, loops, bytes, channels: self.channels.into(), depth },
                    seed,
                }));
            }
        }
    }

    fn measure(&self, cases: &[Case], file: &mut ResultFile) {
        let row = |cases: &[Case], outcomes: &[&Outcome]| self.row(&cases[0], outcomes);
        let threads = campaign::threads(self.host, self.jobs);
        (file.runs, file.failures) = campaign::run_rows(cases, self.seeds().len(), threads, |case, _| case.run(), row);
        relate(&mut file.runs);
    }

    fn row(&self, case: &Case, outcomes: &[&Outcome]) -> Run {
        let Case { topology, arbitration, coherence, mitigation, config, .. } = case;
        let seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.span.as_secs_f64()).collect();
        let metric = mean(&seconds);
        let mut operations = by_name(outcomes.iter().flat_map(|outcome| &outcome.operations));
        operations.insert(messaging::MESSAGES.to_owned(), config.messages() * outcomes.len() as u64);
        let watched: Vec<&Watched> = outcomes.iter().filter_map(|outcome| outcome.watched.as_ref()).collect();
        let found: Vec<Conservation> = watched.iter().filter_map(|watched| watched.conservation).collect();
        let simulated_seconds = seconds.iter().sum();
        let run = Run {
            workload: messaging::WORKLOAD.to_owned(),
            profile: profile(config),
            load: load(config),
            mitigation: mitigation.name().to_owned(),
            machine: topology.name().to_owned(),
            seed: self.machine.seed,
            seeds: self.seeds(),
            wall_seconds: outcomes.iter().map(|outcome| outcome.wall_seconds).sum(),
            metric: Metric {
                name: "seconds".to_owned(),
                value: metric.value,
                interval: metric.interval,
                unit: "s".to_owned(),
                better: "lower".to_owned(),
            },
            simulated_seconds,
            operations,
            conservation: conservation(&found, topology.cpus(), simulated_seconds),
            ..told(&watched)
        };
        on_host(self.host, *arbitration, *coherence, run)
    }
}

/// Returns a run with the machines' counts, one machine per random seed; empty natively.
fn told(watched: &[&Watched]) -> Run {
    let Some((first, others)) = watched.split_first() else {
        return Run { kernel_share: f64::NAN, ..Run::default() };
    };
    let mut results = first.results.clone();
    others.iter().for_each(|other| results.merge(&other.results));
    let done: Vec<(Count, u64)> = watched.iter().flat_map(|watched| watched.operations.iter().copied()).collect();
    convert::run(&results, &done)
}
