//! `hitm run cid-storms`.

use clap::{Args, ValueEnum};
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::cid_storms::{Config, Load};
use hitm_workloads::meter::Window;

use super::series::{Program, SeriesArgs};
use crate::workload::Workload;

/// Threads of one program that begin and end, wake elsewhere, or are moved, all the time.
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
    #[command(flatten)]
    series: SeriesArgs,
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
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, _topology: &Topology) -> Vec<Workload> {
        let load = match self.load {
            LoadArg::CreateFew => Load::CreateFew,
            LoadArg::CreateMany => Load::CreateMany,
            LoadArg::MigrateFew => Load::MigrateFew,
            LoadArg::MigrateMany => Load::MigrateMany,
            LoadArg::Affinity => Load::Affinity,
        };
        let window = self.series.window(USUAL_WINDOW);
        vec![Workload::CidStorms(Config { load, seed: self.series.seed(), window })]
    }
}
