//! Sums of waits by kind of object. Many lines, of which none is hot, may cost more together than
//! the hottest line does.
//!
//! Objects are of one kind if their names differ in a number or an address alone: blocks of one
//! type that one place in the source allocates, a thread-local variable in all threads, or objects
//! with an index.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use hitm_machine::{Hitm, LineResult, Place, Results};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::brief::{percent, shortened};
use crate::columns::{Align, Columns, short};
use crate::functions::Functions;
use crate::line::{UNKNOWN, is_number, with_index};

/// The most kinds that a run keeps, and the most fields of each: those with the longest waits.
const KINDS_KEPT: usize = 40;
const FIELDS_KEPT: usize = 20;

/// The most kinds that are shown, and the most fields of each.
const KINDS_SHOWN: usize = 10;
const FIELDS_SHOWN: usize = 4;

/// A field that is shown has at least this part of the waits of its kind.
const FIELD_SHARE_MIN: f64 = 0.05;

/// The rest has a row if it is at least this part of all waits: less would be shown as 0.0 %.
const REST_MIN: f64 = 0.000_5;

/// The most columns of a name. A row, with its figures, then has at most 80.
const NAME_MAX: usize = 39;
/// Columns that a field's name has at least, however long its function's name is.
const FIELD_MIN: usize = 17;

/// In memory without a type, so many bytes are fields of their own. Those behind them are one
/// field: they may be an array.
const BYTES: u64 = 256;

/// Sums of waits.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Waits {
    /// Accesses that missed.
    pub misses: u64,
    /// Misses answered by a core that had modified the line.
    #[serde(flatten)]
    pub hitm: Hitm,
    /// Cycles that all CPUs together waited.
    pub cycles: f64,
}

/// All objects of one kind.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Objects {
    /// The name that all of them share, without a number or an address.
    pub object: String,
    /// The number of their lines that CPUs waited for. A line that objects of two kinds share
    /// counts for each of them.
    pub lines: u64,
    /// The sums.
    #[serde(flatten)]
    pub waits: Waits,
    /// The fields with the longest waits, the longest first. Elements of an array are one field.
    pub fields: Vec<FieldOfAll>,
}

/// A field of all objects of a kind.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FieldOfAll {
    /// Its name.
    pub field: String,
    /// The sums.
    #[serde(flatten)]
    pub waits: Waits,
    /// The function that waited longest for it.
    pub function: String,
    /// File and line of that function's longest waits.
    pub location: String,
    /// That function's share of the field's cycles.
    pub share: f64,
}

/// The waits for a field of one line, at one place in the source.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The object, as a line names it.
    pub object: String,
    /// The address of the line.
    pub line: u64,
    /// The field of that object.
    pub field: String,
    /// The function.
    pub function: String,
    /// File and line.
    pub location: String,
    /// What they count.
    pub waits: Waits,
}

impl AddAssign for Waits {
    fn add_assign(&mut self, other: Self) {
        self.misses += other.misses;
        self.hitm += other.hitm;
        self.cycles += other.cycles;
    }
}

/// Sums of one kind: its lines, and by field and place its waits.
struct Kind<'a, K> {
    lines: BTreeSet<u64>,
    fields: BTreeMap<Cow<'a, str>, BTreeMap<K, Waits>>,
}

/// Sums by kind.
struct Kinds<'a, K>(BTreeMap<Cow<'a, str>, Kind<'a, K>>);

impl<'a, K: Ord + Copy> Kinds<'a, K> {
    fn add(&mut self, object: &'a str, line: u64, field: &'a str, place: K, waits: Waits) {
        let none = || Kind { lines: BTreeSet::new(), fields: BTreeMap::new() };
        let kind = self.0.entry(kind_of_all(object)).or_insert_with(none);
        kind.lines.insert(line);
        *kind.fields.entry(field_of_all(field)).or_default().entry(place).or_default() += waits;
    }

