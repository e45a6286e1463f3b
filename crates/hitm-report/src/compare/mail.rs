//! The comparison for a mail: shorter than a screen, and narrow enough to be quoted.

use crate::brief::shortened;
use crate::columns::short;
use crate::compare::text::{figure, percent_of, rank};
use crate::compare::{Change, Comparison, Cost, Judged, Pair};

/// The largest number of lines.
pub(super) const LINES_MAX: usize = 15;
/// The largest number of columns. Mailing lists ask for it, so that a line still fits when it is
/// quoted twice.
pub(super) const WIDTH_MAX: usize = 72;

/// The largest number of lines of differences, and of fields; runs have the remaining lines.
const DIFFERS_MAX: usize = 3;
const FIELDS_MAX: usize = 3;

/// The largest number of columns of an object's name, beside the figures and the field.
const OBJECT_MAX: usize = 24;

pub(super) fn render(comparison: &Comparison) -> String {
    let Comparison { before, after, .. } = comparison;
    let mut lines = vec![comparison.heading(), format!("{} -> {}", last(&before.name), last(&after.name))];
    let differs = comparison.differs.iter().map(|line| format!("differs: {line}")).collect();
    lines.extend(at_most(DIFFERS_MAX, differs, "differences"));
    match [comparison.only_before.len(), comparison.only_after.len()] {
        [0, 0] => {}
        [gone, new] => lines.push(format!("runs in one file alone: {gone} of the first, {new} of the second")),
    }
    let mut pairs: Vec<&Pair> = comparison.pairs.iter().filter(|pair| !pair.unchanged).collect();
    pairs.sort_by_key(|pair| rank(pair));
    if let Some(first) = pairs.first() {
        lines.push(first.key.group());
        let several = pairs.iter().any(|pair| pair.key.group() != first.key.group());
        let rows = pairs.iter().map(|pair| row(pair, several)).collect();
        let fields = fields(&pairs);
        lines.extend(at_most(LINES_MAX - lines.len() - fields.len(), rows, "runs"));
        lines.extend(fields);
    }
    lines.iter().map(|line| format!("{}\n", cut(line.trim_end()))).collect()
}

/// Returns a path's last part.
fn last(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Returns the first `most` lines; the last of them is a count when there are more.
fn at_most(most: usize, mut lines: Vec<String>, what: &str) -> Vec<String> {
    if lines.len() > most {
        let left = lines.len() - (most - 1);
        lines.truncate(most - 1);
        lines.push(format!("and {left} more {what}"));
    }
    lines
}

/// Returns `worse   cpupri-split: 73936 -> 69602 1/s, -5.9 ±1.9 %; relative -5.4 ±3.0`, without
/// `relative` where that is too long. The figure of the verdict comes first.
fn row(pair: &Pair, with_group: bool) -> String {
    let said = |judged: &Judged| {
        let unit = if judged.unit.is_empty() { String::new() } else { format!(" {}", judged.unit) };
        let of_what = match (judged.difference.is_finite(), judged.name.as_str()) {
            (false, _) => "",
            (true, "relative") => " points",
            _ => " %",
        };
        let [before, after] = [judged.before, judged.after].map(|value| figure(judged, value));
        format!("{before} -> {after}{unit}, {}{of_what}", judged.change())
    };
    let verdict = rank(pair);
    let mut line = format!("{:<7} {}: ", verdict.name(), pair.key.mitigation);
    match pair.judged.iter().find(|judged| judged.verdict == verdict) {
        Some(relative) if relative.name == "relative" => line.push_str(&format!("relative {}", said(relative))),
        _ => {
            line.push_str(&said(&pair.judged[0]));
            let relative = pair.judged.get(1).map(|relative| format!("; relative {}", relative.change()));
            let fits = |more: &String| line.chars().count() + more.chars().count() <= WIDTH_MAX;
            let more = relative.filter(fits).unwrap_or_default();
            line.push_str(&more);
        }
    }
    if with_group {
        line.push_str(&format!("; {}, {}", pair.key.machine, pair.key.arbitration));
    }
    line
}

/// Returns the fields whose cost changed most, each for the run in which it changed most.
fn fields(pairs: &[&Pair]) -> Vec<String> {
    let mut changes: Vec<(&Pair, &Change)> = Vec::new();
    for pair in pairs {
        changes.extend(pair.fields.iter().filter(|change| change.moved).map(|change| (*pair, change)));
    }
    changes.sort_by(|(_, a), (_, b)| b.difference().abs().total_cmp(&a.difference().abs()));
    let mut seen: Vec<(&str, Option<&str>)> = Vec::new();
    changes.retain(|(_, change)| {
        let name = (change.object.as_str(), change.field.as_deref());
        let is_new = !seen.contains(&name);
        seen.push(name);
        is_new
    });
    let Some((pair, _)) = changes.first() else { return Vec::new() };
    let mut lines = vec![format!("cycles waited per {}, without an interval:", pair.unit)];
    lines.extend(changes.iter().take(FIELDS_MAX).map(|(pair, change)| {
        let cycles = |cost: &Option<Cost>| cost.as_ref().map(|cost| cost.cycles);
        let number = |cost: &Option<Cost>| cycles(cost).map_or_else(|| "-".to_owned(), short);
        let field = change.field.as_deref().unwrap_or_default();
        let line = if change.is_of_kind() { String::new() } else { format!(", line {}", change.lines()) };
        format!(
            "{:<7} {} -> {}  {}.{field}{line} ({})",
            percent_of(cycles(&change.before), cycles(&change.after)),
            number(&change.before),
            number(&change.after),
            shortened(&change.object, OBJECT_MAX),
            pair.key.mitigation,
        )
    }));
    lines
}

/// Returns at most [`WIDTH_MAX`] characters of a line; the end marks a cut.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH_MAX {
        return line.to_owned();
    }
    let kept: String = line.chars().take(WIDTH_MAX - 3).collect();
    format!("{}...", kept.trim_end())
}
