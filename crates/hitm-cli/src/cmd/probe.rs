//! `hitm run probe`: the micro-workloads, on a simulated machine or here.

use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use hitm_lab::{Given, Program, Setting, mean_nanos};
use hitm_machine::{Arbitration, Config, CostSet, Costs, Distance, Kind, Latencies};
use hitm_memory::Span;
use hitm_report::columns::{Align, Columns};
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use hitm_workloads::probe::{self, CounterOperation, MaskForm, Measured, Roles, Search, Waiting};

use crate::args::{HostArg, MachineArgs, refuse_natively, span, span_above_zero};
use crate::failure::Failure;
use crate::print;

/// What one shared word, counter or bitmap costs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run probe ping-pong --machine epyc-9754-2x128
  hitm run probe mask --scope machine,node,llc,core,cpu --readers 48
  hitm run probe counter --scope llc --operation load-cas --participants 240
  hitm run probe counter --host native --machine this")]
pub(crate) struct Probe {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    machine: MachineArgs,
    /// Where to run.
    #[arg(long, value_enum, default_value = "simulated", global = true)]
    host: HostArg,
    /// CPUs that take part, threads of a core next to each other [default: all].
    #[arg(long, value_name = "N", global = true)]
    participants: Option<usize>,
    /// How long they go on, after a quarter of that which does not count [default: 200us simulated, 100ms native].
    #[arg(long, value_name = "T", value_parser = span_above_zero, global = true, allow_hyphen_values = true)]
    duration: Option<Span>,
    /// Work after each operation.
    #[arg(long, value_name = "T", value_parser = span, default_value = "0s", global = true, allow_hyphen_values = true)]
    pause: Span,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Two CPUs hand a word to and fro, by distance: median, least and most of several pairs.
    #[command(after_help = "Examples:\n  hitm run probe ping-pong --machine epyc-9754-2x128")]
    PingPong {
        /// Pairs of each distance.
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1024))]
        pairs: u64,
        /// Round trips of each.
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        rounds: u64,
    },
    /// Every CPU adds to a counter.
    #[command(
        after_help = "Examples:\n  hitm run probe counter --scope machine,llc --operation load-cas --participants 240"
    )]
    Counter {
        /// How it is split: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = "machine")]
        scope: Vec<Scope>,
        /// How it is added to.
        #[arg(long, value_enum, default_value = "add")]
        operation: OperationArg,
    },
    /// Every CPU sets and clears its bit, some search.
    #[command(after_help = "Examples:\n  hitm run probe mask --scope machine,node,llc,core,cpu --readers 48")]
    Mask {
        /// How it is split: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = "machine")]
        scope: Vec<Scope>,
        /// CPUs that search instead of writing [default: one in ten].
        #[arg(long, value_name = "N")]
        readers: Option<usize>,
    },
    /// Every CPU reads a word that nobody writes.
    #[command(after_help = "Examples:\n  hitm run probe reads --machine clx-2x20")]
    Reads,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OperationArg {
    /// An atomic add.
    Add,
    /// A load and a compare-exchange until that succeeds.
    LoadCas,
    /// A load and a plain store: counts wrong.
    LoadStore,
}

impl From<OperationArg> for CounterOperation {
    fn from(arg: OperationArg) -> Self {
        match arg {
            OperationArg::Add => Self::Add,
            OperationArg::LoadCas => Self::LoadCas,
            OperationArg::LoadStore => Self::LoadStore,
        }
    }
}

