//! The comparison as tables.

use crate::brief::shortened;
use crate::columns::{Align, Columns, short};
use crate::compare::{Change, Comparison, Cost, Figure, Judged, Pair, Verdict};

/// The most columns of the name of an object or a field. `--json` has the whole names.
const NAME_MAX: usize = 40;

pub(super) fn render(comparison: &Comparison, rows: usize, width: usize) -> String {
    let Comparison { before, after, .. } = comparison;
    let mut text = comparison.heading();
    for (when, side) in [("before", before), ("after", after)] {
        text.push_str(&format!("{when}: {} (hitm {})\n", side.name, side.version));
    }
    for line in &comparison.differs {
        text.push_str(&format!("differs: {line}\n"));
    }
    for (keys, file) in [(&comparison.only_before, before), (&comparison.only_after, after)] {
        for key in keys {
            text.push_str(&format!("only in {}: {key}\n", file.name));
        }
    }
    for group in groups(comparison).iter().filter(|group| group.iter().any(|pair| !pair.unchanged)) {
        text.push_str(&format!("\n{}\n{}", group[0].key.group(), table(group, width)));
        for (pair, note) in group.iter().flat_map(|pair| pair.notes.iter().map(move |note| (pair, note))) {
            text.push_str(&format!("{}: {note}\n", pair.key.mitigation));
        }
        for pair in group.iter().filter(|pair| !pair.unchanged) {
            text.push_str(&moved(comparison.threshold, pair, rows, width));
        }
    }
    text
}

/// Returns the pairs by table, in order.
fn groups(comparison: &Comparison) -> Vec<Vec<&Pair>> {
    let mut groups: Vec<Vec<&Pair>> = Vec::new();
    let key = |pair: &Pair| (pair.key.group(), pair.judged[0].name.clone());
    for pair in &comparison.pairs {
        match groups.iter_mut().find(|group| key(group[0]) == key(pair)) {
            Some(group) => group.push(pair),
            None => groups.push(vec![pair]),
        }
    }
    groups
}

fn table(group: &[&Pair], width: usize) -> String {
    let metric = &group[0].judged[0];
    let head = format!("{}\n[{}]\nbefore", metric.name.replace('_', " "), metric.unit);
    let mut columns = Columns::new(&[
        ("mitigation", Align::Left),
        (&head, Align::Right),
        ("after", Align::Right),
        ("change\n[%]", Align::Right),
        ("verdict", Align::Left),
        ("relative\nbefore", Align::Right),
        ("after", Align::Right),
        ("change\n[points]", Align::Right),
        ("verdict", Align::Left),
        ("kernel share\nbefore", Align::Right),
        ("after", Align::Right),
    ]);
    for pair in group {
        let mut cells = vec![pair.key.mitigation.clone()];
        for name in [metric.name.as_str(), "relative"] {
            let judged = pair.judged.iter().find(|judged| judged.name == name);
            cells.extend(judged.map_or_else(|| vec!["-".to_owned(); 4], |judged| judged_cells(pair, judged)));
        }
        let share = pair.figures.iter().find(|figure| figure.name == "kernel_share");
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        cells.extend([number(share.and_then(|share| share.before)), number(share.and_then(|share| share.after))]);
        columns.row(cells);
    }
    columns.render(width)
}

fn judged_cells(pair: &Pair, judged: &Judged) -> Vec<String> {
    let number = |value: f64| figure(judged, value);
    let verdict = if pair.unchanged { "unchanged" } else { judged.verdict.name() };
    vec![number(judged.before), number(judged.after), judged.change(), verdict.to_owned()]
}

/// Returns a judged figure as text.
pub(super) fn figure(judged: &Judged, value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if judged.name == "relative" => format!("{value:.3}"),
        value if value.abs() >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Renders the moved figures of one run: figures, then objects and fields.
fn moved(threshold: f64, pair: &Pair, rows: usize, width: usize) -> String {
    let figures: Vec<&Figure> = pair.figures.iter().filter(|figure| figure.moved).collect();
    let objects: Vec<&Change> = pair.objects.iter().filter(|change| change.moved).collect();
    let fields: Vec<&Change> = pair.fields.iter().filter(|change| change.moved).collect();
    let percent = 100.0 * threshold;
    let name = &pair.key.mitigation;
    if figures.is_empty() && objects.is_empty() && fields.is_empty() {
        return format!("\n{name}: nothing else moved by more than {percent} % or to another line\n");
    }
    let mut text = format!(
        "\n{name}: what else moved by more than {percent} % or to another line; it has no interval and is not judged\n"
    );
    if !figures.is_empty() {
        let mut columns = Columns::new(&[
            ("figure", Align::Left),
            ("before", Align::Right),
            ("after", Align::Right),
            ("change", Align::Right),
        ]);
        for figure in figures {
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| number(figure, value));
            columns.row(vec![
                named(figure, &pair.unit),
                number(figure.before),
                number(figure.after),
                percent_of(figure.before, figure.after),
            ]);
        }
        text.push_str(&format!("{}\n", columns.render(width)));
    }
    if rows > 0 && !(objects.is_empty() && fields.is_empty()) {
        text.push_str(&costs(pair, &objects, &fields, rows, width));
    }
    text
}

