//! The one form of results: `--json` writes it, and every report is made from it.
//!
//! New versions only add keys. In a simulated run only `wall_seconds` depends on the host.

use std::collections::BTreeMap;
use std::fmt;

use hitm_machine::{Account, Part, Remote, Results};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::functions::Functions;
use crate::json::json_text;
use crate::latency::Latency;
pub use crate::layout::Declared;
use crate::layout::LayoutField;
use crate::line::exchanged;
pub use crate::line::{Address, CyclesPerLoad, Field, InvalidatedBy, Line, Owner, Site, Touched};
use crate::load::Load;
pub use crate::objects::{FieldOfAll, Objects, Waits};
use crate::owners;
use crate::published::Published;
use crate::read_error::PARTS_MAX;
pub use crate::read_error::ReadError;

/// The form's name and number.
pub const SCHEMA: &str = "hitm-result/1";

/// Results of one command.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ResultFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version that wrote it.
    pub version: String,
    /// The command's words.
    pub command: Vec<String>,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The fitted parameters and their targets.
    pub calibrations: Vec<Calibration>,
    /// The runs.
    pub runs: Vec<Run>,
    /// The runs without a result, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The variables and structures of the program of `hitm exec`, whether or not anything waited
    /// for them: what its debug information says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<Declared>,
}

/// A machine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Machine {
    /// Its name, as given.
    pub name: String,
    /// Logical CPUs.
    pub cpus: usize,
    /// Cores.
    pub cores: usize,
    /// LLC domains.
    pub llcs: usize,
    /// Memory nodes.
    pub nodes: usize,
    /// Packages.
    pub packages: usize,
    /// The origin of the topology.
    pub source: String,
    /// A note for the user about the choice of the cost table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether the processor has no cost table of its own. All figures of this machine then use
    /// another family's costs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_processor: bool,
    /// The cost table's name.
    #[serde(default)]
    pub cost_table: String,
    /// Every parameter of the model.
    pub model: BTreeMap<String, f64>,
    /// The parts of the machine by which lines that changed hands are counted: `core` or `llc`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub counted_by: String,
    /// The LLC domains, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Domain>,
}

/// An LLC domain of a machine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Domain {
    /// Its package.
    pub package: u32,
    /// Its memory node.
    pub node: u32,
    /// Its cores, as in `0-39`.
    pub cores: String,
    /// Its CPUs, as in `0-39,240-279`.
    pub cpus: String,
}

impl Domain {
    /// Returns whether all of its parts have numbers that a machine can have: a page makes a list
    /// of them.
    fn is_possible(&self) -> bool {
        let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number < PARTS_MAX);
        let all = |ranges: &str| ranges.split([',', '-']).filter(|text| !text.is_empty()).all(is_number);
        [self.package, self.node].iter().all(|&number| number < PARTS_MAX) && all(&self.cores) && all(&self.cpus)
    }
}

/// A parameter that was fitted on a baseline.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Calibration {
    /// The workload.
    pub workload: String,
    /// The machine.
    pub machine: String,
    /// The arbitration policy.
    pub arbitration: String,
    /// The parameter.
    pub parameter: String,
    /// Its value.
    pub value: f64,
    /// The target.
    pub target: String,
    /// The value that was reached with it.
    pub reached: f64,
    /// The origin of the target.
    pub source: String,
    /// Notes for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The values that were tried, and their results.
    #[serde(default)]
    pub trials: Vec<(f64, f64)>,
}

/// What a run ran on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// A simulated machine.
    #[default]
    Simulated,
    /// The threads of this machine.
    Native,
    /// A real machine, of which hardware took samples: see [`crate::import`].
    Measured,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simulated => "simulated",
            Self::Native => "native",
            Self::Measured => "measured",
        })
    }
}

/// Which of two values of a metric is better.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The higher one.
    #[default]
    Higher,
    /// The lower one.
    Lower,
}

