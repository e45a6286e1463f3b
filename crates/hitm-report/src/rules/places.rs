//! Where fields lie: of described layouts, and of runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use hitm_memory::Field;

use super::read::nearest;
use crate::layout::LayoutField;
use crate::line::kind_of;
use crate::result::{Declared, Line, Run};

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
    /// Its bytes.
    pub bytes: u64,
    /// Whether programs access it: it is no padding.
    pub is_used: bool,
}

/// The bytes of a field of which a run shows only where it starts, until they are guessed.
const UNKNOWN: u64 = 0;

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
        Self::of_fields(object, size as u64, &LayoutField::all(fields), &|field| !field.doc.is_empty())
    }

    /// Returns the layout of an object of which a result file has the fields; those without a
    /// description are padding.
    #[must_use]
    pub fn kept(object: &str, fields: &[LayoutField]) -> Self {
        let end = |field: &LayoutField| field.offset + field.size * field.count;
        let size = fields.iter().map(end).max().unwrap_or(0);
        Self::of_fields(object, size as u64, fields, &|field| !field.doc.is_empty())
    }

    /// Returns the layout of a variable or a type of a program.
    #[must_use]
    pub fn declared(own: &Declared) -> Self {
        Self { address: own.address.0, ..Self::of_fields(&own.name, own.size as u64, &own.fields, &|_| true) }
    }

    fn of_fields(object: &str, size: u64, fields: &[LayoutField], is_used: &dyn Fn(&LayoutField) -> bool) -> Self {
        let mut layout = Self { object: object.to_owned(), size, ..Self::default() };
        flatten(fields, 0, "", is_used, &mut layout.fields);
        layout
    }

    /// Returns the layouts that a run shows. An object that is among `known` has its fields there;
    /// so has a block of memory, by the name of its type. Of others there are the fields that were
    /// accessed on contended lines.
    #[must_use]
    pub fn of_run(run: &Run, known: &[Self]) -> Vec<Self> {
        let lines: Vec<_> = run.lines.iter().flat_map(Line::by_object).collect();
        let mut by_object: BTreeMap<(&str, Option<usize>), Vec<&Line>> = BTreeMap::new();
        for line in &lines {
            by_object.entry((&line.object, line.index)).or_default().push(line);
        }
        let mut layouts: Vec<Self> = by_object.into_values().map(|lines| Self::of_lines(&lines, known)).collect();
        // A type is there by itself if the run has no object of it: it is taken to start a line.
        // A variable without fields is not of the type that has its name: it may point to one.
        let has_fields = |own: &Self| own.fields.iter().any(|spot| spot.name != own.object);
        let is_like = |other: &Self, own: &Self| {
            other.object == own.object && (has_fields(other) || !has_fields(own) || own.address.is_some())
        };
        let is_there = |all: &[Self], own: &Self| {
            let is_type = own.address.is_none();
            let is_same = |other: &Self| is_like(other, own) && (is_type || other.address == own.address);
            all.iter().any(|other| is_same(other) || (is_type && kind_of(&other.object) == Some(&own.object)))
        };
        for own in known {
            let is_variable = known.iter().any(|other| other.address.is_some() && is_like(other, own));
            if !is_there(&layouts, own) && (own.address.is_some() || !is_variable) {
                layouts.push(own.clone());
            }
        }
        layouts
    }

    /// Returns the layout of an object that has these lines.
    fn of_lines(lines: &[&Line], known: &[Self]) -> Self {
        let first = lines[0];
        // Two files of a program may each have a variable of this name.
        let is_here = |layout: &&&Self| layout.address.is_none() || layout.address == first.start();
        let mut named = known.iter().filter(|layout| layout.object == first.object);
        let whole = named.clone().find(|layout| is_here(&layout)).or_else(|| named.next());
        let of_type = kind_of(&first.object).filter(|_| whole.is_none());
        let of_type = of_type.and_then(|kind| known.iter().find(|own| own.object == kind && own.address.is_none()));
        let mut own = Self {
            object: first.object.clone(),
            index: first.index,
            address: whole.and_then(|known| known.address).or(first.start()),
            size: whole.map_or(0, |known| known.size),
            is_partial: whole.is_none_or(|known| known.is_partial),
            fields: whole.map_or_else(Vec::new, |known| known.fields.clone()),
        };
        let touched: Vec<&crate::line::Field> = lines.iter().flat_map(|line| &line.fields).collect();
        if let Some(of_type) = of_type {
            // A block is one value of its type, or an array of them.
            let element = |field: &&crate::line::Field| {
                let number = field.field.strip_prefix('[').and_then(|rest| rest.split(']').next()?.parse::<u64>().ok());
                number.map_or((0, String::new()), |number| (number, format!("[{number}].")))
            };
            let elements: BTreeMap<u64, String> = touched.iter().map(element).collect();
            for (number, prefix) in elements {
                own.fields.extend(of_type.fields.iter().map(|spot| Spot {
                    name: format!("{prefix}{}", spot.name),
                    offset: number * of_type.size + spot.offset,
                    ..spot.clone()
                }));
            }
        }
        // What is known of the object is not listed twice, nor is another object on its line.
        let has = |start: u64, layout: &Self, at: u64| (start..start + layout.size).contains(&at);
        let is_known = |offset: u64| {
            let elsewhere = own.address.map(|address| address + offset);
            let of_other = |other: &Self| elsewhere.zip(other.address).is_some_and(|(at, start)| has(start, other, at));
            has(0, &own, offset) || own.fields.iter().any(|spot| spot.has(offset)) || known.iter().any(of_other)
        };
        let mut rest: Vec<Spot> = Vec::new();
        for field in touched {
            let (name, offset) = (field.field.clone(), u64::from(field.offset));
            if !is_known(offset) && rest.iter().all(|known| (&known.name, known.offset) != (&name, offset)) {
                rest.push(Spot { name, offset, bytes: UNKNOWN, is_used: true });
            }
        }
        own.fields.append(&mut rest);
        own.fields.sort_by_key(|field| field.offset);
        own.guess_sizes();
        own
    }

    /// Gives fields of which only the start is known the bytes up to the next one, but not more
    /// than a word that is aligned has.
    fn guess_sizes(&mut self) {
        let starts: Vec<u64> = self.fields.iter().map(|field| field.offset).collect();
        for field in self.fields.iter_mut().filter(|field| field.bytes == UNKNOWN) {
            let next = starts.iter().find(|&&start| start > field.offset).map_or(8, |next| next - field.offset);
            field.bytes = next.min(1 << field.offset.trailing_zeros().min(3));
        }
        if self.is_partial && self.size == 0 {
            self.size = self.fields.last().map_or(0, |last| last.offset + last.bytes);
        }
    }

    /// Returns the object's name with its index.
    #[must_use]
    pub fn name(&self) -> String {
        self.index.map_or_else(|| self.object.clone(), |index| format!("{}[{index}]", self.object))
    }
}

