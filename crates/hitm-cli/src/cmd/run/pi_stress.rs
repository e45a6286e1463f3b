//! `hitm run pi_stress`.

use clap::Args;
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::meter::Window;
use hitm_workloads::pi_stress;

use super::series::{Program, SeriesArgs};
use crate::args::HostArg;
use crate::failure::Failure;
use crate::workload::Workload;

/// Groups that provoke a priority inversion over and over, on a mutex with priority inheritance.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run pi_stress                                          the seeds' table
  hitm run pi_stress --mitigation baseline,all --arbitration local-first,fifo
  hitm run pi_stress --groups 1 --mitigation baseline --lines 0
  hitm run pi_stress --host native --mitigation baseline --duration 2s")]
pub(crate) struct PiStress {
    #[command(flatten)]
    series: SeriesArgs,
    /// How many groups, on the CPUs after the first [default: half as many as CPUs].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    groups: Option<usize>,
}

/// How long a simulated run is measured: hundreds of inversions of each group.
const SIMULATED: Window = Window { warm_up: Span::from_micros(2_000), measured: Span::from_micros(10_000) };
/// How long a native run is.
const NATIVE: Window = Window { warm_up: Span::from_micros(1_000_000), measured: Span::from_micros(5_000_000) };

impl Program for PiStress {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workload(&self) -> Workload {
        let usual = match self.series.host() {
            HostArg::Simulated => SIMULATED,
            HostArg::Native => NATIVE,
        };
        Workload::PiStress(pi_stress::Config {
            groups: self.groups,
            seed: self.series.seed(),
            window: self.series.window(usual),
        })
    }

    fn check(&self, topology: &Topology) -> Result<(), Failure> {
        match self.groups {
            Some(0) => Err(Failure::new("--groups 0: nobody would do anything; ask for one or more")),
            // As the original refuses it.
            Some(groups) if groups > topology.cpus() => Err(Failure::new(format!(
                "--groups {groups}: `{}` has {} CPUs and a group takes one; ask for fewer, or take a larger machine",
                topology.name(),
                topology.cpus()
            ))),
            _ => Ok(()),
        }
    }
}