impl Better {
    /// Returns how much better a value is that is larger by `difference`.
    #[must_use]
    pub fn gain(self, difference: f64) -> f64 {
        if self == Self::Higher { difference } else { -difference }
    }
}

impl fmt::Display for Better {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Higher { "higher" } else { "lower" })
    }
}

/// A figure that a run is judged by.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Metric {
    /// The name.
    pub name: String,
    /// The mean over batches.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub value: f64,
    /// Half the width of the 95 % interval.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub interval: f64,
    /// The unit.
    pub unit: String,
    /// Which of two values is better.
    pub better: Better,
}

/// One run: a workload under one mitigation on one machine, over one or more seeds.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Run {
    /// The workload.
    pub workload: String,
    /// The program that the workload models; empty where there is only one, and in earlier files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// The load, by which published figures are found. It is absent where the workload has one
    /// load, where an option's value excludes published figures, and in earlier files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The mitigation.
    pub mitigation: String,
    /// What it ran on.
    pub host: Host,
    /// The machine.
    pub machine: String,
    /// The arbitration policy; empty natively.
    pub arbitration: String,
    /// `full`, `scheduler-free` or `free`; empty natively.
    pub coherence: String,
    /// The first seed.
    pub seed: u64,
    /// All seeds.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Seconds that the run took on the host, all seeds together.
    pub wall_seconds: f64,
    /// The metric.
    pub metric: Metric,
    /// The metric over the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// Half the width of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_interval: Option<f64>,
    /// Kernel time over time that was not idle; null if no such time was measured.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub kernel_share: f64,
    /// Idle time over all time; null if no time was measured.
    #[serde(default, deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub idle_share: f64,
    /// The parts of the kernel's share.
    pub kernel_parts: BTreeMap<String, f64>,
    /// The published figures of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// Simulated seconds measured, all seeds together; wall seconds natively.
    pub simulated_seconds: f64,
    /// Accesses to shared memory.
    pub accesses: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// The number of times that a virtual CPU was resumed.
    pub switches: u64,
    /// Bytes of objects by name.
    pub bytes: BTreeMap<String, usize>,
    /// The counts of the scheduler's operations in the whole run.
    pub operations: BTreeMap<String, u64>,
    /// The accesses of the scheduler's operations in the measured stretch; empty natively.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<OperationCost>,
    /// The activity of each role's tasks, per unit of the metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// The wakeups by waking and woken role, per unit of the metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<(String, String, f64)>,
    /// The delay of one task's wakeups after its sleeps, where the workload records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The idle time beside waiting tasks, where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conservation: Option<Conservation>,
    /// Cycles that all CPUs together waited for the lines of the run.
    #[serde(default)]
    pub cycles_waited: f64,
    /// The metric of each seed, in the order of `seeds`; empty where seeds have no metric of their
    /// own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_seed: Vec<f64>,
    /// Each core's kernel time and idle time over all of its time, by number; all seeds together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<(f64, f64)>,
    /// Who took lines from whom, over all lines: as [`Line::exchanged`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanged: Vec<(u16, u16, u64, f64)>,
    /// The fields of all objects that have a description, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layouts: BTreeMap<String, Vec<LayoutField>>,
    /// Whether a HITM is remote if it is of another node, and not only if it is of another package:
    /// on machines whose packages are divided into nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote_is_node: bool,
    /// The lines, the longest waits first.
    pub lines: Vec<Line>,
    /// The waits by kind of object, the longest first. Of a workload all lines are added up. Of a
    /// program: all lines of the kernel, and those of its own lines that are among the 4,096 with
    /// the longest waits. Empty for probes, where nothing was simulated, and in earlier files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<Objects>,
    /// Whether the measured stretch has no event that the metric counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured_nothing: bool,
    /// Notes for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The results of a probe beside its metric. The workload is `probe NAME`, the mitigation the
    /// variant: a scope, an encoding and a scope (`byte=llc`), a lock, a distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The results of `cid-bursts` beside its metric. The profile is the threads and their delay,
    /// the mitigation is `per-cpu` or the way of handing out ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
}

