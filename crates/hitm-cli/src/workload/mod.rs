//! The workloads: one file per workload, and one line in [`WORKLOADS`].
//!
//! A file has the options of the workload's command ([`Program`]), and what a case runs
//! ([`Workload`]): its start on either host, its figure of merit, and the key of its published
//! figures. `hitm run`, `hitm sweep`, `hitm list` and the help are made from the table.

mod calibrate;
mod cid_bursts;
mod cid_storms;
mod context1;
mod cyclic;
mod ffmpeg;
mod fitting;
mod futex;
mod hackbench;
mod loopback;
mod netperf;
mod pi_stress;
#[cfg(test)]
mod published;
mod registry;
mod runtime;
mod schbench;
mod session;
mod tbench;

use std::fmt;
use std::sync::Arc;

use hitm::{Handle, Roles};
use hitm_machine::Simulated;
use hitm_memory::{Native, Span, Time};
use hitm_report::load::Load;
use hitm_report::published::{self as figures, Key, On, Published, Quantity};
use hitm_report::result::{Better, Metric, ResultFile, Run};
use hitm_report::statistics::{Mean, mean_of_batches};
use hitm_report::{latency, loads, summary};
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::cid_bursts::Burst;
use hitm_workloads::meter::Window;

pub(crate) use self::fitting::{Fit, Fitting};
pub(crate) use self::registry::{Chosen, Command, Entry};
pub(crate) use self::session::SessionArgs;
use crate::args::{HostArg, USUAL_MACHINE};
use crate::failure::Failure;

/// The measured window of a native run by default.
const NATIVE_WINDOW: Window = Window { warm_up: Span::from_micros(1_000_000), measured: Span::from_micros(5_000_000) };

/// The time per fair task and CPU at the start. Fair tasks begin one after the other, and each
/// searches all CPUs for the one with least to do. Seen on 160 CPUs: 20 us.
const START_OF_EACH: Span = Span::from_nanos(150);

/// What all workloads of a command have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The host.
    pub(crate) host: HostArg,
    /// The first random seed.
    pub(crate) seed: u64,
    /// The time before the measured stretch, if it is given.
    pub(crate) warm_up: Option<Span>,
    /// The measured stretch, if it is given.
    pub(crate) measured: Option<Span>,
    /// Whether the measured stretch is shorter than usual, if it is not given.
    pub(crate) is_quick: bool,
}

/// A quick look measures an eighth of the usual time. Its warm-up is the usual one: what comes
/// earlier is of another kind, and a comparison of it would mislead.
const QUICK: u64 = 8;

impl Setting {
    /// Returns the measured window: the given times, else the default, `simulated` or native.
    pub(crate) fn window(&self, simulated: Window) -> Window {
        let usual = match self.host {
            HostArg::Simulated if self.is_quick => {
                Window { measured: Span::from_picos(simulated.measured.as_picos() / QUICK), ..simulated }
            }
            HostArg::Simulated => simulated,
            HostArg::Native => NATIVE_WINDOW,
        };
        Window { warm_up: self.warm_up.unwrap_or(usual.warm_up), measured: self.measured.unwrap_or(usual.measured) }
    }

    /// As [`window`](Self::window), for `tasks` fair tasks that all exist from the start: by
    /// default it begins after all of them have begun.
    pub(crate) fn window_of(&self, tasks: usize, topology: &Topology, simulated: Window) -> Window {
        let warm_up = simulated.warm_up.max(START_OF_EACH * (tasks * topology.cpus()) as u64);
        self.window(Window { warm_up, ..simulated })
    }
}

/// The options of a workload's command.
pub(crate) trait Program: fmt::Debug + Sync {
    /// Returns the default machine of a simulated run.
    fn usual_machine(&self) -> &'static str {
        USUAL_MACHINE
    }

    /// Returns the mitigation that runs where `mitigation` was asked for.
    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        mitigation
    }

    /// Checks the options, by themselves and against `topology`.
    ///
    /// # Errors
    /// When they cannot be met.
    fn check(&self, _topology: &Topology) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns the workload on a machine with each load that was asked for, before anything is
    /// fitted. The number of loads is the same on every machine.
    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>>;

    /// Returns the runs per mitigation by default.
    fn usual_seeds(&self, host: HostArg) -> u64 {
        match host {
            HostArg::Simulated => 3,
            HostArg::Native => 1,
        }
    }

    /// Returns whether caches have a limited size, instead of holding every line that was read.
    fn limits_caches(&self) -> bool {
        false
    }

    /// Returns the report of finished runs, in `width` columns.
    fn render(&self, file: &ResultFile, width: usize) -> String {
        summary::render(file, width) + &loads::render(file, width)
    }

    /// Returns what is fitted because it is not given.
    fn fitted(&self) -> Option<Box<dyn Fitting + '_>> {
        None
    }
}

