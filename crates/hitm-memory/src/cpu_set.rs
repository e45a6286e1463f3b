//! A set of CPUs as a value: search results, affinities on their way to a task. Not shared memory.

use hitm_topology::CpuId;
use smallvec::SmallVec;

const BITS: usize = u64::BITS as usize;

/// Words kept on the stack: 1,024 CPUs; larger machines take one allocation.
const INLINE_WORDS: usize = 16;

/// A set of CPUs.
#[derive(Clone, Debug, Default)]
pub struct CpuSet {
    words: SmallVec<[u64; INLINE_WORDS]>,
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Words that may hold a CPU: beyond them all are empty.
    #[inline]
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// CPUs `64 * index` onward, one bit each.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Replaces word `index`.
    #[inline]
    pub fn set_word(&mut self, index: usize, word: u64) {
        if index >= self.words.len() {
            if word == 0 {
                return;
            }
            self.words.resize(index + 1, 0);
        }
        self.words[index] = word;
    }

    /// Adds a word behind the last.
    #[inline]
    pub(crate) fn push_word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        let index = cpu.index() / BITS;
        self.set_word(index, self.word(index) | 1 << (cpu.index() % BITS));
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        let index = cpu.index() / BITS;
        self.set_word(index, self.word(index) & !(1 << (cpu.index() % BITS)));
    }

    /// Whether `cpu` is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.word(cpu.index() / BITS) & 1 << (cpu.index() % BITS) != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| ones(index, word))
    }

    /// The first CPU at or after `from`, or else the first of all: how a rotating cursor picks.
    #[must_use]
    pub fn first_from(&self, from: CpuId) -> Option<CpuId> {
        let start = from.index() / BITS;
        let above = |index: usize, mask: u64| {
            let word = self.word(index) & mask;
            (word != 0).then(|| CpuId((index * BITS) as u32 + word.trailing_zeros()))
        };
        above(start, u64::MAX << (from.index() % BITS))
            .or_else(|| (start + 1..self.words.len()).find_map(|index| above(index, u64::MAX)))
            .or_else(|| (0..self.words.len().min(start + 1)).find_map(|index| above(index, u64::MAX)))
    }

    /// The CPUs that `other` has too, from `from` on and around.
    pub fn common_from<'a>(&'a self, other: &'a Self, from: CpuId) -> impl Iterator<Item = CpuId> + use<'a> {
        let words = self.words.len().min(other.words.len());
        let (first, below) = (from.index() / BITS, (1 << (from.index() % BITS)) - 1);
        let part = move |index: usize, mask: u64| ones(index, self.word(index) & other.word(index) & mask);
        let after = (first + 1..words).chain(0..first.min(words)).flat_map(move |index| part(index, u64::MAX));
        part(first, !below).chain(after).chain(part(first, below))
    }

    /// Whether it has every CPU of `other`.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.words.iter().enumerate().all(|(index, &word)| word & !self.word(index) == 0)
    }

    /// Removes the CPUs of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= !other.word(index);
        }
    }

    /// Keeps the CPUs that `other` has too.
    pub fn intersect(&mut self, other: &Self) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= other.word(index);
        }
    }
}

/// The CPUs of word `index`, ascending.
fn ones(index: usize, word: u64) -> impl Iterator<Item = CpuId> {
    let some = |word: u64| (word != 0).then_some(word);
    // Each step drops the lowest bit.
    std::iter::successors(some(word), move |word| some(word & (word - 1)))
        .map(move |word| CpuId((index * BITS) as u32 + word.trailing_zeros()))
}

impl PartialEq for CpuSet {
    fn eq(&self, other: &Self) -> bool {
        (0..self.words.len().max(other.words.len())).all(|index| self.word(index) == other.word(index))
    }
}

impl Eq for CpuSet {}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().map(|&cpu| CpuId(cpu)).collect()
    }

    #[test]
    fn members_come_back_in_order() {
        let cpus = [0, 1, 63, 64, 127, 479, 8_191];
        assert_eq!(set(&cpus).iter().map(|cpu| cpu.0).collect::<Vec<_>>(), cpus);
        assert_eq!(set(&cpus).len(), cpus.len());
        assert!(set(&[]).is_empty());
    }

    #[test]
    fn a_cursor_wraps() {
        let check = |cpus: &[u32], from: u32, expect: Option<u32>| {
            assert_eq!(set(cpus).first_from(CpuId(from)).map(|cpu| cpu.0), expect, "{cpus:?} from {from}");
        };
        check(&[], 5, None);
        check(&[5], 5, Some(5));
        check(&[5], 6, Some(5));
        check(&[5, 70, 200], 6, Some(70));
        check(&[5, 70, 200], 71, Some(200));
        check(&[5, 70, 200], 201, Some(5));
        check(&[5, 70, 200], 4_000, Some(5));
    }

    #[test]
    fn common_members_come_round() {
        let check = |a: &[u32], b: &[u32], from: u32, expect: &[u32]| {
            let (a, b) = (set(a), set(b));
            assert_eq!(a.common_from(&b, CpuId(from)).map(|cpu| cpu.0).collect::<Vec<_>>(), expect);
        };
        check(&[], &[], 5, &[]);
        check(&[1, 5, 70, 200], &[1, 5, 70, 200, 4_000], 5, &[5, 70, 200, 1]);
        check(&[1, 5, 70, 200], &[1, 5, 70, 200], 6, &[70, 200, 1, 5]);
        check(&[1, 5, 70, 200], &[5, 200], 64, &[200, 5]);
        check(&[1, 5, 70, 90], &[1, 5, 70, 90], 80, &[90, 1, 5, 70]);
        check(&[1, 5, 70], &[1, 5, 70], 4_000, &[1, 5, 70]);
    }

    #[test]
    fn trailing_words_do_not_matter() {
        let mut long = set(&[3, 500]);
        long.remove(CpuId(500));
        assert_eq!(long, set(&[3]));
        long.intersect(&set(&[4]));
        assert!(long.is_empty());
    }
}
