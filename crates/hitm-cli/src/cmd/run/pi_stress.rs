//! `hitm run pi_stress`.

use clap::Args;
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::meter::Window;
use hitm_workloads::pi_stress::{self, Order};

use super::series::{Program, SeriesArgs};
use crate::failure::Failure;
use crate::workload::Workload;

/// Groups that provoke a priority inversion over and over, on a mutex with priority inheritance.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run pi_stress                                          the published table
  hitm run pi_stress --mitigation baseline,all --arbitration local-first,fifo
  hitm run pi_stress --arbitration fifo --order drawn --mitigation shipped
  hitm run pi_stress --groups 1 --mitigation baseline --lines 0
  hitm run pi_stress --host native --mitigation baseline --duration 2s")]
pub(crate) struct PiStress {
    #[command(flatten)]
    series: SeriesArgs,
    #[command(flatten)]
    options: PiStressOptions,
}

/// How many groups there are, and who starts first.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PiStressOptions {
    /// Number of groups, placed on the CPUs after the first [default: half the number of CPUs].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    groups: Option<usize>,
    /// Order in which the groups start. Under `--arbitration fifo` the groups keep this order at
    /// the mutex that they share.
    #[arg(long, value_enum, default_value = "numbered")]
    order: OrderArg,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OrderArg {
    /// By CPU number, as the original program starts them: neighbours follow each other.
    Numbered,
    /// In random order.
    Drawn,
}

/// The default measured window of a simulated run: hundreds of inversions per group.
pub(crate) const USUAL_WINDOW: Window =
    Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(10_000) };

impl PiStressOptions {
    /// Returns the workload with these options.
    pub(crate) fn config(&self, seed: u64, window: Window) -> pi_stress::Config {
        let order = match self.order {
            OrderArg::Numbered => Order::Numbered,
            OrderArg::Drawn => Order::Drawn,
        };
        pi_stress::Config { groups: self.groups, order, seed, window }
    }

    /// Checks that the groups fit on the CPUs.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn check(&self, topology: &Topology) -> Result<(), Failure> {
        match self.groups {
            Some(0) => Err(Failure::new("--groups 0: nobody would do anything; ask for one or more")),
            // The original refuses it too.
            Some(groups) if groups > topology.cpus() => Err(Failure::new(format!(
                "--groups {groups}: `{}` has {} CPUs and a group takes one; ask for fewer, or take a larger machine",
                topology.name(),
                topology.cpus()
            ))),
            _ => Ok(()),
        }
    }
}

impl Program for PiStress {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, _topology: &Topology) -> Vec<Workload> {
        let window = self.series.window(USUAL_WINDOW);
        vec![Workload::PiStress(self.options.config(self.series.seed(), window))]
    }

    fn check(&self, topology: &Topology) -> Result<(), Failure> {
        self.options.check(topology)
    }
}
