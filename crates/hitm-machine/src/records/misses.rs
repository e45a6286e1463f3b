//! The misses of accesses: what each waited, where its line came from, and which CPUs missed.
//!
//! Most accesses that miss do so a few times. So a record keeps the first misses one by one, in
//! eight bytes each, and adds up when there are many.

use super::blocks::{Block, Blocks};
use crate::coherence::{Distance, Kind};
use crate::counts::{Misses, Remote};
use crate::results::Missed;

/// A miss, as far as the record of its access keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Picoseconds.
    pub(super) wait: u64,
    pub(super) cpu: u32,
    pub(super) distance: Distance,
    pub(super) dirty: bool,
    pub(super) level_3: bool,
    pub(super) kernel: bool,
}

/// Bits of a CPU's number in a packed miss, as in events.
const CPU_BITS: u32 = 13;

/// Bits of the distance and three flags, below those of the CPU.
const FLAG_BITS: u32 = 6;

impl Note {
    /// The miss in eight bytes, if it has waited less than 35 simulated seconds.
    #[inline]
    fn pack(self) -> Option<u64> {
        let Self { wait, cpu, distance, dirty, level_3, kernel } = self;
        let flags = (distance as u64) << 3 | u64::from(dirty) << 2 | u64::from(level_3) << 1 | u64::from(kernel);
        let fits = wait >> (u64::BITS - CPU_BITS - FLAG_BITS) == 0 && cpu >> CPU_BITS == 0;
        fits.then_some(wait << (CPU_BITS + FLAG_BITS) | u64::from(cpu) << FLAG_BITS | flags)
    }

    fn unpack(packed: u64) -> Self {
        let is_set = |bit: u32| packed >> bit & 1 == 1;
        Self {
            wait: packed >> (CPU_BITS + FLAG_BITS),
            cpu: (packed >> FLAG_BITS) as u32 & ((1 << CPU_BITS) - 1),
            distance: Distance::ALL[(packed >> 3 & 7) as usize],
            dirty: is_set(2),
            level_3: is_set(1),
            kernel: is_set(0),
        }
    }

    /// Counts the miss of an access of this kind, on a machine where this is remote.
    #[inline]
    pub(super) fn count_in(&self, kind: Kind, remote: Remote, misses: &mut Misses) {
        let Self { wait, distance, .. } = *self;
        misses.distances[distance as usize] += 1;
        misses.wait += wait;
        misses.kernel_wait += if self.kernel { wait } else { 0 };
        if self.dirty {
            if remote.includes(distance) {
                misses.hitm.remote += 1;
                misses.hitm_wait.remote += wait;
            } else {
                misses.hitm.local += 1;
                misses.hitm_wait.local += wait;
            }
        }
        // What stood in a level 3 was no core's.
        if kind.is_write() && distance.is_cache() && !self.level_3 {
            misses.transfers += 1;
        }
    }
}

/// Misses that are kept one by one.
const FEW: u32 = 16;

/// The record of one access.
#[derive(Clone, Copy, Debug)]
enum Record {
    /// So many misses, each packed.
    Few { misses: Block, count: u32 },
    /// Where the sums are.
    Many(u32),
}

/// The sums of many misses.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// All but the invalidators, which are counted apart.
    missed: Missed,
    /// The CPUs that missed, 64 a word.
    cpus: Vec<u64>,
}

impl Sums {
    fn add(&mut self, kind: Kind, remote: Remote, note: &Note) {
        let Note { cpu, wait, .. } = *note;
        let word = cpu as usize / 64;
        if word >= self.cpus.len() {
            self.cpus.resize(word + 1, 0);
        }
        let bit = 1 << (cpu % 64);
        self.missed.cpus += u32::from(self.cpus[word] & bit == 0);
        self.cpus[word] |= bit;
        self.missed.waits.record(wait);
        note.count_in(kind, remote, &mut self.missed.misses);
    }
}

/// The records of all accesses that missed.
#[derive(Clone, Debug)]
pub(super) struct MissRecords {
    pub(super) remote: Remote,
    records: Vec<Record>,
    packed: Blocks<u64>,
    sums: Vec<Sums>,
}

