//! `hitm run tbench`.

use clap::Args;
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

/// Clients that ask servers for a file server's operations, over loopback.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run tbench                                             the seed's table, every search for an idle CPU
  hitm run tbench --clients 64 --mitigation idle-candidate,idle-single-pass --seeds 10
  hitm run tbench --machine epyc-9654-2x96 --clients 96,192,384
  hitm run tbench --host native --clients 1,2,4 --mitigation baseline,shipped",
    mut_arg("mitigation", |mitigation| mitigation.default_values(fit_work::MITIGATIONS))
)]
pub(crate) struct Tbench {
    #[command(flatten)]
    series: SeriesArgs,
    /// How many clients, each with a server, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256, 320], value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    clients: Vec<u32>,
    /// What an operation takes of both ends beside calls, wakeups and copies [default: fitted simulated, 2us natively].
    #[arg(long, value_name = "T", value_parser = span, allow_hyphen_values = true)]
    work: Option<Span>,
}

/// The seed's row of one client, of the kernel that its patch was posted upon.
const TARGET: Target =
    Target { machine: "clx-2x20", mitigation: "idle-candidate", value: 502.05, source: IDLE_SEARCH_SOURCE };

impl Tbench {
    fn of(&self, work: Span) -> impl Fn(u32) -> Workload {
        let (seed, window) = (self.series.seed(), self.series.window(USUAL_WINDOW));
        move |clients| Workload::Loopback(Config { test: Test::Tbench, pairs: clients as usize, work, seed, window })
    }

    fn with(&self, work: Span) -> Vec<Workload> {
        self.clients.iter().copied().map(self.of(work)).collect()
    }
}

impl Program for Tbench {
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
        let (work, calibration) = fit_work::fit(&case, machine, &TARGET, |work| self.of(work)(1), progress)?;
        Ok((self.with(work), Some(calibration)))
    }
}
