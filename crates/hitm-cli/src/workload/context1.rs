//! context1: pairs of tasks of one group. The work per loop beyond the modelled parts is fitted to
//! the published share of cycles in two fields.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_memory::Span;
use hitm_report::load::{Kind, Load};
use hitm_report::published::{self, Citation, Key, On, Quantity};
use hitm_report::result::{Calibration, Run};
use hitm_report::statistics::mean_of_batches;
use hitm_sched::{GROUP_LOADS, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::context1::{self, Config};
use hitm_workloads::meter::Window;
use hitm_workloads::nested;

use super::{
    Ended, Fit, Fitting, Merit, Program, Running, SessionArgs, Setting, Workload, counted, nanos, options, starts,
    unusual,
};
use crate::args::{each_once, span};
use crate::campaign::run_one;
use crate::failure::Failure;
use crate::record::share_of_busy;
use crate::simulate::Case;

/// Pairs of tasks of one group that pass a number back and forth over pipes: fair tasks.
///
/// The default machine is 2 x 40 cores of Ice Lake. Measured for 10ms after 64ms of warm-up when
/// simulated (150ns per task and CPU if that is more), for 5s after 1s natively. Wakeups search for
/// an idle CPU as in Linux v6.4 unless a mitigation replaces the search.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run context1                                           as published: 160 pairs on 160 CPUs
  hitm run context1 --mitigation baseline,task-group-reordered --seeds 5 --lines 2
  hitm run context1 --machine gnr-2x120 --pairs 480 --work 2us
  hitm run context1 --depth 0 --mitigation baseline           the same tasks in no group
  hitm run context1 --host native --pairs 1,2 --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(GROUP_LOADS)),
    mut_arg("depth", |depth| depth.default_value("1"))
)]
pub(crate) struct Context1 {
    /// Numbers of pairs, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [160], value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pairs: Vec<u32>,
    #[command(flatten)]
    session: SessionArgs,
    /// CPU time per loop of both ends, without calls, wakeups and pipes [default: fitted when
    /// simulated, 1us natively].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    work: Option<Span>,
}

/// The default measured window of a simulated run. The warm-up is longer than two half-lives of the
/// load averages; the measured stretch is longer than a few of the millisecond limits and than two
/// ticks. After 16 ms 160 pairs have not settled: they do 1.7 times as many loops as later.
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(64_000), measured: Span::from_micros(10_000) };

/// The default work per loop of a native run.
const WORK_NATIVELY: Span = Span::from_micros(1);

/// The preset of the machine of the published figures, and its pairs.
const MACHINE: &str = "icx-2x40";
const PAIRS: u32 = 160;

/// Trials at most.
const RUNS: usize = 8;
/// The error at which the fit stops: one point.
const WITHIN: f64 = 0.01;
/// The largest work that is tried, in nanoseconds. A loop of the original on one CPU takes 4 us in
/// all (`docs/workloads.md`).
const WORK_MOST: f64 = 64_000.0;

impl Context1 {
    fn config(&self, pairs: u32, work: Span, topology: &Topology, setting: &Setting) -> Config {
        let pairs = pairs as usize;
        let window = setting.window_of(2 * pairs, topology, USUAL_WINDOW);
        Config { pairs, depth: self.session.depth(), work, seed: setting.seed, window }
    }

    fn with(&self, work: Span, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let of = |&pairs: &u32| -> Arc<dyn Workload> { Arc::new(self.config(pairs, work, topology, setting)) };
        self.pairs.iter().map(of).collect()
    }

    /// Returns the run that tries this work, in nanoseconds.
    fn trial(&self, published: &Case, work: f64, fit: &Fit<'_>) -> Case {
        // The figure was measured in a group.
        let config = self.config(PAIRS, Span::from_nanos_f64(work), &published.topology, fit.setting);
        Case { workload: Arc::new(Config { depth: 1, ..config }), ..published.clone() }
    }
}

