//! `hitm run cid-bursts`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

#[cfg(test)]
use clap::FromArgMatches as _;
use clap::{Args, ValueEnum};
use hitm::{Handle, NativeRuntime};
use hitm_machine::{Arbitration, Capacity, Config as MachineConfig, Costs, Machine, Simulated};
use hitm_memory::Span;
use hitm_report::id_bursts::{self, Bursts, Kind, PER_CPU};
use hitm_report::load::{self, Load};
use hitm_report::published::{Key, On, Quantity, figure};
use hitm_report::result::{Metric, ResultFile, Run, relate};
use hitm_report::statistics::mean;
use hitm_sched::mitigation::Mitigation;
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::cid_bursts::{self, Burst, Config, Index, Pass};

use crate::args::{CoherenceArg, HostArg, MachineArgs, refuse_natively, span_above_zero};
use crate::campaign::{self, Job};
use crate::failure::Failure;
use crate::output;
use crate::record::{empty_file, machine_of, on_host, report};
use crate::terminal::{fitted, width};

/// Threads that wake one after the other and increment 16 KiB that belong to their CPU or
/// concurrency id.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run cid-bursts                                         the published table, and our own ids
  hitm run cid-bursts --threads one-per-llc --delay 200ms,20ms --mitigation baseline,shipped
  hitm run cid-bursts --model caches.flushed_after=inf
  hitm run cid-bursts --host native --delay 10ms")]
pub(crate) struct CidBursts {
    #[command(flatten)]
    machine: MachineArgs,
    /// Where to run.
    #[arg(long, value_enum, default_value = "simulated")]
    host: HostArg,
    /// CPUs that have a thread.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Threads::Llc, Threads::OnePerLlc, Threads::Cores, Threads::All])]
    threads: Vec<Threads>,
    /// Delay between the wakeups of two threads.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "200ms,10ms", value_parser = span_above_zero, allow_hyphen_values = true)]
    delay: Vec<Span>,
    /// Id allocators, separated by commas; areas indexed by CPU are always run too.
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_values_t = ["baseline", "cid-recent", "cid-owned", "shipped"].map(str::to_owned))]
    mitigation: Vec<String>,
    /// Period of the kernel's tick: 4ms as in Debian, or 1ms as Linux's own default. At a tick in a
    /// running thread the baseline looks for ids to reclaim [default: 4ms].
    #[arg(long, value_name = "T", value_parser = span_above_zero, allow_hyphen_values = true)]
    tick: Option<Span>,
    /// Runs per allocator, with successive random seeds: they decide the order of the threads and
    /// the machine's jitter [default: 3 simulated, 1 natively].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_negative_numbers = true)]
    seeds: Option<u64>,
    /// Write the results to this file, as JSON: see `hitm schema`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// CPUs that have a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Threads {
    /// The cores of one LLC domain.
    Llc,
    /// One core of each LLC domain.
    OnePerLlc,
    /// Every core.
    Cores,
    /// Every CPU.
    All,
}

impl Threads {
    /// Returns the threads, and their CPUs.
    fn on(self, topology: &Topology) -> (load::Threads, Vec<CpuId>) {
        let firsts = |scope| (0..topology.parts(scope)).map(move |part| topology.cpus_of(scope, part)[0]);
        let in_first_llc = |cpu: &CpuId| topology.part_of(Scope::Llc, *cpu) == 0;
        let cpus: Vec<CpuId> = match self {
            Self::Llc => firsts(Scope::Core).filter(in_first_llc).collect(),
            Self::OnePerLlc => firsts(Scope::Llc).collect(),
            Self::Cores => firsts(Scope::Core).collect(),
            Self::All => topology.cpu_ids().collect(),
        };
        let llcs = if self == Self::Llc { 1 } else { topology.llcs() };
        let all_cpus = self == Self::All && topology.cpus() > topology.cores();
        (load::Threads { count: cpus.len(), all_cpus, llcs }, cpus)
    }
}

