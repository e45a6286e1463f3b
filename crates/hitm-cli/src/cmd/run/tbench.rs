//! `hitm run tbench`.

use clap::Args;
use hitm_memory::Span;
use hitm_sched::mitigation::IDLE_SEARCHES;
use hitm_workloads::loopback::Test;

use super::loopback::{Loopback, Target};
use super::series::SeriesArgs;
use super::session::SessionArgs;
use crate::args::{each_once, span};
use crate::failure::Failure;

/// Clients that ask servers for a file server's operations, over loopback.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run tbench                                             the published table
  hitm run tbench --clients 64 --mitigation idle-candidate,idle-single-pass --seeds 10
  hitm run tbench --machine epyc-9654-2x96 --clients 96,192,384
  hitm run tbench --host native --clients 1,2,4 --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(IDLE_SEARCHES))
)]
pub(crate) struct Tbench {
    #[command(flatten)]
    series: SeriesArgs,
    /// Numbers of clients, each with its own server, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256, 320], value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    clients: Vec<u32>,
    /// CPU time per operation of both ends, without calls, wakeups and copies [default: fitted when
    /// simulated, 2us natively].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    work: Option<Span>,
    #[command(flatten)]
    session: SessionArgs,
}

/// The published row of one client, on the kernel that the patch was posted upon.
const TARGET: Target = Target { machine: "clx-2x20", mitigation: "idle-candidate", load: (Test::Tbench, 1) };

impl Tbench {
    /// Returns the workload.
    ///
    /// # Errors
    /// When a load is given twice.
    pub(crate) fn program(self) -> Result<Loopback, Failure> {
        each_once("--clients", &self.clients)?;
        let loads = self.clients.iter().map(|&clients| (Test::Tbench, clients as usize)).collect();
        Ok(Loopback { series: self.series, loads, session: self.session, work: self.work, target: TARGET })
    }
}
