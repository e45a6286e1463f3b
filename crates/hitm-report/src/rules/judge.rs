//! Whether a rule holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::places::{At, LineKey, Places, full_names, names};
use super::read::nearest;
use super::{Demand, Layout, Rule, Verdict, Written};
use crate::c2c;
use crate::columns::short;
use crate::compare::{self, compare};
use crate::result::{Host, Line, ResultFile, Run};

/// What rules are judged on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What is looked at, in words.
    pub name: &'a str,
    /// Where fields lie.
    pub layouts: &'a [Layout],
    /// The run, with the file that it is of; none where layouts alone are looked at.
    pub run: Option<(&'a Run, &'a ResultFile)>,
}

/// What was found, and what shows it if the rule does not hold.
struct Found {
    holds: bool,
    found: String,
    excerpt: String,
}

impl Found {
    fn holds(found: impl Into<String>) -> Self {
        Self { holds: true, found: found.into(), excerpt: String::new() }
    }

    fn broken(found: impl Into<String>, excerpt: impl Into<String>) -> Self {
        Self { holds: false, found: found.into(), excerpt: excerpt.into() }
    }
}

/// Judges a rule on a subject: a verdict per size of line, or one. `read` reads the result file of
/// `no_worse_than`.
///
/// # Errors
/// When the rule names what is not there, or what cannot be compared: what, and what to do.
pub fn judge(
    rule: &Rule,
    subject: Subject<'_>,
    read: &dyn Fn(&str) -> Result<ResultFile, String>,
) -> Result<Vec<Verdict>, String> {
    let verdict = |line_bytes: Option<u64>, found: Found| Verdict {
        rule: rule.name.clone(),
        at: rule.at,
        subject: subject.name.to_owned(),
        line_bytes,
        holds: found.holds,
        found: found.found,
        excerpt: found.excerpt,
    };
    if rule.demand.is_of_layout() {
        let places = Places(subject.layouts);
        let judged = rule.lines.iter().map(|&size| Ok(verdict(Some(size), of_layout(&rule.demand, &places, size)?)));
        return judged.collect::<Result<_, String>>().map_err(|why| match subject.run {
            Some((run, file)) => unknown(&why, run, file),
            None => why,
        });
    }
    let Some((run, file)) = subject.run else {
        return Err("it is about a run; give a result file: `hitm check rules.toml result.json`".to_owned());
    };
    let found = match &rule.demand {
        Demand::Written(limit) => written(limit, run, subject.layouts)?,
        Demand::Waits(fields, most) => {
            waits(fields, *most, run, subject.layouts).map_err(|why| unknown(&why, run, file))?
        }
        Demand::NoWorse(base) => no_worse(base, &read(base)?, run, file)?,
        Demand::Apart(_) | Demand::Alone(_) | Demand::Together(_) => unreachable!("they are of layouts"),
    };
    Ok(vec![verdict(None, found)])
}

/// Says of a field that is not known what the file knows at all.
fn unknown(why: &str, run: &Run, file: &ResultFile) -> String {
    let is_program = file.command.first().is_some_and(|word| word == "exec");
    match run.host {
        Host::Measured => format!("{why}; a measurement has the fields of contended lines alone"),
        _ if is_program && file.declared.is_empty() => format!(
            "{why}; the file has the fields of contended lines alone: an earlier version wrote it, or the program \
             has no debug information"
        ),
        _ => why.to_owned(),
    }
}

fn of_layout(demand: &Demand, places: &Places<'_>, size: u64) -> Result<Found, String> {
    match demand {
        Demand::Apart(patterns) => apart(patterns, places, size),
        Demand::Alone(patterns) => alone(patterns, places, size),
        Demand::Together(patterns) => together(patterns, places, size),
        _ => unreachable!("the others are of runs"),
    }
}

/// Returns the fields on each line, of those that the patterns name, with the pattern's number.
fn by_line(patterns: &[String], places: &Places<'_>, size: u64) -> Result<BTreeMap<LineKey, Vec<(usize, At)>>, String> {
    let mut lines: BTreeMap<LineKey, Vec<(usize, At)>> = BTreeMap::new();
    for (number, pattern) in patterns.iter().enumerate() {
        for at in places.named(pattern)? {
            places.lines(at, size).for_each(|line| lines.entry(line).or_default().push((number, at)));
        }
    }
    Ok(lines)
}