/// A column: how a thread finds its area.
#[derive(Clone, Debug)]
struct Lookup {
    name: String,
    mitigation: Mitigation,
    index: Index,
}

/// A run.
struct Case {
    host: HostArg,
    topology: Arc<Topology>,
    costs: Costs,
    capacity: Option<Capacity>,
    arbitration: Arbitration,
    threads: load::Threads,
    lookup: Lookup,
    config: Config,
}

/// The outcome of a run.
struct Outcome {
    bursts: Vec<Burst>,
    seconds: f64,
}

impl Job for Case {
    fn name(&self) -> String {
        let Self { topology, threads, lookup, config, .. } = self;
        format!("cid-bursts on {}, {threads}, {}, {}, seed {}", topology.name(), config.delay, lookup.name, config.seed)
    }
}

impl Case {
    fn run(&self) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let bursts = match self.host {
            HostArg::Simulated => self.simulate()?,
            HostArg::Native => self.measure()?,
        };
        Ok(Outcome { bursts, seconds: begin.elapsed().as_secs_f64() })
    }

    fn simulate(&self) -> Result<Vec<Burst>, Failure> {
        let Self { topology, costs, capacity, arbitration, config, .. } = self;
        let default = MachineConfig { seed: config.seed, arbitration: *arbitration, ..MachineConfig::default() };
        let machine = Machine::new(topology.clone(), costs.clone(), MachineConfig { capacity: *capacity, ..default });
        let runtime =
            machine.enter(|| Handle::new(self.lookup.mitigation.scheduler::<Simulated>(topology.clone()), None));
        let bursts = Arc::new(Mutex::new(Vec::new()));
        let (handle, slot, config) = (runtime.clone(), bursts.clone(), config.clone());
        let ended = machine.run(move |cpu| {
            if cpu.index() == 0 {
                let (own, slot, config) = (handle.clone(), slot.clone(), config.clone());
                drop(handle.spawn((), async move {
                    let bursts = cid_bursts::run(&own, config).await;
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = bursts;
                    own.shutdown();
                }));
            }
            handle.run_cpu(cpu);
        });
        ended.map_err(|stalled| Failure::wanting(format!("{}: {stalled}", self.name())))?;
        let bursts = std::mem::take(&mut *bursts.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(bursts)
    }

    fn measure(&self) -> Result<Vec<Burst>, Failure> {
        let fail = |error: String| Failure::new(format!("native run on `{}`: {error}", self.topology.name()));
        let runtime = NativeRuntime::new(self.topology.clone(), &self.lookup.mitigation, None, true)
            .map_err(|error| fail(error.to_string()))?;
        let config = self.config.clone();
        runtime
            .run(move |handle| async move { cid_bursts::run(&handle, config).await })
            .map_err(|error| fail(error.to_string()))
    }
}

/// The last user of an area before a burst, from the nearest to the farthest.
const KINDS: [&str; 6] = [
    "its warm-up",
    "nobody, its memory is given",
    "the same core",
    "a core of its LLC",
    "another LLC",
    "another package",
];

/// Returns the kind of each burst, in the order in which they ended: an index into [`KINDS`].
fn kinds_of(topology: &Topology, bursts: &[Burst]) -> Vec<usize> {
    let mut last: std::collections::BTreeMap<u32, CpuId> = std::collections::BTreeMap::new();
    let same = |scope, one, other| topology.part_of(scope, one) == topology.part_of(scope, other);
    let kind = |burst: &Burst| {
        let before = last.insert(burst.index, burst.cpu);
        match before {
            _ if burst.number == 0 => 0,
            _ if burst.is_first_touch => 1,
            Some(cpu) if same(Scope::Core, cpu, burst.cpu) => 2,
            Some(cpu) if same(Scope::Llc, cpu, burst.cpu) => 3,
            Some(cpu) if topology.cpu(cpu).package == topology.cpu(burst.cpu).package => 4,
            _ => 5,
        }
    };
    bursts.iter().map(kind).collect()
}