impl Run {
    /// Returns a run with what a machine counted: sums, the kernel's share and its parts, and the
    /// `most` lines that were waited for longest.
    #[must_use]
    pub fn counted(results: &Results, functions: &Functions, most: usize) -> Self {
        let lines: Vec<Line> =
            results.hottest(most).into_iter().map(|line| Line::of(results, line, functions)).collect();
        let kept = results.layouts.iter().filter(|(_, fields)| !fields.is_empty());
        let layouts = kept.map(|(name, fields)| (name.clone(), LayoutField::all(fields)));
        Self {
            kernel_share: results.account.kernel_share(),
            idle_share: results.account.idle_share(),
            kernel_parts: results.kernel_parts(),
            accesses: results.totals.accesses(),
            misses: results.totals.misses.count(),
            switches: results.totals.resumes,
            cycles_waited: results.cycles(results.waited()),
            remote_is_node: results.remote == Remote::Node,
            cores: results.cores.iter().map(shares).collect(),
            exchanged: exchanged(results, &results.exchanged),
            layouts: layouts.collect(),
            lines,
            ..Self::default()
        }
    }

    /// Returns the cycles that all CPUs together waited for lines; for earlier files, for the lines
    /// that are kept.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.cycles_waited.max(self.lines.iter().map(Line::waited).sum())
    }

    /// Returns the accesses of the operation of this name, if it was counted.
    #[must_use]
    pub fn cost(&self, name: &str) -> Option<&OperationCost> {
        self.costs.iter().find(|cost| cost.name == name)
    }
}

/// The results of a probe.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Probe {
    /// The probe in words.
    pub what: String,
    /// The kind of the variants: `scope`, `lock`, `distance`.
    pub variants: String,
    /// The number of participating CPUs.
    pub participants: usize,
    /// The number of parts into which the structure was split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Operations that wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Side>,
    /// Operations that read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Side>,
    /// Misses of the probe's own lines per operation of either kind; `None` natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<f64>,
    /// Nanoseconds between two operations of any CPUs, pauses included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<f64>,
    /// Quantiles, where the probe is about single operations: shares from 0 to 1, and the
    /// nanoseconds that this share took at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<(f64, f64)>,
    /// The number of values behind the quantiles.
    #[serde(default)]
    pub values: usize,
}

/// A probe's operations of one kind.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Side {
    /// The name of one: `search`, `set or clear`.
    pub name: String,
    /// Nanoseconds per operation, without pauses.
    #[serde(deserialize_with = "number_or_null")]
    #[schemars(with = "Option<f64>")]
    pub nanos: f64,
    /// The number of measured operations.
    pub operations: u64,
    /// Misses of the probe's own lines per operation, where the kind of access distinguishes
    /// readers from writers; `None` natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<f64>,
}

/// The bursts of a run of `cid-bursts`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Bursts {
    /// The threads, as in `24-core/24-L3`.
    pub threads: String,
    /// Milliseconds between the bursts of two successive threads.
    pub delay: f64,
    /// Milliseconds between two bursts of a thread.
    pub period: f64,
    /// The published figure, in nanoseconds per burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// The bursts by kind.
    pub kinds: Vec<BurstKind>,
}

/// Bursts of one kind.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "Kind")]
pub struct BurstKind {
    /// The kind: `warm-up`, or the last user of the area.
    pub name: String,
    /// Their share of all.
    pub share: f64,
    /// Nanoseconds per burst.
    pub nanos: f64,
}

/// The time of CPUs that idled although a waiting task could have run there.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Conservation {
    /// The share of all CPUs' time that was lost in this way.
    pub lost_share: f64,
    /// The longest such time of one CPU, in microseconds.
    pub longest_us: f64,
}

