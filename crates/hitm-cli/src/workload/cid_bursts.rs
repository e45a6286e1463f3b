//! cid-bursts: threads that increment memory indexed by CPU or by concurrency id, one after the
//! other.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use hitm::Handle;
use hitm_machine::Simulated;
use hitm_memory::{Native, Span};
use hitm_report::id_bursts::{self, PER_CPU};
use hitm_report::load::{self, Load};
use hitm_report::published::{Key, On, Quantity, figure};
use hitm_report::result::{Better, BurstKind, Bursts, ResultFile, Run};
use hitm_report::statistics::{self, Mean};
use hitm_sched::Mitigation;
use hitm_topology::{CpuId, Scope, Topology};
use hitm_workloads::cid_bursts::{Burst, CidBursts as Started, Config, Index, Pass};

use super::{Ended, Merit, Program, Running, Setting, Stretch, Workload, nanos, options};
use crate::args::{HostArg, span_above_zero};

/// Threads that wake one after the other and increment 16 KiB indexed by CPU or concurrency id.
///
/// The default machine is 2 x EPYC 9654. Areas indexed by CPU are run beside the id allocators.
/// Idle time costs nothing to simulate: the ten minutes of the longest run take a second.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run cid-bursts                                         the published table, and our own ids
  hitm run cid-bursts --threads one-per-llc --delay 200ms,20ms --mitigation baseline,shipped
  hitm run cid-bursts --model caches.flushed_after=inf
  hitm run cid-bursts --host native --delay 10ms",
    mut_arg("mitigation", |mitigation| mitigation.default_values(MITIGATIONS)),
    mut_arg("duration", |duration| duration.hide(true)),
    mut_arg("warm_up", |warm_up| warm_up.hide(true)),
    mut_arg("roles", |roles| roles.hide(true))
)]
pub(crate) struct CidBursts {
    /// CPUs that have a thread.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Threads::Llc, Threads::OnePerLlc, Threads::Cores, Threads::All])]
    threads: Vec<Threads>,
    /// Delay between the wakeups of two threads.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "200ms,10ms", value_parser = span_above_zero, allow_hyphen_values = true)]
    delay: Vec<Span>,
    /// Period of the kernel's tick: 4ms as in Debian, or 1ms as Linux's own default. At a tick in a
    /// running thread the baseline looks for ids to reclaim [default: 4ms].
    #[arg(long, value_name = "T", value_parser = span_above_zero, allow_hyphen_values = true)]
    tick: Option<Span>,
}

/// The id allocators, with the baseline's scheduler and with ours.
const MITIGATIONS: [&str; 4] = ["baseline", "cid-recent", "cid-owned", "shipped"];

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

/// One load of cid-bursts, with one way in which a thread finds its area.
#[derive(Clone, Debug)]
struct Area {
    threads: load::Threads,
    config: Config,
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

/// Returns the load; `None` where the delay is no whole number of milliseconds.
fn load_of(threads: load::Threads, delay: Span) -> Option<Load> {
    const MILLISECOND: u64 = 1_000_000_000;
    let picos = delay.as_picos();
    let kind = load::Kind::Bursts { threads, delay: picos / MILLISECOND };
    picos.is_multiple_of(MILLISECOND).then_some(Load { kind, depth: 0 })
}

impl Program for CidBursts {
    fn usual_machine(&self) -> &'static str {
        "epyc-9654-2x96"
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        match self.tick {
            Some(tick) => mitigation.with_tick(tick),
            None => mitigation,
        }
    }

    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let pass = if setting.host == HostArg::Native { Pass::WHOLE } else { Pass::BY_LINE };
        // On small machines two of them may be equal.
        let mut groups: Vec<(load::Threads, Vec<CpuId>)> = Vec::new();
        for threads in &self.threads {
            let (threads, cpus) = threads.on(topology);
            if groups.iter().all(|(_, others)| *others != cpus) {
                groups.push((threads, cpus));
            }
        }
        let mut workloads: Vec<Arc<dyn Workload>> = Vec::new();
        for &delay in &self.delay {
            for (threads, cpus) in &groups {
                let config = Config { cpus: cpus.clone(), delay, index: Index::Id, pass, seed: setting.seed };
                workloads.push(Arc::new(Area { threads: *threads, config }));
            }
        }
        workloads
    }

    fn limits_caches(&self) -> bool {
        true
    }

    fn render(&self, file: &ResultFile, width: usize) -> String {
        id_bursts::render(file, width)
    }
}

