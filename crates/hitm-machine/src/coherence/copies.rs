//! The cores with a copy of a contended line, and the invalidators of the others' copies.

use super::{AccessId, NO_ACCESS};

/// Cores in a list that is searched; beyond it, and beyond a sixteenth of the machine, a table by
/// core. Two or three cores touch most lines.
const LISTED: usize = 12;

/// Bits of a word of a bit set.
const WORD: usize = u64::BITS as usize;

/// What a core has of a line: above bit 0, which says whether its copy is valid, when the copy
/// arrived, or the access that invalidated it and, from bit 33 on, the core of that access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held(u64);

impl Held {
    /// No copy, and no access has invalidated one.
    const NOTHING: Self = Self::invalidated_by(NO_ACCESS, 0);

    fn valid(since: u64) -> Self {
        Self(since << 1 | 1)
    }

    const fn invalidated_by(access: AccessId, core: u32) -> Self {
        Self((access as u64) << 1 | (core as u64) << 33)
    }

    #[inline]
    fn since(self) -> Option<u64> {
        (self.0 & 1 == 1).then_some(self.0 >> 1)
    }

    fn invalidator(self) -> AccessId {
        if self.since().is_some() { NO_ACCESS } else { (self.0 >> 1) as AccessId }
    }

    /// The core of the invalidator, if there is one. A machine has fewer than 65,534 CPUs: see
    /// `Directory::new`.
    fn taker(self) -> Option<u16> {
        (self.invalidator() != NO_ACCESS).then_some((self.0 >> 33) as u16)
    }
}

/// The copies of one line.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    known: Known,
    /// The number of valid copies.
    valid: u32,
    cores: u32,
}

#[derive(Clone, Debug)]
enum Known {
    /// Cores in order, and what they have. The others have nothing.
    List(Vec<(u32, Held)>),
    /// A bit set of the cores with a valid copy, and after it what each core has.
    Table(Box<[u64]>),
}

/// The words of a table before what the cores have.
fn words(cores: u32) -> usize {
    (cores as usize).div_ceil(WORD)
}

impl Copies {
    /// A line that `core` has alone since `since`, on a machine of `cores`.
    pub(super) fn new(cores: usize, core: u32, since: u64) -> Self {
        let mut list = Vec::with_capacity(2);
        list.push((core, Held::valid(since)));
        Self { known: Known::List(list), valid: 1, cores: cores as u32 }
    }

    #[inline]
    fn held(&self, core: u32) -> Held {
        match &self.known {
            Known::List(list) => {
                let index = list.partition_point(|&(other, _)| other < core);
                list.get(index).filter(|&&(other, _)| other == core).map_or(Held::NOTHING, |&(_, held)| held)
            }
            Known::Table(table) => Held(table[words(self.cores) + core as usize]),
        }
    }

    /// `core` has `held` from now on; returns what it had before.
    fn set(&mut self, core: u32, held: Held) -> Held {
        let Known::List(list) = &mut self.known else { return self.set_in_table(core, held) };
        let index = list.partition_point(|&(other, _)| other < core);
        let is_full = list.len() == LISTED.max(self.cores as usize / 16);
        let before = match list.get_mut(index) {
            Some((other, before)) if *other == core => std::mem::replace(before, held),
            _ if is_full => {
                self.become_table();
                return self.set_in_table(core, held);
            }
            _ => {
                list.insert(index, (core, held));
                Held::NOTHING
            }
        };
        self.count(before, held);
        before
    }

    fn become_table(&mut self) {
        let Known::List(list) = &self.known else { return };
        let words = words(self.cores);
        let empty = std::iter::repeat_n(0, words).chain(std::iter::repeat_n(Held::NOTHING.0, self.cores as usize));
        let mut table: Box<[u64]> = empty.collect();
        for &(core, held) in list {
            Self::put(&mut table, words, core, held);
        }
        self.known = Known::Table(table);
    }

    fn set_in_table(&mut self, core: u32, held: Held) -> Held {
        let before = self.held(core);
        if let Known::Table(table) = &mut self.known {
            Self::put(table, words(self.cores), core, held);
        }
        self.count(before, held);
        before
    }

    fn put(table: &mut [u64], words: usize, core: u32, held: Held) {
        let core = core as usize;
        table[words + core] = held.0;
        let bit = 1 << (core % WORD);
        let word = &mut table[core / WORD];
        *word = if held.since().is_some() { *word | bit } else { *word & !bit };
    }

    fn count(&mut self, before: Held, now: Held) {
        self.valid -= u32::from(before.since().is_some());
        self.valid += u32::from(now.since().is_some());
    }

