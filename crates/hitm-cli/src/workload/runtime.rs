//! runtime: the runtime's own operations on every CPU.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use hitm_sched::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::runtime::{Config, Operation, Operations, USUAL_WINDOW};

use super::{Merit, Program, Running, Setting, Workload, options, starts};

/// The runtime's own operations, with tasks that share nothing: spawn, wakeup, yield, ping-pong.
///
/// Measured for 1ms after 0.5ms of warm-up when simulated (150ns per task and CPU if that is more),
/// for 5s after 1s natively.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run runtime --operation wakeup --lines 3
  hitm run runtime --operation yield --fair --machine core:8
  hitm run runtime --host native --operation ping-pong --mitigation shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(["baseline", "shipped"]))
)]
pub(crate) struct Runtime {
    /// What the tasks do.
    #[arg(long, value_enum, default_value = "ping-pong")]
    operation: OperationArg,
    /// Let the tasks be fair ones; otherwise they have the default priority, FIFO 1.
    #[arg(long)]
    fair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OperationArg {
    /// A task per CPU spawns a task that does nothing, and joins it.
    Spawn,
    /// A pair of tasks per CPU: each one unparks the other one and parks.
    Wakeup,
    /// Four tasks per CPU yield to each other.
    Yield,
    /// A pair of tasks per CPU: a number goes back and forth through two queues.
    PingPong,
}

impl From<OperationArg> for Operation {
    fn from(operation: OperationArg) -> Self {
        match operation {
            OperationArg::Spawn => Self::Spawn,
            OperationArg::Wakeup => Self::Wakeup,
            OperationArg::Yield => Self::Yield,
            OperationArg::PingPong => Self::PingPong,
        }
    }
}

impl Program for Runtime {
    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        // As a native runtime does.
        mitigation.keeping_wakeups(true)
    }

    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let config =
            Config { operation: self.operation.into(), fair: self.fair, seed: setting.seed, window: USUAL_WINDOW };
        let window = setting.window_of(config.tasks(topology.cpus()), topology, USUAL_WINDOW);
        vec![Arc::new(Config { window, ..config })]
    }
}

/// The name of the operation in commands.
fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Spawn => "spawn",
        Operation::Wakeup => "wakeup",
        Operation::Yield => "yield",
        Operation::PingPong => "ping-pong",
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "runtime"
    }

    fn options(&self) -> String {
        let fair = if self.fair { " --fair" } else { "" };
        options(&[("operation", Some(name(self.operation).to_owned()))]) + fair
    }

    fn is_fair(&self) -> bool {
        self.fair
    }

    fn merit(&self) -> Merit {
        Merit::rate("operations_per_second")
    }

    starts!(Operations::start);
}

impl Running for Operations {
    fn batches(&self) -> Vec<f64> {
        self.per_second().to_vec()
    }
}
