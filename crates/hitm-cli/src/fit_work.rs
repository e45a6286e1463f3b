//! What an operation over loopback takes beside what is modelled: fitted to one published figure.
//!
//! The rate of one pair is the inverse of its operation's time, and work adds to that: each trial's time tells how much is missing.

use std::fmt::Display;

use hitm_memory::Span;
use hitm_report::result::{Calibration, Metric};
use hitm_report::statistics::mean_of_batches;
use hitm_sched::mitigation::Mitigation;
use hitm_workloads::meter::Window;

use crate::campaign::{self, Progress};
use crate::failure::Failure;
use crate::simulate::{Case, Outcome};
use crate::workload::Workload;

/// Every search for an idle CPU.
pub(crate) const MITIGATIONS: [&str; 7] =
    ["baseline", "idle-candidate", "idle-single-pass", "idle-merged", "idle-util", "idle-mask=llc", "shipped"];

/// When a simulated run is measured if nobody says: past the start, and for a tick.
pub(crate) const USUAL_WINDOW: Window =
    Window { warm_up: Span::from_micros(4_000), measured: Span::from_micros(4_000) };

/// What an operation takes natively if nobody says: of the order of what is fitted.
pub(crate) const WORK_NATIVELY: Span = Span::from_micros(2);

/// Trials at most.
pub(crate) const RUNS: usize = 4;
/// How near is near enough.
const WITHIN: f64 = 0.005;

/// A published figure.
pub(crate) struct Target {
    /// The preset that it was measured on.
    pub(crate) machine: &'static str,
    /// What it was measured with.
    pub(crate) mitigation: &'static str,
    /// In the metric's unit.
    pub(crate) value: f64,
    pub(crate) source: &'static str,
}

/// The work with which the workload that `of` makes has the published metric, on the machine and under the policy of `case`: for
/// runs on `machine`.
///
/// # Errors
/// When a run cannot be made.
pub(crate) fn fit(
    case: &Case,
    machine: &str,
    target: &Target,
    of: impl Fn(Span) -> Workload,
    progress: &Progress,
) -> Result<(Span, Calibration), Failure> {
    let mitigation = Mitigation::parse(target.mitigation)?;
    let mut work = WORK_NATIVELY;
    let mut trials: Vec<(f64, f64)> = Vec::new();
    let mut nearest: Option<(f64, Span, Metric)> = None;
    for _ in 0..RUNS {
        let workload = of(work);
        let case = Case { workload, mitigation: mitigation.clone(), roles: false, ..case.clone() };
        let mut rates = Vec::new();
        let take = |_: usize, outcome: Outcome| rates = outcome.rates;
        if let Some(failure) = campaign::run(&[case], 1, progress, Case::run, take).into_iter().next() {
            return Err(failure);
        }
        let rate = mean_of_batches(&rates);
        let metric = workload.metric(rate);
        trials.push((work.as_nanos_f64() / 1e3, metric.value));
        let over = metric.value / target.value - 1.0;
        if nearest.as_ref().is_none_or(|(least, ..)| over.abs() < *least) {
            nearest = Some((over.abs(), work, metric));
        }
        // As long as an operation is to take, less what it does.
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
    let calibration = Calibration {
        workload: of(work).name().to_owned(),
        machine: machine.to_owned(),
        arbitration: case.arbitration.name().into_owned(),
        parameter: "work_us".to_owned(),
        value: work.as_nanos_f64() / 1e3,
        target: format!(
            "{} {} of {} with {} on {}",
            target.value,
            metric.unit,
            of(work).profile(),
            target.mitigation,
            target.machine
        ),
        reached: metric.value,
        source: target.source.to_owned(),
        notes,
        trials,
    };
    Ok((work, calibration))
}

/// Whether each load is asked for once.
///
/// # Errors
/// When one is there twice.
pub(crate) fn each_once<T: Display + PartialEq>(option: &str, loads: &[T]) -> Result<(), Failure> {
    match loads.iter().enumerate().find(|(index, load)| loads[..*index].contains(load)) {
        Some((_, load)) => Err(Failure::new(format!("{option}: {load} is there twice; give it once"))),
        None => Ok(()),
    }
}
