//! futex: pairs of a waiter with a very short timeout and its waker.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_memory::Span;
use hitm_sched::IDLE_SEARCHES;
use hitm_topology::Topology;
use hitm_workloads::futex::{self, Config};
use hitm_workloads::meter::Window;

use super::{Merit, Program, Running, Setting, Workload, nanos, options, starts, unusual};
use crate::args::span_above_zero;

/// Pairs of a task that waits on a futex for a very short time and a task that wakes it: fair
/// tasks. stress-ng's futex stressor.
///
/// Measured for 4ms after 2ms of warm-up when simulated (150ns per task and CPU if that is more),
/// for 5s after 1s natively.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run futex --machine clx-2x20
  hitm run futex --instances 64 --mitigation baseline,idle-buddy,shipped --seeds 5 --lines 3
  hitm run futex --timeout 50us --mitigation baseline
  hitm run futex --host native --instances 2 --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(IDLE_SEARCHES))
)]
pub(crate) struct Futex {
    /// Number of pairs [default: one per CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    instances: Option<u32>,
    /// Longest time of a wait.
    #[arg(long, value_name = "T", default_value = "5us", value_parser = span_above_zero, allow_hyphen_values = true)]
    timeout: Span,
}

/// The default measured window of a simulated run.
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(4_000) };

impl Program for Futex {
    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let instances = self.instances.map(|count| count as usize);
        let tasks = 2 * instances.unwrap_or(topology.cpus());
        let window = setting.window_of(tasks, topology, USUAL_WINDOW);
        vec![Arc::new(Config { instances, timeout: self.timeout, seed: setting.seed, window })]
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "futex"
    }

    fn options(&self) -> String {
        options(&[
            ("instances", self.instances.map(|count| count.to_string())),
            ("timeout", unusual(self.timeout, Self::TIMEOUT, nanos)),
        ])
    }

    fn roles(&self) -> Option<Roles> {
        Some(futex::roles())
    }

    fn is_fair(&self) -> bool {
        true
    }

    fn merit(&self) -> Merit {
        Merit::rate("wakes_per_second")
    }

    starts!(futex::FutexPairs::start);
}

impl Running for futex::FutexPairs {
    fn batches(&self) -> Vec<f64> {
        self.wakes_per_second().to_vec()
    }
}
