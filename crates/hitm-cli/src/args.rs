//! Options that commands share, each on the type that it sets.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hitm_machine::{Arbitration, Coherence, CostError, CostSet, Costs};
use hitm_memory::Span;
use hitm_report::c2c::{self, Layout};
use hitm_report::result::{Host, Run};
use hitm_sched::OBJECTS;
use hitm_topology::Topology;

use crate::failure::Failure;

/// Host of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostArg {
    /// On a simulated machine.
    #[default]
    Simulated,
    /// On this machine's threads.
    Native,
}

/// Which objects take part in the coherence model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CoherenceArg {
    /// All.
    #[default]
    Full,
    /// All but the scheduler's: the limit that no layout of the scheduler can pass.
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

    /// Returns the machine's setting.
    pub(crate) fn model(self) -> Coherence {
        match self {
            Self::Full => Coherence::Full,
            Self::SchedulerFree => Coherence::FreeOf(OBJECTS.map(str::to_owned).into()),
            Self::Free => Coherence::Free,
        }
    }
}

/// Which form the line report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// At most 80 columns: fields, functions that wait, and what invalidated their copies.
    #[default]
    Brief,
    /// The columns of `perf c2c report`.
    Full,
    /// Seven columns, for a mail.
    Mail,
}

impl From<LayoutArg> for Layout {
    fn from(arg: LayoutArg) -> Self {
        match arg {
            LayoutArg::Brief => Self::Brief,
            LayoutArg::Full => Self::Full,
            LayoutArg::Mail => Self::Mail,
        }
    }
}

/// The machine of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct MachineArgs {
    /// A preset's name, an hwloc synthetic string, an hwloc XML file, a sysfs dump, or `this`; may
    /// be given several times [default: the workload's or gnr-2x120 when simulated, this natively].
    #[arg(long = "machine", value_name = "M", global = true)]
    machines: Vec<String>,
    /// Number of CPUs, taken as whole cores, dies and packages; packages are added for more CPUs
    /// than the machine has. Several are separated by commas; `2..480` stands for 2, the powers of
    /// two between, and 480.
    #[arg(long, value_name = "N", global = true, value_delimiter = ',', value_parser = cpu_counts, allow_hyphen_values = true)]
    cpus: Vec<CpuCounts>,
    /// Which CPU a contended line serves next: local-first, local-first:K or fifo; several are
    /// separated by commas [default: the machine's, for most local-first].
    ///
    /// local-first serves the CPUs of the same LLC domain first, with K at most K of them in a row;
    /// fifo serves in order of arrival. docs/model.md says which machine has which, and why.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', global = true, value_parser = arbitration)]
    arbitration: Vec<Arbitration>,
    /// Give a parameter of the model another value, as in `follow_up_hits=0`; may be given several
    /// times. `--json` writes all parameters.
    #[arg(long, value_name = "NAME=VALUE", global = true, value_parser = parameter)]
    model: Vec<(String, f64)>,
    /// Random seed of the machine's jitter and of the workload.
    #[arg(long, value_name = "N", default_value_t = 1, global = true, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

/// The policies that were asked for; none for each machine's own.
#[derive(Clone, Debug)]
pub(crate) struct Arbitrations(Vec<Arbitration>);

impl Arbitrations {
    /// Returns the policies under which a machine of these costs runs.
    pub(crate) fn of(&self, costs: &Costs) -> Vec<Arbitration> {
        if self.0.is_empty() { vec![costs.arbitration()] } else { self.0.clone() }
    }

    /// Returns the policies that a machine of these costs may have: those that were asked for, else
    /// those that the measurements of its family allow.
    pub(crate) fn or_likely(&self, costs: &Costs) -> Vec<Arbitration> {
        if self.0.is_empty() { costs.family.likely_policies() } else { self.0.clone() }
    }

    /// Returns under how many policies each machine runs.
    pub(crate) fn count(&self) -> usize {
        self.0.len().max(1)
    }
}

/// The default machine of a simulated run.
pub(crate) const USUAL_MACHINE: &str = "gnr-2x120";

/// A machine, and its parts with the numbers of CPUs that were asked for.
pub(crate) type Sizes = (Arc<Topology>, Vec<Arc<Topology>>);

impl MachineArgs {
    /// Returns the machines, each once.
    ///
    /// # Errors
    /// When one cannot be read or made, is given twice, or is not this machine in a native run.
    pub(crate) fn topologies(&self, host: HostArg) -> Result<Vec<Arc<Topology>>, Failure> {
        let sizes = self.sizes(host, &|whole| vec![whole.cpus()])?;
        Ok(sizes.into_iter().flat_map(|(_, parts)| parts).collect())
    }

    /// Returns `count` random seeds from the first one on.
    pub(crate) fn seeds(&self, count: u64) -> Vec<u64> {
        (0..count).map(|seed| self.seed.saturating_add(seed)).collect()
    }

    /// Returns the same arguments with `machine` as the default of a simulated run.
    pub(crate) fn or(&self, host: HostArg, machine: &str) -> Self {
        let mut args = self.clone();
        if args.machines.is_empty() && host == HostArg::Simulated {
            args.machines.push(machine.to_owned());
        }
        args
    }

