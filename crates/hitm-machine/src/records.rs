//! Exact records: how often each place in the source touched each byte, what it waited, and who had taken the line.
//!
//! An *access* is a place in the source touching a byte of a line with one kind of operation. Hits are counted;
//! misses keep their waits as a histogram, the distance, and the thief.
//!
//! Every access of the simulated program comes by here, and what is counted of one is of no use to the next. So an access only
//! leaves a note; notes are counted many at a time, when the host can fetch what they need side by side instead of
//! letting each access wait for it.

use std::panic::Location;

use rustc_hash::FxHashMap;

use crate::coherence::{AccessId, Distance, Kind, Miss, NO_ACCESS};
use crate::histogram::Histogram;
use crate::site::{SiteId, Sites};

/// Accesses in a block: with the link, one line of the host.
const PER_BLOCK: usize = 5;

const NONE: u32 = u32::MAX;

/// Notes that are counted together: enough to fetch side by side, few enough to stay in the host's first cache.
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
struct Slot {
    key: Key,
    hits: u32,
    /// Its misses, once it has any.
    record: u32,
}

/// Accesses of one line, and where there are more.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Block {
    slots: [Slot; PER_BLOCK],
    next: u32,
}

const _: () = assert!(size_of::<Block>() == 64, "a block is one line of the host");

/// The misses of one access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Misses {
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

impl Misses {
    /// How many CPUs missed.
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus.iter().map(|word| word.count_ones()).sum()
    }
}

/// A miss that is not counted yet.
#[derive(Clone, Copy, Debug)]
struct Note {
    line: u32,
    key: Key,
    thief: AccessId,
    cpu: u32,
    wait: u64,
    distance: Distance,
    dirty: bool,
    kernel: bool,
}

/// Thefts of a line: whose copy, and who took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Theft {
    pub(crate) line: u32,
    pub(crate) victim: AccessId,
    pub(crate) thief: AccessId,
}

/// One access, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// Tells it from others of its line.
    pub(crate) id: AccessId,
    pub(crate) line: u32,
    pub(crate) offset: u8,
    pub(crate) kind: Kind,
    pub(crate) site: SiteId,
    pub(crate) hits: u64,
    pub(crate) misses: Option<&'a Misses>,
}

