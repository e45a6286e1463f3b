//! The cases of a workload: machines, policies, mitigations, random seeds and lengths of time.
//! `run` and `sweep` share them.

use std::sync::Arc;

use clap::Args;
use hitm_machine::{Arbitration, Capacity, Costs, TIME_END};
use hitm_memory::{Span, Time};
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::meter::Window;

use crate::args::{CoherenceArg, HostArg, MachineArgs, span, span_above_zero};
use crate::campaign;
use crate::failure::Failure;
use crate::simulate::{Arrangements, Case};
use crate::workload::{Program, Setting, Stretch, Workload};

/// Machines, policies, mitigations, seeds and times.
#[derive(Args, Debug)]
pub(crate) struct CaseArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Mitigations to run, separated by commas; `+` combines several in one run. `as-posted` stands
    /// for the patches stacked as they were posted.
    #[arg(long, value_name = "A,B+C", value_delimiter = ',', default_values_t = DEFAULT_MITIGATIONS.map(str::to_owned))]
    mitigation: Vec<String>,
    /// Which objects have costs in the coherence model [default: full].
    ///
    /// Runs that calibrate a parameter always use `full`.
    #[arg(long, value_enum)]
    pub(crate) coherence: Option<CoherenceArg>,
    /// Length of the measured stretch [default: the workload's, see above].
    #[arg(long, value_name = "T", value_parser = span_above_zero, allow_hyphen_values = true)]
    duration: Option<Span>,
    /// Time before the measured stretch [default: the workload's, see above].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    warm_up: Option<Span>,
    /// Runs per mitigation, with successive random seeds [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), allow_negative_numbers = true)]
    pub(crate) seeds: Option<u64>,
    /// Host threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), allow_negative_numbers = true)]
    pub(crate) jobs: Option<u64>,
    /// See [`Config::arrangements`](hitm_machine::Config::arrangements).
    #[arg(skip)]
    pub(crate) arrangements: Arrangements,
    /// Accesses without progress after which the machine reports a livelock: for tests.
    #[arg(long, value_name = "N", hide = true)]
    livelock_after: Option<u64>,
}

/// The mitigations of the published table.
const DEFAULT_MITIGATIONS: [&str; 7] = [
    "baseline",
    "cpupri-split",
    "cpupri-split-compact",
    "root-domain-reordered",
    "rto-count=node",
    "cpupri-mask=node",
    "all",
];

/// The mitigations that `as-posted` alone stands for.
const AS_POSTED: [&str; 3] = ["rto-count=node+as-posted", "cpupri-mask=node+as-posted", "all+as-posted"];

impl CaseArgs {
    /// Returns the first random seed.
    pub(crate) fn seed(&self) -> u64 {
        self.machine.seed
    }

    /// Returns the number of random seeds; `usual` by default.
    pub(crate) fn seeds(&self, usual: u64) -> u64 {
        self.seeds.unwrap_or(usual)
    }

    /// Returns the number of host threads.
    pub(crate) fn threads(&self) -> usize {
        campaign::threads(HostArg::Simulated, self.jobs)
    }

    /// Returns what all workloads of the command have in common.
    pub(crate) fn setting(&self, host: HostArg) -> Setting {
        Setting { host, seed: self.seed(), warm_up: self.warm_up, measured: self.duration, is_quick: false }
    }

