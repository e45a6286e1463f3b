//! hackbench: groups of tasks in which every sender sends to every receiver.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use hitm::Handle;
use hitm_machine::Simulated;
use hitm_memory::{Native, Span, Time};
use hitm_report::load::{Kind, Load};
use hitm_report::messaging;
use hitm_report::result::{Better, ResultFile, Run};
use hitm_report::statistics::{self, Mean};
use hitm_sched::{IDLE_SEARCHES, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::hackbench::{self, Channels, Config};
use hitm_workloads::nested;

use super::{Ended, Merit, Program, Running, SessionArgs, Setting, Stretch, Workload, counted};
use crate::args::HostArg;

/// Groups of fair tasks in which every sender sends to every receiver.
///
/// The default machine is 2 x 20 cores of Cascade Lake. Runs until all messages have arrived.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  hitm run hackbench
  hitm run hackbench --machine clx-2x20 --groups 1,2,4,8 --mitigation baseline,idle-single-pass
  hitm run hackbench --channels sockets --loops 1000 --mitigation baseline,shipped
  hitm run hackbench --groups 2 --mitigation shipped --seeds 1 --lines 10 --json hackbench.json
  hitm run hackbench --machine icx-2x40 --depth 1 --mitigation baseline,task-group-reordered,shipped
  hitm run hackbench --host native --groups 1 --loops 1000",
    mut_arg("mitigation", |mitigation| mitigation.default_values(IDLE_SEARCHES)),
    mut_arg("seeds", |seeds| seeds.help("Runs per mitigation, with successive random seeds [default: 3 simulated, 5 natively]")),
    mut_arg("duration", |duration| duration.hide(true)),
    mut_arg("warm_up", |warm_up| warm_up.hide(true)),
    mut_arg("roles", |roles| roles.hide(true))
)]
pub(crate) struct Hackbench {
    /// Numbers of groups, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    groups: Vec<u32>,
    /// Senders per group; there are as many receivers.
    #[arg(long, value_name = "N", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(1..=200), allow_negative_numbers = true)]
    fds: u32,
    /// Messages from each sender to each receiver.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000), allow_negative_numbers = true)]
    loops: u32,
    /// Bytes per message.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=Config::BYTES_MAX as i64), allow_negative_numbers = true)]
    datasize: u32,
    /// Channels between senders and receivers.
    #[arg(long, value_enum, default_value = "pipes")]
    channels: ChannelsArg,
    #[command(flatten)]
    session: SessionArgs,
}

/// Channels between senders and receivers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ChannelsArg {
    Pipes,
    Sockets,
}

impl From<ChannelsArg> for Channels {
    fn from(channels: ChannelsArg) -> Self {
        match channels {
            ChannelsArg::Pipes => Self::Pipes,
            ChannelsArg::Sockets => Self::Sockets,
        }
    }
}

/// The original program's senders per group, and its receivers.
const PAIRS: u32 = 20;

/// One load of hackbench.
#[derive(Clone, Copy, Debug)]
struct Groups {
    config: Config,
    /// The machine's; the program itself draws nothing.
    seed: u64,
}

impl Program for Hackbench {
    fn usual_machine(&self) -> &'static str {
        "clx-2x20"
    }

    fn adapt(&self, mitigation: Mitigation) -> Mitigation {
        self.session.adapt(mitigation)
    }

    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        let [pairs, loops, bytes] = [self.fds, self.loops, self.datasize].map(|number| number as usize);
        let of = |&groups: &u32| -> Arc<dyn Workload> {
            let (groups, channels, depth) = (groups as usize, self.channels.into(), self.session.depth());
            Arc::new(Groups { config: Config { groups, pairs, loops, bytes, channels, depth }, seed: setting.seed })
        };
        self.groups.iter().map(of).collect()
    }

    fn usual_seeds(&self, host: HostArg) -> u64 {
        match host {
            HostArg::Simulated => 3,
            HostArg::Native => 5,
        }
    }

    fn render(&self, file: &ResultFile, width: usize) -> String {
        messaging::render(file, width)
    }
}

impl Workload for Groups {
    fn name(&self) -> &'static str {
        messaging::WORKLOAD
    }

    fn profile(&self) -> String {
        let Config { groups, pairs, channels, depth, .. } = self.config;
        let channels = match channels {
            Channels::Pipes => "pipes",
            Channels::Sockets => "sockets",
        };
        let groups = counted(groups, "group");
        format!("threads over {channels}, {groups} of {pairs} and {pairs}{}", nested::in_words(depth, 0))
    }

    fn options(&self) -> String {
        let Config { groups, pairs, loops, bytes, channels, depth } = self.config;
        let channels = match channels {
            Channels::Pipes => "pipes",
            Channels::Sockets => "sockets",
        };
        format!(
            " --groups {groups} --fds {pairs} --loops {loops} --datasize {bytes} --channels {channels} --depth {depth}"
        )
    }

    fn load(&self) -> Option<Load> {
        let Config { groups, pairs, channels, depth, .. } = self.config;
        let kind = match channels {
            Channels::Pipes => Kind::PipeThreads(groups),
            Channels::Sockets => Kind::SocketThreads(groups),
        };
        // Figures are published of the original's default.
        (pairs == PAIRS as usize).then_some(Load { kind, depth })
    }

    fn stretch(&self) -> Stretch {
        Stretch::Marked
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(&self, seed: u64) -> Arc<dyn Workload> {
        Arc::new(Self { seed, ..*self })
    }

    fn is_fair(&self) -> bool {
        true
    }

    fn mean(&self, batches: &[Vec<f64>], _latencies: &[Span]) -> Mean {
        statistics::mean(&batches.concat())
    }

    fn units(&self, mean: Mean, seconds: f64, _samples: usize) -> f64 {
        self.config.messages() as f64 * seconds / mean.value
    }

    fn merit(&self) -> Merit {
        Merit { name: "seconds", unit: "s", each: 1.0, better: Better::Lower }
    }

    fn complete(&self, run: &mut Run, ended: &Ended<'_>) {
        run.operations.insert(messaging::MESSAGES.to_owned(), self.config.messages() * ended.seeds as u64);
    }

    fn start_simulated(&self, runtime: &Handle<Simulated>) -> Box<dyn Running> {
        Box::new(hackbench::Hackbench::start(runtime, self.config))
    }

    fn start_native(&self, runtime: &Handle<Native>) -> Box<dyn Running> {
        Box::new(hackbench::Hackbench::start(runtime, self.config))
    }
}

impl Running for hackbench::Hackbench {
    fn batches(&self) -> Vec<f64> {
        let seconds = |(begin, end): (Time, Time)| end.since(begin).as_secs_f64();
        self.stretch().map(seconds).into_iter().collect()
    }

    fn is_over(&self) -> bool {
        self.stretch().is_some()
    }

    fn stretch(&self) -> Option<(Time, Time)> {
        self.stretch()
    }
}
