//! Published figures, shown beside what a run gives.
//!
//! The figures are data: one file per publication in `published/`, with its citation. A figure is
//! looked up by its [`Key`].

use std::fmt;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::Load;

/// Published figures of one run.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Published {
    /// The metric over the baseline's.
    pub relative: f64,
    /// Kernel time over time that was not idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_share: Option<f64>,
    /// The publication.
    pub source: String,
}

/// A publication.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// The author.
    pub author: String,
    /// The title, in a mailing list the subject.
    pub title: String,
    /// The mailing list.
    pub list: String,
    /// The day, as in `2025-07-21`.
    pub date: String,
    /// The machine and the kernels of the measurements.
    pub measured_on: String,
}

impl fmt::Display for Citation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, \"{}\", {}, {}", self.author, self.title, self.list, self.date)
    }
}

/// The quantity of a figure.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// The metric over the baseline's.
    Relative,
    /// Kernel time over time that was not idle.
    KernelShare,
    /// The metric of a workload that exchanges messages, in the metric's unit.
    Throughput,
    /// Percent by which the metric is better than the baseline's.
    BetterBy,
    /// The share of all cycles that went to accesses of `rt_se` and `rt_rq`.
    GroupCycles,
    /// Nanoseconds per burst.
    Burst,
}

/// The machine of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// This preset.
    Machine(String),
    /// Any machine with this many CPUs.
    Cpus(usize),
}

/// The name of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<'a> {
    /// The workload, as in commands.
    pub workload: &'a str,
    /// The machine.
    pub on: On,
    /// The load; `None` for a workload with one load.
    pub load: Option<Load>,
    /// The mitigation. `+as-posted` at its end is ignored: the figures are of the patches as
    /// posted.
    pub mitigation: &'a str,
    /// The quantity.
    pub quantity: Quantity,
}

/// A published figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The load; `None` for a workload with one load.
    #[serde(default)]
    pub load: Option<Load>,
    /// The mitigation.
    pub mitigation: String,
    /// The test, where a publication has several of one load.
    #[serde(default)]
    pub test: Option<String>,
    /// The figure, in the unit of its experiment.
    pub value: f64,
    /// The deviation of the runs, in the same unit.
    #[serde(default)]
    pub deviation: Option<f64>,
}

/// Figures of one quantity of one workload on one machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The workload, as in commands.
    pub workload: String,
    /// The machine.
    pub on: On,
    /// The quantity.
    pub quantity: Quantity,
    /// The quantity in words.
    pub describes: String,
    /// The unit; `1` for a ratio.
    pub unit: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// A publication with its figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// Its citation.
    pub citation: Citation,
    /// Its experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
    /// The cache lines that it names.
    #[serde(default, rename = "line")]
    lines: Vec<LineCosts>,
}

/// What a publication says about one cache line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineCosts {
    line: LineName,
    #[expect(dead_code, reason = "for readers of the file")]
    describes: String,
    #[expect(dead_code, reason = "for readers of the file")]
    unit: String,
    ranges: Vec<Range>,
}

/// Cycles per load of a line, lowest and highest; none where the line is gone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    mitigation: String,
    cycles: Option<(f64, f64)>,
}

/// All publications.
pub static PUBLICATIONS: LazyLock<[Publication; 4]> = LazyLock::new(|| {
    [
        include_str!("../published/root-domain.toml"),
        include_str!("../published/idle-search.toml"),
        include_str!("../published/task-group.toml"),
        include_str!("../published/concurrency-ids.toml"),
    ]
    .map(|text| toml::from_str(text).expect("a file of figures that is compiled in"))
});

/// Returns the figures of `key`, each with its publication: several where a load has several tests.
pub fn figures<'a>(key: &Key<'a>) -> impl Iterator<Item = (&'static Figure, &'static Citation)> + use<'a> {
    let Key { workload, on, load, mitigation, quantity } = key.clone();
    let mitigation = as_published(mitigation);
    let experiments = PUBLICATIONS
        .iter()
        .flat_map(|publication| publication.experiments.iter().map(move |own| (own, &publication.citation)));
    experiments
        .filter(move |(own, _)| own.workload == workload && own.quantity == quantity && own.on == on)
        .flat_map(|(own, citation)| own.figures.iter().map(move |figure| (figure, citation)))
        .filter(move |(figure, _)| figure.load == load && figure.mitigation == mitigation)
}

/// Returns the figure of `key` with its publication.
#[must_use]
pub fn figure(key: &Key<'_>) -> Option<(f64, &'static Citation)> {
    figures(key).next().map(|(figure, citation)| (figure.value, citation))
}