/// All accesses of a machine.
#[derive(Debug)]
pub(crate) struct Records {
    sites: Sites,
    /// By line: its first block.
    heads: Vec<u32>,
    blocks: Vec<Block>,
    misses: Vec<Misses>,
    /// How often, and picoseconds waited.
    thefts: FxHashMap<Theft, (u64, u64)>,
    /// Line and key of hits that are not counted yet.
    hits_noted: Vec<(u32, Key)>,
    misses_noted: Vec<Note>,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            sites: Sites::default(),
            heads: Vec::new(),
            blocks: Vec::new(),
            misses: Vec::new(),
            thefts: FxHashMap::default(),
            hits_noted: Vec::with_capacity(NOTES),
            misses_noted: Vec::with_capacity(NOTES),
        }
    }

    /// There are `lines` lines.
    pub(crate) fn grow(&mut self, lines: usize) {
        self.heads.resize(lines.max(self.heads.len()), NONE);
    }

    /// What tells an access from others of its line.
    #[inline]
    pub(crate) fn identify(&mut self, site: &'static Location<'static>, address: usize, kind: Kind) -> AccessId {
        Key::new(self.sites.id(site), (address % hitm_memory::LINE) as u8, kind).0
    }

    /// Counts a hit on `line`.
    #[inline]
    pub(crate) fn hit(&mut self, line: u32, id: AccessId) {
        if self.hits_noted.len() == NOTES {
            self.count_hits();
        }
        self.hits_noted.push((line, Key(id)));
    }

    /// Counts a miss on `line` of `cpu` that waited `wait`.
    pub(crate) fn miss(&mut self, line: u32, id: AccessId, cpu: u32, miss: &Miss, wait: u64, kernel: bool) {
        if self.misses_noted.len() == NOTES {
            self.count_misses();
        }
        let Miss { distance, dirty, thief } = *miss;
        self.misses_noted.push(Note { line, key: Key(id), thief, cpu, wait, distance, dirty, kernel });
    }

    /// Counts what was noted. Before this the counts are not complete.
    pub(crate) fn settle(&mut self) {
        self.count_hits();
        self.count_misses();
    }

    #[inline(never)]
    fn count_hits(&mut self) {
        let noted = std::mem::take(&mut self.hits_noted);
        self.fetch(noted.iter().map(|&(line, _)| line));
        for &(line, key) in &noted {
            // Four thousand million hits of one place on one line are hours of a run.
            self.slot(line, key).hits += 1;
        }
        self.hits_noted = noted;
        self.hits_noted.clear();
    }

    #[inline(never)]
    fn count_misses(&mut self) {
        let noted = std::mem::take(&mut self.misses_noted);
        self.fetch(noted.iter().map(|note| note.line));
        let mut records = [0; NOTES];
        for (note, record) in noted.iter().zip(&mut records) {
            *record = self.record_of(note.line, note.key);
        }
        let all = &self.misses;
        let touched = records[..noted.len()].iter().map(|&record| all[record as usize].misses);
        std::hint::black_box(touched.fold(0, |all, one| all ^ one));
        for (note, record) in noted.iter().zip(records) {
            self.misses[record as usize].add(note);
            if note.thief != NO_ACCESS {
                let theft = Theft { line: note.line, victim: note.key.0, thief: note.thief };
                let sum = self.thefts.entry(theft).or_default();
                *sum = (sum.0 + 1, sum.1 + note.wait);
            }
        }
        self.misses_noted = noted;
        self.misses_noted.clear();
    }

    /// Reads the first block of each line. No read waits for another, so the host has them under way together.
    fn fetch(&self, lines: impl Iterator<Item = u32>) {
        let first = |line: u32| self.blocks.get(self.heads[line as usize] as usize).map_or(0, |block| block.next);
        std::hint::black_box(lines.fold(0, |all, line| all ^ first(line)));
    }

    fn record_of(&mut self, line: u32, key: Key) -> u32 {
        let next = self.misses.len() as u32;
        let slot = self.slot(line, key);
        if slot.record != NONE {
            return slot.record;
        }
        slot.record = next;
        self.misses.push(Misses::default());
        next
    }

    /// Where an access is counted.
    fn slot(&mut self, line: u32, key: Key) -> &mut Slot {
        let mut block = self.heads[line as usize];
        let mut last = NONE;
        while block != NONE {
            let Block { slots, next } = &self.blocks[block as usize];
            if let Some(index) = slots.iter().position(|slot| slot.key == key || slot.key == Key::EMPTY) {
                let slot = &mut self.blocks[block as usize].slots[index];
                slot.key = key;
                return slot;
            }
            (last, block) = (block, *next);
        }
        self.add_block(line, last, key)
    }

    /// Puts a block with `key` behind block `last` of `line`, or as its first.
    #[cold]
    fn add_block(&mut self, line: u32, last: u32, key: Key) -> &mut Slot {
        let block = self.blocks.len();
        let empty = Slot { key: Key::EMPTY, hits: 0, record: NONE };
        let mut slots = [empty; PER_BLOCK];
        slots[0].key = key;
        self.blocks.push(Block { slots, next: NONE });
        match self.blocks.get_mut(last as usize) {
            Some(last) => last.next = block as u32,
            None => self.heads[line as usize] = block as u32,
        }
        &mut self.blocks[block].slots[0]
    }

    /// All accesses that were counted, line by line.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = Access<'_>> {
        (0..self.heads.len() as u32).flat_map(|line| self.accesses_of(line))
    }

    fn accesses_of(&self, line: u32) -> impl Iterator<Item = Access<'_>> {
        let some = |block: u32| (block != NONE).then_some(block);
        let blocks = std::iter::successors(some(self.heads[line as usize]), move |&block| {
            some(self.blocks[block as usize].next)
        });
        blocks.flat_map(move |block| {
            let slots = self.blocks[block as usize].slots.iter();
            slots.filter(|slot| slot.key != Key::EMPTY).map(move |slot| Access {
                hits: u64::from(slot.hits),
                misses: self.misses.get(slot.record as usize),
                ..Self::access(line, slot.key.0)
            })
        })
    }

    /// An access to `line`, without its counts.
    pub(crate) fn access<'a>(line: u32, id: AccessId) -> Access<'a> {
        let key = Key(id);
        Access { id, line, offset: key.offset(), kind: key.kind(), site: key.site(), hits: 0, misses: None }
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Thefts, times and picoseconds; in order.
    pub(crate) fn thefts(&self) -> Vec<(Theft, (u64, u64))> {
        let mut thefts: Vec<_> = self.thefts.iter().map(|(&theft, &sum)| (theft, sum)).collect();
        thefts.sort_unstable();
        thefts
    }
}

impl Misses {
    fn add(&mut self, note: &Note) {
        let Note { cpu, wait, distance, .. } = *note;
        let word = cpu as usize / 64;
        if word >= self.cpus.len() {
            self.cpus.resize(word + 1, 0);
        }
        self.cpus[word] |= 1 << (cpu % 64);
        self.misses += 1;
        self.wait += wait;
        self.kernel_wait += if note.kernel { wait } else { 0 };
        self.waits.record(wait);
        self.distances[distance as usize] += 1;
        if note.dirty {
            match distance {
                Distance::OtherPackage => {
                    self.hitm_remote += 1;
                    self.hitm_remote_wait += wait;
                }
                _ => {
                    self.hitm_local += 1;
                    self.hitm_local_wait += wait;
                }
            }
        }
        if note.key.kind().is_write() && distance.is_cache() {
            self.transfers += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_a_line_stay_apart() {
        let mut records = Records::new();
        records.grow(2);
        let here = Location::caller();
        let offsets: Vec<usize> = (0..12).collect();
        for offset in offsets {
            let id = records.identify(here, 64 + offset, Kind::Load);
            assert_eq!(id, records.identify(here, 64 + offset, Kind::Load));
            records.hit(1, id);
        }
        let seventh = records.identify(here, 64 + 7, Kind::Load);
        records.hit(1, seventh);
        records.hit(0, seventh);
        let other = records.identify(here, 64 + 7, Kind::Rmw);
        records.hit(1, other);
        records.settle();
        let hits: Vec<(u8, u64)> = records
            .accesses()
            .filter(|access| access.line == 1 && access.kind == Kind::Load)
            .map(|access| (access.offset, access.hits))
            .collect();
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
