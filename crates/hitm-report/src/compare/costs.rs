//! The cost of waiting for objects and fields, per unit of work.
//!
//! A field is identified by its object's and its own name. It may be on another line than before,
//! and an object may have several instances, whose costs are added. A file keeps only a run's
//! hottest lines, so a sum over many instances lacks the coldest.
//!
//! Objects whose names have a number or an address, such as blocks of the heap, have other numbers
//! in the second file. They are compared by [kind](crate::objects), if both files have those sums:
//! by all cycles that CPUs waited for them, stores included.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{WEIGHT_MIN, is_apart, joined, larger};
use crate::heading::counted;
use crate::line::is_number;
use crate::objects::{Waits, kind_of_all};
use crate::result::{Field, Line, Run};

/// The unit by which counts are divided.
pub(super) struct Work {
    pub(super) unit: String,
    pub(super) before: f64,
    pub(super) after: f64,
}

/// The cost of waiting for an object or a field.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize)]
pub struct Cost {
    /// Cycles that loads and read-modify-writes waited, per unit; for all objects of a kind, cycles
    /// that CPUs waited.
    pub cycles: f64,
    /// Cycles per load that missed, read-modify-writes included; `None` where no load missed, and
    /// for all objects of a kind.
    pub cycles_per_load: Option<f64>,
    /// HITMs, local and remote, per unit.
    pub hitm: f64,
    /// Misses per unit.
    pub misses: f64,
    /// Ownership transfers of its lines per unit; for objects only. Those of a line that several
    /// objects share count for each of them.
    pub ownership_transfers: Option<f64>,
    /// The lines of the object that hold it, in order; none for all objects of a kind.
    pub lines: Vec<u32>,
    /// The number of lines that were added up: more than `lines` has where an object has several
    /// instances. 0 for a field of all objects of a kind.
    pub line_count: usize,
}

/// A cost in both files.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Change {
    /// The object, or all objects of a kind: then it is what their names share, without the line of
    /// the source.
    pub object: String,
    /// The field; `None` for the whole object.
    pub field: Option<String>,
    /// The cost in the first file; `None` where it is not on the lines that the file keeps.
    pub before: Option<Cost>,
    /// The cost in the second file.
    pub after: Option<Cost>,
    /// Whether its cycles or its cycles per load differ by more than the threshold, or its lines
    /// differ, and it is large enough to show.
    pub moved: bool,
}

impl Work {
    /// Returns the units that the metric counts in both, if there are any, and seconds otherwise.
    pub(super) fn of(before: &Run, after: &Run) -> Self {
        let units = |run: &Run| run.metric.value * run.simulated_seconds;
        let counts = |run: &Run| units(run).is_finite() && units(run) > 0.0;
        match before.metric.counted() {
            Some(unit) if after.metric.counted().as_ref() == Some(&unit) && counts(before) && counts(after) => {
                Self { unit, before: units(before), after: units(after) }
            }
            _ => Self { unit: "second".to_owned(), before: before.simulated_seconds, after: after.simulated_seconds },
        }
    }
}

/// Sums before they are divided.
#[derive(Default)]
struct Sum {
    cycles: f64,
    loads: u64,
    hitm: u64,
    misses: u64,
    transfers: Option<u64>,
    lines: BTreeSet<u32>,
    line_count: usize,
}

impl Sum {
    fn add_line(&mut self, line: u32) {
        self.lines.insert(line);
        self.line_count += 1;
    }

    fn add_field(&mut self, field: &Field) {
        self.hitm += field.hitm.both();
        for site in &field.sites {
            self.misses += site.misses;
            if site.is_load() {
                self.loads += site.misses;
                self.cycles += site.misses as f64 * site.cycles.2;
            }
        }
    }

    fn add_kind(&mut self, waits: Waits) {
        self.cycles += waits.cycles;
        self.misses += waits.misses;
        self.hitm += waits.hitm.both();
    }

