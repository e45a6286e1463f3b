//! `hitm run`.

mod cid_bursts;
mod cid_storms;
mod context1;
mod cyclic;
mod ffmpeg;
mod hackbench;
mod loopback;
mod netperf;
mod pi_stress;
#[cfg(test)]
mod published;
mod schbench;
mod series;
mod session;
mod tbench;

use clap::{Args, Subcommand};

use self::cid_bursts::CidBursts;
use self::cid_storms::CidStorms;
use self::context1::Context1;
use self::cyclic::Cyclic;
pub(crate) use self::cyclic::CyclicOptions;
use self::ffmpeg::Ffmpeg;
pub(crate) use self::ffmpeg::FfmpegOptions;
use self::hackbench::Hackbench;
use self::netperf::Netperf;
use self::pi_stress::PiStress;
pub(crate) use self::pi_stress::{PiStressOptions, USUAL_WINDOW as USUAL_PI_STRESS_WINDOW};
use self::schbench::Schbench;
use self::tbench::Tbench;
use crate::cmd::probe::Probe;
use crate::failure::Failure;

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
    /// 60 transcoders on 8 CPUs each; every thread has priority FIFO 99.
    ///
    /// Measured for the time of 40 pictures after 20 pictures of warm-up when simulated, for 5s
    /// after 1s natively.
    Ffmpeg(Box<Ffmpeg>),
    /// One task per CPU at FIFO 99 that sleeps for 100 us and records how late it woke.
    ///
    /// Measured for 60 sleeps after 40 sleeps of warm-up when simulated, for 5s after 1s natively.
    Cyclic(Box<Cyclic>),
    /// Groups of three tasks, each group on one CPU, that provoke priority inversions.
    ///
    /// There are half as many groups as CPUs. Measured for 10ms after 2ms of warm-up when
    /// simulated, for 5s after 1s natively. A second table has the operations per inversion.
    #[command(name = "pi_stress")]
    PiStress(Box<PiStress>),
    /// Threads that wake one after the other and increment 16 KiB indexed by CPU or concurrency id.
    ///
    /// The default machine is 2 x EPYC 9654. Idle time costs nothing to simulate: the ten minutes
    /// of the longest run take a second.
    CidBursts(Box<CidBursts>),
    /// Threads that constantly begin and end, wake on other CPUs, or migrate: loads that are hard
    /// on concurrency ids.
    ///
    /// Measured for 2ms after 1ms of warm-up when simulated, for 5s after 1s natively. A second
    /// table has the cost of ids per operation.
    CidStorms(Box<CidStorms>),
    /// Groups of fair tasks in which every sender sends to every receiver.
    ///
    /// The default machine is 2 x 20 cores of Cascade Lake. Runs until all messages have arrived.
    Hackbench(Box<Hackbench>),
    /// Clients that request a file server's operations over loopback: fair tasks.
    ///
    /// The default machine is 2 x 20 cores of Cascade Lake. Measured for 4ms after 4ms of warm-up
    /// when simulated (150ns per task and CPU if that is more), for 5s after 1s natively.
    Tbench(Box<Tbench>),
    /// One-way datagrams, or round trips of one byte, over loopback: fair tasks.
    ///
    /// The default machine is 2 x 20 cores of Broadwell. Measured for 4ms after 4ms of warm-up when
    /// simulated (150ns per task and CPU if that is more), for 5s after 1s natively.
    Netperf(Box<Netperf>),
    /// Message threads that wake all of their workers at once: fair tasks.
    ///
    /// The default machine is 2 x 40 cores of Ice Lake. Measured for 10s after 1s of warm-up when
    /// simulated, for 5s after 1s natively.
    Schbench(Box<Schbench>),
    /// Pairs of tasks of one group that pass a number back and forth over pipes: fair tasks.
    ///
    /// The default machine is 2 x 40 cores of Ice Lake. Measured for 10ms after 64ms of warm-up
    /// when simulated (150ns per task and CPU if that is more), for 5s after 1s natively. Wakeups
    /// search for an idle CPU as in Linux v6.4 unless a mitigation replaces the search.
    Context1(Box<Context1>),
    /// The cost of one shared word, counter, bitmap or lock.
    Probe(Box<Probe>),
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.workload {
            Workload::Ffmpeg(ffmpeg) => series::run(&*ffmpeg),
            Workload::Cyclic(cyclic) => series::run(&*cyclic),
            Workload::PiStress(pi_stress) => series::run(&*pi_stress),
            Workload::CidBursts(bursts) => bursts.run(),
            Workload::CidStorms(storms) => series::run(&*storms),
            Workload::Hackbench(hackbench) => hackbench.run(),
            Workload::Tbench(tbench) => series::run(&tbench.program()?),
            Workload::Netperf(netperf) => series::run(&netperf.program()?),
            Workload::Schbench(schbench) => {
                schbench.check()?;
                series::run(&*schbench)
            }
            Workload::Context1(context1) => {
                context1.check()?;
                series::run(&*context1)
            }
            Workload::Probe(probe) => probe.run(),
        }
    }
}
