//! Contended lines: the machine's counters of a line, by field and place, with the names of
//! functions and with means and shares in place of sums.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

use hitm_machine::{
    AccessResult, Distance, Exchange, Exchanged, Hitm, Invalidation, Kind, LineResult, Misses, Place, Results,
};
use hitm_memory::LINE;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::functions::Functions;

/// The cycles of loads that missed, read-modify-writes included.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CyclesPerLoad {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Loads and stores; a read-modify-write is both.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Touched {
    /// Loads, read-modify-writes included.
    pub loads: u64,
    /// Stores, read-modify-writes included.
    pub stores: u64,
}

/// The address of a line, written as a hexadecimal number; unknown in earlier files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(pub Option<u64>);

/// A line of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Line {
    /// The object.
    pub object: String,
    /// The index, where there are several objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The line of the object, from 0.
    pub line: u32,
    /// The address, as a hexadecimal number.
    #[serde(default)]
    #[schemars(with = "String")]
    pub address: Address,
    /// The address of the object's first byte, where that does not start a line; as `address`.
    #[serde(default, skip_serializing_if = "Address::is_unknown")]
    #[schemars(with = "String")]
    pub object_at: Address,
    /// The accesses.
    #[serde(flatten)]
    pub touched: Touched,
    /// Accesses that missed.
    pub misses: u64,
    /// Grants that invalidated other cores' copies.
    pub ownership_transfers: u64,
    /// Misses answered by a core that had modified the line.
    #[serde(flatten)]
    pub hitm: Hitm,
    /// Cycles per load.
    pub cycles_per_load: CyclesPerLoad,
    /// Who took the line from whom, by part of the machine ([`Machine::counted_by`]): the part that
    /// lost its copy, the part that took it, times, and cycles that the loser then waited for it.
    ///
    /// [`Machine::counted_by`]: crate::result::Machine::counted_by
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanged: Vec<(u16, u16, u64, f64)>,
    /// The fields, in order of offset.
    pub fields: Vec<Field>,
}

/// A field of a line.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Field {
    /// Its name.
    pub field: String,
    /// Bytes from the start of the line's object.
    pub offset: u32,
    /// What it belongs to, where that is not the line's object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// As in [`Line`].
    #[serde(flatten)]
    pub hitm: Hitm,
    /// As in [`Line`].
    #[serde(flatten)]
    pub touched: Touched,
    /// The places in the source, the longest waits first.
    pub sites: Vec<Site>,
    /// The stores that invalidated the copy, most frequent first.
    #[serde(alias = "stolen_by")]
    pub invalidated_by: Vec<InvalidatedBy>,
}

/// Another object on a line, and which field of it one is.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Owner {
    /// The object.
    pub object: String,
    /// The name of the field in it.
    pub field: String,
    /// Bytes from its start.
    pub offset: u32,
}

/// A place in the source.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Site {
    /// The function.
    pub function: String,
    /// File and line.
    pub location: String,
    /// Its share of the line's misses.
    pub share: f64,
    /// The kind of access; unknown in earlier files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Accesses that hit.
    #[serde(default)]
    pub hits: u64,
    /// Accesses that missed.
    #[serde(default)]
    pub misses: u64,
    /// As in [`Line`].
    #[serde(flatten)]
    pub hitm: Hitm,
    /// Misses that a cache answered without a modified copy: same package, other package.
    #[serde(default)]
    pub clean: (u64, u64),
    /// Misses that memory answered: same package, other package.
    #[serde(default)]
    pub memory: (u64, u64),
    /// Mean cycles of remote HITMs, local HITMs and all misses.
    #[serde(default)]
    pub cycles: (f64, f64, f64),
    /// CPUs that missed.
    #[serde(default)]
    pub cpus: u32,
    /// The same by part of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus_by_part: Vec<u32>,
    /// The stores that invalidated the copy when this place missed.
    #[serde(default, alias = "stolen_by")]
    pub invalidated_by: Vec<InvalidatedBy>,
}

/// A store or read-modify-write that invalidated copies of a line.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InvalidatedBy {
    /// The field that was written.
    pub field: String,
    /// The function that wrote it.
    pub function: String,
    /// File and line.
    #[serde(default)]
    pub location: String,
    /// Its share of the invalidations.
    pub share: f64,
}

/// The name of a function that is not known.
pub(crate) const UNKNOWN: &str = "-";