impl Fitting for &Context1 {
    fn option(&self) -> &'static str {
        "--work"
    }

    fn runs(&self) -> usize {
        RUNS
    }

    fn first(&self, fit: &Fit<'_>) -> Result<Case, Failure> {
        let published = Case { mitigation: self.adapt(Mitigation::baseline()), ..fit.case_on(MACHINE)? };
        Ok(self.trial(&published, 0.0, fit))
    }

    fn with_value(&self, value: f64, fit: &Fit<'_>) -> Vec<Arc<dyn Workload>> {
        self.with(Span::from_nanos_f64(value * 1e3), &fit.case.topology, fit.setting)
    }

    /// Returns the work with which the baseline's share is the published one. The share falls as
    /// work grows.
    fn calibrate(&self, fit: &Fit<'_>) -> Result<Calibration, Failure> {
        let (target, citation) = target();
        let case = fit.case;
        let first = self.first(fit)?;
        let mut trials: Vec<(f64, f64)> = Vec::new();
        let (mut least, mut most) = (0.0, WORK_MOST);
        let mut work = 0.0;
        while trials.len() < RUNS {
            let outcome = run_one(&self.trial(&first, work, fit), fit.progress)?;
            let share = share_of_busy(&outcome.results, outcome.task_group_wait);
            trials.push((work / 1e3, share));
            if (share - target).abs() < WITHIN || (trials.len() == 1 && share < target) {
                break;
            }
            if share > target {
                least = work;
            } else {
                most = work;
            }
            // By orders of magnitude until the share falls below the target.
            work = if most == WORK_MOST { (4.0 * work).clamp(500.0, WORK_MOST) } else { f64::midpoint(least, most) };
        }
        let near = |trial: &&(f64, f64)| (trial.1 - target).abs();
        let &(work_us, reached) = trials.iter().min_by(|a, b| near(a).total_cmp(&near(b))).expect("there was a trial");
        let mut notes = Vec::new();
        if (reached - target).abs() >= WITHIN {
            notes.push(format!("no work gave the share within {:.0} point", 100.0 * WITHIN));
        }
        Ok(Calibration {
            workload: "context1".to_owned(),
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().into_owned(),
            parameter: "work_us".to_owned(),
            value: work_us,
            target: format!("{target} of the busy cycles in rt_se and rt_rq, {PAIRS} pairs of baseline on {MACHINE}"),
            reached,
            source: citation.to_string(),
            notes,
            trials,
        })
    }
}

/// Returns the published share of the baseline's cycles in two fields, with its publication.
pub(super) fn target() -> (f64, &'static Citation) {
    let (on, load) = (On::Machine(MACHINE.to_owned()), Some(Load { kind: Kind::Pairs(PAIRS as usize), depth: 1 }));
    let quantity = Quantity::GroupCycles;
    published::figure(&Key { workload: "context1", on, load, mitigation: "baseline", quantity })
        .expect("a test of `published` finds every target")
}

