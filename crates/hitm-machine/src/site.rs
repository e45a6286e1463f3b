//! Places in the source, as small numbers.

use std::panic::Location;

use rustc_hash::FxHashMap;

/// A place in the source.
pub(crate) type SiteId = u32;

/// Entries of the cache in front of the table; a power of two, several times the places of a
/// program.
const CACHE: usize = 1 << 10;

/// All places seen, in the order in which they were first seen.
#[derive(Debug)]
pub(crate) struct Sites {
    /// Address and number of places. Which entry a place has depends on where the host put it, its
    /// number does not.
    cache: Box<[(usize, SiteId)]>,
    by_pointer: FxHashMap<usize, SiteId>,
    by_place: FxHashMap<(&'static str, u32, u32), SiteId>,
    places: Vec<&'static Location<'static>>,
}

impl Default for Sites {
    fn default() -> Self {
        Self {
            cache: vec![(0, 0); CACHE].into(),
            by_pointer: FxHashMap::default(),
            by_place: FxHashMap::default(),
            places: Vec::new(),
        }
    }
}

impl Sites {
    /// The number of a place. One place may have several addresses: one in each unit that it was
    /// compiled into.
    #[inline]
    pub(crate) fn id(&mut self, place: &'static Location<'static>) -> SiteId {
        let pointer = std::ptr::from_ref(place).addr();
        // A place is 24 bytes: neighbours get different entries.
        let entry = pointer / 8 % CACHE;
        let (known, id) = self.cache[entry];
        if known == pointer {
            return id;
        }
        let id = self.find(pointer, place);
        self.cache[entry] = (pointer, id);
        id
    }

    #[cold]
    fn find(&mut self, pointer: usize, place: &'static Location<'static>) -> SiteId {
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