/// The name, the unit and the direction of a figure of merit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merit {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The unit's amount per work unit.
    pub(crate) each: f64,
    pub(crate) better: Better,
}

impl Merit {
    /// A rate of work units: more is better.
    pub(crate) const fn rate(name: &'static str) -> Self {
        Self { name, unit: "1/s", each: 1.0, better: Better::Higher }
    }
}

/// The measured stretch of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stretch {
    /// A window of time, at whose end the workload stops.
    Window(Window),
    /// A part of the run that the workload begins and ends itself: see [`Running::stretch`].
    Marked,
    /// The whole run, which takes this time.
    Whole(Span),
}

impl Stretch {
    /// Returns the time from the start of the run to the end of the stretch, where it is known.
    pub(crate) fn end(self) -> Option<Span> {
        match self {
            Self::Window(window) => Some(window.warm_up + window.measured),
            Self::Marked => None,
            Self::Whole(span) => Some(span),
        }
    }
}

/// Outcomes of a workload over random seeds, for [`Workload::complete`].
pub(crate) struct Ended<'a> {
    pub(crate) host: HostArg,
    pub(crate) topology: &'a Topology,
    pub(crate) mitigation: &'a str,
    pub(crate) seeds: usize,
    /// See [`Running::batches`]; by seed.
    pub(crate) batches: &'a [Vec<f64>],
    /// The idle CPUs in the time of each batch; by seed, empty where they are not watched.
    pub(crate) idle: &'a [Vec<f64>],
    /// See [`Running::bursts`]; by seed.
    pub(crate) bursts: &'a [Vec<Burst>],
}

/// A workload with its parameters: what a case runs.
pub(crate) trait Workload: fmt::Debug + Send + Sync {
    /// Returns the name in commands and reports.
    fn name(&self) -> &'static str;

    /// Returns the modelled program or the load, in words; empty for a workload with one of them.
    fn profile(&self) -> String {
        self.options().trim_start().to_owned()
    }

    /// Returns the options that make this workload again, beside those that all workloads have.
    /// Each has a space before it.
    fn options(&self) -> String;

    /// Returns its load; `None` for a workload with one load, and for one with an unusual option.
    fn load(&self) -> Option<Load> {
        None
    }

    /// Returns the machine by which published figures are found; `None` when none are comparable.
    fn published_on(&self, _topology: &Topology) -> Option<On> {
        None
    }

    /// Returns the measured stretch.
    fn stretch(&self) -> Stretch;

    /// Returns a form of the workload that runs beside it, once, with the baseline's scheduler.
    fn beside(&self) -> Option<Arc<dyn Workload>> {
        None
    }

    /// Returns what stands for the mitigation in reports, where it is not the mitigation that
    /// makes the case.
    fn variant(&self) -> Option<&'static str> {
        None
    }

    /// Returns the random seed.
    fn seed(&self) -> u64;

    /// Returns the same workload with another random seed.
    fn with_seed(&self, seed: u64) -> Arc<dyn Workload>;

    /// Returns counters for the roles of its tasks; `None` for a workload without roles.
    fn roles(&self) -> Option<Roles> {
        None
    }

    /// Returns the percentiles that its report shows of the samples; empty for a workload without
    /// samples.
    fn percents(&self) -> &'static [f64] {
        &latency::STRESS_NG
    }

    /// Returns whether its report has the operations per work unit.
    fn counts_operations(&self) -> bool {
        false
    }

    /// Returns whether its tasks are fair. The report then says how much of the CPUs' time was lost
    /// while a task waited.
    fn is_fair(&self) -> bool {
        false
    }

    /// Returns whether its report says how many CPUs idled in each batch. Its tasks are fair then.
    fn watches_idle_cpus(&self) -> bool {
        false
    }

    /// Returns whether its tasks have concurrency ids. The report then has their cost.
    fn has_ids(&self) -> bool {
        false
    }

    /// Returns a note on the share of busy cycles that went to the fields that a mitigation moves,
    /// for a workload about that.
    fn task_group_note(&self, _topology: &Topology, _mitigation: &Mitigation, _share: f64) -> Option<String> {
        None
    }

    /// Returns the figure of merit in work units: from `batches` as [`Running::batches`] has them
    /// for each seed, and from the `latencies` of all seeds.
    fn mean(&self, batches: &[Vec<f64>], _latencies: &[Span]) -> Mean {
        mean_of_batches(batches)
    }

    /// Returns the number of units that the report's counts are divided by: work units in
    /// `seconds`, or samples for a workload that has no rate.
    fn units(&self, mean: Mean, seconds: f64, _samples: usize) -> f64 {
        mean.value * seconds
    }

    /// Returns the name and the unit of the figure of merit.
    fn merit(&self) -> Merit;

    /// Adds to a run what only this workload reports.
    fn complete(&self, _run: &mut Run, _ended: &Ended<'_>) {}

    /// Starts the workload, which shuts the runtime down at the end of its window.
    fn start_simulated(&self, runtime: &Handle<Simulated>) -> Box<dyn Running>;

    /// The same on this machine.
    fn start_native(&self, runtime: &Handle<Native>) -> Box<dyn Running>;
}

