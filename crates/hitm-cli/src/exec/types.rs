//! Types by DWARF: their sizes, their members, and what C calls a byte of a value.

use gimli::{AttributeValue, Dwarf, Unit, UnitOffset};

use super::names::{Bytes, is_rust, text};

/// The depth of types within types that is followed; deeper ones are not named.
pub(super) const DEPTH: usize = 32;

/// Whether a structure is a wrapper of the language's library around one value, whose own fields
/// say nothing.
pub(super) fn is_wrapper(name: &str) -> bool {
    let of_rust = ["Atomic<", "UnsafeCell<", "Cell<", "SyncUnsafeCell<", "atomic<"];
    let integer = name.strip_prefix("Atomic").map(|rest| rest.trim_start_matches(['I', 'U']));
    of_rust.iter().any(|begin| name.starts_with(begin))
        || integer.is_some_and(|rest| matches!(rest, "8" | "16" | "32" | "64" | "128" | "size" | "Bool" | "Ptr"))
}

/// The type of the value whose bytes a structure of C++'s library keeps: `make_shared` and the
/// nodes of maps and lists have such buffers.
pub(super) fn kept_in_buffer(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, at: UnitOffset) -> Option<UnitOffset> {
    let name = text(dwarf, unit, unit.entry(at).ok()?.attr_value(gimli::DW_AT_name)?)?;
    if !["__aligned_buffer<", "__aligned_membuf<"].iter().any(|begin| name.starts_with(begin)) {
        return None;
    }
    let mut tree = unit.entries_tree(Some(at)).ok()?;
    let mut children = tree.root().ok()?.children();
    while let Ok(Some(child)) = children.next() {
        if child.entry().tag() == gimli::DW_TAG_template_type_parameter {
            return type_of(child.entry());
        }
    }
    None
}

fn number(value: Option<AttributeValue<Bytes>>) -> Option<u64> {
    value?.udata_value()
}

/// The type of what an entry describes.
pub(super) fn type_of(entry: &gimli::DebuggingInformationEntry<Bytes>) -> Option<UnitOffset> {
    match entry.attr_value(gimli::DW_AT_type)? {
        AttributeValue::UnitRef(at) => Some(at),
        _ => None,
    }
}

/// The size of a type, in bytes.
pub(super) fn size_of_type(unit: &Unit<Bytes>, at: UnitOffset, depth: usize) -> Option<u64> {
    let entry = unit.entry(at).ok()?;
    if let Some(size) = number(entry.attr_value(gimli::DW_AT_byte_size)) {
        return Some(size);
    }
    if depth == DEPTH {
        return None;
    }
    let inner = type_of(&entry).and_then(|inner| size_of_type(unit, inner, depth + 1));
    if entry.tag() == gimli::DW_TAG_array_type {
        Some(inner? * counts(unit, at).iter().product::<u64>())
    } else {
        inner
    }
}

/// The numbers of elements of an array, by dimension.
pub(super) fn counts(unit: &Unit<Bytes>, at: UnitOffset) -> Vec<u64> {
    let mut counts = Vec::new();
    let Ok(mut tree) = unit.entries_tree(Some(at)) else { return counts };
    let Ok(root) = tree.root() else { return counts };
    let mut children = root.children();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        if entry.tag() == gimli::DW_TAG_subrange_type {
            let count = number(entry.attr_value(gimli::DW_AT_count));
            let last = number(entry.attr_value(gimli::DW_AT_upper_bound));
            counts.push(count.or(last.map(|last| last.wrapping_add(1))).unwrap_or(0));
        }
    }
    counts
}

/// A member as the language names it: Rust's compiler writes `__0` for `.0`.
pub(super) fn name_of_member(unit: &Unit<Bytes>, name: String) -> String {
    let number = name.strip_prefix("__").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    match number {
        Some(number) if !number.is_empty() && is_rust(unit) => number.to_owned(),
        _ => name,
    }
}

/// A member of a structure: name, first byte, type.
pub(super) type Member = (Option<String>, u64, UnitOffset);

pub(super) fn members(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, at: UnitOffset) -> Vec<Member> {
    let mut members = Vec::new();
    let Ok(mut tree) = unit.entries_tree(Some(at)) else { return members };
    let Ok(root) = tree.root() else { return members };
    let mut children = root.children();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        if matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance)
            && let Some(type_at) = type_of(entry)
        {
            let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
            let name = name.map(|name| name_of_member(unit, name));
            let byte = number(entry.attr_value(gimli::DW_AT_data_member_location));
            // A bit field has its first bit.
            let bit = || number(entry.attr_value(gimli::DW_AT_data_bit_offset)).map(|bit| bit / 8);
            let start = byte.or_else(bit).unwrap_or(0);
            members.push((name, start, type_at));
        }
    }
    members
}

/// Appends the path to byte `offset` of a type to `path`.
pub(super) fn walk(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    at: UnitOffset,
    offset: u64,
    path: &mut String,
    depth: usize,
) {
    let Ok(entry) = unit.entry(at) else { return };
    if depth == DEPTH {
        return;
    }
    match entry.tag() {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
            let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
            if offset == 0 && name.is_some_and(|name| is_wrapper(&name)) {
                return;
            }
            if let Some(kept) = kept_in_buffer(dwarf, unit, at) {
                return walk(dwarf, unit, kept, offset, path, depth + 1);
            }
            let inside = |&(_, start, type_at): &Member| {
                let size = size_of_type(unit, type_at, 0).unwrap_or(0);
                (start..start + size).contains(&offset)
            };
            if let Some((name, start, type_at)) = members(dwarf, unit, at).into_iter().find(inside) {
                if let Some(name) = name {
                    path.push('.');
                    path.push_str(&name);
                }
                return walk(dwarf, unit, type_at, offset - start, path, depth + 1);
            }
        }
        gimli::DW_TAG_array_type => {
            let Some(element) = type_of(&entry) else { return };
            let size = size_of_type(unit, element, 0).unwrap_or(0).max(1);
            let counts = counts(unit, at);
            let mut index = offset / size;
            let mut indices = Vec::new();
            for &count in counts.iter().rev() {
                indices.push(index % count.max(1));
                index /= count.max(1);
            }
            for index in indices.iter().rev() {
                path.push_str(&format!("[{index}]"));
            }
            return walk(dwarf, unit, element, offset % size, path, depth + 1);
        }
        gimli::DW_TAG_pointer_type | gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => {}
        _ => {
            // A name or a qualifier of another type.
            if let Some(inner) = type_of(&entry) {
                return walk(dwarf, unit, inner, offset, path, depth + 1);
            }
        }
    }
    if offset > 0 {
        path.push_str(&format!("+{offset}"));
    }
}
