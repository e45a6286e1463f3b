//! `hitm run schbench`.

use clap::Args;
use hitm_memory::Span;
use hitm_sched::mitigation::{IDLE_SEARCHES, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::meter::Window;
use hitm_workloads::schbench::Config;

use super::series::{Program, SeriesArgs};
use super::session::SessionArgs;
use crate::args::{each_once, span, span_above_zero};
use crate::failure::Failure;
use crate::workload::Workload;

/// Message threads that wake their workers all at once.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run schbench                                           as published
  hitm run schbench --message-threads 2 --threads 16 --mitigation baseline,shipped --seeds 10
  hitm run schbench --machine epyc-9654-2x96 --message-threads 4,8 --duration 3s
  hitm run schbench --depth 1 --mitigation baseline,task-group-reordered,shipped
  hitm run schbench --host native --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(IDLE_SEARCHES))
)]
pub(crate) struct Schbench {
    #[command(flatten)]
    series: SeriesArgs,
    /// Numbers of message threads, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX), allow_negative_numbers = true)]
    message_threads: Vec<u32>,
    /// Workers per message thread [default: a quarter of the CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX), allow_negative_numbers = true)]
    threads: Option<u32>,
    /// CPU time of workers and message threads per round.
    #[arg(long, value_name = "T", default_value = "30ms", value_parser = span_above_zero, allow_hyphen_values = true)]
    cputime: Span,
    /// Sleep of a message thread per round; up to a quarter more is added at random.
    #[arg(long, value_name = "T", default_value = "30ms", value_parser = span, allow_hyphen_values = true)]
    sleeptime: Span,
    #[command(flatten)]
    session: SessionArgs,
}

/// At most a million tasks.
const THREADS_MAX: i64 = 1_000;

/// The default measured window of a simulated run: some hundred rounds after ten. In a tenth of it,
/// whether one wakeup in a hundred is late depends on the phases of four message threads
/// (`idle-util`).
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(1_000_000), measured: Span::from_micros(10_000_000) };

impl Schbench {
    /// Checks the options.
    ///
    /// # Errors
    /// When a load is given twice.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        each_once("--message-threads", &self.message_threads)
    }
}

impl Program for Schbench {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, _topology: &Topology) -> Vec<Workload> {
        let (seed, window) = (self.series.seed(), self.series.window(USUAL_WINDOW));
        let of = |&messengers: &u32| {
            Workload::Schbench(Config {
                workers: self.threads.map(|workers| workers as usize),
                cputime: self.cputime,
                sleeptime: self.sleeptime,
                depth: self.session.depth(),
                ..Config::new(messengers as usize, seed, window)
            })
        };
        self.message_threads.iter().map(of).collect()
    }

    fn usual_machine(&self) -> &'static str {
        "icx-2x40"
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }
}
