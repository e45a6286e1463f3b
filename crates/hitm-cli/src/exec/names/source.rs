//! Where the source defines a structure and its members.

use std::path::PathBuf;

use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

use super::super::types::{DEPTH, members, name_of_member};
use super::{Bytes, Names, text, type_of};

/// A structure in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) file: PathBuf,
    /// Names and lines of its members, from 1.
    pub(crate) members: Vec<(String, usize)>,
}

impl Names {
    /// Returns the definition of the structure that a variable at `address`, or else a type, is of
    /// or has arrays of; with `member`, of the structure that this member of it is or has arrays
    /// of.
    pub(crate) fn definition(&self, address: u64, type_name: &str, member: Option<&str>) -> Option<Definition> {
        let variable = self.variables.get(&address.wrapping_add(self.first));
        let by_name = || self.types.iter().find(|own| own.name == type_name).map(|own| (own.unit, own.type_at));
        let (unit, type_at) = variable.map(|variable| (variable.unit, variable.type_at)).or_else(by_name)?;
        let (dwarf, unit) = (self.dwarf.as_ref()?, &self.units[unit]);
        let structure = structure(unit, type_at)?;
        match member {
            None => defined(dwarf, unit, structure),
            Some(member) => {
                let found = members(dwarf, unit, structure);
                let (.., type_at) = found.into_iter().find(|(name, ..)| name.as_deref() == Some(member))?;
                defined(dwarf, unit, self::structure(unit, type_at)?)
            }
        }
    }
}

/// Returns the structure that a type is, is another name for, or has arrays of.
fn structure(unit: &Unit<Bytes>, mut at: UnitOffset) -> Option<UnitOffset> {
    for _ in 0..DEPTH {
        let entry = unit.entry(at).ok()?;
        if matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type) {
            return Some(at);
        }
        if entry.tag() == gimli::DW_TAG_pointer_type {
            return None;
        }
        at = type_of(&entry)?;
    }
    None
}

fn line_of(entry: &DebuggingInformationEntry<Bytes>) -> Option<usize> {
    entry.attr_value(gimli::DW_AT_decl_line)?.udata_value().map(|line| line as usize)
}

fn defined(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>, at: UnitOffset) -> Option<Definition> {
    let file = file_of(dwarf, unit, &unit.entry(at).ok()?)?;
    let mut members = Vec::new();
    let mut tree = unit.entries_tree(Some(at)).ok()?;
    let mut children = tree.root().ok()?.children();
    while let Ok(Some(child)) = children.next() {
        let entry = child.entry();
        let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(dwarf, unit, name));
        let name = name.map(|name| name_of_member(unit, name));
        if entry.tag() == gimli::DW_TAG_member
            && let (Some(name), Some(line)) = (name, line_of(entry))
        {
            members.push((name, line));
        }
    }
    (!members.is_empty()).then_some(Definition { file, members })
}

pub(super) fn file_of(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    entry: &DebuggingInformationEntry<Bytes>,
) -> Option<PathBuf> {
    let index = match entry.attr_value(gimli::DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let mut path = PathBuf::new();
    if let Some(folder) = &unit.comp_dir {
        path.push(gimli::Reader::to_string_lossy(folder).ok()?.as_ref());
    }
    if let Some(folder) = file.directory(header) {
        path.push(text(dwarf, unit, folder)?);
    }
    path.push(text(dwarf, unit, file.path_name())?);
    Some(path)
}
