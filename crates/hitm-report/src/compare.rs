//! Two result files beside each other: improvements, regressions, and unchanged figures.
//!
//! Runs are paired by their [`Key`]. Only figures with an interval are judged: the metric and
//! `relative`. A difference counts when it is larger than both intervals together, `sqrt(before² +
//! after²)`, as for independent means. Runs with the same seeds are not independent: their common
//! variation cancels. So the real interval of their difference is narrower than this one, and never
//! wider.
//!
//! All other figures have no interval in the file: kernel share and its parts, operations, objects,
//! fields. Such a figure is *moved* when the larger value is more than a threshold above the
//! smaller one, and is never judged. A kernel share may rise because CPUs idle less, and cycles per
//! load of a line because only its worst loads remain: neither is a loss unless the metric says so.
//!
//! Counts are never compared directly: a run that is faster or longer has more of everything. They
//! are taken [per unit of work](Pair::unit). Operations are taken per wakeup, since both are
//! counted with the warm-up included.

mod costs;
mod differs;
mod error;
mod mail;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use costs::{Change, Cost};
pub use error::CompareError;

use crate::json::json_text;
use crate::result::{Address, Better, Host, Metric, ResultFile, Run};

/// The written form's name and number. New versions only add keys.
pub const SCHEMA: &str = "hitm-compare/2";

/// A figure without an interval is shown as moved when the larger value is above the smaller one by
/// more than this part. With three seeds, no field and no part of the kernel share of at least
/// [`WEIGHT_MIN`] moved as much between different seeds (`ffmpeg` on `gnr-2x120` in `baseline`,
/// `cpupri-split` and `all`, seeds 1 to 3 against 4 to 6: all under 4.5 %).
pub const THRESHOLD: f64 = 0.05;

/// The part of a run's total below which a field, an object or a part of the kernel share is not
/// shown: rarer ones move between seeds alone.
pub const WEIGHT_MIN: f64 = 0.001;

/// Two files beside each other.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The first file.
    pub before: Side,
    /// The second file.
    pub after: Side,
    /// See [`THRESHOLD`].
    pub threshold: f64,
    /// Whether the files are the same in every figure and every word.
    pub identical: bool,
    /// The number of judged figures by verdict.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Other differences between the files, so that a changed model is not taken for a changed
    /// program.
    pub differs: Vec<String>,
    /// The runs in both files, in the first one's order.
    pub pairs: Vec<Pair>,
    /// The runs in the first file only.
    pub only_before: Vec<Key>,
    /// The runs in the second file only.
    pub only_after: Vec<Key>,
}

/// A file.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Side {
    /// Its name, as given.
    pub name: String,
    /// The version that wrote it.
    pub version: String,
}

/// The identity of a run.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The workload.
    pub workload: String,
    /// The program that the workload models. Empty in earlier files, which matches any.
    pub profile: String,
    /// What it ran on.
    pub host: Host,
    /// The machine.
    pub machine: String,
    /// The arbitration policy; empty natively.
    pub arbitration: String,
    /// The coherence; empty natively.
    pub coherence: String,
    /// The mitigation.
    pub mitigation: String,
}

/// One run in both files.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Pair {
    /// The run's identity.
    pub key: Key,
    /// Whether every figure is the same, except the time that the host took.
    pub unchanged: bool,
    /// The metric, then `relative` where both files have it.
    pub judged: Vec<Judged>,
    /// The unit by which counts are divided: `frame`, or `second` (simulated; wall natively) where
    /// the metric counts nothing.
    pub unit: String,
    /// Kernel share, its parts, operations and sizes.
    pub figures: Vec<Figure>,
    /// The cost of waiting for each object, the largest change first.
    pub objects: Vec<Change>,
    /// The cost of waiting for each field, the largest change first.
    pub fields: Vec<Change>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A figure with an interval.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Judged {
    /// The metric's name, or `relative`.
    pub name: String,
    /// Its unit; empty for `relative`.
    pub unit: String,
    /// The value in the first file.
    pub before: f64,
    /// The value in the second file.
    pub after: f64,
    /// The second value minus the first.
    pub difference: f64,
    /// Half the width of the 95 % interval of the difference.
    pub interval: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Worse beyond the interval.
    Worse,
    /// Better beyond the interval.
    Better,
    /// Inside the interval.
    Within,
    /// Not judged: no number, no interval, or another metric.
    #[serde(rename = "not comparable")]
    NotComparable,
}

