//! Exact records: how often each place in the source touched each byte, what it waited, and who had
//! taken the line.
//!
//! An *access* is a place in the source touching a byte of a line with one kind of operation. Hits
//! are counted; misses keep their waits as a histogram, the distance, and the invalidator.
//!
//! Every access of the simulated program comes by here, and what is counted of one is of no use to
//! the next. So an access only leaves a note; notes are counted many at a time, when the host can
//! fetch what they need side by side instead of letting each access wait for it.

use hitm_memory::Operation;
use rustc_hash::FxHashMap;

use crate::coherence::{AccessId, Distance, Grant, Kind, Miss, NO_ACCESS, Request};
use crate::counts::Misses;
use crate::results::{Missed, OperationResult};
use crate::site::{Site, SiteId, Sites};

const NONE: u32 = u32::MAX;

/// Places in the table at first; a power of two.
const PLACES: usize = 1 << 10;

/// Notes that are counted together: enough to fetch side by side, few enough to stay in the host's
/// first cache.
const NOTES: usize = 256;

/// What a line is touched with: the kind in bits 0 and 1, the byte in bits 2 to 7, the place above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u32);

impl Key {
    /// No access.
    const EMPTY: Self = Self(NO_ACCESS);

    fn new(site: SiteId, offset: u8, kind: Kind) -> Self {
        debug_assert!(site < 1 << 23, "more places than a key has bits for");
        Self(site << 8 | u32::from(offset) << 2 | kind as u32)
    }

    fn site(self) -> SiteId {
        self.0 >> 8
    }

    fn offset(self) -> u8 {
        (self.0 >> 2 & 63) as u8
    }

    fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Load,
            1 => Kind::Store,
            _ => Kind::Rmw,
        }
    }
}

/// One access.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Slot {
    line: u32,
    key: Key,
    hits: u32,
    /// Its misses, once it has any.
    record: u32,
}

const _: () = assert!(size_of::<Slot>() == 16, "a slot never lies across two lines of the host");

impl Slot {
    const EMPTY: Self = Self { line: 0, key: Key::EMPTY, hits: 0, record: NONE };
}

/// All accesses, found by line and key: a table with open addresses, at most half full.
#[derive(Debug)]
struct Slots {
    places: Vec<Slot>,
    used: usize,
}

impl Slots {
    fn new() -> Self {
        Self { places: vec![Slot::EMPTY; PLACES], used: 0 }
    }

    /// The place at which the search for an access begins.
    #[inline]
    fn start(&self, line: u32, key: Key) -> usize {
        // Fibonacci hashing: the upper bits of a product with 2^64 over the golden ratio.
        let mixed = (u64::from(line) << 32 | u64::from(key.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (64 - self.places.len().ilog2())) as usize
    }

    /// Where an access is counted.
    #[inline]
    fn of(&mut self, line: u32, key: Key) -> &mut Slot {
        if self.used * 2 >= self.places.len() {
            self.grow();
        }
        let mask = self.places.len() - 1;
        let mut place = self.start(line, key);
        loop {
            let slot = &self.places[place];
            if slot.key == key && slot.line == line {
                break;
            }
            if slot.key == Key::EMPTY {
                self.used += 1;
                (self.places[place].line, self.places[place].key) = (line, key);
                break;
            }
            place = (place + 1) & mask;
        }
        &mut self.places[place]
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Slot::EMPTY; self.places.len() * 2];
        let before = std::mem::replace(self, Self { places: larger, used: 0 });
        for slot in before.places.into_iter().filter(|slot| slot.key != Key::EMPTY) {
            *self.of(slot.line, slot.key) = slot;
        }
    }

    /// Reads where the search for each of `accesses` begins. No read waits for another, so the host
    /// has them under way together.
    fn fetch(&self, accesses: impl Iterator<Item = (u32, Key)>) {
        let read = |(line, key)| self.places[self.start(line, key)].hits;
        std::hint::black_box(accesses.map(read).fold(0, |all, one| all ^ one));
    }
}

/// The misses of one access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// All but the invalidators, which are counted apart.
    pub(crate) missed: Missed,
    /// The CPUs that missed, 64 a word.
    cpus: Vec<u64>,
}

/// A hit that is not counted yet.
#[derive(Clone, Copy, Debug)]
struct HitNote {
    site: Site,
    line: u32,
    offset: u8,
    kind: Kind,
    operation: u8,
}

/// A miss that is not counted yet.
#[derive(Clone, Copy, Debug)]
struct Note {
    line: u32,
    key: Key,
    invalidator: AccessId,
    cpu: u32,
    wait: u64,
    distance: Distance,
    dirty: bool,
    level_3: bool,
    kernel: bool,
    operation: u8,
}

/// Invalidations of a line: whose copy, and who took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Invalidation {
    pub(crate) line: u32,
    pub(crate) victim: AccessId,
    pub(crate) invalidator: AccessId,
}

