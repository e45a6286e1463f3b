//! schbench: message threads that wake their workers, and how late these run.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_memory::Span;
use hitm_report::latency::{self, percentile};
use hitm_report::load::{Kind, Load};
use hitm_report::result::Better;
use hitm_report::statistics::{Mean, mean_of_batches};
use hitm_sched::{IDLE_SEARCHES, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::meter::Window;
use hitm_workloads::nested;
use hitm_workloads::schbench::{self, Config};

use super::{Merit, Program, Running, SessionArgs, Setting, Workload, counted, nanos, options, starts, unusual};
use crate::args::{each_once, span, span_above_zero};
use crate::failure::Failure;

/// Message threads that wake all of their workers at once: fair tasks.
///
/// The default machine is 2 x 40 cores of Ice Lake. Measured for 10s after 1s of warm-up when
/// simulated, for 5s after 1s natively.
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

impl Program for Schbench {
    fn usual_machine(&self) -> &'static str {
        "icx-2x40"
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }

    fn check(&self, _topology: &Topology) -> Result<(), Failure> {
        each_once("--message-threads", &self.message_threads)
    }

    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let of = |&message_threads: &u32| -> Arc<dyn Workload> {
            Arc::new(Config {
                workers: self.threads.map(|workers| workers as usize),
                cputime: self.cputime,
                sleeptime: self.sleeptime,
                depth: self.session.depth(),
                ..Config::new(message_threads as usize, setting.seed, setting.window(USUAL_WINDOW))
            })
        };
        self.message_threads.iter().map(of).collect()
    }
}

/// Returns the unusual options, apart from the load.
fn unusual_options(config: &Config) -> String {
    let usual = Config::new(config.message_threads, config.seed, config.window);
    options(&[
        ("threads", config.workers.map(|workers| workers.to_string())),
        ("cputime", unusual(config.cputime, usual.cputime, nanos)),
        ("sleeptime", unusual(config.sleeptime, usual.sleeptime, nanos)),
    ])
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "schbench"
    }

    fn profile(&self) -> String {
        let threads = counted(self.message_threads, "message thread");
        format!("{threads}{}{}", nested::in_words(self.depth, 0), unusual_options(self))
    }

    fn options(&self) -> String {
        let depth = options(&[("depth", unusual(self.depth, 0, |own| own.to_string()))]);
        format!(" --message-threads {}{depth}{}", self.message_threads, unusual_options(self))
    }

    fn load(&self) -> Option<Load> {
        let load = Load { kind: Kind::MessageThreads(self.message_threads), depth: self.depth };
        unusual_options(self).is_empty().then_some(load)
    }

    fn roles(&self) -> Option<Roles> {
        Some(schbench::roles())
    }

    fn percents(&self) -> &'static [f64] {
        &latency::SCHBENCH
    }

    fn is_fair(&self) -> bool {
        true
    }

    fn mean(&self, batches: &[Vec<f64>], latencies: &[Span]) -> Mean {
        // The mean over batches would be too low for a percentile: a batch has few samples. Batches
        // without samples are left out.
        let finite = |own: &Vec<f64>| own.iter().copied().filter(|own| own.is_finite()).collect::<Vec<_>>();
        let interval = mean_of_batches(&batches.iter().map(finite).collect::<Vec<_>>()).interval;
        Mean { value: late(latencies), interval }
    }

    fn units(&self, _mean: Mean, _seconds: f64, samples: usize) -> f64 {
        samples as f64
    }

    fn merit(&self) -> Merit {
        Merit { name: "wakeup_latency_p99", unit: "us", each: 1.0, better: Better::Lower }
    }

    starts!(schbench::Schbench::start);
}

impl Running for schbench::Schbench {
    fn batches(&self) -> Vec<f64> {
        self.latencies_by_batch().map(|latencies| late(&latencies)).to_vec()
    }

    fn latencies(&self) -> Vec<Span> {
        self.latencies().concat()
    }
}

/// Returns the 99th percentile in microseconds.
fn late(latencies: &[Span]) -> f64 {
    percentile(latencies, 99.0).map_or(f64::NAN, |latency| latency.as_nanos_f64() / 1e3)
}