    /// Returns since when `core` has a valid copy.
    #[inline]
    pub(super) fn since(&self, core: u32) -> Option<u64> {
        self.held(core).since()
    }

    /// Returns the access that invalidated the copy of `core`.
    pub(super) fn invalidator(&self, core: u32) -> AccessId {
        self.held(core).invalidator()
    }

    /// Returns the core whose access invalidated the copy of `core`, if one did.
    pub(super) fn taker(&self, core: u32) -> Option<u16> {
        self.held(core).taker()
    }

    /// Returns the number of cores with a valid copy.
    pub(super) fn count_valid(&self) -> u32 {
        self.valid
    }

    /// Returns the cores with a valid copy, in order.
    pub(super) fn valid(&self) -> impl Iterator<Item = u32> {
        let (list, bits) = match &self.known {
            Known::List(list) => (list.as_slice(), [].as_slice()),
            Known::Table(table) => ([].as_slice(), &table[..words(self.cores)]),
        };
        let listed = list.iter().filter(|(_, held)| held.since().is_some()).map(|&(core, _)| core);
        let in_word = |(index, &word): (usize, &u64)| {
            let clear_lowest = |&bits: &u64| Some(bits & (bits - 1)).filter(|&bits| bits != 0);
            let set = std::iter::successors(Some(word).filter(|&bits| bits != 0), clear_lowest);
            set.map(move |bits| (index * WORD) as u32 + bits.trailing_zeros())
        };
        listed.chain(bits.iter().enumerate().flat_map(in_word))
    }

    /// `core` gets a copy at `since`.
    pub(super) fn add(&mut self, core: u32, since: u64) {
        let before = self.set(core, Held::valid(since));
        debug_assert_eq!(before.since(), None, "core {core} had a copy");
    }

    /// `core` has no valid copy any more, and no store invalidated it.
    pub(super) fn drop(&mut self, core: u32) {
        let before = self.set(core, Held::NOTHING);
        debug_assert!(before.since().is_some(), "core {core} had no copy");
    }

    /// `core` gets the only copy at `since`; `invalidator` invalidates all others.
    pub(super) fn take(&mut self, core: u32, since: u64, invalidator: AccessId) {
        let (lost, got) = (Held::invalidated_by(invalidator, core), Held::valid(since));
        match &mut self.known {
            Known::List(list) => {
                let mut is_known = false;
                for (other, held) in list {
                    if *other == core {
                        (*held, is_known) = (got, true);
                    } else if held.since().is_some() {
                        *held = lost;
                    }
                }
                if is_known {
                    self.valid = 1;
                    return;
                }
            }
            Known::Table(table) => {
                let (bits, held) = table.split_at_mut(words(self.cores));
                for (index, word) in bits.iter_mut().enumerate() {
                    while *word != 0 {
                        held[index * WORD + word.trailing_zeros() as usize] = lost.0;
                        *word &= *word - 1;
                    }
                }
            }
        }
        self.valid = 0;
        self.set(core, got);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_into_a_table_and_forgets_nothing() {
        let mut copies = Copies::new(40, 7, 1);
        for core in (0..40).filter(|&core| core != 7) {
            copies.add(core, u64::from(core) + 100);
        }
        assert!(copies.valid().eq(0..40));
        assert_eq!((copies.since(7), copies.since(39)), (Some(1), Some(139)));
        copies.take(3, 500, 77);
        assert!(copies.valid().eq([3]) && matches!(copies.known, Known::Table(_)));
        assert_eq!((copies.since(3), copies.since(7)), (Some(500), None));
        assert_eq!((copies.invalidator(3), copies.invalidator(7), copies.invalidator(39)), (NO_ACCESS, 77, 77));
        assert_eq!((copies.taker(3), copies.taker(7), copies.taker(39)), (None, Some(3), Some(3)));
    }

    #[test]
    fn a_copy_that_is_dropped_was_not_taken() {
        let mut copies = Copies::new(4, 0, 1);
        copies.add(1, 2);
        copies.add(2, 3);
        copies.drop(1);
        assert!(copies.valid().eq([0, 2]));
        assert_eq!((copies.since(1), copies.invalidator(1)), (None, NO_ACCESS));
        copies.add(1, 9);
        assert_eq!(copies.since(1), Some(9));
    }

    #[test]
    fn a_machine_of_few_cores_stays_a_list() {
        let mut copies = Copies::new(2, 0, 0);
        copies.take(1, 1, 5);
        copies.take(0, 2, 6);
        assert_eq!((copies.invalidator(1), copies.count_valid()), (6, 1));
        assert!(copies.valid().eq([0]) && matches!(copies.known, Known::List(_)));
    }
}
