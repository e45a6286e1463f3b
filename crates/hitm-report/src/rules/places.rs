//! Where fields lie: of described layouts, and of runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use hitm_memory::Field;

use super::read::nearest;
use crate::result::Run;

/// The bytes of a line of the machine, by which results number lines.
const LINE: u64 = hitm_memory::LINE as u64;

/// An object's fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Its name.
    pub object: String,
    /// Its index, where there are several.
    pub index: Option<usize>,
    /// The address of its first byte, where a run shows it. An object without one is taken to start
    /// a line of any size.
    pub address: Option<u64>,
    /// Its bytes; 0 where they are not known.
    pub size: u64,
    /// Whether there may be other fields: a run shows those of contended lines.
    pub is_partial: bool,
    /// Its fields, in order of offset.
    pub fields: Vec<Spot>,
}

/// A field.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// Its name.
    pub name: String,
    /// Bytes from the object's start.
    pub offset: u64,
    /// Its bytes; 1 where a run shows only where it starts.
    pub bytes: u64,
    /// Whether programs access it: it is no padding.
    pub is_used: bool,
}

/// A line: of all memory, or of an object whose address is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    /// The layout, where only its own lines are known.
    layout: Option<usize>,
    number: u64,
}

/// Layouts, and where each field lies.
pub(super) struct Places<'a>(pub(super) &'a [Layout]);

/// A field by layout and place in it.
pub(super) type At = (usize, usize);

impl Layout {
    /// Returns the layout of an object that has a description.
    #[must_use]
    pub fn described(object: &str, size: usize, fields: &[Field]) -> Self {
        let mut layout = Self { object: object.to_owned(), size: size as u64, ..Self::default() };
        flatten(fields, 0, "", &mut layout.fields);
        layout
    }

    /// Returns the layouts that a run shows. An object that is among `described` has its fields;
    /// of others there are the fields that were accessed on contended lines.
    #[must_use]
    pub fn of_run(run: &Run, described: &[Self]) -> Vec<Self> {
        let mut by_object: BTreeMap<(&str, Option<usize>), Self> = BTreeMap::new();
        for line in &run.lines {
            let key = (line.object.as_str(), line.index);
            let own = by_object.entry(key).or_insert_with(|| {
                let known = described.iter().find(|layout| layout.object == line.object);
                let fields = known.map_or_else(Vec::new, |layout| layout.fields.clone());
                let address = line.address.0.map(|address| address.wrapping_sub(u64::from(line.line) * LINE));
                let size = known.map_or(0, |layout| layout.size);
                let is_partial = known.is_none_or(|layout| layout.is_partial);
                Self { object: line.object.clone(), index: line.index, address, size, is_partial, fields }
            });
            if described.iter().any(|layout| layout.object == line.object) {
                continue;
            }
            for field in &line.fields {
                let offset = u64::from(field.offset);
                if own.fields.iter().all(|known| (&known.name, known.offset) != (&field.field, offset)) {
                    own.fields.push(Spot { name: field.field.clone(), offset, bytes: 1, is_used: true });
                }
            }
        }
        let mut layouts: Vec<Self> = by_object.into_values().collect();
        for layout in &mut layouts {
            layout.fields.sort_by_key(|field| field.offset);
            layout.guess_sizes();
        }
        let has = |layouts: &[Self], name: &str| layouts.iter().any(|layout| layout.object == name);
        let unseen: Vec<Self> = described.iter().filter(|known| !has(&layouts, &known.object)).cloned().collect();
        layouts.extend(unseen);
        layouts
    }

    /// Gives fields of which only the start is known the bytes up to the next one, but not more
    /// than a word that is aligned has.
    fn guess_sizes(&mut self) {
        if !self.is_partial || self.size > 0 {
            return;
        }
        let starts: Vec<u64> = self.fields.iter().map(|field| field.offset).collect();
        for field in &mut self.fields {
            let next = starts.iter().find(|&&start| start > field.offset).map_or(8, |next| next - field.offset);
            field.bytes = next.min(1 << field.offset.trailing_zeros().min(3));
        }
        self.size = self.fields.last().map_or(0, |last| last.offset + last.bytes);
    }

    /// Returns the object's name with its index.
    #[must_use]
    pub fn name(&self) -> String {
        self.index.map_or_else(|| self.object.clone(), |index| format!("{}[{index}]", self.object))
    }
}

fn flatten(fields: &[Field], base: usize, prefix: &str, spots: &mut Vec<Spot>) {
    for field in fields.iter().filter(|field| field.size > 0) {
        for element in 0..field.count {
            let offset = base + field.offset + element * field.size;
            let unnamed = field.name.is_empty();
            let before = if unnamed { prefix.trim_end_matches('.') } else { prefix };
            let index = if field.count > 1 || unnamed { format!("[{element}]") } else { String::new() };
            let name = format!("{before}{}{index}", field.name);
            if field.fields.is_empty() {
                let is_used = !field.doc.is_empty();
                spots.push(Spot { name, offset: offset as u64, bytes: field.size as u64, is_used });
            } else {
                flatten(&field.fields, offset, &format!("{name}."), spots);
            }
        }
    }
}