/// Returns the figures that a table shows beside a run: what it is relative to the baseline, and
/// its kernel share. The quantity of `key` is ignored.
#[must_use]
pub fn of(key: &Key<'_>) -> Option<Published> {
    let (relative, citation) = figure(&Key { quantity: Quantity::Relative, ..key.clone() })?;
    let kernel_share = figure(&Key { quantity: Quantity::KernelShare, ..key.clone() }).map(|(share, _)| share);
    Some(Published { relative, kernel_share, source: citation.to_string() })
}

fn as_published(mitigation: &str) -> &str {
    mitigation.strip_suffix("+as-posted").unwrap_or(mitigation)
}

/// The name of a cache line in a publication.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum LineName {
    #[serde(rename = "root-domain-3")]
    RootDomain3,
    #[serde(rename = "root-domain-1")]
    RootDomain1,
    CpupriBitmaps,
    CpupriLastLine,
}

/// A line that the publication names.
#[derive(Clone, Copy, Debug)]
pub struct NamedLine {
    name: LineName,
    /// The heading, as the publication calls it.
    pub heading: &'static str,
    /// The line here.
    pub place: Place,
}

/// How to find a line.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A line of an object, from 0.
    Line(&'static str, u32),
    /// The line of an object that has one of these fields: its name differs by placement.
    Field(&'static str, &'static [&'static str]),
    /// All lines of an object.
    Object(&'static str),
}

/// The four lines.
pub const NAMED_LINES: [NamedLine; 4] = [
    NamedLine { name: LineName::RootDomain3, heading: "root_domain\nline \"3\"", place: Place::Line("root_domain", 2) },
    NamedLine { name: LineName::RootDomain1, heading: "root_domain\nline \"1\"", place: Place::Line("root_domain", 0) },
    NamedLine { name: LineName::CpupriBitmaps, heading: "cpupri\nbitmaps", place: Place::Object("cpupri_mask") },
    NamedLine {
        name: LineName::CpupriLastLine,
        heading: "cpupri\nlast line",
        place: Place::Field("root_domain", &["cpupri.pri_to_cpu[99].count", "cpupri.counts[98]"]),
    },
];

impl NamedLine {
    /// Returns the published cycles per load, lowest and highest, under a mitigation; `Some(None)`
    /// where the line is said to be gone, `None` where nothing was published.
    #[must_use]
    pub fn published(&self, mitigation: &str) -> Option<Option<(f64, f64)>> {
        let lines = PUBLICATIONS.iter().flat_map(|publication| &publication.lines);
        let mut ranges = lines.filter(|own| own.line == self.name).flat_map(|own| &own.ranges);
        ranges.find(|range| range.mitigation == as_published(mitigation)).map(|range| range.cycles)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_figure_has_one_key_that_finds_it() {
        let mut keys = HashSet::new();
        for publication in PUBLICATIONS.iter() {
            assert!(!publication.citation.measured_on.is_empty());
            for experiment in &publication.experiments {
                assert!(!experiment.describes.is_empty() && !experiment.unit.is_empty());
                for own in &experiment.figures {
                    let Experiment { workload, on, quantity, .. } = experiment;
                    let (on, quantity) = (on.clone(), *quantity);
                    let key = Key { workload, on, load: own.load, mitigation: &own.mitigation, quantity };
                    let found = figures(&key).filter(|(figure, _)| figure.test == own.test);
                    assert_eq!(found.map(|(figure, _)| figure.value).collect::<Vec<_>>(), [own.value], "{key:?}");
                    assert!(keys.insert(format!("{key:?} {:?}", own.test)), "{key:?}: is there twice");
                }
            }
        }
        assert_eq!(keys.len(), 20 + 38 + 32 + 24);
    }

    #[test]
    fn every_named_line_was_published_for_the_baseline() {
        for line in &NAMED_LINES {
            assert!(matches!(line.published("baseline"), Some(Some((low, high))) if low < high), "{line:?}");
            assert_eq!(line.published("shipped"), None);
        }
        assert_eq!(NAMED_LINES[0].published("cpupri-split+as-posted"), Some(Some((500.0, 8_000.0))));
        assert_eq!(NAMED_LINES[0].published("root-domain-reordered"), Some(None), "gone");
        let published = PUBLICATIONS.iter().map(|publication| publication.lines.len()).sum::<usize>();
        assert_eq!(published, NAMED_LINES.len());
    }

    #[test]
    fn figures_are_of_the_machine_that_was_measured() {
        let key = |cpus| Key {
            workload: "ffmpeg",
            on: On::Cpus(cpus),
            load: None,
            mitigation: "cpupri-split+as-posted",
            quantity: Quantity::Relative,
        };
        let published = of(&key(480)).unwrap();
        assert_eq!((published.relative, published.kernel_share), (1.11, Some(0.11)));
        assert_eq!(
            published.source,
            "Pan Deng, \"[PATCH v2 0/4] sched/rt: mitigate root_domain cache line contention\", LKML, 2025-07-21"
        );
        assert_eq!(of(&key(240)), None);
    }
}
