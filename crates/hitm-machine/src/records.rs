//! Exact records: how often each place in the source touched each byte, what it waited, and who had taken the line.
//!
//! An *access* is a place in the source touching a byte of a line with one kind of operation. Hits are counted;
//! misses keep their waits as a histogram, the distance, and the thief.
//!
//! Every access of the simulated program comes by here, so its count stands with those of the same line: a program touches
//! a line several times in a row, and finds them in the host's cache.

use std::panic::Location;

use rustc_hash::FxHashMap;

use crate::coherence::{AccessId, Distance, Kind, Miss, NO_ACCESS};
use crate::histogram::Histogram;
use crate::site::{SiteId, Sites};

/// Accesses in a block: with the link, one line of the host.
const PER_BLOCK: usize = 5;

const NONE: u32 = u32::MAX;

/// What a line is touched with: the kind in bits 0 and 1, the byte in bits 2 to 7, the place above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u32);

impl Key {
    /// No access.
    const EMPTY: Self = Self(u32::MAX);

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

/// One access, for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
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
    /// Victim and thief: how often, and picoseconds waited.
    thefts: FxHashMap<(AccessId, AccessId), (u64, u64)>,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self {
            sites: Sites::default(),
            heads: Vec::new(),
            blocks: Vec::new(),
            misses: Vec::new(),
            thefts: FxHashMap::default(),
        }
    }

    /// There are `lines` lines.
    pub(crate) fn grow(&mut self, lines: usize) {
        self.heads.resize(lines.max(self.heads.len()), NONE);
    }

    /// The number of an access.
    #[inline]
    pub(crate) fn identify(
        &mut self,
        site: &'static Location<'static>,
        address: usize,
        line: u32,
        kind: Kind,
    ) -> AccessId {
        let key = Key::new(self.sites.id(site), (address % hitm_memory::LINE) as u8, kind);
        let mut block = self.heads[line as usize];
        let mut last = NONE;
        while block != NONE {
            let Block { slots, next } = &mut self.blocks[block as usize];
            for (index, slot) in slots.iter_mut().enumerate() {
                if slot.key == key {
                    return block * PER_BLOCK as u32 + index as u32;
                }
                if slot.key == Key::EMPTY {
                    slot.key = key;
                    return block * PER_BLOCK as u32 + index as u32;
                }
            }
            (last, block) = (block, *next);
        }
        self.add_block(line, last, key)
    }

    /// Puts a block with `key` behind block `last` of `line`, or as its first.
    #[cold]
    fn add_block(&mut self, line: u32, last: u32, key: Key) -> AccessId {
        let block = self.blocks.len() as u32;
        let empty = Slot { key: Key::EMPTY, hits: 0, record: NONE };
        let mut slots = [empty; PER_BLOCK];
        slots[0].key = key;
        self.blocks.push(Block { slots, next: NONE });
        match self.blocks.get_mut(last as usize) {
            Some(last) => last.next = block,
            None => self.heads[line as usize] = block,
        }
        block * PER_BLOCK as u32
    }

    fn slot(&mut self, id: AccessId) -> &mut Slot {
        &mut self.blocks[id as usize / PER_BLOCK].slots[id as usize % PER_BLOCK]
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn hit(&mut self, id: AccessId) {
        // Four thousand million hits of one place on one line are hours of a run.
        self.slot(id).hits += 1;
    }

    /// Counts a miss of `cpu` that waited `wait`.
    pub(crate) fn miss(&mut self, id: AccessId, cpu: u32, miss: &Miss, wait: u64, kernel: bool) {
        let next = self.misses.len() as u32;
        let Slot { key, record, .. } = self.slot(id);
        if *record == NONE {
            *record = next;
        }
        let (record, is_write) = (*record, key.kind().is_write());
        if record == next {
            self.misses.push(Misses::default());
        }
        self.misses[record as usize].add(cpu, miss, wait, kernel, is_write);
        if miss.thief != NO_ACCESS {
            let theft = self.thefts.entry((id, miss.thief)).or_default();
            *theft = (theft.0 + 1, theft.1 + wait);
        }
    }

    /// All accesses that were ever identified, line by line.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = Access<'_>> {
        (0..self.heads.len() as u32).flat_map(|line| self.accesses_of(line))
    }

    fn accesses_of(&self, line: u32) -> impl Iterator<Item = Access<'_>> {
        let some = |block: u32| (block != NONE).then_some(block);
        let blocks = std::iter::successors(some(self.heads[line as usize]), move |&block| {
            some(self.blocks[block as usize].next)
        });
        blocks.flat_map(move |block| {
            let slots = self.blocks[block as usize].slots.iter().enumerate();
            slots
                .filter(|(_, slot)| slot.key != Key::EMPTY)
                .map(move |(index, slot)| self.access(line, block * PER_BLOCK as u32 + index as u32, slot))
        })
    }

    fn access(&self, line: u32, id: AccessId, slot: &Slot) -> Access<'_> {
        Access {
            id,
            line,
            offset: slot.key.offset(),
            kind: slot.key.kind(),
            site: slot.key.site(),
            hits: u64::from(slot.hits),
            misses: self.misses.get(slot.record as usize),
        }
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

impl Misses {
    fn add(&mut self, cpu: u32, miss: &Miss, wait: u64, kernel: bool, is_write: bool) {
        let word = cpu as usize / 64;
        if word >= self.cpus.len() {
            self.cpus.resize(word + 1, 0);
        }
        self.cpus[word] |= 1 << (cpu % 64);
        self.misses += 1;
        self.wait += wait;
        self.kernel_wait += if kernel { wait } else { 0 };
        self.waits.record(wait);
        self.distances[miss.distance as usize] += 1;
        if miss.dirty {
            match miss.distance {
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
        if is_write && miss.distance.is_cache() {
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
        let first: Vec<AccessId> =
            offsets.iter().map(|&offset| records.identify(here, 64 + offset, 1, Kind::Load)).collect();
        let again: Vec<AccessId> =
            offsets.iter().map(|&offset| records.identify(here, 64 + offset, 1, Kind::Load)).collect();
        assert_eq!(first, again);
        records.hit(first[7]);
        assert_ne!(records.identify(here, 64 + 7, 1, Kind::Rmw), first[7]);
        assert_ne!(records.identify(here, 7, 0, Kind::Load), first[7]);
        let hits: Vec<(u8, u64)> = records
            .accesses()
            .filter(|access| access.line == 1 && access.kind == Kind::Load)
            .map(|access| (access.offset, access.hits))
            .collect();
        let expect: Vec<(u8, u64)> = (0..12).map(|offset| (offset, u64::from(offset == 7))).collect();
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