/// A figure without an interval.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Figure {
    /// The kind: `share`, `kernel_part`, `operation_a_wake`, `access`, `bytes`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The value in the first file; `None` where it has no such figure.
    pub before: Option<f64>,
    /// The value in the second file.
    pub after: Option<f64>,
    /// Whether it differs by more than the threshold.
    pub moved: bool,
}

/// Compares two files, each given with its name.
///
/// # Errors
/// When a file has no runs or has one twice, and when no run is in both.
pub fn compare(
    before: (&str, &ResultFile),
    after: (&str, &ResultFile),
    threshold: f64,
) -> Result<Comparison, CompareError> {
    let keys = [keys_of(before)?, keys_of(after)?];
    let twin = |key: &Key| keys[1].iter().position(|other| key.pairs_with(other));
    let mut pairs = Vec::new();
    let mut couples = Vec::new();
    let mut only_before = Vec::new();
    for (run, key) in before.1.runs.iter().zip(&keys[0]) {
        match twin(key).map(|index| (&after.1.runs[index], &keys[1][index])) {
            None => only_before.push(key.clone()),
            Some((other, other_key)) => {
                // Where only one file names the profile, that name is used.
                let key = if key.profile.is_empty() { other_key } else { key };
                pairs.push(pair(key, run, other, threshold));
                couples.push((run, other));
            }
        }
    }
    if pairs.is_empty() {
        let [before, after] = [0, 1].map(|file| Box::new(keys[file][0].clone()));
        return Err(CompareError::NothingInCommon { before, after });
    }
    let alone = |key: &&Key| !keys[0].iter().any(|other| key.pairs_with(other));
    let mut verdicts = BTreeMap::new();
    for judged in pairs.iter().filter(|pair| !pair.unchanged).flat_map(|pair| &pair.judged) {
        *verdicts.entry(judged.verdict).or_default() += 1;
    }
    let side = |(name, file): (&str, &ResultFile)| Side { name: name.to_owned(), version: file.version.clone() };
    Ok(Comparison {
        schema: SCHEMA,
        before: side(before),
        after: side(after),
        threshold,
        identical: serde_json::to_value(before.1).ok() == serde_json::to_value(after.1).ok(),
        verdicts,
        differs: differs::differs(before.1, after.1, &couples),
        only_after: keys[1].iter().filter(alone).cloned().collect(),
        only_before,
        pairs,
    })
}

/// Returns what the difference of two runs' metrics means, whatever the runs are of.
#[must_use]
pub fn verdict(before: &Run, after: &Run) -> Verdict {
    if before.measured_nothing || after.measured_nothing {
        return Verdict::NotComparable;
    }
    metric(before, after).verdict
}

/// Returns the keys of a file's runs, each once.
fn keys_of((name, file): (&str, &ResultFile)) -> Result<Vec<Key>, CompareError> {
    let keys: Vec<Key> = file.runs.iter().map(Key::of).collect();
    if keys.is_empty() {
        return Err(CompareError::NoRuns { file: name.to_owned() });
    }
    match keys.iter().enumerate().find(|(index, key)| keys[..*index].iter().any(|other| key.pairs_with(other))) {
        Some((_, twice)) => Err(CompareError::Twice { file: name.to_owned(), run: Box::new(twice.clone()) }),
        None => Ok(keys),
    }
}