impl Probe {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut text = String::new();
        let topologies = self.machine.topologies(self.host)?;
        let arbitrations = self.machine.arbitrations()?;
        refuse_natively(self.host, &self.machine.simulated_only())?;
        self.check_unused()?;
        for topology in &topologies {
            for &arbitration in &arbitrations {
                text.push_str(&self.heading(topology, arbitration)?);
                text.push_str(&match &self.what {
                    What::PingPong { pairs, rounds } => {
                        self.ping_pong(topology, arbitration, *pairs as usize, *rounds)?
                    }
                    What::Counter { scope, operation } => {
                        self.counter(topology, arbitration, scope, (*operation).into())?
                    }
                    What::Mask { scope, readers } => self.mask(topology, arbitration, scope, *readers)?,
                    What::Reads => self.reads(topology, arbitration)?,
                });
            }
        }
        print(&text)
    }

    /// Options of other probes.
    fn check_unused(&self) -> Result<(), Failure> {
        let (probe, is_ping_pong) = match self.what {
            What::PingPong { .. } => ("ping-pong", true),
            What::Reads => ("reads", false),
            What::Counter { .. } | What::Mask { .. } => return Ok(()),
        };
        let unused = [
            ("--participants", is_ping_pong && self.participants.is_some()),
            ("--duration", is_ping_pong && self.duration.is_some()),
            ("--pause", !self.pause.is_zero()),
        ];
        match unused.iter().find(|(_, unused)| *unused) {
            Some((flag, _)) => Err(Failure::new(format!("{flag}: `{probe}` has no use for it; leave it out"))),
            None => Ok(()),
        }
    }

    fn heading(&self, topology: &Topology, arbitration: Arbitration) -> Result<String, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(match self.host {
            HostArg::Native => format!("probe, measured here on {} ({topology}), hitm {version}\n", topology.name()),
            HostArg::Simulated => {
                let note = self.machine.costs(topology)?.note.map_or(String::new(), |note| format!("note: {note}\n"));
                format!(
                    "probe, simulated on {} ({topology}), seed {}, arbitration {}, hitm {version}\n{note}",
                    topology.name(),
                    self.machine.seed,
                    arbitration.name()
                )
            }
        })
    }

    /// Runs a probe on `cpus`.
    fn give(
        &self,
        topology: &Arc<Topology>,
        arbitration: Arbitration,
        cpus: &[CpuId],
        program: &Program,
    ) -> Result<Given, Failure> {
        match self.host {
            HostArg::Simulated => {
                let config = Config { seed: self.machine.seed, arbitration, ..Config::default() };
                let costs = self.machine.costs(topology)?;
                let setting = Setting { topology: topology.clone(), costs, config };
                hitm_lab::simulate(&setting, cpus, program)
                    .map_err(|stalled| Failure::wanting(format!("probe on `{}`: {stalled}", topology.name())))
            }
            HostArg::Native => Ok(hitm_lab::measure(topology, cpus, program)),
        }
    }

    /// How long the CPUs go on.
    fn time(&self) -> Span {
        self.duration.unwrap_or(match self.host {
            HostArg::Simulated => Span::from_micros(200),
            HostArg::Native => Span::from_micros(100_000),
        })
    }

    fn participants(&self, topology: &Topology) -> Result<Vec<CpuId>, Failure> {
        let count = self.participants.unwrap_or(topology.cpus());
        if count == 0 || count > topology.cpus() {
            let (name, cpus) = (topology.name(), topology.cpus());
            return Err(Failure::new(format!("--participants {count}: `{name}` has {cpus} CPUs; take 1 to {cpus}")));
        }
        Ok(probe::first_cpus(topology, count))
    }

    fn ping_pong(
        &self,
        topology: &Arc<Topology>,
        arbitration: Arbitration,
        pairs: usize,
        rounds: u64,
    ) -> Result<String, Failure> {
        let mut columns = Columns::new(&[
            ("distance", Align::Left),
            ("home", Align::Left),
            ("pairs", Align::Right),
            ("median\n[ns]", Align::Right),
            ("least\n[ns]", Align::Right),
            ("most\n[ns]", Align::Right),
        ]);
        for (class, home, chosen) in classes(topology, pairs) {
            let mut nanos = Vec::new();
            for &(one, other, node) in &chosen {
                let program = Program::PingPong { rounds, home: node, waiting: Waiting::Taking };
                let given = self.give(topology, arbitration, &[one, other], &program)?;
                nanos.push(given.measured[0].nanos_each());
            }
            nanos.sort_by(f64::total_cmp);
            let ends = [nanos[nanos.len() / 2], nanos[0], nanos[nanos.len() - 1]];
            let figures = ends.map(|nanos| format!("{nanos:.1}"));
            let mut row = vec![class.to_owned(), home.to_owned(), chosen.len().to_string()];
            row.extend(figures);
            columns.row(row);
        }
        Ok(format!("nanoseconds a hand-off, {rounds} round trips a pair\n{}", columns.render()))
    }

    fn counter(
        &self,
        topology: &Arc<Topology>,
        arbitration: Arbitration,
        scopes: &[Scope],
        operation: CounterOperation,
    ) -> Result<String, Failure> {
        let cpus = self.participants(topology)?;
        let mut columns = Columns::new(&[
            ("scope", Align::Left),
            ("parts", Align::Right),
            ("ns an\noperation", Align::Right),
            ("ns between two,\nwhole machine", Align::Right),
            ("misses an\noperation", Align::Right),
        ]);
        for &scope in scopes {
            let program = Program::Counter { scope, operation, time: self.time(), pause: self.pause };
            let given = self.give(topology, arbitration, &cpus, &program)?;
            let each = mean_nanos(&given.measured);
            columns.row(vec![
                scope.to_string(),
                topology.parts(scope).to_string(),
                format!("{each:.1}"),
                format!("{:.2}", each / cpus.len() as f64),
                per_operation(&given, &given.measured, |kind| kind != Kind::Store),
            ]);
        }
        Ok(format!("counter, {operation:?}, {} CPUs for {}\n{}", cpus.len(), self.time(), columns.render()))
    }

    fn mask(
        &self,
        topology: &Arc<Topology>,
        arbitration: Arbitration,
        scopes: &[Scope],
        readers: Option<usize>,
    ) -> Result<String, Failure> {
        let cpus = self.participants(topology)?;
        let readers = readers.unwrap_or(cpus.len() / 10);
        if readers > cpus.len() {
            return Err(Failure::new(format!("--readers {readers}: only {} CPUs take part; take fewer", cpus.len())));
        }
        let mut columns = Columns::new(&[
            ("scope", Align::Left),
            ("parts", Align::Right),
            ("ns a\nset or clear", Align::Right),
            ("ns a\nsearch", Align::Right),
            ("misses a\nset or clear", Align::Right),
            ("misses a\nsearch", Align::Right),
        ]);
        for &scope in scopes {
            let (form, search, roles) = (MaskForm::Bit, Search::Any, Roles::Readers(readers));
            let program = Program::Mask { scope, form, search, roles, time: self.time(), pause: self.pause };
            let given = self.give(topology, arbitration, &cpus, &program)?;
            let (searches, writes) = given.measured.split_at(readers);
            columns.row(vec![
                scope.to_string(),
                topology.parts(scope).to_string(),
                nanos_of(writes),
                nanos_of(searches),
                per_operation(&given, writes, |kind| kind == Kind::Rmw),
                per_operation(&given, searches, |kind| kind == Kind::Load),
            ]);
        }
        let writers = cpus.len() - readers;
        Ok(format!("bitmap, {writers} CPUs write, {readers} search for {}\n{}", self.time(), columns.render()))
    }

    fn reads(&self, topology: &Arc<Topology>, arbitration: Arbitration) -> Result<String, Failure> {
        let cpus = self.participants(topology)?;
        let program = Program::Reads { time: self.time() };
        let given = self.give(topology, arbitration, &cpus, &program)?;
        let alone = self.give(topology, arbitration, &cpus[..1], &program)?;
        Ok(format!(
            "reads of one word that nobody writes: {:.2} ns each by {} CPUs, {:.2} ns by one\n",
            mean_nanos(&given.measured),
            cpus.len(),
            mean_nanos(&alone.measured)
        ))
    }
}