fn apart(patterns: &[String], places: &Places<'_>, size: u64) -> Result<Found, String> {
    for (line, fields) in by_line(patterns, places, size)? {
        let &(number, first) = &fields[0];
        if let Some(&(_, second)) = fields.iter().find(|&&(other, at)| other != number && at != first) {
            let found = format!("{} and {} share a line", places.name(first), places.name(second));
            return Ok(Found::broken(found, places.excerpt(line, size, &[first, second])));
        }
    }
    Ok(Found::holds(format!("{} fields or groups share no line", patterns.len())))
}

fn alone(patterns: &[String], places: &Places<'_>, size: u64) -> Result<Found, String> {
    let lines = by_line(patterns, places, size)?;
    let everything = by_line(&["*".to_owned()], places, size)?;
    for (line, fields) in &lines {
        let (_, own) = fields[0];
        let other = everything[line].iter().find(|&&(_, at)| at != own && places.spot(at).is_used);
        if let Some(&(_, other)) = other {
            let found = format!("{} shares its line with {}", places.name(own), places.name(other));
            return Ok(Found::broken(found, places.excerpt(*line, size, &[own, other])));
        }
    }
    Ok(Found::holds(match lines.len() {
        1 => "its line has no other field".to_owned(),
        count => format!("{count} lines have no other field"),
    }))
}

fn together(patterns: &[String], places: &Places<'_>, size: u64) -> Result<Found, String> {
    let mut by_layout: BTreeMap<usize, Vec<At>> = BTreeMap::new();
    for pattern in patterns {
        places.named(pattern)?.into_iter().for_each(|at| by_layout.entry(at.0).or_default().push(at));
    }
    for fields in by_layout.values() {
        let lines: BTreeSet<LineKey> = fields.iter().flat_map(|&at| places.lines(at, size)).collect();
        if lines.len() > 1 {
            let names: Vec<String> = fields.iter().map(|&at| places.name(at)).collect();
            let found = format!("{} lie on {} lines", names.join(", "), lines.len());
            let excerpts: Vec<String> = lines.iter().map(|&line| places.excerpt(line, size, fields)).collect();
            return Ok(Found::broken(found, excerpts.concat()));
        }
    }
    Ok(Found::holds("one line has them"))
}

/// Returns how many different lines an operation writes at most, on average: a line counts as
/// often as it is stored to per operation, but not more than once.
fn lines_written(lines: &[(&Line, u64)], operations: f64) -> f64 {
    lines.iter().map(|&(_, stores)| (stores as f64 / operations).min(1.0)).sum()
}

fn written(limit: &Written, run: &Run, layouts: &[Layout]) -> Result<Found, String> {
    let known = || run.operations.keys().map(String::as_str);
    let Some(&times) = run.operations.get(&limit.per).filter(|&&times| times > 0) else {
        let nearest =
            nearest(&limit.per, known()).map_or_else(String::new, |name| format!("; the nearest is `{name}`"));
        return Err(format!("the run has no operation `{}`{nearest}", limit.per));
    };
    // An object that has none of the lines is not written; one that is not known is an error.
    let is_known = |object: &String| {
        let has_line = run.lines.iter().flat_map(Line::by_object).any(|part| part.object == *object);
        has_line || layouts.iter().any(|layout| layout.object == *object)
    };
    if let Some(object) = limit.objects.iter().find(|object| !is_known(object)) {
        let names = run.lines.iter().map(|line| &line.object).chain(layouts.iter().map(|layout| &layout.object));
        let nearest = nearest(object, names.map(String::as_str));
        let nearest = nearest.map_or_else(String::new, |name| format!("; the nearest is `{name}`"));
        return Err(format!("no object `{object}` is known{nearest}"));
    }
    // A line that objects share has the stores to each.
    let of_objects = |line: &Line| {
        let parts = line.by_object().into_iter().filter(|part| limit.objects.contains(&part.object));
        let stores = |part: Cow<'_, Line>| match part {
            Cow::Borrowed(whole) => whole.touched.stores,
            Cow::Owned(part) => part.fields.iter().map(|field| field.touched.stores).sum(),
        };
        parts.map(stores).reduce(|one, more| one + more)
    };
    let stores = |line: &Line| if limit.objects.is_empty() { Some(line.touched.stores) } else { of_objects(line) };
    let mut lines: Vec<(&Line, u64)> = run.lines.iter().filter_map(|line| Some((line, stores(line)?))).collect();
    let lines_per = lines_written(&lines, times as f64);
    let found = format!("at most {lines_per:.2} contended lines written per {}", limit.per);
    if lines_per <= limit.at_most {
        return Ok(Found::holds(found));
    }
    lines.sort_by_key(|&(_, stores)| std::cmp::Reverse(stores));
    let row = |&(line, stores): &(&Line, u64)| {
        let per = stores as f64 / times as f64;
        format!(
            "{:>8} stores, {per:>6.2} per {}: {}, line {}\n",
            short(stores as f64),
            limit.per,
            line.name(),
            line.line
        )
    };
    let excerpt: String = lines.iter().take(10).map(row).collect();
    Ok(Found::broken(format!("{found}; allowed are {}", limit.at_most), excerpt))
}

