//! netperf: datagrams, or round trips of one byte, over loopback.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use hitm_memory::Span;
use hitm_sched::{IDLE_SEARCHES, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::loopback::{Placement, Test};

use super::loopback::{Pairs, Target};
use super::{Fitting, Program, SessionArgs, Setting, Workload};
use crate::args::{each_once, span};
use crate::failure::Failure;

/// One-way datagrams, or round trips of one byte, over loopback: fair tasks.
///
/// The default machine is 2 x 20 cores of Broadwell. Measured for 4ms after 4ms of warm-up when
/// simulated (150ns per task and CPU if that is more), for 5s after 1s natively.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run netperf                                            the published table
  hitm run netperf --size 64,1024 --mitigation idle-candidate,idle-single-pass --seeds 10
  hitm run netperf --test rr --machine icx-2x40 --clients 40,80,160
  hitm run netperf --test rr --machine icx-2x40 --depth 1 --mitigation baseline,task-group-reordered
  hitm run netperf --host native --test rr --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(IDLE_SEARCHES))
)]
pub(crate) struct Netperf {
    /// Operation of the clients.
    #[arg(long, value_enum, default_value = "udp-stream")]
    test: TestArg,
    /// Bytes of a datagram, separated by commas [default: the published sizes].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_507), allow_negative_numbers = true)]
    size: Vec<u32>,
    /// Numbers of clients, each with its own server, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    clients: Vec<u32>,
    /// CPUs on which the client and the server of a pair may run.
    #[arg(long, value_enum, default_value = "free", hide_short_help = true)]
    placement: PlacementArg,
    /// CPU time per datagram of its sender, or per transaction of both ends, without calls, wakeups
    /// and copies [default: fitted to datagrams of 64 bytes when simulated, 2us natively].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    work: Option<Span>,
    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TestArg {
    /// One-way datagrams, as UDP_STREAM; sent datagrams are counted.
    UdpStream,
    /// Round trips of one byte, as TCP_RR and UDP_RR; the two differ in protocol work alone.
    Rr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementArg {
    /// Any.
    Free,
    /// Those of the first package.
    SamePackage,
    /// The client on those of the first package, the server on those of the last.
    OtherPackage,
}

impl From<PlacementArg> for Placement {
    fn from(arg: PlacementArg) -> Self {
        match arg {
            PlacementArg::Free => Self::Free,
            PlacementArg::SamePackage => Self::SamePackage,
            PlacementArg::OtherPackage => Self::OtherPackage,
        }
    }
}

/// The datagram sizes of Mel Gorman, "[PATCH 4/4] sched/fair: Avoid revisiting CPUs multiple times
/// during select_idle_sibling", LKML, 2020-12-07.
const SIZES: [u32; 9] = [64, 128, 256, 1_024, 2_048, 3_312, 4_096, 8_192, 16_384];

/// The published row of 64 bytes, on the kernel that the patch was posted upon.
pub(super) const TARGET: Target =
    Target { machine: "bdw-2x20", mitigation: "idle-candidate", load: (Test::Stream(SIZES[0] as usize), 1) };

impl Netperf {
    fn pairs(&self) -> Pairs {
        let of_test = |test: Test| self.clients.iter().map(move |&clients| (test, clients as usize));
        let loads = self.tests().into_iter().flat_map(of_test).collect();
        let placement = self.placement.into();
        Pairs { loads, placement, session: self.session, work: self.work, target: TARGET }
    }

    fn tests(&self) -> Vec<Test> {
        let sizes = if self.size.is_empty() { &SIZES[..] } else { &self.size };
        match self.test {
            TestArg::UdpStream => sizes.iter().map(|&size| Test::Stream(size as usize)).collect(),
            TestArg::Rr => vec![Test::RequestReply],
        }
    }
}

impl Program for Netperf {
    fn usual_machine(&self) -> &'static str {
        TARGET.machine
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }

    fn check(&self, _topology: &Topology) -> Result<(), Failure> {
        if self.test == TestArg::Rr && !self.size.is_empty() {
            return Err(Failure::new("--size: a byte goes there and back with --test rr; leave one out".to_owned()));
        }
        each_once("--size", &self.size)?;
        each_once("--clients", &self.clients)
    }

    fn workloads(&self, topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        self.pairs().workloads(topology, setting)
    }

    fn fitted(&self) -> Option<Box<dyn Fitting + '_>> {
        self.pairs().fitted()
    }
}