/// Their mean, of nobody a dash.
fn nanos_of(measured: &[Measured]) -> String {
    if measured.is_empty() { "-".to_owned() } else { format!("{:.1}", mean_nanos(measured)) }
}

/// Misses of the probe's objects an operation of `measured`; natively nobody counts them.
fn per_operation(given: &Given, measured: &[Measured], kind: impl Fn(Kind) -> bool) -> String {
    let Some(results) = given.results.as_ref().filter(|_| !measured.is_empty()) else { return "-".to_owned() };
    let operations: u64 = measured.iter().map(|measured| measured.with_warm_up).sum();
    let lines = results.lines.iter().filter(|line| line.object.starts_with("probe_") && line.object != "probe_gate");
    let misses: u64 = lines.map(|line| line.sum(|access| if kind(access.kind) { access.misses } else { 0 })).sum();
    format!("{:.3}", misses as f64 / operations as f64)
}

/// One and another CPU, and the node of the word.
type Pair = (CpuId, CpuId, Option<NodeId>);

/// Up to `most` pairs of each distance that the machine has, spread over it; between LLC domains of a package once with the word's
/// home near and once, where there is another package, far.
fn classes(topology: &Topology, most: usize) -> Vec<(&'static str, &'static str, Vec<Pair>)> {
    let latencies = Latencies::new(topology, &Costs::of(topology, CostSet::Linux));
    let far_node = |cpu: CpuId| {
        let package = topology.cpu(cpu).package;
        topology
            .cpu_ids()
            .map(|other| topology.cpu(other))
            .find(|other| other.package != package)
            .map(|other| other.node)
    };
    let pairs = |distance: Distance, far: bool| -> Vec<Pair> {
        let step = (topology.cpus() / most.max(1)).max(1);
        let partner = |one: CpuId| {
            let others = topology.cpu_ids().filter(|&other| latencies.distance_of_cpus(one, other) == distance);
            let others: Vec<CpuId> = others.filter(|&other| other != one).collect();
            // The middle of them: neither always the nearest nor always the farthest.
            let other = *others.get(others.len() / 2)?;
            let node = if far { far_node(one)? } else { topology.cpu(one).node };
            Some((one, other, Some(node)))
        };
        topology.cpu_ids().step_by(step).take(most.max(1)).filter_map(partner).collect()
    };
    [
        ("same core", "near", Distance::SameCore, false),
        ("same LLC", "near", Distance::SameLlc, false),
        ("same LLC", "far", Distance::SameLlc, true),
        ("same package", "near", Distance::SamePackage, false),
        ("same package", "far", Distance::SamePackage, true),
        ("other package", "near", Distance::OtherPackage, false),
    ]
    .into_iter()
    .map(|(class, home, distance, far)| (class, home, pairs(distance, far)))
    .filter(|(.., pairs)| !pairs.is_empty())
    .collect()
}