fn waits(patterns: &[String], most: f64, run: &Run, layouts: &[Layout]) -> Result<Found, String> {
    let is_named = |pattern: &String, line: &Line, field: &str| names(pattern, &line.object, field);
    let parts: Vec<(_, &Line)> =
        run.lines.iter().flat_map(|line| line.by_object().into_iter().map(move |part| (part, line))).collect();
    for pattern in patterns {
        let is_field = |line: &Line| line.fields.iter().any(|field| is_named(pattern, line, &field.field));
        if !parts.iter().any(|(part, _)| is_field(part)) {
            // The rule holds for a field that no CPU waits for, not for one that does not exist.
            Places(layouts).named(pattern)?;
        }
    }
    let mut by_field: BTreeMap<String, (f64, &Line)> = BTreeMap::new();
    for (part, line) in &parts {
        for field in &part.fields {
            if !patterns.is_empty() && !patterns.iter().any(|pattern| is_named(pattern, part, &field.field)) {
                continue;
            }
            let waited: f64 = field.sites.iter().map(crate::result::Site::waited).sum();
            let name = full_names(&part.object, &field.field).next().expect("the first is by the object");
            by_field.entry(name).or_insert((0.0, line)).0 += waited;
        }
    }
    let all = run.waited();
    let share = |waited: f64| if all > 0.0 { 100.0 * waited / all } else { 0.0 };
    let Some((name, &(waited, line))) = by_field.iter().max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0)) else {
        return Ok(Found::holds("no CPU waited for such a field"));
    };
    let found = format!("{name} has {:.1} % of the waits", share(waited));
    if share(waited) <= most {
        return Ok(Found::holds(found));
    }
    let excerpt = c2c::render_lines("", &[], std::slice::from_ref(line), all, c2c::Layout::Brief);
    Ok(Found::broken(format!("{found}; allowed are {most} %"), excerpt.trim_start()))
}

fn no_worse(name: &str, base: &ResultFile, run: &Run, file: &ResultFile) -> Result<Found, String> {
    let only = ResultFile { runs: vec![run.clone()], ..file.clone() };
    let compared =
        compare((name, base), ("the result", &only), compare::THRESHOLD).map_err(|error| error.to_string())?;
    let figures: Vec<&compare::Judged> = compared.pairs.iter().flat_map(|pair| &pair.judged).collect();
    let of = |verdict| figures.iter().find(move |judged| judged.verdict == verdict);
    let words = |judged: &compare::Judged| {
        format!("{}: {} % in place of {name}", judged.name.replace('_', " "), judged.change())
    };
    if let Some(worse) = of(compare::Verdict::Worse) {
        return Ok(Found::broken(format!("worse beyond the interval, {}", words(worse)), compared.render(10, 100)));
    }
    match compared
        .pairs
        .iter()
        .flat_map(|pair| &pair.judged)
        .find(|judged| judged.verdict == compare::Verdict::NotComparable)
    {
        Some(judged) => Err(format!("{} cannot be compared with `{name}`: take more seeds in both", judged.name)),
        None => {
            Ok(Found::holds(figures.first().map_or_else(|| "nothing is judged".to_owned(), |judged| words(judged))))
        }
    }
}
