//! cid-storms: threads that are hard on concurrency ids.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use hitm::Roles;
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::cid_storms::{self, Config, Load, Storms};
use hitm_workloads::meter::Window;

use super::{Merit, Program, Running, Setting, Workload, starts};

/// Threads that constantly begin and end, wake on other CPUs, or migrate: loads that are hard on
/// concurrency ids.
///
/// Measured for 2ms after 1ms of warm-up when simulated, for 5s after 1s natively. A second table
/// has the cost of ids per operation.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run cid-storms                                         threads that begin and end
  hitm run cid-storms --load migrate-many --machine epyc-9654-2x96 --machine gnr-2x120
  hitm run cid-storms --load affinity --mitigation baseline,cid-shipped --lines 10
  hitm run cid-storms --host native --mitigation baseline,shipped --duration 2s",
    mut_arg("mitigation", |mitigation| mitigation.default_values(MITIGATIONS))
)]
pub(crate) struct CidStorms {
    /// What the threads do.
    #[arg(long, value_enum, default_value = "create-few")]
    load: LoadArg,
}

/// Every id allocator with the baseline's scheduler, and hitm's allocator with hitm's scheduler.
const MITIGATIONS: [&str; 5] = ["baseline", "cid-recent", "cid-owned", "cid-shipped", "shipped"];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LoadArg {
    /// One thread per four CPUs, each with one child after another; a child lives for 3 us.
    CreateFew,
    /// The same with one thread per CPU: with the children there are more threads than CPUs.
    CreateMany,
    /// One thread per two CPUs sleeps for 10 us and computes for 5 us. Three times as many threads
    /// of another program compete for its CPU.
    MigrateFew,
    /// Two threads per CPU do the same, without another program.
    MigrateMany,
    /// One thread per CPU is moved to another CPU every 2 us.
    Affinity,
}

/// The default measured window of a simulated run: a hundred operations and more per thread.
const USUAL_WINDOW: Window = Window { warm_up: Span::from_micros(1_000), measured: Span::from_micros(2_000) };

impl Program for CidStorms {
    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let load = match self.load {
            LoadArg::CreateFew => Load::CreateFew,
            LoadArg::CreateMany => Load::CreateMany,
            LoadArg::MigrateFew => Load::MigrateFew,
            LoadArg::MigrateMany => Load::MigrateMany,
            LoadArg::Affinity => Load::Affinity,
        };
        vec![Arc::new(Config { load, seed: setting.seed, window: setting.window(USUAL_WINDOW) })]
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "cid-storms"
    }

    fn profile(&self) -> String {
        self.load.name().to_owned()
    }

    fn options(&self) -> String {
        format!(" --load {}", self.load.name())
    }

    fn roles(&self) -> Option<Roles> {
        Some(cid_storms::roles())
    }

    fn has_ids(&self) -> bool {
        true
    }

    fn merit(&self) -> Merit {
        Merit::rate("operations_per_second")
    }

    starts!(Storms::start);
}

impl Running for Storms {
    fn batches(&self) -> Vec<f64> {
        self.operations_per_second().to_vec()
    }
}
