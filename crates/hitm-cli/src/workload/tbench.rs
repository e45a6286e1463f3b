//! tbench: clients that request a file server's operations over loopback.

use std::sync::Arc;

use clap::Args;
use hitm_memory::Span;
use hitm_sched::{IDLE_SEARCHES, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::loopback::{Placement, Test};

use super::loopback::{Pairs, Target};
use super::{Fitting, Program, SessionArgs, Setting, Workload};
use crate::args::{each_once, span};
use crate::failure::Failure;

/// Clients that request a file server's operations over loopback: fair tasks.
///
/// The default machine is 2 x 20 cores of Cascade Lake. Measured for 4ms after 4ms of warm-up when
/// simulated (150ns per task and CPU if that is more), for 5s after 1s natively.
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
pub(super) const TARGET: Target = Target { machine: "clx-2x20", mitigation: "idle-candidate", load: (Test::Tbench, 1) };

impl Tbench {
    fn pairs(&self) -> Pairs {
        let loads = self.clients.iter().map(|&clients| (Test::Tbench, clients as usize)).collect();
        Pairs { loads, placement: Placement::Free, session: self.session, work: self.work, target: TARGET }
    }
}

impl Program for Tbench {
    fn usual_machine(&self) -> &'static str {
        TARGET.machine
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }

    fn check(&self, _topology: &Topology) -> Result<(), Failure> {
        each_once("--clients", &self.clients)
    }

    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        self.pairs().workloads(topology, setting)
    }

    fn fitted(&self) -> Option<Box<dyn Fitting + '_>> {
        self.pairs().fitted()
    }
}
