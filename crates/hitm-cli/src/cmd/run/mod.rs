//! `hitm run`.

mod quick;
mod series;
mod uncertain;

use clap::{Args, Subcommand};
use hitm_report::result::ResultFile;

pub(crate) use self::series::{SeriesArgs, Single};
use crate::cmd::probe::Probe;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::simulate::Arrangements;
use crate::workload::Chosen;

/// Run a workload on a simulated machine or on this one.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg\n  hitm run ffmpeg --quick --burst-factor 0.0624 --mitigation shipped\n  hitm run cyclic --placement drawn\n  hitm run ffmpeg --mitigation cpupri-split,shipped --uncertainty 40\n  hitm run pi_stress\n  hitm run probe ping-pong --machine clx-2x20"
)]
pub(crate) struct Run {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    #[command(flatten)]
    Series(Box<Chosen<SeriesArgs>>),
    /// The cost of one shared word, counter, bitmap or lock.
    Probe(Box<Probe>),
}

impl Run {
    /// Returns the only run of a command line that names one.
    ///
    /// # Errors
    /// When an option cannot be met, or there are several runs, or none that a job can be.
    pub(crate) fn single(self) -> Result<Single, Failure> {
        match self.workload {
            Workload::Series(chosen) => Single::of(*chosen),
            Workload::Probe(_) => {
                Err(Failure::new("workload `probe`: a job runs a workload; see `hitm list workloads`"))
            }
        }
    }

    /// Returns the number of runs of the workload.
    ///
    /// # Errors
    /// As [`results`](Self::results).
    pub(crate) fn runs(self) -> Result<usize, Failure> {
        series::runs(&*self.series()?)
    }

    /// Runs the workload with other layouts, and returns its results. Its runs are a part of those
    /// that `progress` counts.
    ///
    /// # Errors
    /// When an option cannot be met, or the workload is a probe.
    pub(crate) fn results(self, arrangements: Arrangements, progress: &Progress) -> Result<ResultFile, Failure> {
        let mut chosen = self.series()?;
        chosen.args.arrange(arrangements);
        series::results(&chosen, progress)
    }

    fn series(self) -> Result<Box<Chosen<SeriesArgs>>, Failure> {
        match self.workload {
            Workload::Series(chosen) => Ok(chosen),
            Workload::Probe(_) => {
                Err(Failure::new("a probe has no layout to change; advise on a workload or a program"))
            }
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.workload {
            Workload::Series(chosen) => series::run(*chosen),
            Workload::Probe(probe) => probe.run(),
        }
    }
}