    /// Returns the sums. `told` returns the function and the location of a place.
    fn finish(self, told: impl Fn(K) -> (String, String)) -> Vec<Objects> {
        let kind = |(name, kind): (Cow<'a, str>, Kind<'a, K>)| kind.finish(name.into_owned(), &told);
        hottest(self.0.into_iter().map(kind).collect())
    }
}

impl<K: Ord + Copy> Kind<'_, K> {
    fn finish(self, object: String, told: &impl Fn(K) -> (String, String)) -> Objects {
        let mut waits = Waits::default();
        let mut fields = Vec::with_capacity(self.fields.len());
        for (field, places) in self.fields {
            let mut of_field = Waits::default();
            places.values().for_each(|&waits| of_field += waits);
            waits += of_field;
            fields.push((field, places, of_field));
        }
        fields.sort_by(|(.., a), (.., b)| b.cycles.total_cmp(&a.cycles));
        fields.truncate(FIELDS_KEPT);
        let field = |(field, places, waits): (Cow<'_, str>, BTreeMap<K, Waits>, Waits)| {
            let (function, location, cycles) = longest(&places, told);
            let share = if waits.cycles > 0.0 { cycles / waits.cycles } else { 0.0 };
            FieldOfAll { field: field.into_owned(), waits, function, location, share }
        };
        let fields = fields.into_iter().map(field).collect();
        Objects { object, lines: self.lines.len() as u64, waits, fields }
    }
}

/// Returns the function that waited longest in all its places together, the place where it waited
/// longest, and the cycles of the function. Where the function is not known, each place is one.
fn longest<K: Copy>(places: &BTreeMap<K, Waits>, told: &impl Fn(K) -> (String, String)) -> (String, String, f64) {
    /// A function's cycles, its longest place, and the cycles there.
    type Function = (f64, String, f64);
    let mut functions: BTreeMap<(String, Option<String>), Function> = BTreeMap::new();
    for (&place, waits) in places {
        let (function, location) = told(place);
        let apart = (function == UNKNOWN).then(|| location.clone());
        let (cycles, longest, most) =
            functions.entry((function, apart)).or_insert_with(|| (0.0, location.clone(), 0.0));
        *cycles += waits.cycles;
        if waits.cycles > *most {
            (*longest, *most) = (location, waits.cycles);
        }
    }
    let longest = functions.into_iter().max_by(|(_, (a, ..)), (_, (b, ..))| a.total_cmp(b));
    longest.map_or_else(Default::default, |((function, _), (cycles, location, _))| (function, location, cycles))
}

/// Returns the kinds with the longest waits, the longest first.
#[must_use]
pub fn hottest(mut all: Vec<Objects>) -> Vec<Objects> {
    all.sort_by(|a, b| b.waits.cycles.total_cmp(&a.waits.cycles));
    all.truncate(KINDS_KEPT);
    all
}

/// Sums `lines` that a machine counted, by kind of object.
#[must_use]
pub fn of_results<'a>(
    results: &Results,
    lines: impl IntoIterator<Item = &'a LineResult>,
    functions: &Functions,
) -> Vec<Objects> {
    let mut kinds: Kinds<'_, &Place> = Kinds(BTreeMap::new());
    for line in lines {
        for access in line.accesses.iter().filter(|access| access.missed.is_some()) {
            let misses = access.misses();
            let waits = Waits { misses: misses.count(), hitm: misses.hitm, cycles: results.cycles(misses.wait) };
            kinds.add(&line.object, line.address, &access.field, &access.place, waits);
        }
    }
    kinds.finish(|place| functions.told(place))
}

/// Sums waits by kind of object.
#[must_use]
pub fn of_waits(waits: &[Wait]) -> Vec<Objects> {
    let mut kinds: Kinds<'_, (&str, &str)> = Kinds(BTreeMap::new());
    for Wait { object, line, field, function, location, waits } in waits {
        kinds.add(object, *line, field, (function, location), *waits);
    }
    kinds.finish(|(function, location)| (function.to_owned(), location.to_owned()))
}