impl MissRecords {
    pub(super) fn new(remote: Remote) -> Self {
        Self { remote, records: Vec::new(), packed: Blocks::new(0), sums: Vec::new() }
    }

    /// A record without a miss; returns its number, from 1.
    pub(super) fn begin(&mut self) -> u32 {
        self.records.push(Record::Few { misses: Block::EMPTY, count: 0 });
        self.records.len() as u32
    }

    /// Adds a miss of an access of this kind to its record.
    pub(super) fn add(&mut self, record: u32, kind: Kind, note: &Note) {
        let record = &mut self.records[record as usize - 1];
        let sums = match record {
            Record::Many(sums) => *sums as usize,
            Record::Few { misses, count } => {
                if *count < FEW
                    && let Some(packed) = note.pack()
                {
                    if *count as usize == misses.len() {
                        *misses = self.packed.grow(*misses, *count as usize + 1);
                    }
                    *self.packed.at(*misses, *count as usize) = packed;
                    *count += 1;
                    return;
                }
                self.sums.push(Self::sum(kind, self.remote, &self.packed.of(*misses)[..*count as usize]));
                self.packed.give_back(*misses);
                let sums = self.sums.len() - 1;
                *record = Record::Many(sums as u32);
                sums
            }
        };
        self.sums[sums].add(kind, self.remote, note);
    }

    fn sum(kind: Kind, remote: Remote, misses: &[u64]) -> Sums {
        let mut sums = Sums::default();
        misses.iter().for_each(|&packed| sums.add(kind, remote, &Note::unpack(packed)));
        sums
    }

    /// The misses of an access of this kind, without their invalidators, and the CPUs that missed,
    /// 64 a word.
    pub(super) fn missed(&self, record: u32, kind: Kind) -> (Missed, Vec<u64>) {
        // A copy has no room to grow, and results are kept for long.
        let copy = |sums: &Sums| (sums.missed.clone(), sums.cpus.clone());
        match self.records[record as usize - 1] {
            Record::Many(sums) => copy(&self.sums[sums as usize]),
            Record::Few { misses, count } => {
                copy(&Self::sum(kind, self.remote, &self.packed.of(misses)[..count as usize]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_miss_keeps_its_parts() {
        for (distance, dirty, level_3, kernel) in [
            (Distance::SameCore, true, false, false),
            (Distance::RemoteMemory, false, true, false),
            (Distance::OtherPackage, false, false, true),
        ] {
            let note = Note { wait: (1 << 45) - 1, cpu: 8_191, distance, dirty, level_3, kernel };
            assert_eq!(note.pack().map(Note::unpack), Some(note));
            assert_eq!(Note { wait: 1 << 45, ..note }.pack(), None);
        }
    }

    #[test]
    fn few_misses_and_many_are_added_up_in_the_same_way() {
        let note = |index: u32| Note {
            wait: 1 << index,
            cpu: index % 7 * 100,
            distance: Distance::ALL[index as usize % Distance::ALL.len()],
            dirty: index.is_multiple_of(2),
            level_3: index.is_multiple_of(3),
            kernel: index.is_multiple_of(5),
        };
        // The last misses wait too long to be kept one by one.
        for times in [1, FEW, FEW + 1, 40, 50] {
            let mut records = MissRecords::new(Remote::Package);
            let (record, long) = (records.begin(), records.begin());
            records.add(long, Kind::Store, &note(48));
            (0..times).for_each(|index| records.add(record, Kind::Store, &note(index)));
            let mut expect = Sums::default();
            (0..times).for_each(|index| expect.add(Kind::Store, Remote::Package, &note(index)));
            let text = |missed: &Missed| format!("{missed:?}");
            assert_eq!(text(&records.missed(record, Kind::Store).0), text(&expect.missed), "{times} misses");
            assert_eq!(records.missed(long, Kind::Store).0.misses.wait, 1 << 48);
            assert_eq!(records.sums.len(), 1 + usize::from(times > FEW));
        }
    }
}
