//! Exact records: how often each place in the source touched each byte, what it waited, and who had taken the line.
//!
//! An *access* is a place in the source touching a field of an object with one kind of operation. Hits are counted;
//! misses keep their waits as a histogram, the distance, and the thief.

use std::panic::Location;

use rustc_hash::FxHashMap;

use crate::coherence::{AccessId, Distance, Kind, Miss, NO_ACCESS};
use crate::histogram::Histogram;
use crate::site::{SiteId, Sites};

/// Entries of the cache in front of the table of accesses; a power of two. The working set of a contended run is a few
/// hundred accesses to hot lines, and many to each CPU's own.
const CACHE: usize = 1 << 14;

/// One access, packed: who touches what, how.
///
/// | bits | what |
/// |---|---|
/// | 0 to 1 | the kind |
/// | 2 to 7 | the byte in the line |
/// | 8 to 31 | the place in the source |
/// | 32 to 63 | the line |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    fn new(line: u32, site: SiteId, offset: u8, kind: Kind) -> Self {
        debug_assert!(site < 1 << 24, "more places than a key has bits for");
        Self(u64::from(line) << 32 | u64::from(site) << 8 | u64::from(offset) << 2 | kind as u64)
    }
}

/// What is known of one access.
#[derive(Clone, Debug)]
pub(crate) struct AccessRecord {
    pub(crate) line: u32,
    pub(crate) offset: u8,
    pub(crate) kind: Kind,
    pub(crate) site: SiteId,
    pub(crate) misses: u64,
    /// Misses answered by a core that had modified the line, in this package and in others.
    pub(crate) hitm_local: u64,
    pub(crate) hitm_remote: u64,
    /// Grants that took the line from other cores.
    pub(crate) transfers: u64,
    /// Picoseconds waited by misses, and the part of it that was booked as kernel time.
    pub(crate) wait: u64,
    pub(crate) kernel_wait: u64,
    /// Picoseconds waited by the HITMs, in this package and in others.
    pub(crate) hitm_local_wait: u64,
    pub(crate) hitm_remote_wait: u64,
    pub(crate) waits: Histogram,
    pub(crate) distances: [u64; Distance::ALL.len()],
    /// The CPUs that missed, 64 a word.
    cpus: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    site: usize,
    address: usize,
    kind: Kind,
    id: AccessId,
}

impl AccessRecord {
    /// How many CPUs missed.
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus.iter().map(|word| word.count_ones()).sum()
    }
}

/// All accesses of a machine.
#[derive(Debug)]
pub(crate) struct Records {
    sites: Sites,
    by_key: FxHashMap<Key, AccessId>,
    table: Vec<AccessRecord>,
    /// Hits of each access: apart from the table, whose entries are large and seldom touched.
    hits: Vec<u64>,
    cache: Box<[Cached]>,
    /// Victim and thief: how often, and picoseconds waited.
    thefts: FxHashMap<(AccessId, AccessId), (u64, u64)>,
}

impl Records {
    pub(crate) fn new() -> Self {
        let empty = Cached { site: 0, address: 0, kind: Kind::Load, id: NO_ACCESS };
        Self {
            sites: Sites::default(),
            by_key: FxHashMap::default(),
            table: Vec::new(),
            hits: Vec::new(),
            cache: vec![empty; CACHE].into(),
            thefts: FxHashMap::default(),
        }
    }

    /// The number of an access. The cache's index depends on where the host put things, the result does not.
    #[inline]
    pub(crate) fn identify(
        &mut self,
        site: &'static Location<'static>,
        address: usize,
        line: u32,
        kind: Kind,
    ) -> AccessId {
        let pointer = std::ptr::from_ref(site).addr();
        let slot = (pointer / 8 ^ address / 4 ^ address / 256 ^ kind as usize) % CACHE;
        let cached = &self.cache[slot];
        if cached.site == pointer && cached.address == address && cached.kind == kind {
            return cached.id;
        }
        self.identify_anew(site, address, line, kind, slot)
    }

    #[cold]
    fn identify_anew(
        &mut self,
        site: &'static Location<'static>,
        address: usize,
        line: u32,
        kind: Kind,
        slot: usize,
    ) -> AccessId {
        let offset = (address % hitm_memory::LINE) as u8;
        let site_id = self.sites.id(site);
        let key = Key::new(line, site_id, offset, kind);
        let next = self.table.len() as AccessId;
        let id = *self.by_key.entry(key).or_insert(next);
        if id == next {
            self.hits.push(0);
            self.table.push(AccessRecord {
                line,
                offset,
                kind,
                site: site_id,
                misses: 0,
                hitm_local: 0,
                hitm_remote: 0,
                transfers: 0,
                wait: 0,
                kernel_wait: 0,
                hitm_local_wait: 0,
                hitm_remote_wait: 0,
                waits: Histogram::default(),
                distances: [0; Distance::ALL.len()],
                cpus: Vec::new(),
            });
        }
        self.cache[slot] = Cached { site: std::ptr::from_ref(site).addr(), address, kind, id };
        id
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn hit(&mut self, id: AccessId) {
        self.hits[id as usize] += 1;
    }

    /// Counts a miss that waited `wait`.
    pub(crate) fn miss(&mut self, id: AccessId, cpu: u32, miss: &Miss, wait: u64, kernel: bool) {
        let record = &mut self.table[id as usize];
        let word = cpu as usize / 64;
        if word >= record.cpus.len() {
            record.cpus.resize(word + 1, 0);
        }
        record.cpus[word] |= 1 << (cpu % 64);
        record.misses += 1;
        record.wait += wait;
        record.kernel_wait += if kernel { wait } else { 0 };
        record.waits.record(wait);
        record.distances[miss.distance as usize] += 1;
        if miss.dirty {
            match miss.distance {
                Distance::OtherPackage => {
                    record.hitm_remote += 1;
                    record.hitm_remote_wait += wait;
                }
                _ => {
                    record.hitm_local += 1;
                    record.hitm_local_wait += wait;
                }
            }
        }
        if record.kind.is_write() && miss.distance.is_cache() {
            record.transfers += 1;
        }
        if miss.thief != NO_ACCESS {
            let theft = self.thefts.entry((id, miss.thief)).or_default();
            *theft = (theft.0 + 1, theft.1 + wait);
        }
    }

    /// Forgets what was counted; the numbers of accesses stay.
    pub(crate) fn reset(&mut self) {
        for record in &mut self.table {
            (record.misses, record.hitm_local, record.hitm_remote) = (0, 0, 0);
            (record.transfers, record.wait, record.kernel_wait) = (0, 0, 0);
            (record.hitm_local_wait, record.hitm_remote_wait) = (0, 0);
            record.distances = [0; Distance::ALL.len()];
            record.waits = Histogram::default();
            record.cpus.clear();
        }
        self.hits.fill(0);
        self.thefts.clear();
    }

    /// How often an access found its line.
    pub(crate) fn hits(&self, id: AccessId) -> u64 {
        self.hits[id as usize]
    }

    pub(crate) fn table(&self) -> &[AccessRecord] {
        &self.table
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Victim, thief, times, picoseconds; in the order of victim and thief.
    pub(crate) fn thefts(&self) -> Vec<(AccessId, AccessId, u64, u64)> {
        let theft = |(&(victim, thief), &(times, wait)): (&(u32, u32), &(u64, u64))| (victim, thief, times, wait);
        let mut thefts: Vec<_> = self.thefts.iter().map(theft).collect();
        thefts.sort_unstable();
        thefts
    }
}
