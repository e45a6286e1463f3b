//! `hitm run probe`: the micro-workloads, simulated or native.

mod measure;
mod pairs;
mod plan;
mod programs;
mod uncertain;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hitm_lab::uncertainty::TRAJECTORIES;
use hitm_machine::{Arbitration, Costs};
use hitm_memory::Span;
use hitm_report::probe::render;
use hitm_report::result::{ResultFile, Run};
use hitm_topology::Topology;
use hitm_workloads::meter::Window;

use self::measure::{Case, Outcome};
use self::plan::{Plan, Variant};
use self::programs::What;
use crate::args::{Arbitrations, CoherenceArg, HostArg, MachineArgs, refuse_natively, span, span_above_zero};
use crate::campaign;
use crate::cases::check_end;
use crate::cmd::report as page;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::record::{empty_file, machine_of, on_host, report};
use crate::terminal::{fitted, width};

/// Measure the cost of one shared word, mask, counter, list or lock, and find its best scope.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run probe mask --mix 90 --arbitration local-first,fifo
  hitm run probe mask --encoding bit,byte --scope llc,core,cpu --readers 48 --json mask.json
  hitm run probe lock --participants 80 --machine clx-2x20
  hitm run probe counter --scope llc --operation load-cas --participants 240
  hitm run probe ping-pong --machine epyc-9754-2x128
  hitm run probe lock --machine skx-8x28 --uncertainty 20
  hitm run probe counter --host native --machine this")]
pub(crate) struct Probe {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    machine: MachineArgs,
    /// Host of the run.
    #[arg(long, value_enum, default_value = "simulated", global = true)]
    host: HostArg,
    /// Number of CPUs that take part: one of each core before a second one of any [default: all].
    #[arg(long, value_name = "N", global = true)]
    participants: Option<usize>,
    /// Length of the measured stretch; a quarter of it comes before as warm-up [default: up to 2ms
    /// simulated, less where much happens; 100ms natively].
    #[arg(long, value_name = "T", value_parser = span_above_zero, global = true, allow_hyphen_values = true)]
    duration: Option<Span>,
    /// Pause after each operation, or before each write of `writer-readers` [default: none; for
    /// `writer-readers` 5us simulated, 50us natively].
    #[arg(long, value_name = "T", value_parser = span, default_value = "0s", global = true, allow_hyphen_values = true)]
    pause: Span,
    /// Runs per variant, with successive random seeds [default: 3; 1 for `ping-pong`].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), global = true)]
    seeds: Option<u64>,
    /// Draw this many machines from what the model's sources allow (docs/uncertainty.md), the
    /// policy too where it is not known, and print the intervals that they give.
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000), global = true,
        conflicts_with_all = ["seeds", "json", "html"]
    )]
    uncertainty: Option<u64>,
    /// Trajectories that find which parameters decide, each of about 33 machines [default: 4].
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1000), global = true,
        requires = "uncertainty", hide_short_help = true
    )]
    trajectories: Option<u64>,
    /// Write the results to this file, as JSON: see `hitm schema`.
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Write the results to this file, as a page for a browser: see `hitm report`.
    #[arg(long, value_name = "FILE", global = true)]
    html: Option<PathBuf>,
    /// Accesses without progress after which the machine reports a livelock: for tests.
    #[arg(long, value_name = "N", hide = true, global = true)]
    livelock_after: Option<u64>,
}

/// The machine of a run, and the seed.
struct On<'a> {
    topology: &'a Arc<Topology>,
    costs: &'a Costs,
    arbitration: Arbitration,
    seed: u64,
}