/// One access, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// Tells it from others of its line.
    pub(crate) id: AccessId,
    /// Where [`Records::at`] finds it.
    pub(crate) place: u32,
    pub(crate) line: u32,
    pub(crate) offset: u8,
    pub(crate) kind: Kind,
    pub(crate) site: SiteId,
    pub(crate) hits: u64,
    pub(crate) record: Option<&'a Record>,
}

/// The operations that the program has begun, and their accesses over all lines.
#[derive(Debug)]
pub(crate) struct Operations {
    /// By number. The first has no name: the accesses outside any operation.
    all: Vec<(Option<Operation>, OperationResult)>,
}

impl Default for Operations {
    fn default() -> Self {
        Self { all: vec![(None, OperationResult::default())] }
    }
}

impl Operations {
    /// Returns the number of an operation, which it gets when it is first asked for.
    ///
    /// # Panics
    /// When a program has more than 255 operations.
    #[inline]
    pub(crate) fn number(&mut self, operation: Operation) -> u8 {
        let known = self.all.iter().position(|(known, _)| *known == Some(operation));
        let number = known.unwrap_or_else(|| {
            self.all.push((Some(operation), OperationResult::default()));
            self.all.len() - 1
        });
        u8::try_from(number).expect("a program has few operations")
    }

    /// Returns the operation of a number; `None` for the first.
    pub(crate) fn of(&self, number: u8) -> Option<Operation> {
        self.all[usize::from(number)].0
    }

    /// Returns the operations with their accesses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Operation, OperationResult)> {
        self.all.iter().filter_map(|&(operation, counts)| Some((operation?, counts)))
    }
}

/// All accesses of a machine.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) operations: Operations,
    sites: Sites,
    slots: Slots,
    records: Vec<Record>,
    /// How often, and picoseconds waited.
    invalidations: FxHashMap<Invalidation, (u64, u64)>,
    hits_noted: Vec<HitNote>,
    misses_noted: Vec<Note>,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            operations: Operations::default(),
            sites: Sites::default(),
            slots: Slots::new(),
            records: Vec::new(),
            invalidations: FxHashMap::default(),
            hits_noted: Vec::with_capacity(NOTES),
            misses_noted: Vec::with_capacity(NOTES),
        }
    }

    /// What tells an access from others of its line.
    #[inline]
    pub(crate) fn identify(&mut self, site: Site, address: usize, kind: Kind) -> AccessId {
        Key::new(self.sites.id(site), (address % hitm_memory::LINE) as u8, kind).0
    }

    /// Counts a hit on `line`.
    #[inline]
    pub(crate) fn hit(&mut self, line: u32, site: Site, address: usize, kind: Kind, operation: u8) {
        self.hits_noted.push(HitNote { site, line, offset: (address % hitm_memory::LINE) as u8, kind, operation });
        if self.hits_noted.len() == NOTES {
            self.count_hits();
        }
    }

    /// Counts several hits on `line` at once, outside any operation.
    pub(crate) fn hits(&mut self, line: u32, site: Site, address: usize, kind: Kind, times: u32) {
        let key = Key(self.identify(site, address, kind));
        self.slots.of(line, key).hits += times;
        self.operations.all[0].1.accesses += u64::from(times);
    }

    /// Counts a miss that waited `wait`.
    pub(crate) fn miss(&mut self, grant: &Grant, wait: u64) {
        if self.misses_noted.len() == NOTES {
            self.count_misses();
        }
        let Miss { distance, dirty, invalidator, level_3 } = grant.miss;
        let Request { line, access, cpu, kernel, operation, .. } = grant.request;
        let key = Key(access);
        self.misses_noted.push(Note { line, key, invalidator, cpu, wait, distance, dirty, level_3, kernel, operation });
    }

    /// Counts what was noted. Before this the counts are not complete.
    pub(crate) fn settle(&mut self) {
        self.count_hits();
        self.count_misses();
    }

    #[inline(never)]
    fn count_hits(&mut self) {
        let mut keys = [Key::EMPTY; NOTES];
        for (note, key) in self.hits_noted.iter().zip(&mut keys) {
            *key = Key::new(self.sites.id(note.site), note.offset, note.kind);
            self.operations.all[usize::from(note.operation)].1.accesses += 1;
        }
        let noted = || self.hits_noted.iter().map(|note| note.line).zip(keys);
        self.slots.fetch(noted());
        for (line, key) in noted() {
            // Four thousand million hits of one place on one line are hours of a run.
            self.slots.of(line, key).hits += 1;
        }
        self.hits_noted.clear();
    }

    #[inline(never)]
    fn count_misses(&mut self) {
        let noted = std::mem::take(&mut self.misses_noted);
        self.slots.fetch(noted.iter().map(|note| (note.line, note.key)));
        let mut records = [0; NOTES];
        for (note, record) in noted.iter().zip(&mut records) {
            *record = self.record_of(note.line, note.key);
        }
        let all = &self.records;
        let touched = records[..noted.len()].iter().map(|&record| all[record as usize].touch());
        std::hint::black_box(touched.fold(0, |all, one| all ^ one));
        for (note, record) in noted.iter().zip(records) {
            self.records[record as usize].add(note);
            let operation = &mut self.operations.all[usize::from(note.operation)].1;
            operation.accesses += 1;
            note.count_in(&mut operation.misses);
            if note.invalidator != NO_ACCESS {
                let invalidation = Invalidation { line: note.line, victim: note.key.0, invalidator: note.invalidator };
                let sum = self.invalidations.entry(invalidation).or_default();
                *sum = (sum.0 + 1, sum.1 + note.wait);
            }
        }
        self.misses_noted = noted;
        self.misses_noted.clear();
    }

    fn record_of(&mut self, line: u32, key: Key) -> u32 {
        let next = self.records.len() as u32;
        let slot = self.slots.of(line, key);
        if slot.record != NONE {
            return slot.record;
        }
        slot.record = next;
        self.records.push(Record::default());
        next
    }

    /// All accesses that were counted, in no order that means anything.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = Access<'_>> {
        let places = 0..self.slots.places.len() as u32;
        places.map(|place| self.at(place)).filter(|access| access.id != NO_ACCESS)
    }

    /// The access that stands at `place`.
    pub(crate) fn at(&self, place: u32) -> Access<'_> {
        let slot = &self.slots.places[place as usize];
        let record = self.records.get(slot.record as usize);
        Access { place, hits: u64::from(slot.hits), record, ..Self::access(slot.line, slot.key.0) }
    }

    /// An access to `line`, without its counts.
    pub(crate) fn access<'a>(line: u32, id: AccessId) -> Access<'a> {
        let key = Key(id);
        let (offset, kind, site) = (key.offset(), key.kind(), key.site());
        Access { id, place: NONE, line, offset, kind, site, hits: 0, record: None }
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Invalidations, times and picoseconds; in order.
    pub(crate) fn invalidations(&self) -> Vec<(Invalidation, (u64, u64))> {
        let mut invalidations: Vec<_> =
            self.invalidations.iter().map(|(&invalidation, &sum)| (invalidation, sum)).collect();
        invalidations.sort_unstable();
        invalidations
    }
}

