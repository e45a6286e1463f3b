//! Pairs over loopback, for `tbench` and `netperf`. The work per operation beyond the modelled
//! parts is fitted to one published figure.
//!
//! The rate of one pair is the inverse of its operation's time, and work adds to that time: each
//! trial's time tells how much is missing.

use hitm_memory::Span;
use hitm_report::published::{self, Citation, Key, On, Quantity};
use hitm_report::result::{Calibration, Metric};
use hitm_report::statistics::mean_of_batches;
use hitm_sched::mitigation::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::loopback::{Config, Test};
use hitm_workloads::meter::Window;

use super::series::{Fitted, Program, SeriesArgs};
use super::session::SessionArgs;
use crate::campaign::run_one;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::Case;
use crate::workload::Workload;

/// The default measured window of a simulated run: after the start, and for one tick.
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(4_000), measured: Span::from_micros(4_000) };

/// The default work per operation of a native run: of the order of the fitted values.
const WORK_NATIVELY: Span = Span::from_micros(2);

/// Trials at most.
const RUNS: usize = 4;
/// The relative error at which the fit stops.
const WITHIN: f64 = 0.005;

/// The operation of the pairs, and their number.
pub(crate) type Load = (Test, usize);

/// A published figure.
#[derive(Debug)]
pub(crate) struct Target {
    /// The preset of the machine that it was measured on.
    pub(crate) machine: &'static str,
    /// The mitigation that it was measured with.
    pub(crate) mitigation: &'static str,
    /// The load that was measured.
    pub(crate) load: Load,
}

impl Target {
    /// Returns the figure in the metric's unit, with its publication.
    pub(super) fn published(&self, workload: &Workload) -> (f64, &'static Citation) {
        let on = On::Machine(self.machine.to_owned());
        let (workload, load, quantity) = (workload.name(), workload.load(), Quantity::Throughput);
        published::figure(&Key { workload, on, load, mitigation: self.mitigation, quantity })
            .expect("a test of `published` finds every target")
    }
}

/// The options of a command.
#[derive(Debug)]
pub(crate) struct Loopback {
    pub(crate) series: SeriesArgs,
    pub(crate) loads: Vec<Load>,
    pub(crate) session: SessionArgs,
    /// The work per operation, if the option is given.
    pub(crate) work: Option<Span>,
    /// The figure that the work is fitted to, if it is not.
    pub(crate) target: Target,
}

impl Loopback {
    fn config(&self, (test, pairs): Load, work: Span, topology: &Topology) -> Config {
        let (seed, window) = (self.series.seed(), self.series.window_of(2 * pairs, topology, USUAL_WINDOW));
        Config { test, pairs, depth: self.session.depth(), work, seed, window }
    }

    fn with(&self, work: Span, topology: &Topology) -> Vec<Workload> {
        self.loads.iter().map(|&load| Workload::Loopback(self.config(load, work, topology))).collect()
    }

    /// Returns the work with which the target's load reaches its figure, under the policy of
    /// `case`, for runs on the machine of `case`.
    ///
    /// # Errors
    /// When a run fails.
    fn fit_work(&self, case: &Case, progress: &Progress) -> Result<(Span, Calibration), Failure> {
        let target = &self.target;
        let mitigation = Mitigation::parse(target.mitigation)?;
        let published = Case { mitigation, roles: false, ..self.series.case_on(target.machine, case)? };
        // The figure was measured without a group.
        let config = |work| Config { depth: 0, ..self.config(target.load, work, &published.topology) };
        let of_target = |work| Workload::Loopback(config(work));
        let (value, citation) = target.published(&of_target(WORK_NATIVELY));
        let mut work = WORK_NATIVELY;
        let mut trials: Vec<(f64, f64)> = Vec::new();
        let mut nearest: Option<(f64, Span, Metric)> = None;
        for _ in 0..RUNS {
            let workload = of_target(work);
            let trial = Case { workload, ..published.clone() };
            let rate = mean_of_batches(&run_one(&trial, progress)?.batches);
            let metric = workload.metric(rate);
            trials.push((work.as_nanos_f64() / 1e3, metric.value));
            let over = metric.value / value - 1.0;
            if nearest.as_ref().is_none_or(|(least, ..)| over.abs() < *least) {
                nearest = Some((over.abs(), work, metric));
            }
            // The time that an operation should take, minus the time that it takes.
            let missing = 1e9 / rate.value * over;
            let next = Span::from_nanos_f64((work.as_nanos_f64() + missing).max(0.0));
            if over.abs() < WITHIN || next == work {
                break;
            }
            work = next;
        }
        let (miss, work, metric) = nearest.expect("there was a trial");
        let mut notes = Vec::new();
        if miss >= WITHIN {
            notes.push(format!("no work gave the figure within {:.1} percent", 100.0 * WITHIN));
        }
        let fitted = of_target(work);
        let calibration = Calibration {
            workload: fitted.name().to_owned(),
            machine: case.topology.name().to_owned(),
            arbitration: case.arbitration.name().into_owned(),
            parameter: "work_us".to_owned(),
            value: work.as_nanos_f64() / 1e3,
            target: format!(
                "{} {} of {} with {} on {}",
                value,
                metric.unit,
                fitted.profile(),
                target.mitigation,
                target.machine
            ),
            reached: metric.value,
            source: citation.to_string(),
            notes,
            trials,
        };
        Ok((work, calibration))
    }
}

impl Program for Loopback {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, topology: &Topology) -> Vec<Workload> {
        self.with(self.work.unwrap_or(WORK_NATIVELY), topology)
    }

    fn usual_machine(&self) -> &'static str {
        self.target.machine
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }

    fn fitting_runs(&self) -> usize {
        if self.work.is_none() { RUNS } else { 0 }
    }

    fn fit(&self, case: &Case, _threads: usize, progress: &Progress) -> Result<Fitted, Failure> {
        if self.work.is_some() {
            return Ok((self.workloads(&case.topology), None));
        }
        let (work, calibration) = self.fit_work(case, progress)?;
        Ok((self.with(work, &case.topology), Some(calibration)))
    }
}