/// The accesses of one operation of the scheduler.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OperationCost {
    /// The name: `search`, `level change`, `look`, `set or clear`, `ids`.
    pub name: String,
    /// The number of operations.
    pub times: u64,
    /// Accesses to shared memory per operation.
    pub accesses: f64,
    /// Accesses that missed per operation.
    pub misses: f64,
    /// Cycles waited for these per operation.
    pub cycles: f64,
}

/// The activity of one role's tasks.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Role {
    /// The role.
    pub name: String,
    /// Runs after a sleep, per unit.
    pub activations: f64,
    /// Mean time on a CPU per activation, in microseconds.
    pub burst_micros: f64,
    /// Wakeups per unit.
    pub wakes: f64,
    /// Switches to it per unit.
    pub switches: f64,
    /// Futex calls per unit.
    pub futex_calls: f64,
    /// Priority loans to it and their ends, per unit.
    #[serde(default)]
    pub priority_changes: f64,
    /// Migrations per unit.
    pub migrations: f64,
}

/// Returns kernel time and idle time over all time, to a ten-thousandth.
fn shares(account: &Account) -> (f64, f64) {
    let sum =
        |is_it: fn(Part) -> bool| Part::ALL.into_iter().filter(|&part| is_it(part)).map(|part| account[part]).sum();
    let all: u64 = sum(|_| true);
    let share = |time: u64| (1e4 * time as f64 / all.max(1) as f64).round() / 1e4;
    (share(sum(Part::is_kernel)), share(account[Part::Idle]))
}

/// Reads `null`, which JSON has in place of not-a-number.
pub(crate) fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Metric {
    /// Returns the unit that the metric counts, in the singular: `frame`; `None` where the metric
    /// is not a rate.
    #[must_use]
    pub fn counted(&self) -> Option<String> {
        let name = self.name.strip_suffix("_per_second").filter(|_| self.unit == "1/s")?;
        Some(name.strip_suffix('s').unwrap_or(name).replace('_', " "))
    }
}

impl ResultFile {
    /// Reads what `--json` wrote.
    ///
    /// # Errors
    /// When the text is not JSON, has another form, or lacks a part. The error names the part and
    /// its position.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(ReadError::NoJson)?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(SCHEMA) => {
                let mut file: Self = serde_json::from_value(value).map_err(ReadError::Form)?;
                owners::name(&mut file);
                for machine in &file.machines {
                    if let Some(number) = machine.domains.iter().position(|domain| !domain.is_possible()) {
                        return Err(ReadError::Domain(machine.name.clone(), number));
                    }
                }
                Ok(file)
            }
            Some(other) => Err(ReadError::OtherSchema(other.to_owned())),
            None => Err(ReadError::NoSchema),
        }
    }

    /// Returns one line for each run that measured nothing.
    #[must_use]
    pub fn warnings(&self) -> String {
        let empty = self.runs.iter().filter(|run| run.measured_nothing);
        let line = |run: &Run| {
            let profile = if run.profile.is_empty() { String::new() } else { format!(" ({})", run.profile) };
            format!(
                "warning: {}{profile}, {}: nothing was measured; measure for longer, with --duration\n",
                run.workload, run.mitigation
            )
        };
        empty.map(line).collect()
    }

    /// Returns the file's text, ended by a line feed.
    ///
    /// # Panics
    /// Never: the form has no keys but strings.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_says_so() {
        let check = |text: &str, expect: &str| assert_eq!(ResultFile::read(text).unwrap_err().to_string(), expect);
        let again = "write it again with `hitm run --json`";
        check("{\"schema\"", &format!("not JSON at line 1, column 9: it may be cut short; {again}"));
        check("[]", &format!("there is no `schema`: it is no file that `--json` wrote; {again}"));
        check(
            "{\"schema\": \"hitm-result/9\"}",
            "`schema` is `hitm-result/9` and this version reads `hitm-result/1`; take the `hitm` that wrote it",
        );
        check(
            "{\"schema\": \"hitm-result/1\"}",
            &format!("not as `--json` writes it: missing field `version`; {again}"),
        );
    }
}
