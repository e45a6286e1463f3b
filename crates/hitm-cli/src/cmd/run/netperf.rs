//! `hitm run netperf`.

use clap::{Args, ValueEnum};
use hitm_memory::Span;
use hitm_report::published::IDLE_SEARCH_SOURCE;
use hitm_workloads::loopback::{Config, Test};

use super::series::{Fitted, Program, SeriesArgs};
use crate::args::span;
use crate::campaign::Progress;
use crate::failure::Failure;
use crate::fit_work::{self, Target, USUAL_WINDOW, WORK_NATIVELY};
use crate::simulate::Case;
use crate::workload::Workload;

/// Datagrams one way, or a byte there and back, over loopback.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run netperf                                            the seed's table, every search for an idle CPU
  hitm run netperf --size 64,1024 --mitigation idle-candidate,idle-single-pass --seeds 10
  hitm run netperf --test rr --machine icx-2x40 --clients 40,80,160
  hitm run netperf --host native --test rr --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(fit_work::MITIGATIONS))
)]
pub(crate) struct Netperf {
    #[command(flatten)]
    series: SeriesArgs,
    /// What the clients do.
    #[arg(long, value_enum, default_value = "udp-stream")]
    test: TestArg,
    /// Bytes of a datagram, separated by commas [default: the seed's].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_507), allow_negative_numbers = true)]
    size: Vec<u32>,
    /// How many clients, each with a server, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    clients: Vec<u32>,
    /// What a datagram takes of its sender, or a transaction of both ends, beside calls, wakeups and copies [default: fitted to
    /// datagrams of 64 bytes simulated, 2us natively].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    work: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TestArg {
    /// Datagrams, one after the other, as UDP_STREAM; what was sent counts.
    UdpStream,
    /// A byte there and back, as TCP_RR and UDP_RR, which differ in protocol work alone.
    Rr,
}

/// The sizes of the seed.
const SIZES: [u32; 9] = [64, 128, 256, 1_024, 2_048, 3_312, 4_096, 8_192, 16_384];

/// The seed's row of 64 bytes, of the kernel that its patch was posted upon.
const TARGET: Target =
    Target { machine: "bdw-2x20", mitigation: "idle-candidate", value: 232.78, source: IDLE_SEARCH_SOURCE };

impl Netperf {
    fn tests(&self) -> Vec<Test> {
        let sizes = if self.size.is_empty() { &SIZES[..] } else { &self.size };
        match self.test {
            TestArg::UdpStream => sizes.iter().map(|&size| Test::Stream(size as usize)).collect(),
            TestArg::Rr => vec![Test::RequestReply],
        }
    }

    fn of(&self, test: Test, pairs: usize, work: Span) -> Workload {
        let (seed, window) = (self.series.seed(), self.series.window(USUAL_WINDOW));
        Workload::Loopback(Config { test, pairs, work, seed, window })
    }

    fn with(&self, work: Span) -> Vec<Workload> {
        let of_test = |test: Test| self.clients.iter().map(move |&clients| self.of(test, clients as usize, work));
        self.tests().into_iter().flat_map(of_test).collect()
    }
}

impl Program for Netperf {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self) -> Vec<Workload> {
        self.with(self.work.unwrap_or(WORK_NATIVELY))
    }

    fn usual_machine(&self) -> &'static str {
        TARGET.machine
    }

    fn check_loads(&self) -> Result<(), Failure> {
        if self.test == TestArg::Rr && !self.size.is_empty() {
            return Err(Failure::new("--size: a byte goes there and back with --test rr; leave one out".to_owned()));
        }
        fit_work::each_once("--size", &self.size)?;
        fit_work::each_once("--clients", &self.clients)
    }

    fn fitting_runs(&self) -> usize {
        if self.work.is_none() { fit_work::RUNS } else { 0 }
    }

    fn fit(&self, case: &Case, _threads: usize, progress: &Progress) -> Result<Fitted, Failure> {
        if self.work.is_some() {
            return Ok((self.workloads(), None));
        }
        let (machine, case) = (case.topology.name(), self.series.case_on(TARGET.machine, case)?);
        let first = |work| self.of(Test::Stream(SIZES[0] as usize), 1, work);
        let (work, calibration) = fit_work::fit(&case, machine, &TARGET, first, progress)?;
        Ok((self.with(work), Some(calibration)))
    }
}
