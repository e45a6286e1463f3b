//! What to try: layouts that a run's waits speak for.

use std::collections::{BTreeMap, BTreeSet};

use super::heat::{Heat, HeatMap, heat_of, weight};
use super::plan::{Parts, Plan};
use super::{Evidence, Kind, Suggestion};
use crate::line::with_index;
use crate::result::Run;
use crate::rules::Layout;

/// Bytes of a line.
const LINE: u64 = hitm_memory::LINE as u64;

/// The share of a run's waits below which nothing is suggested.
pub(super) const WORTH: f64 = 0.005;

/// Fields of an object, with their heat.
type Fields<'a> = Vec<(&'a str, &'a Heat)>;

/// Returns what to try, the largest loss first. `scopes` are the parts of the machine that words
/// can be split by: those of which there are several.
#[must_use]
pub fn propose(run: &Run, layouts: &[Layout], scopes: &[&str]) -> Vec<Suggestion> {
    let heat = heat_of(run);
    let all = run.waited();
    let mut found = Vec::new();
    for layout in distinct(layouts) {
        let Some(fields) = heat.get(&layout.object) else { continue };
        let known: BTreeSet<&str> = layout.fields.iter().map(|spot| spot.name.as_str()).collect();
        let fields: Fields<'_> =
            fields.iter().map(|(name, heat)| (name.as_str(), heat)).filter(|(name, _)| known.contains(name)).collect();
        found.extend(separated(layout, &fields));
        found.extend(read_mostly(layout, &fields));
        found.extend(arrays(layout, &fields));
        found.extend(together(layout, &fields));
    }
    found.extend(splits(&heat, scopes));
    found.extend(tests_first(&heat));
    found.retain(|suggestion| suggestion.lost >= WORTH * all);
    found.sort_by(|one, other| other.lost.total_cmp(&one.lost).then_with(|| one.title.cmp(&other.title)));
    let mut known: Vec<Plan> = Vec::new();
    found.retain(|suggestion| match &suggestion.plan {
        Some(plan) if known.contains(plan) => false,
        plan => {
            known.extend(plan.clone());
            true
        }
    });
    for suggestion in &mut found {
        suggestion.share = if all > 0.0 { suggestion.lost / all } else { 0.0 };
    }
    found
}

/// Returns the layouts of different objects: all of one name have the same.
fn distinct(layouts: &[Layout]) -> impl Iterator<Item = &Layout> {
    let mut known = BTreeSet::new();
    layouts.iter().filter(move |layout| known.insert(layout.object.as_str()))
}

/// Returns the fields by line of the object.
fn by_line<'a>(fields: &Fields<'a>) -> BTreeMap<u32, Fields<'a>> {
    let mut lines: BTreeMap<u32, Fields<'a>> = BTreeMap::new();
    fields.iter().for_each(|&(name, heat)| lines.entry(heat.line).or_default().push((name, heat)));
    lines
}

fn pair((victim, heat): (&str, &Heat), (writer, by): (&str, &Heat)) -> Evidence {
    Evidence {
        waits: victim.to_owned(),
        functions: heat.functions.keys().cloned().collect(),
        written: writer.to_owned(),
        writers: by.writers.iter().cloned().collect(),
        cycles: heat.lost(writer),
        cpus: heat.cpus,
    }
}

/// Returns the number of the group that each field is in, by the field's name.
fn numbers<'a, T>(groups: &'a [Vec<T>], name: impl Fn(&'a T) -> &'a str) -> BTreeMap<&'a str, usize> {
    let mut numbers = BTreeMap::new();
    for (number, group) in groups.iter().enumerate() {
        numbers.extend(group.iter().map(|field| (name(field), number)));
    }
    numbers
}

/// Returns the cycles that fields of different groups cost each other, and the pairs that cost
/// most. `group_of` has the number of each field's group.
fn parted(fields: &Fields<'_>, group_of: &BTreeMap<&str, usize>) -> (f64, Vec<Evidence>) {
    let by_name: BTreeMap<&str, &Heat> = fields.iter().copied().collect();
    let mut pairs: Vec<Evidence> = Vec::new();
    for &(victim, heat) in fields {
        // Few fields cost a field anything, however many there are.
        for (written, &cycles) in &heat.lost_to {
            let Some((&written, by)) = by_name.get_key_value(written.as_str()) else { continue };
            if cycles > 0.0 && group_of.get(victim) != group_of.get(written) {
                pairs.push(pair((victim, heat), (written, by)));
            }
        }
    }
    // The sum of nothing would be -0.
    let lost = pairs.iter().fold(0.0, |lost, pair| lost + pair.cycles);
    pairs.sort_by(|one, other| other.cycles.total_cmp(&one.cycles));
    pairs.truncate(EVIDENCE);
    (lost, pairs)
}