    /// Checks that `most` seeds exist from the first one on.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn check_seeds(&self, most: u64) -> Result<(), Failure> {
        match self.machine.seed.checked_add(most) {
            Some(_) => Ok(()),
            None => Err(Failure::new(format!(
                "--seed {}: there are no {most} seeds from it on; take a smaller one",
                self.machine.seed
            ))),
        }
    }

    /// Checks that the options of time can be met: a simulated machine's time is long enough for
    /// the measured stretch, and a workload that ends by itself has no such options.
    ///
    /// # Errors
    /// When they cannot.
    pub(crate) fn check_stretch(&self, workload: &dyn Workload, host: HostArg) -> Result<(), Failure> {
        let Stretch::Window(window) = workload.stretch() else {
            let given = [("--duration", self.duration), ("--warm-up", self.warm_up)];
            let given = given.iter().find(|(_, value)| value.is_some());
            return given.map_or(Ok(()), |(option, _)| {
                Err(Failure::new(format!("{option}: {} ends when its work is done; leave it out", workload.name())))
            });
        };
        if host == HostArg::Native {
            return Ok(());
        }
        check_end(window)
    }

    /// Returns each of `topologies` with its cost table.
    ///
    /// # Errors
    /// When `--model` names a parameter that one of the tables does not have.
    pub(crate) fn with_costs(&self, topologies: &[Arc<Topology>]) -> Result<Vec<(Arc<Topology>, Costs)>, Failure> {
        topologies.iter().map(|topology| Ok((topology.clone(), self.machine.costs(topology)?))).collect()
    }

    /// Makes a case of `workload`, one of `program`, on one of these machines, without counts by
    /// role. The mitigation is one that the program has adapted.
    ///
    /// # Errors
    /// When the program limits caches and the machine's cost table has no sizes.
    pub(crate) fn case(
        &self,
        program: &dyn Program,
        machine: &(Arc<Topology>, Costs),
        arbitration: Arbitration,
        mitigation: Mitigation,
        workload: Arc<dyn Workload>,
    ) -> Result<Case, Failure> {
        Ok(Case {
            topology: machine.0.clone(),
            costs: machine.1.clone(),
            arbitration,
            coherence: self.coherence.unwrap_or_default(),
            mitigation,
            workload,
            capacity: capacity(program, machine)?,
            arrangements: self.arrangements.clone(),
            roles: false,
            timeline: None,
            livelock_after: self.livelock_after,
        })
    }

    /// Returns whether `--mitigation` has its default.
    pub(crate) fn has_usual_mitigations(&self) -> bool {
        self.mitigation == DEFAULT_MITIGATIONS
    }

    /// Returns the mitigations, each once, as they run in `program`.
    ///
    /// # Errors
    /// When a name is unknown, a combination is impossible, or a mitigation is given twice.
    pub(crate) fn mitigations(&self, program: &dyn Program) -> Result<Vec<Mitigation>, Failure> {
        let mut names: Vec<&str> = Vec::new();
        for name in &self.mitigation {
            match name.as_str() {
                "as-posted" => names.extend(AS_POSTED),
                name => names.push(name),
            }
        }
        let mut known: Vec<(Vec<&str>, &str)> = Vec::new();
        let mut mitigations = Vec::new();
        for name in names {
            mitigations.push(program.adapt(Mitigation::parse(name)?));
            // The order of the parts makes no difference.
            let mut parts: Vec<&str> = name.split('+').collect();
            parts.sort_unstable();
            if let Some(twice) = parts.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Failure::new(format!("mitigation `{name}`: `{}` is there twice; write it once", twice[0])));
            }
            if let Some((_, other)) = known.iter().find(|(others, _)| *others == parts) {
                let what =
                    if *other == name { "is there twice".to_owned() } else { format!("is the same as `{other}`") };
                return Err(Failure::new(format!("mitigation `{name}`: {what}; name each once")));
            }
            known.push((parts, name));
        }
        Ok(mitigations)
    }
}

/// Returns the sizes of a machine's caches, where `program` limits them.
///
/// # Errors
/// When the machine's cost table has no sizes.
pub(crate) fn capacity(
    program: &dyn Program,
    (topology, costs): &(Arc<Topology>, Costs),
) -> Result<Option<Capacity>, Failure> {
    let capacity = program.limits_caches().then(|| costs.capacity(topology)).transpose();
    capacity.map_err(|why| Failure::new(format!("--machine: {why}")))
}

/// Checks that a simulated machine's time is long enough for `window`.
///
/// # Errors
/// When it is not.
pub(crate) fn check_end(window: Window) -> Result<(), Failure> {
    let Window { warm_up, measured } = window;
    let end = Time::START + TIME_END;
    if window.end() < end && window.start() < end {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--duration {measured} after --warm-up {warm_up}: a simulated machine's time ends after {TIME_END}; ask for less"
    )))
}