impl CidBursts {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let topologies = self.machine.or(self.host, "epyc-9654-2x96").topologies(self.host)?;
        let arbitrations = self.machine.arbitrations()?;
        refuse_natively(self.host, &self.machine.simulated_only())?;
        let lookups = self.lookups()?;
        let mut cases = Vec::new();
        let mut file = empty_file();
        for topology in &topologies {
            let costs = self.machine.costs(topology)?;
            let capacity = match self.host {
                HostArg::Simulated => {
                    Some(costs.capacity(topology).map_err(|why| Failure::new(format!("--machine: {why}")))?)
                }
                HostArg::Native => None,
            };
            file.machines.push(machine_of(self.host, topology, &costs));
            for &arbitration in &arbitrations {
                self.add_cases(&mut cases, topology, &costs, capacity, arbitration, &lookups);
            }
        }
        let target = output::target("--json", self.json.as_deref())?;
        self.measure(&cases, &mut file);
        report(file, target, |file| fitted(&id_bursts::render(file, width())))
    }

    fn lookups(&self) -> Result<Vec<Lookup>, Failure> {
        let by_cpu = Lookup { name: PER_CPU.to_owned(), mitigation: Mitigation::baseline(), index: Index::Cpu };
        let by_id = |name: &String| -> Result<Lookup, Failure> {
            let mitigation = Mitigation::parse(name).map_err(|error| Failure::new(format!("--{error}")))?;
            let mitigation = match self.tick {
                Some(tick) => mitigation.with_tick(tick),
                None => mitigation,
            };
            Ok(Lookup { name: name.clone(), mitigation, index: Index::Id })
        };
        let mut lookups = vec![by_cpu];
        for lookup in self.mitigation.iter().map(by_id) {
            let lookup = lookup?;
            if lookups.iter().any(|other| other.name == lookup.name) {
                return Err(Failure::new(format!("--mitigation `{}`: is there twice; give it once", lookup.name)));
            }
            lookups.push(lookup);
        }
        Ok(lookups)
    }

    fn seeds(&self) -> Vec<u64> {
        let usual = if self.host == HostArg::Native { 1 } else { 3 };
        self.machine.seeds(self.seeds.unwrap_or(usual))
    }

    /// Adds the runs of one machine under one policy: rows of one case per random seed.
    fn add_cases(
        &self,
        cases: &mut Vec<Case>,
        topology: &Arc<Topology>,
        costs: &Costs,
        capacity: Option<Capacity>,
        arbitration: Arbitration,
        lookups: &[Lookup],
    ) {
        let pass = if self.host == HostArg::Native { Pass::WHOLE } else { Pass::BY_LINE };
        // On small machines two of them may be equal.
        let mut groups: Vec<(load::Threads, Vec<CpuId>)> = Vec::new();
        for threads in &self.threads {
            let (threads, cpus) = threads.on(topology);
            if groups.iter().all(|(_, others)| *others != cpus) {
                groups.push((threads, cpus));
            }
        }
        for &delay in &self.delay {
            for (threads, cpus) in &groups {
                for lookup in lookups {
                    cases.extend(self.seeds().into_iter().map(|seed| Case {
                        host: self.host,
                        topology: topology.clone(),
                        costs: costs.clone(),
                        capacity,
                        arbitration,
                        threads: *threads,
                        lookup: lookup.clone(),
                        config: Config { cpus: cpus.clone(), delay, index: lookup.index, pass, seed },
                    }));
                }
            }
        }
    }

    fn measure(&self, cases: &[Case], file: &mut ResultFile) {
        let row = |cases: &[Case], outcomes: &[&Outcome]| self.row(&cases[0], outcomes);
        (file.runs, file.failures) = campaign::run_rows(
            cases,
            self.seeds().len(),
            campaign::threads(self.host, None),
            |case, _| case.run(),
            row,
        );
        relate(&mut file.runs);
    }

    fn row(&self, case: &Case, outcomes: &[&Outcome]) -> Run {
        let Case { topology, arbitration, threads, lookup, config, .. } = case;
        let nanos = |bursts: &[Burst]| mean(&bursts.iter().map(|burst| burst.span.as_nanos_f64()).collect::<Vec<_>>());
        let means: Vec<f64> = outcomes.iter().map(|outcome| nanos(&outcome.bursts).value).collect();
        let metric = mean(&means);
        let delay = config.delay.as_nanos_f64() / 1e6;
        let load = load_of(*threads, config.delay);
        let published = || figure(&key(topology, load?, &lookup.name)).map(|(value, _)| value);
        let run = Run {
            workload: "cid-bursts".to_owned(),
            profile: format!("{threads}, {delay} ms"),
            load,
            mitigation: lookup.name.clone(),
            machine: topology.name().to_owned(),
            seed: self.machine.seed,
            seeds: self.seeds(),
            wall_seconds: outcomes.iter().map(|outcome| outcome.seconds).sum(),
            metric: Metric {
                name: "nanoseconds_a_burst".to_owned(),
                value: metric.value,
                interval: metric.interval,
                unit: "ns".to_owned(),
                better: "lower".to_owned(),
            },
            kernel_share: f64::NAN,
            simulated_seconds: config.duration().as_secs_f64() * outcomes.len() as f64,
            bursts: Some(Bursts {
                threads: threads.to_string(),
                delay,
                period: config.period().as_nanos_f64() / 1e6,
                published: if self.host == HostArg::Simulated { published() } else { None },
                kinds: kinds(topology, outcomes),
            }),
            ..Run::default()
        };
        on_host(self.host, *arbitration, CoherenceArg::Full, run)
    }
}

