//! Variables of functions that are in the middle of a call, by DWARF: those that lie at a known
//! distance from the function's frame.

use gimli::{AttributeValue, BaseAddresses, Dwarf, Operation, Unit, UnitOffset, UnwindSection};
use object::{Object, ObjectSection};

use super::names::{Bytes, is_rust, text};
use super::rust_names::Brief;
use super::types::type_of;

/// Names within names, at most: a variable of an inlined function refers to its definition.
const ORIGINS: usize = 3;

/// A variable: where it begins, below or above the frame's end, its name and its type.
pub(super) struct Local {
    pub(super) start: i64,
    pub(super) name: String,
    /// The function whose it is, if that was inlined.
    pub(super) inlined: Option<String>,
    pub(super) type_at: UnitOffset,
}

/// How far above its frame pointer a function's frame ends, at one place of its code, as the
/// unwinding information of the file has it; `None` where it is not told by the frame pointer.
pub(super) fn end_of_frame(file: &object::File<'_>, address: u64) -> Option<i64> {
    let section = file.section_by_name(".eh_frame")?;
    let data = section.uncompressed_data().ok()?;
    let frame = gimli::EhFrame::new(&data, gimli::LittleEndian);
    let start = |name| file.section_by_name(name).map_or(0, |section| section.address());
    let bases =
        BaseAddresses::default().set_eh_frame(section.address()).set_text(start(".text")).set_got(start(".got"));
    let mut context = gimli::UnwindContext::new();
    let row = frame.unwind_info_for_address(&bases, &mut context, address, gimli::EhFrame::cie_from_offset).ok()?;
    match row.cfa() {
        gimli::CfaRule::RegisterAndOffset { register: gimli::X86_64::RBP, offset } => Some(*offset),
        _ => None,
    }
}

/// The variables of the function at `function` that have a place in its frame all the time, with
/// those of blocks and of functions that were inlined into it. `end` is how far above the frame
/// pointer the frame ends.
pub(super) fn locals(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    function: UnitOffset,
    end: i64,
    brief: &Brief,
) -> Vec<Local> {
    let mut locals = Vec::new();
    let Some(base) = unit.entry(function).ok().and_then(|entry| base_of(unit, &entry, end)) else { return locals };
    let Ok(mut entries) = unit.entries_at_offset(function) else { return locals };
    let mut depth = 0_isize;
    let mut is_first = true;
    // By depth: the inlined function that an entry is in.
    let mut inlined: Vec<Option<String>> = Vec::new();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if is_first {
            (depth, is_first) = (entry.depth(), false);
            continue;
        }
        if entry.depth() <= depth {
            break;
        }
        inlined.truncate((entry.depth() - depth - 1) as usize);
        let is_inlined = entry.tag() == gimli::DW_TAG_inlined_subroutine;
        let own = is_inlined.then(|| function_name(dwarf, unit, entry, brief)).flatten();
        inlined.push(own.or_else(|| inlined.last().cloned().flatten()));
        if !matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter) {
            continue;
        }
        let Some(within) = entry.attr_value(gimli::DW_AT_location).and_then(|place| in_frame(unit, &place)) else {
            continue;
        };
        if let Some((name, type_at)) = named(dwarf, unit, entry) {
            let inlined = inlined.last().cloned().flatten();
            locals.push(Local { start: base + within, name, inlined, type_at });
        }
    }
    locals
}

/// The name of an inlined function, as the language has it.
fn function_name(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    entry: &gimli::DebuggingInformationEntry<Bytes>,
    brief: &Brief,
) -> Option<String> {
    let mut entry = entry.clone();
    let mut plain = None;
    for _ in 0..=ORIGINS {
        let of = |name| entry.attr_value(name).and_then(|name| text(dwarf, unit, name));
        if let Some(linked) = of(gimli::DW_AT_linkage_name) {
            let name = addr2line::demangle_auto(linked.into(), None);
            return Some(if is_rust(unit) { brief.function(&name) } else { name.into_owned() });
        }
        plain = plain.or_else(|| of(gimli::DW_AT_name));
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
        let Some(AttributeValue::UnitRef(at)) = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification)) else {
            break;
        };
        entry = unit.entry(at).ok()?;
    }
    plain
}

/// Where a function counts the places of its variables from, relative to the frame pointer.
fn base_of(unit: &Unit<Bytes>, function: &gimli::DebuggingInformationEntry<Bytes>, end: i64) -> Option<i64> {
    let AttributeValue::Exprloc(expression) = function.attr_value(gimli::DW_AT_frame_base)? else { return None };
    let mut operations = expression.operations(unit.encoding());
    match operations.next().ok()?? {
        Operation::CallFrameCFA => Some(end),
        Operation::Register { register: gimli::X86_64::RBP } => Some(0),
        _ => None,
    }
}

/// The distance of a variable from there, if that is all that its place is.
fn in_frame(unit: &Unit<Bytes>, place: &AttributeValue<Bytes>) -> Option<i64> {
    let AttributeValue::Exprloc(expression) = place else { return None };
    let mut operations = expression.clone().operations(unit.encoding());
    let Operation::FrameOffset { offset } = operations.next().ok()?? else { return None };
    operations.next().ok()?.is_none().then_some(offset)
}

/// Name and type of a variable, which may be those of the function that was inlined.
fn named(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    entry: &gimli::DebuggingInformationEntry<Bytes>,
) -> Option<(String, UnitOffset)> {
    let mut entry = entry.clone();
    for _ in 0..ORIGINS {
        let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
        if let Some(found) = name.zip(type_of(&entry)) {
            return Some(found);
        }
        let Some(AttributeValue::UnitRef(origin)) = entry.attr_value(gimli::DW_AT_abstract_origin) else { return None };
        entry = unit.entry(origin).ok()?;
    }
    None
}