/// Returns an object's name without the number of the block: all blocks that one line makes are of
/// one type.
#[must_use]
pub fn without_number(object: &str) -> &str {
    object.rsplit_once(" #").filter(|(_, number)| is_number(number)).map_or(object, |(kind, _)| kind)
}

/// Returns the name of an object without what tells it from others of its kind: the number of a
/// block of the heap or of a thread, or an address.
pub(crate) fn kind_of_all(object: &str) -> Cow<'_, str> {
    let name = without_number(object);
    if let Some((of, rest)) = name.split_once(" of thread ") {
        let number = rest.split(' ').next().unwrap_or_default();
        if is_number(number) {
            return format!("{of} of a thread{}", &rest[number.len()..]).into();
        }
    }
    if name.starts_with("memory at 0x") { "other memory".into() } else { name.into() }
}

/// Returns the name of a field with `[]` in place of the index of each array. Of memory without a
/// type, the bytes behind the first ones have one name.
fn field_of_all(field: &str) -> Cow<'_, str> {
    let byte = field.strip_prefix(['+', '-']).and_then(|byte| byte.parse::<u64>().ok());
    match byte {
        Some(byte) if byte >= BYTES => format!("{}{BYTES} and beyond", &field[..1]).into(),
        _ if field.contains('[') => with_index(field, "").into(),
        _ => field.into(),
    }
}

/// Returns whether a kind that would be shown has more lines than the lines that are `shown` below.
#[must_use]
pub(crate) fn say_more(all: &[Objects], shown: usize) -> bool {
    all.iter().take(shown.min(KINDS_SHOWN)).any(|objects| objects.lines > shown as u64)
}

/// Renders the kinds with the longest waits, no more than `lines`. `cycles` are what all CPUs
/// waited for all lines.
#[must_use]
pub(crate) fn render(all: &[Objects], lines: usize, cycles: f64) -> String {
    let mut columns = Columns::new(&[
        ("objects\nfield, function", Align::Left),
        ("waits\n[%]", Align::Right),
        ("cycles\nper miss", Align::Right),
        ("HITMs", Align::Right),
        ("misses", Align::Right),
        ("lines", Align::Right),
    ]);
    let row = |name: String, waits: Waits, lines: String| {
        let misses = waits.misses as f64;
        let per_miss = short(waits.cycles / misses.max(1.0));
        vec![name, percent(waits.cycles, cycles), per_miss, short(waits.hitm.both() as f64), short(misses), lines]
    };
    let shown = &all[..all.len().min(lines).min(KINDS_SHOWN)];
    for objects in shown {
        columns.row(row(shortened(&objects.object, NAME_MAX), objects.waits, short(objects.lines as f64)));
        for field in objects.fields.iter().take(objects.fields_shown()) {
            columns.row(row(field.shown(), field.waits, String::new()));
        }
    }
    let mut text = columns.render(usize::MAX);
    let rest = cycles - shown.iter().map(|objects| objects.waits.cycles).sum::<f64>();
    if rest >= REST_MIN * cycles {
        text.push_str(&format!("everything else: {} % of the waits\n", percent(rest, cycles)));
    }
    text
}

/// Leaves of a run's kinds what is shown, in the order of their waits.
pub(crate) fn keep_shown(all: &mut Vec<Objects>) {
    all.truncate(KINDS_SHOWN);
    all.iter_mut().for_each(|objects| objects.fields.truncate(objects.fields_shown()));
}

impl Objects {
    /// Returns how many of the fields are shown: they are in the order of their waits.
    fn fields_shown(&self) -> usize {
        let is_shown = |field: &&FieldOfAll| field.waits.cycles >= FIELD_SHARE_MIN * self.waits.cycles;
        self.fields.iter().take(FIELDS_SHOWN).take_while(is_shown).count()
    }
}

