//! `hitm run cyclic`.

use clap::Args;
use hitm_memory::Span;
use hitm_topology::Topology;
use hitm_workloads::cyclic::{Config, Placement};
use hitm_workloads::meter::Window;

use super::series::{Program, SeriesArgs};
use crate::args::{span, span_above_zero};
use crate::workload::Workload;

/// Tasks that sleep and note how late they woke.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hitm run cyclic                                             the published table
  hitm run cyclic --arbitration local-first,fifo --mitigation baseline,rto-count=node --lines 3
  hitm run cyclic --machine epyc-9654-2x96 --placement drawn --roles
  hitm run cyclic --machine this --host native --mitigation baseline,all")]
pub(crate) struct Cyclic {
    #[command(flatten)]
    series: SeriesArgs,
    #[command(flatten)]
    options: CyclicOptions,
}

/// What an instance does, and where.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CyclicOptions {
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

impl CyclicOptions {
    /// Returns the workload with these options.
    pub(crate) fn config(&self, seed: u64, window: Window) -> Config {
        Config {
            instances: self.instances.map(|count| count as usize),
            sleep: self.sleep,
            work: self.work,
            priority: self.priority,
            placement: match self.placement {
                PlacementArg::Spread => Placement::Spread,
                PlacementArg::Drawn => Placement::Drawn,
            },
            seed,
            window,
        }
    }

    /// Returns the default measured window of a simulated run. An operation takes a little more
    /// than its sleep.
    pub(crate) fn usual_window(&self) -> Window {
        Window { warm_up: self.sleep * WARM_UP_SLEEPS, measured: self.sleep * MEASURED_SLEEPS }
    }
}

/// 4 ms of the usual sleep: past the start-up of 480 instances.
const WARM_UP_SLEEPS: u64 = 40;

/// 6 ms of the usual sleep.
const MEASURED_SLEEPS: u64 = 60;

impl Program for Cyclic {
    fn series(&self) -> &SeriesArgs {
        &self.series
    }

    fn workloads(&self, _topology: &Topology) -> Vec<Workload> {
        let window = self.series.window(self.options.usual_window());
        vec![Workload::Cyclic(self.options.config(self.series.seed(), window))]
    }
}
