//! Places in the source, as small numbers.

use std::panic::Location;

use rustc_hash::FxHashMap;

/// A place in the source.
pub(crate) type SiteId = u32;

/// All places seen, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    by_pointer: FxHashMap<usize, SiteId>,
    by_place: FxHashMap<(&'static str, u32, u32), SiteId>,
    places: Vec<&'static Location<'static>>,
}

impl Sites {
    /// The number of a place. One place may have several addresses: one in each unit that it was compiled into.
    pub(crate) fn id(&mut self, place: &'static Location<'static>) -> SiteId {
        let pointer = std::ptr::from_ref(place).addr();
        if let Some(&id) = self.by_pointer.get(&pointer) {
            return id;
        }
        let next = self.places.len() as SiteId;
        let id = *self.by_place.entry((place.file(), place.line(), place.column())).or_insert(next);
        if id == next {
            self.places.push(place);
        }
        self.by_pointer.insert(pointer, id);
        id
    }

    /// The place of a number.
    pub(crate) fn place(&self, id: SiteId) -> &'static Location<'static> {
        self.places[id as usize]
    }
}