impl Probe {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let topologies = self.machine.topologies(self.host)?;
        let arbitrations = self.machine.arbitrations()?;
        refuse_natively(self.host, &self.machine.simulated_only())?;
        refuse_natively(self.host, &[("--uncertainty", self.uncertainty.is_some())])?;
        self.check_unused()?;
        let machines = topologies.into_iter().map(|topology| {
            let costs = self.machine.costs(&topology)?;
            let plan = self.plan(&topology)?;
            Ok((topology, costs, plan))
        });
        let machines: Vec<(Arc<Topology>, Costs, Plan)> = machines.collect::<Result<_, Failure>>()?;
        if self.host == HostArg::Simulated {
            // A quarter of the stretch comes before it.
            check_end(Window { warm_up: self.time().scale(0.25), measured: self.time() })?;
        }
        if let Some(count) = self.uncertainty {
            let paths = self.trajectories.map_or(TRAJECTORIES, |paths| paths as usize);
            return self.on_drawn_machines(&machines, &arbitrations, count as usize, paths);
        }
        let target = output::target("--json", self.json.as_deref())?;
        let html = page::target(self.html.as_deref())?;
        let file = self.measure(&machines, &arbitrations);
        report(file, target, html, |file| fitted(&render(file, width())))
    }

    /// Refuses options of other probes.
    fn check_unused(&self) -> Result<(), Failure> {
        let (ping_pong, reads, news) = match self.what {
            What::PingPong { .. } => (true, false, false),
            What::Reads => (false, true, false),
            What::WriterReaders { .. } => (false, false, true),
            _ => return Ok(()),
        };
        let unused = [
            ("--participants", ping_pong && self.participants.is_some()),
            ("--duration", (ping_pong || news) && self.duration.is_some()),
            ("--pause", (ping_pong || reads) && !self.pause.is_zero()),
        ];
        let probe = self.what.name();
        match unused.iter().find(|(_, unused)| *unused) {
            Some((flag, _)) => Err(Failure::new(format!("{flag}: `{probe}` has no use for it; leave it out"))),
            None => Ok(()),
        }
    }

    /// Returns the length of the measured stretch.
    fn time(&self) -> Span {
        self.duration.unwrap_or(match self.host {
            HostArg::Simulated => Span::from_micros(2_000),
            HostArg::Native => Span::from_micros(100_000),
        })
    }

    fn seeds(&self) -> Vec<u64> {
        let default = if matches!(self.what, What::PingPong { .. }) { 1 } else { 3 };
        self.machine.seeds(self.seeds.unwrap_or(default))
    }

    /// Returns the cases of a variant on one machine.
    fn cases(&self, variant: &Variant, name: &str, on: &On<'_>) -> impl Iterator<Item = Case> {
        variant.programs.iter().map(move |(cpus, program)| Case {
            name: name.to_owned(),
            host: self.host,
            topology: on.topology.clone(),
            costs: on.costs.clone(),
            arbitration: on.arbitration,
            seed: on.seed,
            livelock_after: self.livelock_after,
            may_be_shorter: self.duration.is_none(),
            cpus: cpus.clone(),
            program: program.clone(),
        })
    }

    /// Runs the cases. Returns their outcomes in the same order, and what failed.
    fn run_all(&self, cases: &[Case]) -> (Vec<Option<Outcome>>, Vec<Failure>) {
        let mut outcomes: Vec<Option<Outcome>> = cases.iter().map(|_| None).collect();
        let progress = Progress::new(cases.len());
        let take = |index: usize, outcome| outcomes[index] = Some(outcome);
        let threads = campaign::threads(self.host, None);
        let failures = campaign::run(cases, threads, &progress, |case, _| case.run(), take);
        (outcomes, failures)
    }

    /// Runs every variant of every plan under every policy with every random seed.
    fn measure(&self, machines: &[(Arc<Topology>, Costs, Plan)], arbitrations: &Arbitrations) -> ResultFile {
        let seeds = self.seeds();
        let mut cases = Vec::new();
        // The index of each row's first case.
        let mut rows = Vec::new();
        for (topology, costs, plan) in machines {
            for arbitration in arbitrations.of(costs) {
                for variant in &plan.variants {
                    rows.push((plan, variant, topology, arbitration, cases.len()));
                    for &seed in &seeds {
                        let name = format!("probe {} {}", self.what.name(), variant.name);
                        cases.extend(self.cases(variant, &name, &On { topology, costs, arbitration, seed }));
                    }
                }
            }
        }
        let (mut outcomes, failures) = self.run_all(&cases);
        let mut file = empty_file();
        file.failures = failures.iter().map(ToString::to_string).collect();
        for (topology, costs, _) in machines {
            file.machines.push(machine_of(self.host, topology, costs));
        }
        for (plan, variant, topology, arbitration, first) in rows {
            let count = variant.programs.len() * seeds.len();
            let own: Vec<Outcome> = outcomes[first..first + count].iter_mut().filter_map(Option::take).collect();
            // A row without one of its cases would be another row.
            if own.len() == count {
                file.runs.extend(measure::summarise(plan, variant, &own).into_iter().map(|run| Run {
                    workload: format!("probe {}", self.what.name()),
                    machine: topology.name().to_owned(),
                    seed: seeds[0],
                    seeds: seeds.clone(),
                    ..on_host(self.host, arbitration, CoherenceArg::Full, run)
                }));
            }
        }
        measure::relate(&mut file.runs);
        file
    }
}