impl Spot {
    fn has(&self, offset: u64) -> bool {
        (self.offset..self.offset + self.bytes).contains(&offset)
    }
}

/// Elements of an array that are listed at its start, and as many at its end: a program's may have
/// millions. An element begins at one of 256 places of the largest line, so those between lie as
/// some of these do.
const ELEMENTS: usize = 4_096;

fn flatten(
    fields: &[LayoutField],
    base: usize,
    prefix: &str,
    is_used: &dyn Fn(&LayoutField) -> bool,
    spots: &mut Vec<Spot>,
) {
    for field in fields.iter().filter(|field| field.size > 0) {
        let is_listed = |&element: &usize| element < ELEMENTS || element + ELEMENTS >= field.count;
        for element in (0..field.count).filter(is_listed) {
            let offset = base + field.offset + element * field.size;
            let unnamed = field.name.is_empty();
            let before = if unnamed { prefix.trim_end_matches('.') } else { prefix };
            let index = if field.count > 1 || unnamed { format!("[{element}]") } else { String::new() };
            let name = format!("{before}{}{index}", field.name);
            if field.fields.is_empty() {
                let is_used = is_used(field);
                spots.push(Spot { name, offset: offset as u64, bytes: field.size as u64, is_used });
            } else {
                flatten(&field.fields, offset, &format!("{name}."), is_used, spots);
            }
        }
    }
}

/// The names of a field of an object, as rules write them: by the object, and of a block or a
/// variable of a thread also by what it is of. A structure has one name for its fields, whether
/// memory has one of them or an array.
pub(super) fn full_names(object: &str, field: &str) -> impl Iterator<Item = String> {
    let named = |object: &str, field: &str| {
        let dot = if field.starts_with('[') { "" } else { "." };
        format!("{object}{dot}{field}")
    };
    let kind = kind_of(object);
    let in_array = kind.and_then(|_| field.strip_prefix('[')?.split_once("].")).map(|(_, field)| field);
    let names = [Some((object, field)), kind.map(|kind| (kind, field)), kind.zip(in_array)];
    names.map(|name| name.map(|(object, field)| named(object, field))).into_iter().flatten()
}

/// Returns whether a pattern of a rule names a field of an object.
pub(super) fn names(pattern: &str, object: &str, field: &str) -> bool {
    let pattern = pattern.replace(".[", "[");
    full_names(object, field).any(|name| is_named(&pattern, &name))
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
    fn all(&self) -> impl Iterator<Item = At> {
        let of = |(layout, own): (usize, &Layout)| (0..own.fields.len()).map(move |field| (layout, field));
        self.0.iter().enumerate().flat_map(of)
    }

    pub(super) fn spot(&self, (layout, field): At) -> &Spot {
        &self.0[layout].fields[field]
    }

    /// Returns the field's name, with its object's index.
    pub(super) fn name(&self, at: At) -> String {
        let (object, field) = (self.0[at.0].name(), &self.spot(at).name);
        full_names(&object, field).next().expect("the first is by the object")
    }

    /// Returns the fields that a pattern names.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn named(&self, pattern: &str) -> Result<Vec<At>, String> {
        let object = |at: At| &*self.0[at.0].object;
        let found: Vec<At> = self.all().filter(|&at| names(pattern, object(at), &self.spot(at).name)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let mut known: Vec<String> = self.all().flat_map(|at| full_names(object(at), &self.spot(at).name)).collect();
        // A pattern may name an object, with all that is in it.
        known.extend(self.0.iter().map(|layout| layout.object.clone()));
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