impl Address {
    /// Returns whether there is none.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.map_or_else(String::new, |address| format!("{address:#x}")))
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok())))
    }
}

impl Site {
    /// Returns the cycles that all CPUs together waited here.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.misses as f64 * self.cycles.2
    }

    /// Returns whether it reads; so does an access of unknown kind.
    #[must_use]
    pub fn is_load(&self) -> bool {
        self.kind.is_none_or(Kind::is_read)
    }

    /// Returns whether it writes; so does an access of unknown kind.
    #[must_use]
    pub fn is_store(&self) -> bool {
        self.kind.is_none_or(Kind::is_write)
    }
}

impl Line {
    /// Returns the cycles that all CPUs together waited for the line.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.fields.iter().flat_map(|field| &field.sites).map(Site::waited).sum()
    }

    /// Returns the places of the line, each with its field.
    pub fn places(&self) -> impl Iterator<Item = (&Field, &Site)> {
        self.fields.iter().flat_map(|field| field.sites.iter().map(move |site| (field, site)))
    }

    /// Returns the address of the object's first byte, if it is known.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        let of_line = || self.address.0.map(|address| address.wrapping_sub(u64::from(self.line) * LINE as u64));
        self.object_at.0.or_else(of_line)
    }

    /// Returns where a field begins in the line.
    #[must_use]
    pub fn offset_of(&self, field: &Field) -> u64 {
        (self.object_at.0.unwrap_or(0) % LINE as u64 + u64::from(field.offset)) % LINE as u64
    }

    /// Returns the line as each of its objects has it: with the fields of that object alone, as it
    /// names them. The counts of the whole line stand in each.
    #[must_use]
    pub fn by_object(&self) -> Vec<Cow<'_, Self>> {
        if self.fields.iter().all(|field| field.owner.is_none()) {
            return vec![Cow::Borrowed(self)];
        }
        let own = |field: &Field| field.owner.as_ref().map(|owner| owner.object.clone());
        let objects: BTreeSet<Option<String>> = self.fields.iter().map(own).collect();
        let part = |object: &Option<String>| Cow::Owned(self.part(object.as_deref(), &objects));
        objects.iter().map(part).collect()
    }

    /// The part of it that one of its `objects` has; `None` is its own object.
    fn part(&self, object: Option<&str>, objects: &BTreeSet<Option<String>>) -> Self {
        let mut part = self.clone();
        let is_of = |field: &Field| field.owner.as_ref().map(|owner| owner.object.as_str()) == object;
        part.fields.retain(is_of);
        let Some(object) = object else { return part };
        let Some((first, owner)) = part.fields.first().and_then(|field| Some((field, field.owner.as_ref()?))) else {
            return part;
        };
        let at = self.address.0.and_then(|address| address.checked_add(self.offset_of(first)));
        let start = at.and_then(|at| at.checked_sub(u64::from(owner.offset)));
        let lines = |at: u64| at / LINE as u64;
        part.line = at.zip(start).map_or(owner.offset / LINE as u32, |(at, start)| (lines(at) - lines(start)) as u32);
        part.object_at = Address(start.filter(|start| !start.is_multiple_of(LINE as u64)));
        (part.object, part.index) = (object.to_owned(), None);
        // What is written is named as the line has it.
        let named = |by: &mut InvalidatedBy| {
            let is_others = |other: &String| field_of(other, &by.field).is_some();
            match field_of(object, &by.field) {
                Some("") => by.field = kind_of(object).unwrap_or(object).to_owned(),
                Some(field) => by.field = field.to_owned(),
                None if objects.iter().flatten().any(is_others) => {}
                None => by.field = format!("{}.{}", self.name(), by.field),
            }
        };
        for field in &mut part.fields {
            if let Some(Owner { field: name, offset, .. }) = field.owner.take() {
                (field.field, field.offset) = (name, offset);
            }
            let of_sites = field.sites.iter_mut().flat_map(|site| &mut site.invalidated_by);
            of_sites.chain(&mut field.invalidated_by).for_each(named);
        }
        part
    }

    /// Returns the object's name with its index.
    #[must_use]
    pub fn name(&self) -> String {
        match self.index {
            Some(index) => format!("{}[{index}]", self.object),
            None => self.object.clone(),
        }
    }

    /// Returns a line of `results`, with the names that `functions` has.
    pub(crate) fn of(results: &Results, line: &LineResult, functions: &Functions) -> Self {
        let names = Names { functions, results };
        let mut by_field: BTreeMap<(u32, &str), Vec<&AccessResult>> = BTreeMap::new();
        for access in &line.accesses {
            by_field.entry((access.offset, &access.field)).or_default().push(access);
        }
        let misses = line.misses();
        let (loads, waits) = (line.load_misses(), line.load_waits());
        Self {
            object: line.object.clone(),
            index: line.index,
            line: line.line,
            address: Address(Some(line.address)),
            object_at: Address::default(),
            touched: Touched::of(&line.accesses),
            misses: misses.count(),
            ownership_transfers: misses.transfers,
            hitm: misses.hitm,
            cycles_per_load: CyclesPerLoad {
                mean: names.mean(loads.wait, loads.count()),
                p50: results.cycles(waits.quantile(0.5)),
                p99: results.cycles(waits.quantile(0.99)),
                max: results.cycles(waits.max()),
            },
            exchanged: exchanged(results, &line.exchanged),
            fields: by_field
                .into_iter()
                .map(|((offset, name), accesses)| names.field(line.line * 64 + offset, name, &accesses, misses.count()))
                .collect(),
        }
    }
}