/// Returns the load; `None` where the delay is no whole number of milliseconds.
fn load_of(threads: load::Threads, delay: Span) -> Option<Load> {
    const MILLISECOND: u64 = 1_000_000_000;
    let picos = delay.as_picos();
    let kind = load::Kind::Bursts { threads, delay: picos / MILLISECOND };
    picos.is_multiple_of(MILLISECOND).then_some(Load { kind, depth: 0 })
}

/// Returns the name of the published figure.
fn key<'a>(topology: &Topology, load: Load, lookup: &'a str) -> Key<'a> {
    let on = On::Machine(topology.name().to_owned());
    Key { workload: "cid-bursts", on, load: Some(load), mitigation: lookup, quantity: Quantity::Burst }
}

#[cfg(test)]
impl CidBursts {
    /// Returns the loads on `topology` without options.
    pub(crate) fn usual_loads(topology: &Topology) -> Vec<Load> {
        let matches = Self::augment_args(clap::Command::new("run")).get_matches_from(["run"]);
        let own = Self::from_arg_matches(&matches).expect("no options");
        let threads = own.threads.iter().map(|threads| threads.on(topology).0);
        threads.flat_map(|threads| own.delay.iter().filter_map(move |&delay| load_of(threads, delay))).collect()
    }
}

/// Returns the bursts of all random seeds, by kind.
fn kinds(topology: &Topology, outcomes: &[&Outcome]) -> Vec<Kind> {
    let mut sums = [(0_u64, 0.0); KINDS.len()];
    for outcome in outcomes {
        for (burst, kind) in outcome.bursts.iter().zip(kinds_of(topology, &outcome.bursts)) {
            sums[kind].0 += 1;
            sums[kind].1 += burst.span.as_nanos_f64();
        }
    }
    let all: u64 = sums.iter().map(|(count, _)| count).sum();
    let rows = KINDS.iter().zip(sums).filter(|(_, (count, _))| *count > 0);
    let kind = |(name, (count, nanos)): (&&str, (u64, f64))| Kind {
        name: (*name).to_owned(),
        share: count as f64 / all as f64,
        nanos: nanos / count as f64,
    };
    rows.map(kind).collect()
}
