//! Places in the source, as small numbers.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

use rustc_hash::FxHashMap;

/// The code that makes an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A place in the source of code that is generic over the memory.
    Source(&'static Location<'static>),
    /// An address in the code of a [program](crate::program). What made the program's accesses known
    /// turns it into a place.
    Code(usize),
}

impl Site {
    /// What tells it from other sites: code and places lie at different addresses.
    #[inline]
    fn address(self) -> usize {
        match self {
            Self::Source(place) => std::ptr::from_ref(place).addr(),
            Self::Code(address) => address,
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(place) => write!(f, "{}:{}", shorten(place.file()), place.line()),
            Self::Code(address) => write!(f, "{address:#x}"),
        }
    }
}

/// A place in the source.
pub(crate) type SiteId = u32;

/// Entries of the cache in front of the table; a power of two, several times the places of a
/// program.
const CACHE: usize = 1 << 10;

/// All places seen, in the order in which they were first seen.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    /// Address and number of places. Which entry a place has depends on where the host put it, its
    /// number does not.
    cache: Box<[(usize, SiteId)]>,
    by_pointer: FxHashMap<usize, SiteId>,
    by_place: FxHashMap<(&'static str, u32, u32), SiteId>,
    places: Vec<Site>,
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
    pub(crate) fn id(&mut self, site: Site) -> SiteId {
        let pointer = site.address();
        // A place is 24 bytes: neighbours get different entries.
        let entry = pointer / 8 % CACHE;
        let (known, id) = self.cache[entry];
        if known == pointer {
            return id;
        }
        let id = self.find(pointer, site);
        self.cache[entry] = (pointer, id);
        id
    }

    /// Whether the number of a place is at hand.
    #[inline]
    pub(crate) fn knows(&self, site: Site) -> bool {
        let pointer = site.address();
        self.cache[pointer / 8 % CACHE].0 == pointer
    }

    #[cold]
    fn find(&mut self, pointer: usize, site: Site) -> SiteId {
        if let Some(&id) = self.by_pointer.get(&pointer) {
            return id;
        }
        let next = self.places.len() as SiteId;
        let id = match site {
            Site::Source(place) => *self.by_place.entry((place.file(), place.line(), place.column())).or_insert(next),
            Site::Code(_) => next,
        };
        if id == next {
            self.places.push(site);
        }
        self.by_pointer.insert(pointer, id);
        id
    }

    /// The place of a number.
    pub(crate) fn place(&self, id: SiteId) -> Site {
        self.places[id as usize]
    }
}

/// A source file's path from the crate's folder on. What stands before it differs between machines:
/// the path of a workspace's `crates` folder, or of a registry's.
pub(crate) fn shorten(file: &str) -> Cow<'_, str> {
    if let Some((_, registry)) = file.split_once("/registry/src/")
        && let Some((_, file)) = registry.split_once('/')
        && let Some((package, file)) = file.split_once('/')
    {
        return format!("{}/{file}", without_version(package)).into();
    }
    file.rfind("crates/").map_or(file, |start| &file[start + "crates/".len()..]).into()
}

/// The name of the crate in the folder `package` of a registry: `hitm-sched` of
/// `hitm-sched-0.1.0-rc.1`.
fn without_version(package: &str) -> &str {
    let is_version = |&(at, _): &(usize, &str)| {
        package[at + 1..].split_once('.').is_some_and(|(major, _)| major.bytes().all(|digit| digit.is_ascii_digit()))
    };
    package.match_indices('-').find(is_version).map_or(package, |(at, _)| &package[..at])
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn files_are_named_from_their_crates_folder_on() {
        let check = |file, expect: &str| assert_eq!(shorten(file), expect);
        check("crates/hitm-sched/src/wake.rs", "hitm-sched/src/wake.rs");
        check("/anywhere/hitm/crates/hitm-sched/src/wake.rs", "hitm-sched/src/wake.rs");
        check("/anywhere/.cargo/registry/src/index.crates.io-19/hitm-3d-0.1.0-rc.1/src/a/b.rs", "hitm-3d/src/a/b.rs");
        check("src/main.rs", "src/main.rs");
        check("/anywhere/mine/src/main.rs", "/anywhere/mine/src/main.rs");
    }
}
