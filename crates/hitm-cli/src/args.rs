//! Flags that verbs share, each on the type that it sets.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hitm_machine::Arbitration;
use hitm_memory::Span;
use hitm_report::c2c::Layout;

/// Where a workload runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostArg {
    /// On a simulated machine.
    #[default]
    Simulated,
    /// On this one, for real.
    Native,
}

/// Who is served next on a contended line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArbitrationArg {
    /// Each LLC domain serves its own first: machines of 2017 and later.
    LocalFirst,
    /// In order of arrival: machines of 2010.
    Fifo,
}

impl From<ArbitrationArg> for Arbitration {
    fn from(arg: ArbitrationArg) -> Self {
        match arg {
            ArbitrationArg::LocalFirst => Self::LocalFirst,
            ArbitrationArg::Fifo => Self::Fifo,
        }
    }
}

/// Which objects take part in the coherence model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CoherenceArg {
    /// All.
    #[default]
    Full,
    /// All but the scheduler's own: the limit that no layout of it can pass.
    SchedulerFree,
    /// None.
    Free,
}

impl CoherenceArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::SchedulerFree => "scheduler-free",
            Self::Free => "free",
        }
    }
}

/// Which form the line report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// The Shared Data Cache Line Table and the Pareto.
    #[default]
    Full,
    /// Seven columns, for a mail.
    Mail,
}

impl From<LayoutArg> for Layout {
    fn from(arg: LayoutArg) -> Self {
        match arg {
            LayoutArg::Full => Self::Full,
            LayoutArg::Mail => Self::Mail,
        }
    }
}

/// The machine of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct MachineArgs {
    /// A preset's name, an hwloc synthetic string, an hwloc XML file, a sysfs dump, or `this`; may be given several times.
    #[arg(long = "machine", value_name = "M", default_value = "gnr-2x120")]
    pub(crate) machines: Vec<String>,
    /// Take this many CPUs of the machine: whole cores, dies, packages; more packages for more CPUs.
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<usize>,
    /// Who is served next on a contended line; several separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "local-first")]
    pub(crate) arbitration: Vec<ArbitrationArg>,
    /// Seed of the machine's jitter and the workload's random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What is printed and written.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// How many of the hottest lines to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) lines: usize,
    /// The form of the line report.
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) layout: LayoutArg,
    /// Write the results to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A length of time, as `24ms` or `500us`.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let duration: Duration =
        humantime::parse_duration(text).map_err(|error| format!("{error}: give a number and a unit, as in `24ms`"))?;
    let nanos = u64::try_from(duration.as_nanos()).map_err(|_| "longer than 213 days".to_owned())?;
    nanos.checked_mul(1_000).map(Span::from_picos).ok_or_else(|| "longer than 213 days".to_owned())
}

/// A factor above zero.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("not a number above 0".to_owned()),
    }
}