fn pair(key: &Key, before: &Run, after: &Run, threshold: f64) -> Pair {
    let mut judged = vec![metric(before, after)];
    judged.extend(relative(before, after));
    let mut notes = Vec::new();
    let is_empty = before.measured_nothing || after.measured_nothing;
    if is_empty {
        judged.iter_mut().for_each(|judged| judged.verdict = Verdict::NotComparable);
    }
    for (when, run) in [("before", before), ("after", after)] {
        notes.extend(doubt(run).map(|doubt| format!("{when}: {doubt}")));
    }
    if !same_metric(&before.metric, &after.metric) {
        notes.push(format!(
            "the metric was `{}` and is `{}`: two figures that cannot be compared",
            described(&before.metric),
            described(&after.metric)
        ));
    }
    if let [metric, relative] = judged.as_slice()
        && relative.verdict == Verdict::Worse
        && metric.verdict != Verdict::Worse
    {
        notes.push(format!(
            "relative is worse and {} is not: each is over its own file's baseline, which gained more",
            metric.name.replace('_', " ")
        ));
    }
    let work = costs::Work::of(before, after);
    let (objects, fields) = costs::changes(before, after, &work, threshold);
    Pair {
        key: key.clone(),
        // Two empty runs are not equal: neither says how fast the program is.
        unchanged: !is_empty && figures_of(before, after) == figures_of(after, before),
        judged,
        figures: figures(before, after, &work, threshold),
        unit: work.unit,
        objects,
        fields,
        notes,
    }
}

/// Returns all results of a run, without host-dependent and derived figures and without line
/// numbers of sources.
fn figures_of(run: &Run, other: &Run) -> Value {
    let mut run = run.clone();
    run.wall_seconds = 0.0;
    run.cycles_waited = 0.0;
    run.profile.clear();
    run.load = None;
    run.notes.clear();
    run.published = None;
    // Earlier files have fewer of them.
    run.layouts.clear();
    run.objects.clear();
    if other.roles.is_empty() {
        // The other run has no roles.
        run.roles.clear();
        run.wakes.clear();
    }
    for line in &mut run.lines {
        (line.address, line.object_at) = (Address::default(), Address::default());
        for field in &mut line.fields {
            let sites = &mut field.sites;
            sites.iter_mut().for_each(|site| site.location.clear());
            let invalidators =
                sites.iter_mut().flat_map(|site| &mut site.invalidated_by).chain(&mut field.invalidated_by);
            invalidators.for_each(|invalidator| invalidator.location.clear());
        }
    }
    // The written form: in it not-a-number is equal to itself.
    serde_json::to_value(run).expect("every key is a string")
}

fn described(metric: &Metric) -> String {
    format!("{} [{}], {} is better", metric.name, metric.unit, metric.better)
}

fn same_metric(before: &Metric, after: &Metric) -> bool {
    (&before.name, &before.unit, &before.better) == (&after.name, &after.unit, &after.better)
}

fn metric(before: &Run, after: &Run) -> Judged {
    let (before, after) = (&before.metric, &after.metric);
    let better = if same_metric(before, after) { Some(before.better) } else { None };
    judge(&after.name, &after.unit, better, (before.value, before.interval), (after.value, after.interval))
}

fn relative(before: &Run, after: &Run) -> Option<Judged> {
    let of = |run: &Run| run.relative.zip(run.relative_interval);
    if of(before) == Some((1.0, 0.0)) && of(before) == of(after) {
        // The baseline over itself says nothing.
        return None;
    }
    let better = if same_metric(&before.metric, &after.metric) { Some(before.metric.better) } else { None };
    Some(judge("relative", "", better, of(before)?, of(after)?))
}

/// Returns why a run's figures cannot be judged, if they cannot.
fn doubt(run: &Run) -> Option<&'static str> {
    let Metric { value, interval, .. } = run.metric;
    let figures = [(value, interval)].into_iter().chain(run.relative.zip(run.relative_interval));
    let is_broken = |(value, interval): (f64, f64)| !value.is_nan() && !interval.is_nan() && !is_sound(value, interval);
    match () {
        () if run.measured_nothing => Some("the run measured nothing"),
        () if value.is_nan() => Some("the metric has no number"),
        () if interval.is_nan() => Some("the metric has no interval: more seeds or more time give one"),
        () if figures.into_iter().any(is_broken) => Some("an interval is negative, or wider than any measurement's"),
        () => None,
    }
}

/// Whether a figure and half the width of its interval are plausible for a measurement.
fn is_sound(value: f64, interval: f64) -> bool {
    value.is_finite() && (0.0..=INTERVAL_MAX * value.abs()).contains(&interval)
}

/// The largest plausible ratio of half an interval's width to its figure. A wider interval is a
/// mistake, and would hide every difference.
const INTERVAL_MAX: f64 = 100.0;

