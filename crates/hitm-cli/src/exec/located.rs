//! Where a program's objects are, and their fields: what `hitm advise` needs to try a layout.

use std::collections::BTreeMap;

use hitm_report::rules::{Layout, Spot};

use super::names::source::Definition;
use super::told::{Known, Told};

/// An object of a program.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Its name, size and fields, as the run's lines name them.
    pub(crate) layout: Layout,
    /// Where the variable begins; 0 for a block of the heap.
    pub(crate) address: u64,
    /// Of a block: the code that asked for it, or a caller of that.
    pub(crate) pc: u64,
    /// The structure that it is, or has arrays of.
    pub(crate) definition: Option<Definition>,
    /// The same of its members.
    pub(crate) of_members: BTreeMap<String, Definition>,
}

/// Larger objects keep their layouts: naming each byte takes too long.
const BYTES_MAX: u64 = 64 << 10;

impl Told {
    /// Returns the variables and blocks of the program that have one of the run's lines, by name,
    /// while the lines have addresses.
    pub(super) fn located(&self, known: &Known) -> BTreeMap<String, Located> {
        let mut found = BTreeMap::new();
        for address in self.touched() {
            let Some((name, start, size, pc)) = self.whole(known, address) else { continue };
            if size > BYTES_MAX || found.contains_key(&name) {
                continue;
            }
            let layout = Layout {
                object: name.clone(),
                size,
                address: Some(start),
                fields: self.spots(known, start, size),
                ..Layout::default()
            };
            let address = if pc == 0 { start } else { 0 };
            let type_name = name.split(" of ").next().unwrap_or(&name);
            let defined = |member: Option<&str>| self.definition(known, address, type_name, member);
            let definition = defined(None);
            let members = definition.iter().flat_map(|own| &own.members);
            let of_members = members.filter_map(|(own, _)| Some((own.clone(), defined(Some(own))?))).collect();
            found.insert(name, Located { layout, address, pc, definition, of_members });
        }
        found
    }

    /// Returns the fields of the object at `start`: runs of bytes of one name. Padding has none.
    fn spots(&self, known: &Known, start: u64, size: u64) -> Vec<Spot> {
        let mut spots: Vec<Spot> = Vec::new();
        for offset in 0..size {
            let field = self.field_at(known, start + offset);
            let (name, within) =
                field.rsplit_once('+').map_or((field.as_str(), None), |(name, byte)| (name, byte.parse::<u64>().ok()));
            match spots.last_mut() {
                Some(last) if within.is_some() && last.name == name && last.offset + last.bytes == offset => {
                    last.bytes += 1;
                }
                _ if within.is_none() && !name.is_empty() => {
                    spots.push(Spot { name: name.to_owned(), offset, bytes: 1, is_used: true });
                }
                _ => {}
            }
        }
        spots
    }
}
