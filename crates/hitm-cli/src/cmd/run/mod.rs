//! `hitm run`.

mod cid_bursts;
pub(crate) mod hackbench;
mod series;

use clap::{Args, Subcommand};

pub(crate) use self::cid_bursts::CidBursts;
use self::hackbench::Hackbench;
pub(crate) use self::series::SeriesArgs;
use crate::cmd::probe::Probe;
use crate::failure::Failure;
use crate::workload::Chosen;

/// Run a workload on a simulated machine or on this one.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm run ffmpeg\n  hitm run cyclic --placement drawn\n  hitm run pi_stress\n  hitm run probe ping-pong --machine clx-2x20"
)]
pub(crate) struct Run {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    #[command(flatten)]
    Series(Box<Chosen<SeriesArgs>>),
    /// Threads that wake one after the other and increment 16 KiB indexed by CPU or concurrency id.
    ///
    /// The default machine is 2 x EPYC 9654. Idle time costs nothing to simulate: the ten minutes
    /// of the longest run take a second.
    CidBursts(Box<CidBursts>),
    /// Groups of fair tasks in which every sender sends to every receiver.
    ///
    /// The default machine is 2 x 20 cores of Cascade Lake. Runs until all messages have arrived.
    Hackbench(Box<Hackbench>),
    /// The cost of one shared word, counter, bitmap or lock.
    Probe(Box<Probe>),
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.workload {
            Workload::Series(chosen) => series::run(*chosen),
            Workload::CidBursts(bursts) => bursts.run(),
            Workload::Hackbench(hackbench) => hackbench.run(),
            Workload::Probe(probe) => probe.run(),
        }
    }
}