/// Returns exchanges as a list.
pub(crate) fn exchanged(results: &Results, exchanged: &Exchanged) -> Vec<(u16, u16, u64, f64)> {
    let entry = |(&(loser, taker), exchange): (&(u16, u16), &Exchange)| {
        (loser, taker, exchange.times, results.cycles(exchange.wait).round())
    };
    exchanged.iter().map(entry).collect()
}

impl Touched {
    fn of<'a>(accesses: impl IntoIterator<Item = &'a AccessResult>) -> Self {
        let mut touched = Self::default();
        for access in accesses {
            touched.loads += if access.kind.is_read() { access.count() } else { 0 };
            touched.stores += if access.kind.is_write() { access.count() } else { 0 };
        }
        touched
    }
}

impl AddAssign for Touched {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.stores += other.stores;
    }
}

/// Finds names, and divides.
struct Names<'a> {
    functions: &'a Functions,
    results: &'a Results,
}

impl Names<'_> {
    /// Returns the mean in cycles.
    fn mean(&self, picos: u64, count: u64) -> f64 {
        if count == 0 { 0.0 } else { self.results.cycles(picos) / count as f64 }
    }

    fn field(&self, offset: u32, name: &str, accesses: &[&AccessResult], line_misses: u64) -> Field {
        let mut sites: Vec<Site> = accesses.iter().map(|access| self.site(access, line_misses)).collect();
        let order = |site: &Site| (site.location.clone(), site.kind.map(Kind::name));
        sites.sort_by(|a, b| b.misses.cmp(&a.misses).then_with(|| order(a).cmp(&order(b))));
        let missed = accesses.iter().filter_map(|access| access.missed.as_ref());
        Field {
            field: name.to_owned(),
            offset,
            owner: None,
            hitm: accesses.iter().map(|access| access.misses().hitm).sum(),
            touched: Touched::of(accesses.iter().copied()),
            sites,
            invalidated_by: self.invalidated_by(missed.flat_map(|missed| &missed.invalidated_by)),
        }
    }

    fn site(&self, access: &AccessResult, line_misses: u64) -> Site {
        let (function, location) = self.functions.told(&access.place);
        let misses: Misses = access.misses();
        let (count, hitm) = (misses.count(), misses.hitm);
        let missed = access.missed.as_ref();
        Site {
            function,
            location,
            share: count as f64 / line_misses.max(1) as f64,
            kind: Some(access.kind),
            hits: access.hits,
            misses: count,
            hitm,
            clean: misses.clean(self.results.remote),
            memory: (misses.at(Distance::Memory), misses.at(Distance::RemoteMemory)),
            cycles: (
                self.mean(misses.hitm_wait.remote, hitm.remote),
                self.mean(misses.hitm_wait.local, hitm.local),
                self.mean(misses.wait, count),
            ),
            cpus: missed.map_or(0, |missed| missed.cpus),
            cpus_by_part: missed.map_or_else(Vec::new, |missed| missed.cpus_by_part.clone()),
            invalidated_by: self.invalidated_by(missed.iter().flat_map(|missed| &missed.invalidated_by)),
        }
    }

    /// Returns the stores that invalidated the line, by field and place, most frequent first.
    fn invalidated_by<'a>(&self, invalidations: impl Iterator<Item = &'a Invalidation>) -> Vec<InvalidatedBy> {
        let mut by_invalidator: BTreeMap<(&str, &str, u32), (&Place, u64)> = BTreeMap::new();
        for invalidation in invalidations {
            let key = (&*invalidation.field, &*invalidation.place.file, invalidation.place.line);
            by_invalidator.entry(key).or_insert((&invalidation.place, 0)).1 += invalidation.times;
        }
        let all: u64 = by_invalidator.values().map(|(_, times)| times).sum();
        let mut invalidators: Vec<_> = by_invalidator.into_iter().collect();
        invalidators.sort_by(|(a, (_, times)), (b, (_, more))| more.cmp(times).then_with(|| a.cmp(b)));
        let invalidator = |((field, ..), (place, times)): ((&str, &str, u32), (&Place, u64))| {
            let (function, location) = self.functions.told(place);
            InvalidatedBy { field: field.to_owned(), function, location, share: times as f64 / all.max(1) as f64 }
        };
        invalidators.into_iter().map(invalidator).collect()
    }
}

