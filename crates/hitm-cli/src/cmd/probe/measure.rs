//! One run of a program, and a row of the table from several runs.

use std::sync::Arc;
use std::time::Instant;

use hitm_lab::{Output, Program, Setting, mean_nanos};
use hitm_machine::{Arbitration, Config, Costs, Kind};
use hitm_memory::Span;
use hitm_report::result::{Better, Metric, Probe, Run, Side};
use hitm_report::statistics::{Mean, mean, ratio};
use hitm_topology::{CpuId, Topology};
use hitm_workloads::probe::{Measured, Roles, Share};

use super::plan::{Plan, Variant};
use crate::args::HostArg;
use crate::campaign::Job;
use crate::failure::Failure;

/// One program on one machine with one seed.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) host: HostArg,
    pub(crate) topology: Arc<Topology>,
    pub(crate) costs: Costs,
    pub(crate) arbitration: Arbitration,
    pub(crate) seed: u64,
    pub(crate) livelock_after: Option<u64>,
    /// Whether the length of time is the default.
    pub(crate) may_be_shorter: bool,
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) program: Program,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    given: Output,
    seconds: f64,
}

impl Job for Case {
    fn name(&self) -> String {
        let machine = self.topology.name();
        match self.host {
            HostArg::Simulated => {
                format!("{} on {machine}, {}, seed {}", self.name, self.arbitration.name(), self.seed)
            }
            HostArg::Native => format!("{} on {machine}", self.name),
        }
    }
}

/// The simulated time of the pilot run, which finds the rate of accesses.
const PILOT: Span = Span::from_micros(20);

/// Accesses that a simulated probe may take, where a miss counts as [`MISS`] accesses: a fraction
/// of a second on one host core, at 20 million hits and one million misses per second.
const ACCESSES: f64 = 1e6;
const MISS: f64 = 5.0;

impl Case {
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let given = match (self.host, self.program.time()) {
            (HostArg::Native, _) => hitm_lab::measure(&self.topology, &self.cpus, &self.program),
            (HostArg::Simulated, Some(longest)) if self.may_be_shorter => {
                let pilot = self.simulate(&self.program.lasting(PILOT))?;
                self.simulate(&self.program.lasting(affordable(&pilot).clamp(PILOT, longest)))?
            }
            (HostArg::Simulated, _) => self.simulate(&self.program)?,
        };
        Ok(Outcome { given, seconds: begin.elapsed().as_secs_f64() })
    }

    fn simulate(&self, program: &Program) -> Result<Output, Failure> {
        let default = Config { seed: self.seed, arbitration: self.arbitration, ..Config::default() };
        let config = Config { livelock_after: self.livelock_after.unwrap_or(default.livelock_after), ..default };
        let setting = Setting { topology: self.topology.clone(), costs: self.costs.clone(), config };
        hitm_lab::simulate(&setting, &self.cpus, program)
            .map_err(|stalled| Failure::wanting(format!("{}: {stalled}", Job::name(self))))
    }
}

/// Returns the time in which [`ACCESSES`] accesses happen at the rate of `pilot`.
fn affordable(pilot: &Output) -> Span {
    let lasted = pilot.measured.iter().map(|measured| measured.span).max().unwrap_or_default();
    let Some(results) = &pilot.results else { return lasted };
    let cost = results.totals.accesses() as f64 + MISS * results.totals.misses.count() as f64;
    lasted.scale(ACCESSES / cost.max(1.0))
}

impl Outcome {
    /// Returns the misses of the probe's own lines by accesses of some kinds, and all accesses to
    /// them; `None` natively, where they are not counted.
    fn count(&self, kind: impl Fn(Kind) -> bool) -> Option<(u64, u64)> {
        let lines = &self.given.results.as_ref()?.lines;
        let own = lines.iter().filter(|line| line.object.starts_with("probe_") && line.object != "probe_gate");
        let of_kind = |hits: bool| {
            own.clone()
                .map(|line| {
                    line.sum(|access| match kind(access.kind) {
                        true => access.misses().count() + if hits { access.hits } else { 0 },
                        false => 0,
                    })
                })
                .sum()
        };
        Some((of_kind(false), of_kind(true)))
    }

