//! The contended lines of a run, for reading in a terminal: at most 80 columns wide.
//!
//! For each line the report answers three questions in this order: which fields are on it, which
//! functions wait for it, and which store invalidated the waiter's copy. `perf c2c`'s own columns
//! are in [`crate::c2c`].

use hitm_machine::Kind;

use crate::columns::{Align, Columns, short};
use crate::result::{Field, Line, Site};

/// Functions with a smaller share of a line's waiting are counted, not listed.
const SHARE_MIN: f64 = 0.01;
/// Longer names are shortened in the middle.
const NAME_MAX: usize = 44;

/// Renders the hottest lines of a run, first as a table of lines, then line by line. `waits` are
/// the cycles waited for all lines of the run.
pub(crate) fn render(lines: &[Line], waits: f64) -> String {
    let mut text = table(lines, waits);
    for line in lines {
        text.push('\n');
        text.push_str(&fields(line));
    }
    text
}

/// `part` of `whole`, in percent.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}", 100.0 * part / whole) } else { "-".to_owned() }
}

fn table(lines: &[Line], all: f64) -> String {
    let mut columns = Columns::new(&[
        ("object, line", Align::Left),
        ("waits\n[%]", Align::Right),
        ("cycles\nper miss", Align::Right),
        ("local\nHITMs", Align::Right),
        ("remote\nHITMs", Align::Right),
        ("loads", Align::Right),
        ("stores", Align::Right),
    ]);
    for line in lines {
        columns.row(vec![
            shortened(&format!("{}, {}", line.name(), line.line), NAME_MAX),
            percent(line.waited(), all),
            short(line.waited() / (line.misses as f64).max(1.0)),
            short(line.hitm.local as f64),
            short(line.hitm.remote as f64),
            short(line.touched.loads as f64),
            short(line.touched.stores as f64),
        ]);
    }
    columns.render(usize::MAX)
}

/// Renders the fields of a line, the functions that wait for it, and the store that most often
/// invalidated the waiter's copy.
fn fields(line: &Line) -> String {
    let all = line.waited();
    let is_listed = |site: &Site| site.misses > 0 && site.waited() >= SHARE_MIN * all;
    let listed = line.fields.iter().map(|field| (field, field.sites.iter().filter(|site| is_listed(site)).collect()));
    let listed: Vec<(&Field, Vec<&Site>)> = listed.filter(|(_, sites): &(_, Vec<_>)| !sites.is_empty()).collect();
    let mut columns = Columns::new(&[
        ("offset", Align::Right),
        ("field, function", Align::Left),
        ("waits\n[%]", Align::Right),
        ("cycles\nper miss", Align::Right),
        ("misses", Align::Right),
    ]);
    let mut invalidators = Vec::new();
    for (field, sites) in listed {
        let offset = format!("{:#x}", line.offset_of(field));
        columns.row(
            [offset, shortened(&field.field, NAME_MAX)].into_iter().chain([(); 3].map(|()| String::new())).collect(),
        );
        invalidators.push(None);
        for site in sites {
            let function = shortened(&format!("  {} ({})", site.function, kind(site)), NAME_MAX);
            let figures = [percent(site.waited(), all), short(site.cycles.2), short(site.misses as f64)];
            columns.row([String::new(), function].into_iter().chain(figures).collect());
            invalidators.push(site.invalidated_by.first());
        }
    }
    let mut text = format!("{}, line {}\n", line.name(), line.line);
    let table = columns.render(usize::MAX);
    let rows = table.lines().count() - invalidators.len();
    for (index, row) in table.lines().enumerate() {
        text.push_str(&format!("{row}\n"));
        if let Some(Some(first)) = index.checked_sub(rows).map(|index| invalidators[index]) {
            let share = 100.0 * first.share;
            text.push_str(&format!(
                "            invalidated by {} in {} ({share:.0} %)\n",
                first.field, first.function
            ));
        }
    }
    let small = places_left(line, is_listed);
    match small {
        0 => {}
        1 => text.push_str("        1 more place, with less than 1 % of the waits\n"),
        _ => text.push_str(&format!("        {small} more places, each with less than 1 % of the waits\n")),
    }
    text
}

/// Returns the number of places that miss but are not listed.
fn places_left(line: &Line, is_listed: impl Fn(&Site) -> bool) -> usize {
    let missing = |(_, site): &(&Field, &Site)| site.misses > 0 && !is_listed(site);
    line.places().filter(missing).count()
}

/// Returns the kind of access as the reader knows it.
fn kind(site: &Site) -> &'static str {
    match site.kind {
        Some(Kind::Rmw) => "RMW",
        kind => kind.map_or("", Kind::name),
    }
}

/// Returns a name of at most `most` characters: the middle of a longer one is left out.
pub(crate) fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let half = most.saturating_sub(3) / 2;
    let head: String = name.chars().take(half).collect();
    let tail: String = name.chars().skip(count - half).collect();
    format!("{head}...{tail}")
}