/// Returns whether `pattern` names `name` or a part around it. `*` stands for any characters but
/// those that end a part.
fn is_named(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        let rest = name.strip_prefix(pattern);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let part = rest.find(['.', ']']).unwrap_or(rest.len());
    (0..=part).filter(|&end| rest.is_char_boundary(end)).any(|end| {
        let rest = &rest[end..];
        is_named(after, rest) || (after.is_empty() && (rest.is_empty() || rest.starts_with(['.', '['])))
    })
}

impl Places<'_> {
    fn full(&self, (layout, field): At) -> String {
        let layout = &self.0[layout];
        format!("{}.{}", layout.object, layout.fields[field].name)
    }

    fn all(&self) -> impl Iterator<Item = At> {
        let of = |(layout, own): (usize, &Layout)| (0..own.fields.len()).map(move |field| (layout, field));
        self.0.iter().enumerate().flat_map(of)
    }

    pub(super) fn spot(&self, (layout, field): At) -> &Spot {
        &self.0[layout].fields[field]
    }

    /// Returns the field's name, with its object's index.
    pub(super) fn name(&self, at: At) -> String {
        format!("{}.{}", self.0[at.0].name(), self.spot(at).name)
    }

    /// Returns the fields that a pattern names.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn named(&self, pattern: &str) -> Result<Vec<At>, String> {
        let found: Vec<At> = self.all().filter(|&at| is_named(pattern, &self.full(at))).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let known: Vec<String> = self.all().map(|at| self.full(at)).collect();
        let nearest = nearest(pattern, known.iter().map(String::as_str));
        let nearest = nearest.map_or_else(String::new, |name| format!("; the nearest is `{name}`"));
        Err(format!("no field `{pattern}` is known{nearest}"))
    }

    /// Returns the lines of `size` bytes that a field lies on.
    pub(super) fn lines(&self, at: At, size: u64) -> impl Iterator<Item = LineKey> + use<> {
        let (own, spot) = (&self.0[at.0], self.spot(at));
        let start = own.address.unwrap_or(0) + spot.offset;
        let numbers: RangeInclusive<u64> = start / size..=(start + spot.bytes.max(1) - 1) / size;
        let layout = own.address.is_none().then_some(at.0);
        numbers.map(move |number| LineKey { layout, number })
    }

    /// Shows the bytes of a line, with marks at some fields.
    pub(super) fn excerpt(&self, line: LineKey, size: u64, marked: &[At]) -> String {
        let mut on: Vec<At> = self.all().filter(|&at| self.lines(at, size).any(|other| other == line)).collect();
        let address = |at: At| self.0[at.0].address.unwrap_or(0) + self.spot(at).offset;
        on.sort_by_key(|&at| address(at));
        let mut objects: Vec<String> = on.iter().map(|at| self.0[at.0].name()).collect();
        objects.dedup();
        let first = on.first().map_or(0, |at| self.0[at.0].address.unwrap_or(0));
        let mut text = match (objects.as_slice(), (line.number * size).checked_sub(first)) {
            ([only], Some(within)) => format!("a line of {size} bytes, {within:#x} of {only}\n"),
            _ => format!("a line of {size} bytes, with {}\n", objects.join(", ")),
        };
        for at in on {
            let mark = if marked.contains(&at) { '>' } else { ' ' };
            // Of a field that began before the line, what lies on it is what counts.
            let offset = address(at).saturating_sub(line.number * size);
            let name = if objects.len() > 1 { self.name(at) } else { self.spot(at).name.clone() };
            writeln!(text, "{mark} {offset:>#6x}  {:>3}  {name}", self.spot(at).bytes).expect("a string");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn patterns_name_fields_and_what_is_in_them() {
        for (pattern, name, expect) in [
            ("rq.lock", "rq.lock", true),
            ("rq.lock", "rq.locked", false),
            ("rq", "rq.lock", true),
            ("ring.slots", "ring.slots[3].value", true),
            ("ring.slots[*].value", "ring.slots[3].value", true),
            ("ring.slots[*].value", "ring.slots[3].other", false),
            ("ring.slots[*]", "ring.slots[3].value", true),
            ("ring.*", "ring.head", true),
            ("ring.*", "rings.head", false),
            ("ring.h*d", "ring.head", true),
        ] {
            assert_eq!(is_named(pattern, name), expect, "{pattern} and {name}");
        }
    }
}