impl FieldOfAll {
    /// Returns the name and the function, or the place where the function's name is not known.
    fn shown(&self) -> String {
        const INDENT: &str = "  ";
        const BETWEEN: &str = ", ";
        let function = if self.function == UNKNOWN { &self.location } else { &self.function };
        let room = NAME_MAX - INDENT.len() - BETWEEN.len();
        let field = shortened(&self.field, FIELD_MIN.max(room.saturating_sub(function.chars().count())));
        let function = shortened(function, room - field.chars().count());
        format!("{INDENT}{field}{BETWEEN}{function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_kind_have_one_name() {
        let names = [
            ("node of push list.c:7 #12", "node of push list.c:7"),
            ("node of push list.c:7", "node of push list.c:7"),
            ("issue #12b", "issue #12b"),
            ("own of thread 3", "own of a thread"),
            ("stack of thread 12 in main", "stack of a thread in main"),
            ("spool of thread count", "spool of thread count"),
            ("memory at 0x7fff10", "other memory"),
            ("root_domain", "root_domain"),
        ];
        for (object, kind) in names {
            assert_eq!(kind_of_all(object), kind);
        }
    }

    #[test]
    fn elements_of_an_array_are_one_field() {
        let names = [
            ("count", "count"),
            ("tasks[7].next[0]", "tasks[].next[]"),
            ("[114].0", "[].0"),
            ("map[key]", "map[key]"),
            ("odd[", "odd["),
        ];
        for (field, name) in names {
            assert_eq!(field_of_all(field), name);
        }
    }

    fn wait(object: &str, line: u64, field: &str, function: &str, location: &str, cycles: f64) -> Wait {
        let [object, field, function, location] = [object, field, function, location].map(str::to_owned);
        let waits = Waits { misses: 2, hitm: Hitm { local: 1, remote: 0 }, cycles };
        Wait { object, line, field, function, location, waits }
    }

    #[test]
    fn waits_are_summed_by_kind_and_the_longest_function_has_all_its_places() {
        let all = of_waits(&[
            wait("node of push l.c:7 #1", 0x40, "next", "pop", "l.c:9", 40.0),
            wait("node of push l.c:7 #2", 0x80, "next", "push", "l.c:3", 30.0),
            wait("node of push l.c:7 #2", 0x80, "next", "push", "l.c:4", 35.0),
            // Two objects share a line: it counts for each of the kinds.
            wait("node of push l.c:7 #2", 0x80, "slots[3]", "pop", "l.c:9", 5.0),
            wait("stop", 0x80, "stop", UNKNOWN, "0x40:0", 7.0),
        ]);
        let [nodes, stop] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((nodes.object.as_str(), nodes.lines, nodes.waits.misses), ("node of push l.c:7", 2, 8));
        assert_eq!((nodes.waits.cycles, nodes.waits.hitm.local), (110.0, 4));
        let told = |field: &FieldOfAll| (field.field.clone(), field.waits.cycles, field.shown());
        assert_eq!(told(&nodes.fields[0]), ("next".to_owned(), 105.0, "  next, push".to_owned()));
        assert_eq!((nodes.fields[0].location.as_str(), nodes.fields[0].share), ("l.c:4", 65.0 / 105.0));
        assert_eq!(told(&nodes.fields[1]), ("slots[]".to_owned(), 5.0, "  slots[], pop".to_owned()));
        assert_eq!((stop.lines, stop.fields[0].shown().as_str()), (1, "  stop, 0x40:0"));
    }

    #[test]
    fn long_names_fit_80_columns_and_the_rest_is_told() {
        let long = |letter: &str| letter.repeat(60);
        let waits: Vec<Wait> = ["a", "b", "c"]
            .into_iter()
            .map(|letter| wait(&long(letter), 0x40, &long("field"), &long("function"), "l.c:1", 1e6))
            .collect();
        let all = of_waits(&waits);
        let text = render(&all, 2, 4e6);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.ends_with("\neverything else: 50.0 % of the waits\n"), "{text}");
        assert!(!render(&all, 3, 3e6).contains("everything else"), "there is nothing else");
    }
}