fn named(figure: &Figure, unit: &str) -> String {
    let name = figure.name.replace('_', " ");
    match figure.kind {
        "kernel_part" => match figure.name.strip_prefix("lines:") {
            Some(object) => format!("kernel share, lines of {object}"),
            None => format!("kernel share, {name}"),
        },
        "operation_a_wake" => format!("{name} per wakeup"),
        "access" => format!("{name} per {unit}"),
        "bytes" => format!("bytes of {}", figure.name),
        _ => name,
    }
}

fn number(figure: &Figure, value: f64) -> String {
    match figure.kind {
        "share" | "kernel_part" => format!("{value:.4}"),
        "bytes" => format!("{value}"),
        _ => count(value),
    }
}

/// Returns a count per unit of work as text.
fn count(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => short(value),
    }
}

/// Returns the change in percent of the value before; empty where it cannot be compared.
pub(super) fn percent_of(before: Option<f64>, after: Option<f64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) if before != 0.0 => format!("{:+.0} %", 100.0 * (after / before - 1.0)),
        (Some(_), Some(_)) => "-".to_owned(),
        (Some(_), None) => "gone".to_owned(),
        _ => "new".to_owned(),
    }
}

fn costs(pair: &Pair, objects: &[&Change], fields: &[&Change], rows: usize, width: usize) -> String {
    let unit = &pair.unit;
    let mut columns = Columns::new(&[
        ("object", Align::Left),
        ("field", Align::Left),
        ("line", Align::Left),
        (&format!("cycles per\n{unit}\nbefore"), Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        ("cycles\nper load\nbefore", Align::Right),
        ("after", Align::Right),
        (&format!("HITMs per\n{unit}\nbefore"), Align::Right),
        ("after", Align::Right),
        (&format!("misses per\n{unit}\nbefore"), Align::Right),
        ("after", Align::Right),
        ("transfers\nbefore", Align::Right),
        ("after", Align::Right),
    ]);
    let shown = || objects.iter().copied().chain(fields.iter().take(rows).copied());
    for change in shown() {
        let both = |what: &dyn Fn(&Cost) -> Option<f64>| {
            let cell = |cost: &Option<Cost>| cost.as_ref().and_then(what).map_or_else(|| "-".to_owned(), count);
            [cell(&change.before), cell(&change.after)]
        };
        let cycles = |cost: &Option<Cost>| cost.as_ref().map(|cost| cost.cycles);
        let field = change.field.as_deref().unwrap_or("(all)");
        let mut cells = vec![shortened(&change.object, NAME_MAX), shortened(field, NAME_MAX), change.lines()];
        cells.extend(both(&|cost| Some(cost.cycles)));
        cells.push(percent_of(cycles(&change.before), cycles(&change.after)));
        cells.extend(both(&|cost| cost.cycles_per_load));
        cells.extend(both(&|cost| Some(cost.hitm)));
        cells.extend(both(&|cost| Some(cost.misses)));
        cells.extend(both(&|cost| cost.ownership_transfers));
        columns.row(cells);
    }
    let mut text = columns.render(width);
    if shown().any(Change::is_of_kind) {
        text.push_str("rows without a line's number: all objects of a kind; their cycles include stores\n");
    }
    let left = fields.len().saturating_sub(rows);
    if left > 0 {
        text.push_str(&format!("{left} more fields: --lines {}\n", fields.len()));
    }
    let count = |cost: &Option<Cost>| cost.as_ref().map(|cost| if cost.is_of_kind() { 0 } else { cost.line_count });
    if shown().any(|change| count(&change.before) != count(&change.after)) {
        text.push_str("a file keeps a run's hottest lines: what is gone, new or on fewer of them may only be colder\n");
    }
    text
}

/// Returns the verdict by which pairs are sorted for the reader.
pub(super) fn rank(pair: &Pair) -> Verdict {
    pair.judged.iter().map(|judged| judged.verdict).min().unwrap_or(Verdict::NotComparable)
}