/// Judges two means with half the widths of their intervals.
fn judge(name: &str, unit: &str, better: Option<Better>, before: (f64, f64), after: (f64, f64)) -> Judged {
    let difference = after.0 - before.0;
    let interval = before.1.hypot(after.1);
    let gain = better.map_or(f64::NAN, |better| better.gain(difference));
    let is_sound = is_sound(before.0, before.1) && is_sound(after.0, after.1);
    let verdict = match gain {
        gain if gain.is_nan() || !is_sound => Verdict::NotComparable,
        gain if gain.abs() <= interval => Verdict::Within,
        gain if gain > 0.0 => Verdict::Better,
        _ => Verdict::Worse,
    };
    Judged { name: name.into(), unit: unit.into(), before: before.0, after: after.0, difference, interval, verdict }
}

/// Returns the larger of two figures; a missing one counts as 0.
fn larger(before: Option<f64>, after: Option<f64>) -> f64 {
    before.unwrap_or(0.0).max(after.unwrap_or(0.0))
}

/// Whether two figures differ by more than a share of the smaller. A missing one differs from every
/// figure.
fn is_apart(before: Option<f64>, after: Option<f64>, threshold: f64) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let (one, other) = (before.abs(), after.abs());
            one.max(other) > one.min(other) * (1.0 + threshold)
        }
        (None, None) => false,
        _ => true,
    }
}

fn figures(before: &Run, after: &Run, work: &costs::Work, threshold: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |kind, name: &str, before: Option<f64>, after: Option<f64>, least: f64| {
        let moved = larger(before, after) > least && is_apart(before, after, threshold);
        figures.push(Figure { kind, name: name.to_owned(), before, after, moved });
    };
    let number = |value: f64| value.is_finite().then_some(value);
    add("share", "kernel_share", number(before.kernel_share), number(after.kernel_share), WEIGHT_MIN);
    add("share", "idle_share", number(before.idle_share), number(after.idle_share), WEIGHT_MIN);
    for (name, one, other) in joined(&before.kernel_parts, &after.kernel_parts) {
        add("kernel_part", name, one.copied(), other.copied(), WEIGHT_MIN);
    }
    for (name, of) in [("accesses", (|run| run.accesses) as fn(&Run) -> u64), ("misses", |run| run.misses)] {
        let each = |run, work: f64| number(of(run) as f64 / work);
        add("access", name, each(before, work.before), each(after, work.after), 0.0);
    }
    let a_wake = |run: &Run, count: Option<&u64>| {
        let wakes = *run.operations.get("wake").filter(|wakes| **wakes > 0)?;
        Some(*count? as f64 / wakes as f64)
    };
    for (name, one, other) in joined(&before.operations, &after.operations).filter(|(name, ..)| *name != "wake") {
        add("operation_a_wake", name, a_wake(before, one), a_wake(after, other), 0.0);
    }
    for (name, one, other) in joined(&before.bytes, &after.bytes) {
        let bytes = |size: Option<&usize>| size.map(|size| *size as f64);
        add("bytes", name, bytes(one), bytes(other), 0.0);
    }
    figures
}

/// Returns the entries of two maps, by key.
fn joined<'a, V>(
    before: &'a BTreeMap<String, V>,
    after: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = (&'a str, Option<&'a V>, Option<&'a V>)> {
    let names: std::collections::BTreeSet<&str> = before.keys().chain(after.keys()).map(String::as_str).collect();
    names.into_iter().map(|name| (name, before.get(name), after.get(name)))
}