/// Pairs of fields that a suggestion shows.
const EVIDENCE: usize = 3;

fn names(fields: &Fields<'_>) -> Vec<String> {
    fields.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn suggestion(kind: Kind, title: String, object: &str, groups: &[Fields<'_>], moved: &[Fields<'_>]) -> Suggestion {
    let (lost, evidence) = parted(&groups.concat(), &numbers(groups, |(name, _)| *name));
    Suggestion {
        kind,
        title,
        object: object.to_owned(),
        lost,
        share: 0.0,
        evidence,
        plan: (!moved.is_empty()).then(|| Plan {
            object: object.to_owned(),
            groups: moved.iter().map(names).collect(),
            split: None,
        }),
        diff: None,
        bytes: None,
        predicted: None,
    }
}

/// Clusters the fields of each line so that fields which cost each other part: the greedy clusters
/// of CGO 2007. The largest cluster stays, the others leave. Where several lines have clusters,
/// also all lines at once: waits move from a line that is parted to the next one.
fn separated(layout: &Layout, fields: &Fields<'_>) -> Vec<Suggestion> {
    let mut found = Vec::new();
    let (mut lines, mut all, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
    for (line, fields) in by_line(fields) {
        let mut clusters = clusters(&fields, layout);
        if clusters.len() < 2 {
            continue;
        }
        clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.len()));
        let apart: Vec<String> = clusters[1..].iter().map(|cluster| names(cluster).join(" + ")).collect();
        let title = format!("separate on line {line}: {}", apart.join("; "));
        found.push(suggestion(Kind::Separate, title, &layout.object, &clusters, &clusters[1..]));
        lines.push(format!("{line}: {}", apart.join("; ")));
        leaving.extend_from_slice(&clusters[1..]);
        all.extend(clusters);
        // The field that costs the others most, alone.
        let cost = |&(name, _): &(&str, &Heat)| {
            fields.iter().filter(|(other, _)| *other != name).map(|(_, heat)| heat.lost(name)).sum::<f64>()
        };
        let worst = fields.iter().copied().max_by(|one, other| cost(one).total_cmp(&cost(other)));
        if let Some(worst) = worst.filter(|worst| cost(worst) > 0.0) {
            let rest: Fields<'_> = fields.iter().copied().filter(|(name, _)| *name != worst.0).collect();
            let title = format!("give {} a line of its own", worst.0);
            found.push(suggestion(Kind::Pad, title, &layout.object, &[vec![worst], rest], &[vec![worst]]));
        }
    }
    if lines.len() > 1 {
        let count = lines.len();
        lines.truncate(LINES);
        let more = if lines.len() < count { ", and so on" } else { "" };
        let title = format!("separate on {count} lines, {}{more}", lines.join(", "));
        found.push(suggestion(Kind::Separate, title, &layout.object, &all, &leaving));
    }
    found
}

/// Lines that a title lists.
const LINES: usize = 3;

fn clusters<'a>(fields: &Fields<'a>, layout: &Layout) -> Vec<Fields<'a>> {
    let bytes = |name: &str| layout.fields.iter().find(|spot| spot.name == name).map_or(0, |spot| spot.bytes);
    let mut left: Fields<'a> = fields.clone();
    left.sort_by(|one, other| other.1.waited.total_cmp(&one.1.waited));
    let mut clusters = Vec::new();
    while !left.is_empty() {
        let mut cluster = vec![left.remove(0)];
        loop {
            let gain = |field: &(&'a str, &'a Heat)| cluster.iter().map(|&own| weight(own, *field)).sum::<f64>();
            let room = LINE.saturating_sub(cluster.iter().map(|(name, _)| bytes(name)).sum());
            let fits = left.iter().enumerate().filter(|(_, field)| bytes(field.0) <= room);
            let best = fits.map(|(at, field)| (at, gain(field))).max_by(|one, other| one.1.total_cmp(&other.1));
            match best {
                Some((at, gain)) if gain >= 0.0 => cluster.push(left.remove(at)),
                _ => break,
            }
        }
        clusters.push(cluster);
    }
    clusters
}

/// Fields that are read mostly, on a line that is written: together on a line of their own.
fn read_mostly(layout: &Layout, fields: &Fields<'_>) -> Vec<Suggestion> {
    let mut found = Vec::new();
    for (line, fields) in by_line(fields) {
        let (read, written): (Fields<'_>, Fields<'_>) = fields.iter().partition(|(_, heat)| heat.is_read_mostly());
        if read.is_empty() || written.is_empty() {
            continue;
        }
        let title = format!("move what is read mostly off line {line}: {}", names(&read).join(", "));
        found.push(suggestion(Kind::ReadMostly, title, &layout.object, &[read.clone(), written], &[read]));
    }
    found
}