    /// Returns the nanoseconds per operation of one side: the mean over all operations, in which a
    /// slow CPU has few.
    fn nanos(&self, share: fn(&Measured) -> Share) -> f64 {
        let shares = || self.given.measured.iter().map(share).filter(|share| share.operations > 0);
        let rate: f64 = shares().map(|share| share.operations as f64 / share.span.as_nanos_f64()).sum();
        shares().count() as f64 / rate
    }
}

const WRITES: fn(&Measured) -> Share = |measured| measured.writes;
const READS: fn(&Measured) -> Share = |measured| measured.reads;

fn sum(outcomes: &[Outcome], what: impl Fn(&Measured) -> u64) -> u64 {
    outcomes.iter().flat_map(|outcome| &outcome.given.measured).map(what).sum()
}

/// Returns one side over all outcomes; `None` without an operation of that side.
fn side(plan: &Plan, outcomes: &[Outcome], share: fn(&Measured) -> Share, reads: bool) -> Option<Side> {
    let operations = sum(outcomes, |measured| share(measured).operations);
    let with_warm_up = sum(outcomes, |measured| share(measured).with_warm_up);
    let nanos: Vec<f64> = outcomes.iter().map(|outcome| outcome.nanos(share)).collect();
    let counted = outcomes.iter().map(|outcome| outcome.count(|kind| (kind == Kind::Load) == reads));
    let misses = counted.map(|count| count.map(|(misses, _)| misses)).sum::<Option<u64>>();
    (operations > 0).then(|| Side {
        name: plan.names[usize::from(reads)].to_owned(),
        nanos: mean(&nanos).value,
        operations,
        misses: misses.filter(|_| plan.reads_are_loads).map(|misses| misses as f64 / with_warm_up as f64),
    })
}

/// Returns the share of reads among the operations that were asked for.
fn share_of_reads(roles: Option<Roles>, participants: usize, has_reads: bool) -> f64 {
    match roles {
        Some(Roles::Mix(percent)) => f64::from(percent) / 100.0,
        Some(Roles::Readers(readers)) => readers as f64 / participants as f64,
        None => f64::from(u8::from(has_reads)),
    }
}

/// Returns the cost of an operation, with both sides in the shares that were asked for.
fn cost(outcome: &Outcome, share: f64) -> f64 {
    let weighted = |share: f64, nanos: f64| if share > 0.0 { share * nanos } else { 0.0 };
    weighted(share, outcome.nanos(READS)) + weighted(1.0 - share, outcome.nanos(WRITES))
}

/// Returns the rows of a variant. The caller adds the host.
pub(crate) fn summarise(plan: &Plan, variant: &Variant, outcomes: &[Outcome]) -> Vec<Run> {
    let whole = row(plan, variant, outcomes);
    if variant.groups.is_empty() {
        return vec![whole];
    }
    let group = |(name, participants): &(String, Vec<usize>)| {
        let values = delays(outcomes, |participant| participants.contains(&participant));
        let metric = Metric {
            name: MEDIAN.to_owned(),
            value: quantile(&values, 0.5),
            interval: f64::NAN,
            ..whole.metric.clone()
        };
        let probe = whole.probe.clone().map(|probe| Probe {
            quantiles: quantiles(&values, DELAYS),
            values: values.len(),
            ..probe
        });
        Run { mitigation: name.clone(), metric, probe, ..whole.clone() }
    };
    variant.groups.iter().map(group).collect()
}

/// The metric of probes of single operations.
const MEDIAN: &str = "median_nanoseconds";

/// Quantiles of delays and of pairs.
const DELAYS: &[f64] = &[0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];
const PAIRS: &[f64] = &[0.0, 0.5, 1.0];