impl Comparison {
    /// Whether a judged figure is worse beyond its interval.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.verdicts.contains_key(&Verdict::Worse)
    }

    /// Returns the reasons for which a gate must not pass, one line each: runs in one file only,
    /// and figures that cannot be judged.
    #[must_use]
    pub fn not_comparable(&self) -> Vec<String> {
        let sides = [(&self.only_before, &self.after), (&self.only_after, &self.before)];
        let missing = sides
            .into_iter()
            .flat_map(|(keys, other)| keys.iter().map(move |key| format!("{key}: not in `{}`", other.name)));
        let judged = self.pairs.iter().filter(|pair| !pair.unchanged).filter_map(|pair| {
            let judged = pair.judged.iter().find(|judged| judged.verdict == Verdict::NotComparable)?;
            let name = judged.name.replace('_', " ");
            let why = pair.notes.first().map_or_else(|| "no interval".to_owned(), Clone::clone);
            Some(format!("{}: {name} cannot be compared: {why}", pair.key))
        });
        missing.chain(judged).collect()
    }

    /// Renders the report, with `rows` of moved figures per run.
    #[must_use]
    pub fn render(&self, rows: usize, width: usize) -> String {
        text::render(self, rows, width)
    }

    /// Renders the report for a mail: at most [`mail::LINES_MAX`] lines of [`mail::WIDTH_MAX`]
    /// columns.
    #[must_use]
    pub fn render_mail(&self) -> String {
        mail::render(self)
    }

    /// Returns the comparison as JSON, ended by a line feed.
    ///
    /// # Panics
    /// Never: the form has no keys but strings.
    #[must_use]
    pub fn write(&self) -> String {
        json_text(self)
    }

    /// Returns the number of judged figures by verdict: `simulated: 2 worse, 1 better, 3 within the
    /// 95 % interval`.
    fn heading(&self) -> String {
        let hosts: BTreeSet<String> = self.pairs.iter().map(|pair| pair.key.host.to_string()).collect();
        format!("{}: {}\n", hosts.into_iter().collect::<Vec<_>>().join(" and "), self.counts())
    }

    fn counts(&self) -> String {
        let count = |verdict: Verdict| self.verdicts.get(&verdict).copied().unwrap_or(0);
        let [worse, better, within] = [Verdict::Worse, Verdict::Better, Verdict::Within].map(count);
        let mut text = format!("{worse} worse, {better} better, {within} within the 95 % interval");
        match self.not_comparable().len() {
            0 => {}
            count => text.push_str(&format!(", {count} not comparable")),
        }
        match self.pairs.iter().filter(|pair| pair.unchanged).count() {
            0 => text,
            all if all == self.pairs.len() && self.not_comparable().is_empty() => {
                if self.identical {
                    "identical".to_owned()
                } else {
                    "unchanged".to_owned()
                }
            }
            some => format!("{text}; {some} unchanged"),
        }
    }
}

impl Judged {
    /// Returns the difference with its interval as text: in percent, `relative` in points.
    #[must_use]
    pub fn change(&self) -> String {
        let scale = if self.name == "relative" { 1.0 } else { self.before.abs() };
        let (difference, interval) = (100.0 * self.difference / scale, 100.0 * self.interval / scale);
        match (difference.is_finite(), interval.is_finite()) {
            (false, _) => "-".to_owned(),
            (true, false) => format!("{difference:+.1} ±?"),
            (true, true) => format!("{difference:+.1} ±{interval:.1}"),
        }
    }
}

impl Verdict {
    /// Returns the verdict's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Within => "within",
            Self::NotComparable => "not comparable",
        }
    }
}

impl Key {
    fn of(run: &Run) -> Self {
        let Run { workload, profile, host, machine, arbitration, coherence, mitigation, .. } = run.clone();
        Self { workload, profile, host, machine, arbitration, coherence, mitigation }
    }

    /// Whether both keys name the same run.
    fn pairs_with(&self, other: &Self) -> bool {
        let mut own = self.clone();
        if self.profile.is_empty() || other.profile.is_empty() {
            own.profile.clone_from(&other.profile);
        }
        // A real machine's samples stand beside any run of the workload and the mitigation.
        if self.host == Host::Measured || other.host == Host::Measured {
            own = Self { workload: own.workload, profile: own.profile, mitigation: own.mitigation, ..other.clone() };
        }
        own == *other
    }

    /// Returns the part of the key that the runs of one table share: all but the mitigation.
    #[must_use]
    pub fn group(&self) -> String {
        let mut text = self.workload.clone();
        if !self.profile.is_empty() {
            text.push_str(&format!(" ({})", self.profile));
        }
        match self.host {
            Host::Simulated => text.push_str(&format!(
                " simulated on {}, arbitration {}, coherence {}",
                self.machine, self.arbitration, self.coherence
            )),
            Host::Native => text.push_str(&format!(" measured natively on {}", self.machine)),
            Host::Measured => text.push_str(&format!(" sampled on {}", self.machine)),
        }
        text
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.mitigation, self.group())
    }
}
