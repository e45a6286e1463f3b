//! cyclic: tasks that sleep and record how late they woke.

use std::sync::Arc;

use clap::Args;
use hitm::Roles;
use hitm_memory::Span;
use hitm_report::published::On;
use hitm_topology::Topology;
use hitm_workloads::cyclic::{self, Config, Placement};
use hitm_workloads::meter::Window;

use super::{Merit, Program, Running, Setting, Workload, nanos, options, starts, unusual};
use crate::args::{span, span_above_zero};

/// One task per CPU at FIFO 99 that sleeps for 100 us and records how late it woke.
///
/// Measured for 60 sleeps after 40 sleeps of warm-up when simulated, for 5s after 1s natively.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run cyclic                                             the published table
  hitm run cyclic --arbitration local-first,fifo --mitigation baseline,rto-count=node --lines 3
  hitm run cyclic --machine epyc-9654-2x96 --placement drawn --roles
  hitm run cyclic --machine this --host native --mitigation baseline,all")]
pub(crate) struct Cyclic {
    /// Number of instances [default: one per CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=INSTANCES_MAX), allow_negative_numbers = true)]
    instances: Option<u32>,
    /// Length of a sleep.
    #[arg(long, value_name = "T", default_value = "100us", value_parser = sleep, allow_hyphen_values = true)]
    sleep: Span,
    /// Mean CPU time per operation: reading the clock, recording a sample, counting.
    #[arg(long, value_name = "T", default_value = "1us", value_parser = span, allow_hyphen_values = true)]
    work: Span,
    /// Real-time priority of all instances.
    #[arg(long, value_name = "N", default_value_t = Config::PRIORITY, value_parser = clap::value_parser!(u8).range(1..=99), allow_negative_numbers = true)]
    priority: u8,
    /// CPUs on which the instances begin; they may migrate from then on.
    #[arg(long, value_enum, default_value = "spread")]
    placement: PlacementArg,
}

/// Sixteen per CPU on the largest machine.
const INSTANCES_MAX: i64 = 65_536;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PlacementArg {
    /// Evenly over packages, LLC domains and cores, as fork balancing places them.
    Spread,
    /// Each on a random CPU, which several may share.
    Drawn,
}

/// Parses a sleep. stress-ng takes a nanosecond to a second.
fn sleep(text: &str) -> Result<Span, String> {
    let span = span_above_zero(text)?;
    if span > Span::from_micros(1_000_000) { Err("longer than a second: give less".to_owned()) } else { Ok(span) }
}

/// 4 ms of the usual sleep: past the start-up of 480 instances.
const WARM_UP_SLEEPS: u64 = 40;

/// 6 ms of the usual sleep.
const MEASURED_SLEEPS: u64 = 60;

impl Program for Cyclic {
    fn workloads(&self, _topology: &Topology, setting: &Setting) -> Vec<Arc<dyn Workload>> {
        // An operation takes a little more than its sleep.
        let usual = Window { warm_up: self.sleep * WARM_UP_SLEEPS, measured: self.sleep * MEASURED_SLEEPS };
        vec![Arc::new(Config {
            instances: self.instances.map(|count| count as usize),
            sleep: self.sleep,
            work: self.work,
            priority: self.priority,
            placement: match self.placement {
                PlacementArg::Spread => Placement::Spread,
                PlacementArg::Drawn => Placement::Drawn,
            },
            seed: setting.seed,
            window: setting.window(usual),
        })]
    }
}

impl Workload for Config {
    fn name(&self) -> &'static str {
        "cyclic"
    }

    fn options(&self) -> String {
        let usual = Self::new(self.seed, self.window);
        options(&[
            ("instances", self.instances.map(|count| count.to_string())),
            ("sleep", unusual(self.sleep, usual.sleep, nanos)),
            ("work", unusual(self.work, usual.work, nanos)),
            ("priority", unusual(self.priority, usual.priority, |own| own.to_string())),
            ("placement", unusual(self.placement, usual.placement, |own| own.name().to_owned())),
        ])
    }

    fn published_on(&self, topology: &Topology) -> Option<On> {
        (self.sleep == Self::SLEEP && self.instances.is_none()).then(|| On::Cpus(topology.cpus()))
    }

    fn roles(&self) -> Option<Roles> {
        Some(cyclic::roles())
    }

    fn merit(&self) -> Merit {
        Merit::rate("bogo_operations_per_second")
    }

    starts!(cyclic::Cyclic::start);
}

impl Running for cyclic::Cyclic {
    fn batches(&self) -> Vec<f64> {
        self.operations_per_second().to_vec()
    }

    fn latencies(&self) -> Vec<Span> {
        self.latencies()
    }
}
