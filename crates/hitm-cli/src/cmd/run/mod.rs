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

/// Run a workload, simulated or for real.
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
    /// 60 transcoders on 8 CPUs each, every thread at FIFO 99.
    ///
    /// Measured for 40 pictures' time after 20 of warm-up when simulated, and for 5s after 1s natively.
    Ffmpeg(Box<Ffmpeg>),
    /// A task a CPU at FIFO 99 that sleeps for 100 us and notes how late it woke.
    ///
    /// Measured for 60 times its sleep after 40 of warm-up when simulated, and for 5s after 1s natively.
    Cyclic(Box<Cyclic>),
    /// 240 groups of three tasks, each on one CPU, that provoke priority inversions.
    ///
    /// Half as many groups as CPUs. Measured for 10ms after 2ms of warm-up when simulated, and for 5s after 1s natively. After
    /// the table it says what an inversion took of each operation.
    #[command(name = "pi_stress")]
    PiStress(Box<PiStress>),
    /// Threads that wake one after the other and increment 16 KiB that belong to their CPU or concurrency id.
    ///
    /// On 2 x EPYC 9654 unless asked otherwise. Idle time is skipped: the ten minutes of the longest run take a second.
    CidBursts(Box<CidBursts>),
    /// Threads of one program that begin and end, wake elsewhere, or are moved, all the time.
    ///
    /// What concurrency ids cost there. Measured for 2ms after 1ms of warm-up when simulated, and for 5s after 1s natively. After
    /// the table it says what an operation pays for ids.
    CidStorms(Box<CidStorms>),
    /// Groups of fair tasks in which every sender sends to every receiver, over pipes.
    ///
    /// On 2 x 20 cores of Cascade Lake unless asked otherwise. Runs until all messages have come.
    Hackbench(Box<Hackbench>),
    /// Clients that ask servers for a file server's operations, over loopback: fair tasks.
    ///
    /// On 2 x 20 cores of Cascade Lake unless asked otherwise. Measured for 4ms after 4ms of warm-up when simulated, or after 150ns for each
    /// task and CPU if that is more, and for 5s after 1s natively.
    Tbench(Box<Tbench>),
    /// Datagrams one way, or a byte there and back, over loopback: fair tasks.
    ///
    /// On 2 x 20 cores of Broadwell unless asked otherwise. Measured for 4ms after 4ms of warm-up when simulated, or after 150ns for each
    /// task and CPU if that is more, and for 5s after 1s natively.
    Netperf(Box<Netperf>),
    /// Message threads that wake their workers all at once: fair tasks.
    ///
    /// On 2 x 40 cores of Ice Lake unless asked otherwise. Measured for 10s after 1s of warm-up when simulated, and for 5s after 1s
    /// natively.
    Schbench(Box<Schbench>),
    /// Pairs of tasks of one group that pass a number back and forth over pipes: fair tasks.
    ///
    /// On 2 x 40 cores of Ice Lake unless asked otherwise. Measured for 10ms after 64ms of warm-up when simulated, or after 150ns for each
    /// task and CPU if that is more, and for 5s after 1s natively. Searches for an idle CPU are those of v6.4 unless a mitigation says otherwise.
    Context1(Box<Context1>),
    /// What one shared word, counter or bitmap costs.
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