/// Starts a workload on both hosts: `$start(runtime, config)`, which is generic over the host.
macro_rules! starts {
    ($start:path) => {
        fn start_simulated(
            &self,
            runtime: &hitm::Handle<hitm_machine::Simulated>,
        ) -> Box<dyn $crate::workload::Running> {
            Box::new($start(runtime, *self))
        }

        fn start_native(&self, runtime: &hitm::Handle<hitm_memory::Native>) -> Box<dyn $crate::workload::Running> {
            Box::new($start(runtime, *self))
        }

        fn seed(&self) -> u64 {
            self.seed
        }

        fn with_seed(&self, seed: u64) -> std::sync::Arc<dyn $crate::workload::Workload> {
            std::sync::Arc::new(Self { seed, ..*self })
        }

        fn stretch(&self) -> $crate::workload::Stretch {
            $crate::workload::Stretch::Window(self.window)
        }
    };
}
use starts;

impl dyn Workload {
    /// Returns the key of the published figures, found `on` a machine.
    fn key<'a>(&self, on: On, mitigation: &'a Mitigation) -> Key<'a> {
        let (workload, load, mitigation) = (self.name(), self.load(), mitigation.name());
        Key { workload, on, load, mitigation, quantity: Quantity::Relative }
    }

    /// Returns the published figures.
    pub(crate) fn published(&self, topology: &Topology, mitigation: &Mitigation) -> Option<Published> {
        figures::of(&self.key(self.published_on(topology)?, mitigation))
    }

    /// Returns the figure of merit.
    pub(crate) fn metric(&self, mean: Mean) -> Metric {
        let Merit { name, unit, each, better } = self.merit();
        Metric {
            name: name.to_owned(),
            value: mean.value * each,
            interval: mean.interval * each,
            unit: unit.to_owned(),
            better,
        }
    }
}

/// A workload that was started.
pub(crate) trait Running: fmt::Debug + Send {
    /// Returns the figure of merit per batch; not a number for a batch without one.
    fn batches(&self) -> Vec<f64>;

    /// Returns whether it is over, for a workload without a window.
    fn is_over(&self) -> bool {
        true
    }

    /// Returns the measured stretch, of a workload that marks it itself; `None` until it is over.
    fn stretch(&self) -> Option<(Time, Time)> {
        None
    }

    /// Returns the bursts, for a workload that has them.
    fn bursts(&self) -> Vec<Burst> {
        Vec::new()
    }

    /// Returns the delays of wakeups, for workloads that record them.
    fn latencies(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Returns the fault that the workload found in its own run.
    fn fault(&self) -> Option<&'static str> {
        None
    }
}

/// Returns a time as an option takes it.
fn nanos(span: Span) -> String {
    format!("{}ns", span.as_picos() / 1_000)
}

/// Returns a value that is not the usual one.
fn unusual<T: PartialEq>(value: T, usual: T, text: impl FnOnce(T) -> String) -> Option<String> {
    (value != usual).then(|| text(value))
}

/// Returns the options that have a value, each with a space before it.
fn options(options: &[(&str, Option<String>)]) -> String {
    options.iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value.as_ref()?))).collect()
}

/// Returns `2 clients`, `1 client`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