impl Program for Context1 {
    fn usual_machine(&self) -> &'static str {
        MACHINE
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        // The published kernel, v6.4, searches in this way.
        mitigation.with_search_of_v6_4()
    }

    fn check(&self, _topology: &Topology) -> Result<(), Failure> {
        each_once("--pairs", &self.pairs)
    }

    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        self.with(self.work.unwrap_or(WORK_NATIVELY), topology, setting)
    }

    fn fitted(&self) -> Option<Box<dyn Fitting + '_>> {
        match self.work {
            None => Some(Box::new(self)),
            Some(_) => None,
        }
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "context1"
    }

    fn profile(&self) -> String {
        format!("{}{}", counted(self.pairs, "pair"), nested::in_words(self.depth, 1))
    }

    fn options(&self) -> String {
        let depth = options(&[("depth", unusual(self.depth, 1, |own| own.to_string()))]);
        format!(" --pairs {}{depth} --work {}", self.pairs, nanos(self.work))
    }

    fn load(&self) -> Option<Load> {
        Some(Load { kind: Kind::Pairs(self.pairs), depth: self.depth })
    }

    fn published_on(&self, topology: &Topology) -> Option<On> {
        Some(On::Machine(topology.name().to_owned()))
    }

    fn roles(&self) -> Option<Roles> {
        Some(context1::roles())
    }

    fn is_fair(&self) -> bool {
        true
    }

    fn task_group_note(&self, topology: &Topology, mitigation: &Mitigation, share: f64) -> Option<String> {
        let on = self.published_on(topology)?;
        let own: &dyn Workload = self;
        let key = Key { quantity: Quantity::GroupCycles, ..own.key(on, mitigation) };
        let published =
            published::figure(&key).map_or_else(String::new, |(share, _)| format!(", published {:.1}", 100.0 * share));
        Some(format!("of the busy cycles {:.1} % went to rt_se and rt_rq{published}", 100.0 * share))
    }

    fn merit(&self) -> Merit {
        Merit::rate("loops_per_second")
    }

    fn watches_idle_cpus(&self) -> bool {
        true
    }

    fn complete(&self, run: &mut Run, ended: &Ended<'_>) {
        run.notes.extend(states(ended.batches, ended.idle));
    }

    starts!(context1::Context1::start);
}

/// Returns in which of two states the machine was, and the rate in each, in words: a mean over both
/// is that of no state. In v6.4 a wakeup that finds many CPUs busy searches little or not at all,
/// so pairs that share CPUs go on sharing them, and pairs that do not leave CPUs idle, which the
/// search finds. The border is one idle CPU on average.
fn states(batches: &[Vec<f64>], idle: &[Vec<f64>]) -> Option<String> {
    let both: Vec<(f64, f64)> = batches.concat().into_iter().zip(idle.concat()).collect();
    let state = |what: &str, is_in: fn(f64) -> bool| {
        let (rates, idle): (Vec<f64>, Vec<f64>) = both.iter().filter(|&&(_, idle)| is_in(idle)).copied().unzip();
        let share = 100.0 * rates.len() as f64 / both.len() as f64;
        let count = idle.iter().sum::<f64>() / idle.len() as f64;
        let rate = mean_of_batches(&[rates]);
        let rate = match (rate.value.is_finite(), rate.interval.is_finite()) {
            (false, _) => return format!("{what} in none of the time"),
            (true, false) => format!("{:.0} loops/s", rate.value),
            (true, true) => format!("{:.0} ±{:.0} loops/s", rate.value, rate.interval),
        };
        format!("{what} in {share:.0} % of the time, {count:.1} on average, {rate}")
    };
    let busy = state("less than one CPU idled", |idle| idle < 1.0);
    let spread = state("one or more idled", |idle| idle >= 1.0);
    (!both.is_empty()).then(|| format!("{busy}; {spread}"))
}

impl Running for context1::Context1 {
    fn batches(&self) -> Vec<f64> {
        self.loops_per_second().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::states;

    #[test]
    fn the_rate_of_each_state_is_reported_and_not_their_mean() {
        let of = |batches: &[f64], idle: &[f64]| states(&[batches.to_vec()], &[idle.to_vec()]).unwrap();
        assert_eq!(
            of(&[10.0, 10.0, 10.0, 30.0], &[0.2, 0.0, 0.9, 5.0]),
            "less than one CPU idled in 75 % of the time, 0.4 on average, 10 ±0 loops/s; one or more idled in 25 % of \
             the time, 5.0 on average, 30 loops/s"
        );
        assert_eq!(
            of(&[30.0, 30.0], &[1.0, 4.0]),
            "less than one CPU idled in none of the time; one or more idled in 100 % of the time, 2.5 on average, \
             30 ±0 loops/s"
        );
        assert_eq!(states(&[vec![10.0]], &[]), None, "natively idle CPUs are not watched");
    }
}
