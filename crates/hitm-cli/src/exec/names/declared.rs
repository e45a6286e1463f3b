//! The variables and structures of a program, as a result file keeps them: rules about fields that
//! nothing waits for any more need to know where these are.

use std::collections::BTreeSet;

use gimli::{Dwarf, Unit, UnitOffset};
use hitm_report::layout::LayoutField;
use hitm_report::result::{Address, Declared};

use super::super::types::{DEPTH, counts, is_wrapper, kept_in_buffer, members, size_of_type};
use super::{Bytes, Names, text, type_of};

/// Structures that are kept, at most: the smallest names first. A program with more is one that
/// compiles large libraries into itself.
const TYPES_MAX: usize = 2_000;

impl Names {
    /// Returns the variables and structures of the file itself, not those of the language's library
    /// and of the system's headers. `base`: where its first byte lies in memory.
    pub(crate) fn declared(&self, base: u64) -> Vec<Declared> {
        let Some(dwarf) = &self.dwarf else { return Vec::new() };
        let of = |name: &str, address: Option<u64>, size: u64, unit: usize, type_at| {
            let unit = &self.units[unit];
            // An array's elements have no name in it: `[3].value`. A word has the variable's name.
            let named = if is_array(unit, type_at) { "" } else { name };
            let own = field(dwarf, unit, named, 0, type_at, 0)?;
            let fields = if named.is_empty() || own.fields.is_empty() { vec![own] } else { own.fields };
            Some(Declared { name: name.to_owned(), address: Address(address), size: size as usize, fields })
        };
        let place = |&start: &u64| Some(start - self.first + base);
        let variables = self.variables.iter().map(|(start, own)| (place(start), own));
        let variables = variables.chain(self.of_threads.values().map(|own| (None, own)));
        // Tables of functions are the compiler's, and never written.
        let variables = variables.filter(|(_, own)| own.is_own && !own.name.ends_with("{vtable}"));
        let mut all: Vec<Declared> =
            variables.filter_map(|(at, own)| of(&own.name, at, own.size, own.unit, own.type_at)).collect();
        let mut seen = BTreeSet::new();
        let mut types: Vec<_> = self.types.iter().filter(|own| own.is_own).collect();
        types.sort_by(|one, other| (&one.name, one.size).cmp(&(&other.name, other.size)));
        types.retain(|own| seen.insert((&own.name, own.size)));
        let is_structure = |own: &Declared| own.fields.iter().any(|field| field.name != own.name);
        let types = types.into_iter().filter_map(|own| of(&own.name, None, own.size, own.unit, own.type_at));
        all.extend(types.filter(is_structure).take(TYPES_MAX));
        all
    }
}

/// Returns the type that a name or a qualifier is of.
fn bare(unit: &Unit<Bytes>, mut at: UnitOffset) -> Option<(UnitOffset, gimli::DwTag)> {
    for _ in 0..DEPTH {
        let entry = unit.entry(at).ok()?;
        match entry.tag() {
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_array_type
            | gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_base_type
            | gimli::DW_TAG_enumeration_type => return Some((at, entry.tag())),
            _ => at = type_of(&entry)?,
        }
    }
    None
}

fn is_array(unit: &Unit<Bytes>, at: UnitOffset) -> bool {
    bare(unit, at).is_some_and(|(_, tag)| tag == gimli::DW_TAG_array_type)
}

/// Returns a value of a type as a field, with the names that [`walk`] gives its bytes.
///
/// [`walk`]: super::super::types::walk
fn field(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    name: &str,
    offset: u64,
    at: UnitOffset,
    depth: usize,
) -> Option<LayoutField> {
    let (at, tag) = bare(unit, at).filter(|_| depth < DEPTH)?;
    if let Some(kept) = kept_in_buffer(dwarf, unit, at) {
        return field(dwarf, unit, name, offset, kept, depth + 1);
    }
    let entry = unit.entry(at).ok()?;
    let size = size_of_type(unit, at, 0)? as usize;
    let own = LayoutField { name: name.to_owned(), offset: offset as usize, size, count: 1, ..LayoutField::default() };
    match tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
            let kind = entry.attr_value(gimli::DW_AT_name).and_then(|kind| text(dwarf, unit, kind));
            let is_word = kind.is_some_and(|kind| is_wrapper(&kind));
            let fields = if is_word { Vec::new() } else { fields_of(dwarf, unit, (at, tag), depth) };
            Some(LayoutField { fields, ..own })
        }
        gimli::DW_TAG_array_type => {
            let element = type_of(&entry)?;
            let inner = field(dwarf, unit, "", 0, element, depth + 1)?;
            let mut size = inner.size * inner.count;
            let mut fields = if is_array(unit, element) { vec![inner] } else { inner.fields };
            // The last index first: a row is an element of the one around it, and has no name.
            for count in counts(unit, at).into_iter().rev() {
                let count = count as usize;
                fields = vec![LayoutField { size, count, fields, ..LayoutField::default() }];
                size *= count;
            }
            let row = fields.pop()?;
            Some(match row.count {
                // An array of one element has an index too.
                1 if !name.is_empty() => LayoutField { fields: vec![row], ..own },
                _ => LayoutField { name: own.name, offset: own.offset, ..row },
            })
        }
        _ => Some(own),
    }
}

/// Returns the members of a structure, those of members without a name among them. Of a union,
/// each byte is of the first member that has it.
fn fields_of(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    (at, tag): (UnitOffset, gimli::DwTag),
    depth: usize,
) -> Vec<LayoutField> {
    let mut fields: Vec<LayoutField> = Vec::new();
    let mut covered = 0;
    for (name, start, type_at) in members(dwarf, unit, at) {
        let Some(own) = field(dwarf, unit, name.as_deref().unwrap_or(""), start, type_at, depth + 1) else { continue };
        let end = own.offset + own.size * own.count;
        let inner = match name {
            Some(_) => vec![own],
            None => {
                let outer = own.offset;
                own.fields.into_iter().map(|field| LayoutField { offset: outer + field.offset, ..field }).collect()
            }
        };
        let is_free = |field: &LayoutField| field.size * field.count > 0 && field.offset >= covered;
        fields.extend(inner.into_iter().filter(is_free));
        if tag == gimli::DW_TAG_union_type {
            covered = covered.max(end);
        }
    }
    fields
}