/// Returns the field that a name stands for, if it is `object` or a field of it.
fn field_of<'a>(object: &str, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(object)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('.') }
}

/// Returns what an object of a program is of: `ring` of `ring of main ring.c:30 #2`, and `own` of
/// `own of thread 3`.
pub(crate) fn kind_of(object: &str) -> Option<&str> {
    object.split_once(" of ").map(|(kind, _)| kind)
}

/// Returns whether it is a whole number in figures.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a field's name with `index` in place of each index of an array.
pub(crate) fn with_index(field: &str, index: &str) -> String {
    let mut parts = field.split('[');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        name.push('[');
        match part.split_once(']') {
            Some((own, after)) if is_number(own) => {
                name.push_str(index);
                name.push(']');
                name.push_str(after);
            }
            _ => name.push_str(part),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: u32, owner: Option<(&str, &str, u32)>, by: &str) -> Field {
        let invalidated_by = vec![InvalidatedBy {
            field: by.to_owned(),
            function: "work".to_owned(),
            location: "main.c:1".to_owned(),
            share: 1.0,
        }];
        let owner = owner.map(|(object, field, offset)| Owner { object: object.into(), field: field.into(), offset });
        let (hitm, touched) = Default::default();
        Field { field: name.to_owned(), offset, owner, hitm, touched, sites: Vec::new(), invalidated_by }
    }

    #[test]
    fn each_object_of_a_line_has_its_own_fields() {
        let (one, other) = ("jobs of main main.c:2 #1", "stop of main");
        let line = Line {
            object: "limits".to_owned(),
            index: None,
            line: 1,
            address: Address(Some(0x1040)),
            // Its first byte is in the line before.
            object_at: Address(Some(0x1030)),
            touched: Touched::default(),
            misses: 0,
            ownership_transfers: 0,
            hitm: Hitm::default(),
            cycles_per_load: CyclesPerLoad::default(),
            exchanged: Vec::new(),
            fields: vec![
                field("most", 0x10, None, "jobs of main main.c:2 #1.head"),
                field("jobs of main main.c:2 #1.head", 0x30, Some((one, "head", 0)), "most"),
                field("jobs of main main.c:2 #1.tail", 0x38, Some((one, "tail", 8)), "jobs of main main.c:2 #1.head"),
                field(other, 0x48, Some((other, "stop", 0)), other),
            ],
        };
        assert_eq!(line.fields.iter().map(|field| line.offset_of(field)).collect::<Vec<_>>(), [0, 0x20, 0x28, 0x38]);
        let told = |part: &Line| {
            let fields = part
                .fields
                .iter()
                .map(|own| format!("{} {:#x} by {}", own.field, part.offset_of(own), own.invalidated_by[0].field));
            (part.object.clone(), part.line, part.start(), fields.collect::<Vec<_>>())
        };
        let parts: Vec<_> = line.by_object().iter().map(|part| told(part)).collect();
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            parts,
            [
                ("limits".to_owned(), 1, Some(0x1030), own(&["most 0x0 by jobs of main main.c:2 #1.head"])),
                (one.to_owned(), 0, Some(0x1060), own(&["head 0x20 by limits.most", "tail 0x28 by head"])),
                (other.to_owned(), 0, Some(0x1078), own(&["stop 0x38 by stop"])),
            ]
        );
    }
}