    /// Returns the machines, each once, with their parts: of the numbers of CPUs that were asked
    /// for, else of the `usual` ones.
    ///
    /// # Errors
    /// As [`MachineArgs::topologies`].
    pub(crate) fn sizes(&self, host: HostArg, usual: &dyn Fn(&Topology) -> Vec<usize>) -> Result<Vec<Sizes>, Failure> {
        let given: Vec<&str> = self.machines.iter().map(String::as_str).collect();
        let names = match (given.as_slice(), host) {
            ([], HostArg::Simulated) => &[USUAL_MACHINE],
            ([], HostArg::Native) => &["this"],
            (given, _) => given,
        };
        let mut wholes: Vec<Topology> = Vec::new();
        for name in names {
            let topology = Self::whole(name, host)?;
            if wholes.iter().any(|other| other.name() == topology.name()) {
                return Err(Failure::new(format!(
                    "--machine `{name}`: a machine of this name is there twice; give it once"
                )));
            }
            wholes.push(topology);
        }
        let counts = self.counts()?;
        let sizes = |whole: Topology| -> Result<_, Failure> {
            let counts = if counts.is_empty() { usual(&whole) } else { counts.clone() };
            let parts: Result<_, Failure> =
                counts.into_iter().map(|cpus| Ok(Arc::new(part(&whole, cpus, host)?))).collect();
            Ok((Arc::new(whole), parts?))
        };
        wholes.into_iter().map(sizes).collect()
    }

    /// Returns the numbers of CPUs that were asked for, each once; none for whole machines.
    fn counts(&self) -> Result<Vec<usize>, Failure> {
        let counts: Vec<usize> = self.cpus.iter().flat_map(|CpuCounts(counts)| counts).copied().collect();
        each_once("--cpus", &counts)?;
        Ok(counts)
    }

    fn whole(name: &str, host: HostArg) -> Result<Topology, Failure> {
        if host == HostArg::Native && name != "this" {
            return Err(Failure::new(format!(
                "--machine `{name}`: a native run takes place on this machine; leave --machine out, or --host native"
            )));
        }
        Ok(hitm_topology::parse(name)?)
    }

    /// Returns the cost table of `topology`, with the parameters of `--model`.
    ///
    /// # Errors
    /// When a parameter does not exist.
    pub(crate) fn costs(&self, topology: &Topology) -> Result<Costs, Failure> {
        let mut costs = Costs::of(topology, CostSet::Linux);
        for (name, value) in &self.model {
            let why =
                |why: CostError| Failure::new(format!("--model `{name}={value}` on `{}`: {why}", topology.name()));
            costs.set(name, *value).map_err(why)?;
        }
        Ok(costs)
    }

    /// Returns the policies, each once.
    ///
    /// # Errors
    /// When one is given twice.
    pub(crate) fn arbitrations(&self) -> Result<Arbitrations, Failure> {
        let mut policies: Vec<Arbitration> = Vec::new();
        for &policy in &self.arbitration {
            if policies.contains(&policy) {
                return Err(Failure::new(format!("--arbitration `{}`: is there twice; give it once", policy.name())));
            }
            policies.push(policy);
        }
        Ok(Arbitrations(policies))
    }

    /// Returns the parameters of `--model`.
    pub(crate) fn model(&self) -> &[(String, f64)] {
        &self.model
    }

    /// Returns the options that only a simulated machine uses, and whether each was given.
    pub(crate) fn simulated_only(&self) -> [(&'static str, bool); 2] {
        [("--arbitration", !self.arbitration.is_empty()), ("--model", !self.model.is_empty())]
    }
}

/// Returns the part of `whole` with `cpus` CPUs.
fn part(whole: &Topology, cpus: usize, host: HostArg) -> Result<Topology, Failure> {
    if host == HostArg::Native && cpus > whole.cpus() {
        return Err(Failure::new(format!(
            "--cpus {cpus}: this machine has {}, and a native run takes place on it; ask for fewer, or leave out --host native",
            whole.cpus()
        )));
    }
    whole.restrict(cpus).map_err(|error| Failure::new(format!("--cpus {cpus}: {error}")))
}

/// Checks that each of the `values` of `option` is given once.
///
/// # Errors
/// When one is given twice.
pub(crate) fn each_once<T: Display + PartialEq>(option: &str, values: &[T]) -> Result<(), Failure> {
    match values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        Some((_, value)) => Err(Failure::new(format!("{option}: {value} is there twice; give it once"))),
        None => Ok(()),
    }
}

/// Refuses, in a native run, options that only a simulated run uses: `given` says which were given.
///
/// # Errors
/// When one was given.
pub(crate) fn refuse_natively(host: HostArg, given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) if host == HostArg::Native => Err(Failure::new(format!(
            "{flag}: a native run has no use for it; leave it out, or leave out --host native"
        ))),
        _ => Ok(()),
    }
}