impl Record {
    /// Reads what [`add`](Self::add) is about to change.
    fn touch(&self) -> u64 {
        self.missed.misses.wait ^ self.missed.waits.touch() ^ self.cpus.first().copied().unwrap_or(0)
    }

    fn add(&mut self, note: &Note) {
        let Note { cpu, wait, .. } = *note;
        let word = cpu as usize / 64;
        if word >= self.cpus.len() {
            self.cpus.resize(word + 1, 0);
        }
        let bit = 1 << (cpu % 64);
        self.missed.cpus += u32::from(self.cpus[word] & bit == 0);
        self.cpus[word] |= bit;
        self.missed.waits.record(wait);
        note.count_in(&mut self.missed.misses);
    }
}

impl Note {
    #[inline]
    fn count_in(&self, misses: &mut Misses) {
        let Self { wait, distance, .. } = *self;
        misses.distances[distance as usize] += 1;
        misses.wait += wait;
        misses.kernel_wait += if self.kernel { wait } else { 0 };
        if self.dirty {
            match distance {
                Distance::OtherPackage => {
                    misses.hitm.remote += 1;
                    misses.hitm_wait.remote += wait;
                }
                _ => {
                    misses.hitm.local += 1;
                    misses.hitm_wait.local += wait;
                }
            }
        }
        // What stood in a level 3 was no core's.
        if self.key.kind().is_write() && distance.is_cache() && !self.level_3 {
            misses.transfers += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_a_line_stay_apart() {
        let mut records = Records::new();
        let here = Site::Code(1);
        let offsets: Vec<usize> = (0..12).collect();
        for offset in offsets {
            let id = records.identify(here, 64 + offset, Kind::Load);
            assert_eq!(id, records.identify(here, 64 + offset, Kind::Load));
            records.hit(1, here, 64 + offset, Kind::Load, 0);
        }
        records.hit(1, here, 64 + 7, Kind::Load, 0);
        records.hit(0, here, 64 + 7, Kind::Load, 0);
        records.hit(1, here, 64 + 7, Kind::Rmw, 0);
        records.settle();
        let mut hits: Vec<(u8, u64)> = records
            .accesses()
            .filter(|access| access.line == 1 && access.kind == Kind::Load)
            .map(|access| (access.offset, access.hits))
            .collect();
        hits.sort_unstable();
        let expect: Vec<(u8, u64)> = (0..12).map(|offset| (offset, 1 + u64::from(offset == 7))).collect();
        assert_eq!(hits, expect);
    }

    #[test]
    fn keys_keep_their_parts() {
        for kind in [Kind::Load, Kind::Store, Kind::Rmw] {
            let key = Key::new(12_345, 63, kind);
            assert_eq!((key.site(), key.offset(), key.kind()), (12_345, 63, kind));
        }
    }
}