/// Returns a name with `[*]` for its last index, and the index.
fn pattern(name: &str) -> Option<(String, &str)> {
    let (before, rest) = name.rsplit_once('[')?;
    let (index, after) = rest.split_once(']')?;
    index.parse::<usize>().ok()?;
    Some((format!("{before}[*]{after}"), index))
}

/// Members of an array's elements that cost each other: all of a kind together, apart from the
/// others; and each element's on lines of their own.
fn arrays(layout: &Layout, fields: &Fields<'_>) -> Vec<Suggestion> {
    let mut kinds: BTreeMap<String, Fields<'_>> = BTreeMap::new();
    for &(name, heat) in fields {
        if let Some((pattern, _)) = pattern(name) {
            kinds.entry(pattern).or_default().push((name, heat));
        }
    }
    let mut found = Vec::new();
    for (kind, own) in &kinds {
        let others: Fields<'_> =
            fields.iter().copied().filter(|(name, _)| own.iter().all(|(own, _)| own != name)).collect();
        let written = own.iter().any(|(_, heat)| !heat.is_read_mostly());
        // All elements move, also those that were not accessed: they are one type.
        let all = |kind: &str| -> Vec<String> {
            let is_of = |name: &&str| pattern(name).is_some_and(|(own, _)| own == kind);
            layout.fields.iter().map(|spot| spot.name.as_str()).filter(is_of).map(str::to_owned).collect()
        };
        let elements = all(kind);
        if !written || elements.len() < 2 || layout.is_partial {
            continue;
        }
        let groups = [own.clone(), others];
        let base = suggestion(Kind::Separate, String::new(), &layout.object, &groups, &[]);
        let plan = |groups| Some(Plan { object: layout.object.clone(), groups, split: None });
        found.push(Suggestion {
            title: format!("all {kind} together, apart from the rest"),
            plan: plan(vec![elements.clone()]),
            ..base.clone()
        });
        found.push(each(layout, kind, fields, &elements));
    }
    found
}

/// A member of each element of an array on a line of its own. Of structures it takes the rest to
/// lines of their own, too: all elements are of one type, which is aligned.
fn each(layout: &Layout, kind: &str, fields: &Fields<'_>, elements: &[String]) -> Suggestion {
    let (array, member) = kind.rsplit_once("[*]").unwrap_or((kind, ""));
    let index =
        |name: &str| name.strip_prefix(array)?.strip_prefix('[')?.split_once(']').map(|(own, _)| own.to_owned());
    let is_member = |name: &str| pattern(name).is_some_and(|(own, _)| own == kind);
    let mut rest: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for spot in layout.fields.iter().filter(|spot| !member.is_empty() && !is_member(&spot.name)) {
        if let Some(index) = index(&spot.name) {
            rest.entry(index).or_default().push(spot.name.clone());
        }
    }
    let mut groups: Vec<Vec<String>> =
        elements.iter().map(|name| vec![name.clone()]).chain(rest.into_values()).collect();
    // A plan is one, whichever of two members it was made for.
    groups.sort();
    let (lost, evidence) = parted(fields, &numbers(&groups, String::as_str));
    let plan = Some(Plan { object: layout.object.clone(), groups, split: None });
    let base = suggestion(Kind::Pad, format!("each {kind} on a line of its own"), &layout.object, &[], &[]);
    Suggestion { lost, evidence, plan, ..base }
}