fn row(plan: &Plan, variant: &Variant, outcomes: &[Outcome]) -> Run {
    let participants = variant.programs[0].0.len();
    let (writes, reads) = (side(plan, outcomes, WRITES, false), side(plan, outcomes, READS, true));
    let share = share_of_reads(plan.roles, participants, reads.is_some());
    let costs: Vec<f64> = outcomes.iter().map(|outcome| cost(outcome, share)).collect();
    let between: Vec<f64> =
        outcomes.iter().map(|outcome| mean_nanos(&outcome.given.measured) / participants as f64).collect();
    let counts: Option<Vec<(u64, u64)>> = outcomes.iter().map(|outcome| outcome.count(|_| true)).collect();
    let with_warm_up = sum(outcomes, |measured| measured.with_warm_up);
    let totals = counts.map(|counts| counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)));
    let values = pairs(variant, outcomes);
    let cost = mean(&costs);
    let metric = if values.is_empty() { cost } else { Mean { value: quantile(&values, 0.5), interval: f64::NAN } };
    Run {
        mitigation: variant.name.clone(),
        wall_seconds: outcomes.iter().map(|outcome| outcome.seconds).sum(),
        metric: Metric {
            name: if values.is_empty() { "nanoseconds_an_operation" } else { MEDIAN }.to_owned(),
            value: metric.value,
            interval: metric.interval,
            unit: "ns".to_owned(),
            better: Better::Lower,
        },
        kernel_share: f64::NAN,
        simulated_seconds: outcomes
            .iter()
            .filter_map(|outcome| outcome.given.measured.first())
            .map(|own| own.span.as_secs_f64())
            .sum(),
        accesses: totals.map_or(0, |(_, accesses)| accesses),
        misses: totals.map_or(0, |(misses, _)| misses),
        switches: outcomes
            .iter()
            .filter_map(|outcome| outcome.given.results.as_ref())
            .map(|results| results.totals.resumes)
            .sum(),
        probe: Some(Probe {
            what: plan.what.clone(),
            variants: plan.variants_are.to_owned(),
            participants,
            parts: variant.parts,
            writes,
            reads,
            misses: totals.map(|(misses, _)| misses as f64 / with_warm_up as f64),
            between: Some(mean(&between).value),
            quantiles: quantiles(&values, PAIRS),
            values: values.len(),
        }),
        ..Run::default()
    }
}

/// Returns one value per pair in ascending order; empty for a probe that is not about pairs.
fn pairs(variant: &Variant, outcomes: &[Outcome]) -> Vec<f64> {
    let is_pair = matches!(variant.programs[0].1, Program::PingPong { .. });
    let own = outcomes.iter().filter(|_| is_pair).map(|outcome| outcome.given.measured[0].nanos_each());
    let mut values: Vec<f64> = own.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the delays of some participants' single operations, in ascending order.
fn delays(outcomes: &[Outcome], participant: impl Fn(usize) -> bool) -> Vec<f64> {
    let all = outcomes.iter().flat_map(|outcome| &outcome.given.delays);
    let mut values: Vec<f64> =
        all.filter(|(own, _)| participant(*own)).map(|(_, delay)| delay.as_nanos_f64()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the quantile of sorted values.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

fn quantiles(values: &[f64], shares: &[f64]) -> Vec<(f64, f64)> {
    if values.is_empty() { Vec::new() } else { shares.iter().map(|&share| (share, quantile(values, share))).collect() }
}

/// Relates every run to the first of its machine and policy.
pub(crate) fn relate(runs: &mut [Run]) {
    let key = |run: &Run| (run.machine.clone(), run.arbitration.clone());
    let mut first: Option<((String, String), Mean)> = None;
    for run in runs {
        let own = Mean { value: run.metric.value, interval: run.metric.interval };
        if first.as_ref().is_none_or(|(other, _)| *other != key(run)) {
            first = Some((key(run), own));
        }
        let relative = first.as_ref().map(|(_, first)| ratio(own, *first));
        (run.relative, run.relative_interval) = (relative.map(|mean| mean.value), relative.map(|mean| mean.interval));
    }
}