/// The output of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Number of contended lines to show, hottest first; 0 for no line report [default: 5].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) lines: Option<usize>,
    /// Form of the line report [default: brief].
    #[arg(long, value_enum)]
    pub(crate) layout: Option<LayoutArg>,
    /// Write the results to this file, as JSON: see `hitm schema`.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the results to this file, as a page for a browser: see `hitm report`.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) html: Option<PathBuf>,
}

/// Lines in the line report by default.
const LINES_SHOWN: usize = 5;

impl OutputArgs {
    /// Returns the options that only simulated runs use, and whether each was given.
    pub(crate) fn simulated_only(&self) -> [(&'static str, bool); 2] {
        [("--lines", self.lines.is_some()), ("--layout", self.layout.is_some())]
    }

    /// Returns the line report of the file's first run; empty for a native run and for no lines.
    pub(crate) fn lines_of(&self, run: Option<&Run>) -> String {
        let lines = self.lines.unwrap_or(LINES_SHOWN);
        match run.filter(|run| run.host == Host::Simulated && lines > 0) {
            Some(first) => format!("\n{}", c2c::render(first, lines, self.layout.unwrap_or_default().into())),
            None => String::new(),
        }
    }
}

/// Parses a policy: `local-first`, `local-first:8`, `fifo`.
pub(crate) fn arbitration(text: &str) -> Result<Arbitration, String> {
    let bound = |text: &str| text.parse().ok().filter(|&bound: &u32| bound > 0);
    match (text, text.strip_prefix("local-first:")) {
        ("local-first", _) => Ok(Arbitration::LocalFirst),
        ("fifo", _) => Ok(Arbitration::Fifo),
        (_, Some(text)) => bound(text).map(Arbitration::Bounded).ok_or_else(|| {
            format!("`{text}` bounds nothing: give how many a domain serves in a row, as in `local-first:8`")
        }),
        _ => Err("no such policy: take local-first, local-first:K or fifo".to_owned()),
    }
}

/// Numbers of CPUs: one, or the members of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuCounts(pub(crate) Vec<usize>);

/// Parses a number of CPUs, or a range: its ends and the powers of two between them.
pub(crate) fn cpu_counts(text: &str) -> Result<CpuCounts, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    let Some((first, last)) = text.split_once("..") else { return Ok(CpuCounts(vec![number(text)?])) };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!("it ends before it begins: write `{last}..{first}`"));
    }
    let powers = (0..usize::BITS).map(|power| 1 << power).filter(|count| (first + 1..last).contains(count));
    let mut counts: Vec<usize> = std::iter::once(first).chain(powers).collect();
    if last > first {
        counts.push(last);
    }
    Ok(CpuCounts(counts))
}

/// Parses a parameter of the model and its value.
pub(crate) fn parameter(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("give a name and a value, as in `follow_up_hits=0`")?;
    let value = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    Ok((name.to_owned(), value))
}

/// The longest time on the command line. Twenty times as much still fits a number of picoseconds.
const DAYS_MAX: u64 = 10;

/// Parses a length of time, as in `24ms` or `500us`.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let duration = humantime::parse_duration(text).map_err(|_| {
        "not a length of time: give a number and a unit, as in `24ms`, no finer than a nanosecond".to_owned()
    })?;
    if duration > Duration::from_secs(DAYS_MAX * 24 * 3600) {
        return Err(format!("longer than {DAYS_MAX} days: give less"));
    }
    // Ten days are fewer than 2^60 picoseconds.
    Ok(Span::from_picos(duration.as_nanos() as u64 * 1_000))
}

/// Parses a length of time above zero.
pub(crate) fn span_above_zero(text: &str) -> Result<Span, String> {
    match span(text)? {
        Span::ZERO => Err("no time at all: give more, as in `24ms`".to_owned()),
        span => Ok(span),
    }
}

/// Smaller and larger factors give bursts of no time, or bursts longer than any run.
const FACTORS: (f64, f64) = (1e-6, 1e6);

/// Parses a factor above zero.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (FACTORS.0..=FACTORS.1).contains(&factor) => Ok(factor),
        _ => Err(format!("not a number from {} to {}", FACTORS.0, FACTORS.1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_cpus_is_its_ends_and_the_powers_of_two_between() {
        let check = |text, expect: &[usize]| assert_eq!(cpu_counts(text), Ok(CpuCounts(expect.to_vec())), "{text}");
        check("48", &[48]);
        check("2..4096", &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]);
        check("2..480", &[2, 4, 8, 16, 32, 64, 128, 256, 480]);
        check("6..9", &[6, 8, 9]);
        check("6..6", &[6]);
        let refuse = |text: &str, why: &str| assert_eq!(cpu_counts(text), Err(why.to_owned()), "{text}");
        refuse("480..2", "it ends before it begins: write `2..480`");
        refuse("2..", "cannot parse integer from empty string");
        refuse("2..x", "invalid digit found in string");
    }

    #[test]
    fn the_longest_time_twenty_times_is_a_time() {
        let longest = span(&format!("{DAYS_MAX}d")).expect("as long as is allowed");
        assert!(longest.as_picos().checked_mul(20).is_some());
    }
}