    fn cost(&self, work: f64) -> Cost {
        let each = |count: f64| if work > 0.0 { count / work } else { 0.0 };
        Cost {
            cycles: each(self.cycles),
            cycles_per_load: (self.loads > 0).then(|| self.cycles / self.loads as f64),
            hitm: each(self.hitm as f64),
            misses: each(self.misses as f64),
            ownership_transfers: self.transfers.map(|count| each(count as f64)),
            lines: self.lines.iter().copied().collect(),
            line_count: self.line_count,
        }
    }
}

type Costs = BTreeMap<String, Cost>;

/// The separator of an object's name and a field's; neither contains it.
const BETWEEN: char = '\n';

/// Returns the name by which the kind of an object is compared.
fn kind_of(object: &str) -> String {
    without_line(&kind_of_all(object)).to_owned()
}

/// Returns the name of a kind without the line of the source, which an edit may move. Blocks of one
/// type that several lines of one function and file allocate are one kind then.
fn without_line(kind: &str) -> &str {
    kind.rsplit_once(':').filter(|(_, line)| is_number(line)).map_or(kind, |(name, _)| name)
}

/// Returns the kinds that are compared by their sums: those of which no file has a line by that
/// very name. `lines` are the lines of each run's objects.
fn kinds(runs: [&Run; 2], lines: &[Vec<Cow<'_, Line>>; 2]) -> BTreeSet<String> {
    if runs.iter().any(|run| run.objects.is_empty()) {
        return BTreeSet::new();
    }
    let names: BTreeSet<&str> = lines.iter().flatten().map(|line| line.object.as_str()).collect();
    let sums = runs.iter().flat_map(|run| &run.objects).filter(|all| !names.contains(all.object.as_str()));
    let mut kinds: BTreeSet<String> = sums.map(|all| without_line(&all.object).to_owned()).collect();
    // A file has the sums of its hottest kinds. Without a sum the lines say more.
    for (run, lines) in runs.into_iter().zip(lines) {
        let has_sum = |line: &&Cow<'_, Line>| run.objects.iter().any(|all| all.object == kind_of_all(&line.object));
        for line in lines.iter().filter(|line| !has_sum(line)) {
            kinds.remove(&kind_of(&line.object));
        }
    }
    kinds
}

/// Returns the costs of objects, and those of fields. Objects of `kinds` are summed by kind.
fn costs_of(lines: &[Cow<'_, Line>], run: &Run, work: f64, kinds: &BTreeSet<String>) -> (Costs, Costs) {
    let (mut objects, mut fields): (BTreeMap<String, Sum>, BTreeMap<String, Sum>) = Default::default();
    for (kind, all) in run.objects.iter().map(|all| (without_line(&all.object), all)) {
        if !kinds.contains(kind) {
            continue;
        }
        let own = objects.entry(kind.to_owned()).or_default();
        own.add_kind(all.waits);
        own.line_count += all.lines as usize;
        for field in &all.fields {
            fields.entry(format!("{kind}{BETWEEN}{}", field.field)).or_default().add_kind(field.waits);
        }
    }
    for line in lines.iter().filter(|line| !kinds.contains(&kind_of(&line.object))) {
        let object = &line.object;
        let own = objects.entry(object.clone()).or_default();
        own.add_line(line.line);
        own.transfers = Some(own.transfers.unwrap_or(0) + line.ownership_transfers);
        for field in &line.fields {
            own.add_field(field);
            let sum = fields.entry(format!("{object}{BETWEEN}{}", field.field)).or_default();
            // A field that crosses lines is on both.
            sum.add_line(line.line);
            sum.add_field(field);
        }
    }
    let divided = |sums: BTreeMap<String, Sum>| sums.into_iter().map(|(name, sum)| (name, sum.cost(work))).collect();
    (divided(objects), divided(fields))
}

/// Returns the cost of waiting for each object, and for each field, in both.
pub(super) fn changes(before: &Run, after: &Run, work: &Work, threshold: f64) -> (Vec<Change>, Vec<Change>) {
    let lines = [before, after].map(|run| run.lines.iter().flat_map(Line::by_object).collect::<Vec<_>>());
    let kinds = kinds([before, after], &lines);
    let (objects_before, fields_before) = costs_of(&lines[0], before, work.before, &kinds);
    let (objects_after, fields_after) = costs_of(&lines[1], after, work.after, &kinds);
    let all = |costs: &Costs| costs.values().map(|cost| cost.cycles).sum::<f64>();
    let least = WEIGHT_MIN * all(&objects_before).max(all(&objects_after));
    (
        changes_of(&objects_before, &objects_after, least, threshold),
        changes_of(&fields_before, &fields_after, least, threshold),
    )
}

fn changes_of(before: &Costs, after: &Costs, least: f64, threshold: f64) -> Vec<Change> {
    let change = |(name, before, after): (&str, Option<&Cost>, Option<&Cost>)| {
        let (object, field) = match name.split_once(BETWEEN) {
            Some((object, field)) => (object, Some(field.to_owned())),
            None => (name, None),
        };
        let cycles = |cost: Option<&Cost>| cost.map(|cost| cost.cycles);
        let per_load = |cost: Option<&Cost>| cost.and_then(|cost| cost.cycles_per_load);
        let counts = larger(cycles(before), cycles(after)) > least;
        // Sums over different numbers of instances' lines cannot be compared.
        let kept = |cost: Option<&Cost>| cost.filter(|cost| cost.has_instances()).map(|cost| cost.line_count);
        let same_lines = before.is_none() || after.is_none() || kept(before) == kept(after);
        let apart = same_lines && is_apart(cycles(before), cycles(after), threshold)
            || is_apart(per_load(before), per_load(after), threshold);
        let elsewhere = kept(before).or(kept(after)).is_none()
            && before.zip(after).is_some_and(|(before, after)| before.lines != after.lines);
        Change {
            object: object.to_owned(),
            field,
            before: before.cloned(),
            after: after.cloned(),
            moved: counts && (apart || elsewhere),
        }
    };
    let mut changes: Vec<Change> = joined(before, after).map(change).collect();
    // The sort is stable: equal changes stay in order of names.
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    changes
}

impl Change {
    /// Whether it is of all objects of a kind.
    pub(super) fn is_of_kind(&self) -> bool {
        self.before.iter().chain(&self.after).all(Cost::is_of_kind)
    }

    /// Returns the change of the wait in cycles per unit; a missing cost counts as 0.
    #[must_use]
    pub fn difference(&self) -> f64 {
        let cycles = |cost: &Option<Cost>| cost.as_ref().map_or(0.0, |cost| cost.cycles);
        cycles(&self.after) - cycles(&self.before)
    }

    /// Returns the lines as text, with a change: `2`, `1 -> 4`, `0,1 -> 0`.
    #[must_use]
    pub fn lines(&self) -> String {
        let named = |cost: &Option<Cost>| cost.as_ref().map_or_else(|| "-".to_owned(), Cost::named_lines);
        let (before, after) = (named(&self.before), named(&self.after));
        if before == after { before } else { format!("{before} -> {after}") }
    }
}

impl Cost {
    /// Whether these are all objects of a kind. The sum then has all their lines, or nearly all.
    pub(super) fn is_of_kind(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether more than one instance's lines were added up.
    fn has_instances(&self) -> bool {
        !self.is_of_kind() && self.line_count > self.lines.len()
    }

    /// Returns the lines as text, `2`, `0,2,27`, `0-29` or `0..201 (7 lines)`, with their total
    /// number where an object has several instances.
    fn named_lines(&self) -> String {
        let Some((first, last)) = self.lines.first().zip(self.lines.last()) else {
            return if self.line_count > 0 { counted(self.line_count, "line") } else { "-".to_owned() };
        };
        let is_stretch = (last - first) as usize + 1 == self.lines.len();
        let names = match self.lines.len() {
            3.. if is_stretch => format!("{first}-{last}"),
            1..=4 => self.lines.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            _ => format!("{first}..{last}"),
        };
        let is_whole = names.contains("..") || self.has_instances();
        if is_whole { format!("{names} ({} lines)", self.line_count) } else { names }
    }
}