/// Fields on different lines that a function misses one after the other, and that do not cost each
/// other: on one line.
fn together(layout: &Layout, fields: &Fields<'_>) -> Vec<Suggestion> {
    let mut best: Option<(f64, Fields<'_>)> = None;
    for (index, &one) in fields.iter().enumerate() {
        for &other in fields[index + 1..].iter().filter(|(name, heat)| {
            // Elements of an array are others' at the same time.
            heat.line != one.1.line && with_index(name, "*") != with_index(one.0, "*")
        }) {
            let saved: f64 = one
                .1
                .functions
                .iter()
                .map(|(name, &(_, misses))| other.1.functions.get(name).map_or(0.0, |&(_, more)| misses.min(more)))
                .sum::<f64>()
                * one.1.cycles().min(other.1.cycles());
            if best.as_ref().is_none_or(|(most, _)| saved > *most) {
                best = Some((saved, vec![one, other]));
            }
        }
    }
    let Some((saved, pair)) = best.filter(|(saved, _)| *saved > 0.0) else { return Vec::new() };
    let title = format!("bring together: {}", names(&pair).join(", "));
    let own = suggestion(Kind::Together, title, &layout.object, &[], &[pair]);
    vec![Suggestion { lost: saved, ..own }]
}

/// Words that are lost to their own writers, those of an array together: to split by a part of the
/// machine.
fn splits(heat: &HeatMap, scopes: &[&str]) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = Vec::new();
    for (object, fields) in heat {
        let mut kinds: BTreeMap<String, Fields<'_>> = BTreeMap::new();
        for (name, heat) in fields.iter().filter(|(_, heat)| heat.cpus > FEW && heat.writes() > 0.0) {
            kinds.entry(with_index(name, "*")).or_default().push((name, heat));
        }
        for (kind, own) in kinds {
            let mut evidence: Vec<Evidence> =
                own.iter().map(|&(name, heat)| pair((name, heat), (name, heat))).collect();
            evidence.sort_by(|one, other| other.cycles.total_cmp(&one.cycles));
            evidence.truncate(EVIDENCE);
            let lost = own.iter().flat_map(|&(_, heat)| own.iter().map(|&(other, _)| heat.lost(other))).sum();
            for scope in scopes {
                let parts = Parts { fields: names(&own), scope: (*scope).to_owned() };
                let plan = Plan { object: object.clone(), groups: Vec::new(), split: Some(parts) };
                let title = format!("split {kind} by {}", if *scope == "llc" { "LLC" } else { scope });
                let base = suggestion(Kind::Split, title, object, &[], &[]);
                found.push(Suggestion { lost, evidence: evidence.clone(), plan: Some(plan), ..base });
            }
        }
    }
    found
}

/// A word that no more CPUs miss at is not split.
const FEW: u32 = 2;

/// Words that functions write without a look, and that many CPUs write: the write may change
/// nothing.
fn tests_first(heat: &HeatMap) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = Vec::new();
    for (object, fields) in heat {
        for (name, heat) in fields.iter().filter(|(_, heat)| heat.cpus > FEW) {
            let blind = heat.stores > 0.0 && heat.stores >= heat.loads && heat.rmws == 0.0;
            if !blind {
                continue;
            }
            let writers: Vec<&str> = heat.writers.iter().map(String::as_str).collect();
            let title = format!("read {name} before it is written, in {}: write only what differs", writers.join(", "));
            let lost = fields.values().map(|other| other.lost(name)).sum();
            let own = suggestion(Kind::TestFirst, title, object, &[], &[]);
            found.push(Suggestion { lost, ..own });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Spot;

    #[test]
    fn an_element_that_is_aligned_has_its_rest_on_other_lines() {
        let names = ["[0].ok", "[0].failed", "[1].ok", "[1].failed"];
        let spot = |(number, name): (usize, &&str)| Spot {
            name: (*name).to_owned(),
            offset: 8 * number as u64,
            bytes: 8,
            is_used: true,
        };
        let fields = names.iter().enumerate().map(spot).collect();
        let layout = Layout { object: "stats".to_owned(), size: 32, fields, ..Layout::default() };
        let heat = |lost: &[(&str, f64)]| Heat {
            stores: 9.0,
            lost_to: lost.iter().map(|&(name, cycles)| (name.to_owned(), cycles)).collect(),
            ..Heat::default()
        };
        let heats = [
            heat(&[("[1].ok", 2.0)]),
            heat(&[("[1].failed", 90.0), ("[1].ok", 3.0)]),
            heat(&[]),
            heat(&[("[0].failed", 80.0), ("[1].failed", 1_000.0)]),
        ];
        let fields: Fields<'_> = names.iter().copied().zip(&heats).collect();
        let found = arrays(&layout, &fields);
        let padded: Vec<&Suggestion> = found.iter().filter(|own| own.kind == Kind::Pad).collect();
        assert_eq!(padded.len(), 2);
        assert_eq!(padded[0].plan, padded[1].plan, "to align either member gives the same layout");
        let groups = &padded[0].plan.as_ref().expect("it has a layout").groups;
        assert_eq!(
            groups.iter().map(|group| group.join(" ")).collect::<Vec<_>>(),
            ["[0].failed", "[0].ok", "[1].failed", "[1].ok"]
        );
        // What a field waits for its own writes stays.
        assert_eq!(padded[0].lost, 175.0);
        let reasons = padded[0].evidence.iter().map(|own| format!("{} after {}", own.waits, own.written));
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            ["[0].failed after [1].failed", "[1].failed after [0].failed", "[0].failed after [1].ok"]
        );
    }
}
