//! Pairs over loopback, for `tbench` and `netperf`. The work per operation beyond the modelled
//! parts is fitted to one published figure.
//!
//! The rate of one pair is the inverse of its operation's time, and work adds to that time: each
//! trial's time tells how much is missing.

use std::sync::Arc;

use hitm::Roles;
use hitm_memory::Span;
use hitm_report::load::{self, Kind};
use hitm_report::published::{self, Citation, Key, On, Quantity};
use hitm_report::result::{Better, Calibration, Metric};
use hitm_report::statistics::mean_of_batches;
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::loopback::trace::COUNTED_BYTES;
use hitm_workloads::loopback::{self, Config, Placement, Test};
use hitm_workloads::meter::Window;
use hitm_workloads::nested;

use super::{Fit, Fitting, Merit, Running, SessionArgs, Setting, Workload, counted, nanos, options, starts, unusual};
use crate::campaign::run_one;
use crate::failure::Failure;
use crate::simulate::Case;

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
    pub(super) fn published(&self, workload: &dyn Workload) -> (f64, &'static Citation) {
        let on = On::Machine(self.machine.to_owned());
        let (workload, load, quantity) = (workload.name(), workload.load(), Quantity::Throughput);
        published::figure(&Key { workload, on, load, mitigation: self.mitigation, quantity })
            .expect("a test of `published` finds every target")
    }
}

/// Pairs over loopback: what the options of either command make.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub(crate) loads: Vec<Load>,
    pub(crate) placement: Placement,
    pub(crate) session: SessionArgs,
    /// The work per operation, if the option is given.
    pub(crate) work: Option<Span>,
    /// The figure that the work is fitted to, if it is not.
    pub(crate) target: Target,
}

impl Pairs {
    fn config(&self, (test, pairs): Load, work: Span, topology: &Topology, setting: &Setting) -> Config {
        let window = setting.window_of(2 * pairs, topology, USUAL_WINDOW);
        let (placement, depth) = (self.placement, self.session.depth());
        Config { test, placement, pairs, depth, work, seed: setting.seed, window }
    }

    fn with(&self, work: Span, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let of = |&load| -> Arc<dyn Workload> { Arc::new(self.config(load, work, topology, setting)) };
        self.loads.iter().map(of).collect()
    }

    /// Returns the workload with each load.
    pub(super) fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        self.with(self.work.unwrap_or(WORK_NATIVELY), topology, setting)
    }

    /// Returns the work, if it is not given.
    pub(super) fn fitted(self) -> Option<Box<dyn Fitting>> {
        match self.work {
            None => Some(Box::new(self)),
            Some(_) => None,
        }
    }

    /// Returns the target's load with some work.
    fn of_target(&self, work: Span, topology: &Topology, setting: &Setting) -> Arc<dyn Workload> {
        // The figure was measured without a group, and its tasks ran anywhere.
        Arc::new(Config {
            depth: 0,
            placement: Placement::Free,
            ..self.config(self.target.load, work, topology, setting)
        })
    }
}

impl Fitting for Pairs {
    fn option(&self) -> &'static str {
        "--work"
    }

    fn runs(&self) -> usize {
        RUNS
    }

    fn first(&self, fit: &Fit<'_>) -> Result<Case, Failure> {
        let published = fit.case_on(self.target.machine)?;
        let workload = self.of_target(WORK_NATIVELY, &published.topology, fit.setting);
        Ok(Case { mitigation: Mitigation::parse(self.target.mitigation)?, workload, ..published })
    }

    fn with_value(&self, value: f64, fit: &Fit<'_>) -> Vec<Arc<dyn Workload>> {
        self.with(Span::from_nanos_f64(value * 1e3), &fit.case.topology, fit.setting)
    }

    /// Returns the work with which the target's load reaches its figure, under the policy of the
    /// case, for runs on the machine of the case.
    fn calibrate(&self, fit: &Fit<'_>) -> Result<Calibration, Failure> {
        let (target, case) = (&self.target, fit.case);
        let published = self.first(fit)?;
        let of_target = |work| self.of_target(work, &published.topology, fit.setting);
        let (value, citation) = target.published(&*of_target(WORK_NATIVELY));
        let mut work = WORK_NATIVELY;
        let mut trials: Vec<(f64, f64)> = Vec::new();
        let mut nearest: Option<(f64, Span, Metric)> = None;
        for _ in 0..RUNS {
            let workload = of_target(work);
            let trial = Case { workload: workload.clone(), ..published.clone() };
            let rate = mean_of_batches(&run_one(&trial, fit.progress)?.batches);
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
        Ok(Calibration {
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
        })
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        if self.test == Test::Tbench { "tbench" } else { "netperf" }
    }

    fn profile(&self) -> String {
        let test = match self.test {
            Test::Tbench => String::new(),
            Test::RequestReply => "rr, ".to_owned(),
            Test::Stream(bytes) => format!("udp-stream, {bytes} bytes, "),
        };
        let place = match self.placement {
            Placement::Free => "",
            Placement::SamePackage => ", all in one package",
            Placement::OtherPackage => ", servers in another package",
        };
        format!("{test}{}{place}{}", counted(self.pairs, "client"), nested::in_words(self.depth, 0))
    }

    fn options(&self) -> String {
        let test = match self.test {
            Test::Tbench => String::new(),
            Test::RequestReply => " --test rr".to_owned(),
            Test::Stream(bytes) => format!(" --test udp-stream --size {bytes}"),
        };
        let depth = options(&[
            ("depth", unusual(self.depth, 0, |own| own.to_string())),
            ("placement", unusual(self.placement, Placement::Free, |own| own.name().to_owned())),
        ]);
        format!("{test} --clients {}{depth} --work {}", self.pairs, nanos(self.work))
    }

    fn load(&self) -> Option<load::Load> {
        let kind = match self.test {
            Test::Tbench => Kind::Clients(self.pairs),
            Test::RequestReply => Kind::RequestReply(self.pairs),
            Test::Stream(bytes) => Kind::UdpStream { bytes, clients: self.pairs },
        };
        Some(load::Load { kind, depth: self.depth })
    }

    fn roles(&self) -> Option<Roles> {
        Some(loopback::roles())
    }

    fn is_fair(&self) -> bool {
        true
    }

    fn merit(&self) -> Merit {
        match self.test {
            Test::Tbench => {
                Merit { name: "throughput", unit: "MB/s", each: COUNTED_BYTES * 1e-6, better: Better::Higher }
            }
            Test::RequestReply => Merit::rate("transactions_per_second"),
            Test::Stream(bytes) => {
                Merit { name: "sent", unit: "Mbit/s", each: bytes as f64 * 8e-6, better: Better::Higher }
            }
        }
    }

    starts!(loopback::Loopback::start);
}

impl Running for loopback::Loopback {
    fn batches(&self) -> Vec<f64> {
        self.operations_per_second().to_vec()
    }
}