impl Workload for Area {
    fn name(&self) -> &'static str {
        "cid-bursts"
    }

    fn profile(&self) -> String {
        format!("{}, {} ms", self.threads, milliseconds(self.config.delay))
    }

    fn options(&self) -> String {
        options(&[("delay", Some(nanos(self.config.delay)))])
    }

    fn load(&self) -> Option<Load> {
        load_of(self.threads, self.config.delay)
    }

    fn stretch(&self) -> Stretch {
        Stretch::Whole(self.config.duration())
    }

    fn beside(&self) -> Option<Arc<dyn Workload>> {
        let config = Config { index: Index::Cpu, ..self.config.clone() };
        Some(Arc::new(Self { config, ..self.clone() }))
    }

    fn variant(&self) -> Option<&'static str> {
        (self.config.index == Index::Cpu).then_some(PER_CPU)
    }

    fn seed(&self) -> u64 {
        self.config.seed
    }

    fn with_seed(&self, seed: u64) -> Arc<dyn Workload> {
        Arc::new(Self { config: Config { seed, ..self.config.clone() }, ..self.clone() })
    }

    fn mean(&self, batches: &[Vec<f64>], _latencies: &[Span]) -> Mean {
        statistics::mean(&batches.concat())
    }

    fn merit(&self) -> Merit {
        Merit { name: "nanoseconds_a_burst", unit: "ns", each: 1.0, better: Better::Lower }
    }

    fn complete(&self, run: &mut Run, ended: &Ended<'_>) {
        let published = |load| {
            let (on, mitigation) = (On::Machine(ended.topology.name().to_owned()), ended.mitigation);
            let key = Key { workload: "cid-bursts", on, load: Some(load), mitigation, quantity: Quantity::Burst };
            figure(&key).map(|(value, _)| value)
        };
        run.bursts = Some(Bursts {
            threads: self.threads.to_string(),
            delay: milliseconds(self.config.delay),
            period: milliseconds(self.config.period()),
            published: self.load().filter(|_| ended.host == HostArg::Simulated).and_then(published),
            kinds: kinds(ended.topology, ended.bursts),
        });
    }

    fn start_simulated(&self, runtime: &Handle<Simulated>) -> Box<dyn Running> {
        Box::new(Started::start(runtime, self.config.clone()))
    }

    fn start_native(&self, runtime: &Handle<Native>) -> Box<dyn Running> {
        Box::new(Started::start(runtime, self.config.clone()))
    }
}

impl Running for Started {
    /// One batch: the mean of all bursts, in nanoseconds.
    fn batches(&self) -> Vec<f64> {
        let nanos: Vec<f64> = self.bursts().iter().map(|burst| burst.span.as_nanos_f64()).collect();
        vec![statistics::mean(&nanos).value]
    }

    fn is_over(&self) -> bool {
        self.ended().is_some()
    }

    fn bursts(&self) -> Vec<Burst> {
        self.ended().unwrap_or_default()
    }
}

fn milliseconds(span: Span) -> f64 {
    span.as_nanos_f64() / 1e6
}

/// Returns the bursts of all random seeds, by kind.
fn kinds(topology: &Topology, seeds: &[Vec<Burst>]) -> Vec<BurstKind> {
    let mut sums = [(0_u64, 0.0); KINDS.len()];
    for bursts in seeds {
        for (burst, kind) in bursts.iter().zip(kinds_of(topology, bursts)) {
            sums[kind].0 += 1;
            sums[kind].1 += burst.span.as_nanos_f64();
        }
    }
    let all: u64 = sums.iter().map(|(count, _)| count).sum();
    let rows = KINDS.iter().zip(sums).filter(|(_, (count, _))| *count > 0);
    let kind = |(name, (count, nanos)): (&&str, (u64, f64))| BurstKind {
        name: (*name).to_owned(),
        share: count as f64 / all as f64,
        nanos: nanos / count as f64,
    };
    rows.map(kind).collect()
}
