//! Bitmaps with one bit a CPU, whole or split over the parts of a topology.
//!
//! **Claim.** Setting or clearing a CPU's bit writes a line that only the CPUs of its part write; a
//! search reads the parts in turn, its own first. Use [`CpuMask`] for a set that hardly changes
//! (which CPUs a task may run on).
//!
//! **Origin.** Pan Deng, "sched/rt: Split cpupri_vec->cpumask to per NUMA node", 2025, for the node
//! scope and the [`Encoding::ForeignOnes`]. Differences: any [`Scope`]; the plain
//! [`Encoding::Zeros`].
//!
//! **State.** A set of bitmaps has rows (one a priority level, say). A row of a part is as wide as
//! the machine and starts on a line. Only the CPUs of a part change bits in it, each only its own
//! bit.
//!
//! | encoding | bit of a CPU of the part | bit of any other CPU | the whole row is |
//! |---|---|---|---|
//! | `Zeros` | in the set | 0 | the OR of the parts |
//! | `ForeignOnes` | in the set | 1 | the AND of the parts |
//!
//! **Invariants.** (1) A row's set is the same for every scope and encoding after the same
//! single-threaded history. (2) `ForeignOnes` depends on the topology at construction: a CPU that
//! belongs to no part then is in every row until it is cleared there once.
//!
//! **Memory ordering.** The callers' own: each method takes the ordering of its accesses.
//!
//! **Cost.** Set, clear: one read-modify-write. A search: a load of each word of each part until
//! one matches; the intersection: a load of each word of every part.

use std::sync::atomic::Ordering;

use hitm_topology::{CpuId, Scope, Topology};

use crate::cpu_set::CpuSet;
use crate::field::Field;
use crate::memory::{LINE, Memory};
use crate::placed::PlacedSlice;
use crate::word::AtomicWord;

const BITS: usize = u64::BITS as usize;
const WORDS_PER_LINE: usize = LINE / size_of::<u64>();

/// What the bits of CPUs outside a part hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// 0: the row is the OR of its parts.
    Zeros,
    /// 1: the row is the AND of its parts. What the posted patch does.
    ForeignOnes,
}

/// Rows of bits, split by a scope.
#[derive(Debug)]
pub struct ScopedBitmaps<M: Memory> {
    /// The words of each part, row after row.
    parts: Box<[PlacedSlice<M, M::Atomic<u64>>]>,
    /// Split only: for each row, a pointer into each part. Written at construction only.
    pointers: Option<PlacedSlice<M, M::Atomic<u64>>>,
    part_of: Box<[u32]>,
    /// The CPUs of each part.
    members: Box<[CpuSet]>,
    encoding: Encoding,
    words: usize,
    /// Words from one row to the next: whole lines.
    stride: usize,
}

/// One row.
#[derive(Debug)]
pub struct BitmapRow<'a, M: Memory> {
    bitmaps: &'a ScopedBitmaps<M>,
    pointer: usize,
}

impl<M: Memory> ScopedBitmaps<M> {
    /// `rows` empty rows. Reports call a part `object`, a row `row`.
    #[must_use]
    pub fn new(
        object: &str,
        row: &'static str,
        rows: usize,
        topology: &Topology,
        scope: Scope,
        encoding: Encoding,
    ) -> Self {
        let words = topology.cpus().div_ceil(BITS);
        let stride = words.next_multiple_of(WORDS_PER_LINE);
        let fields = || {
            let word = Field { count: stride, ..Field::word("word", 0, size_of::<u64>(), "64 CPUs") };
            let size = stride * size_of::<u64>();
            vec![Field { size, count: rows, fields: vec![word], ..Field::word(row, 0, size, "one bit a CPU") }]
        };
        let members: Box<[CpuSet]> =
            (0..topology.parts(scope)).map(|part| topology.cpus_of(scope, part).iter().copied().collect()).collect();
        let place = |part: usize| {
            let node = topology.cpu(topology.cpus_of(scope, part)[0]).node;
            let index = (scope != Scope::Machine).then_some(part);
            let initial = |element: usize| match encoding {
                Encoding::Zeros => 0,
                Encoding::ForeignOnes if element % stride >= words => 0,
                Encoding::ForeignOnes => !members[part].word(element % stride),
            };
            PlacedSlice::new(object, index, Some(node), rows * stride, &fields, |element| {
                M::Atomic::new(initial(element))
            })
        };
        let pointers = (scope != Scope::Machine).then(|| {
            let fields = || {
                let part = Field { count: members.len(), ..Field::word("part", 0, 8, "pointer to the part's row") };
                let size = members.len() * size_of::<u64>();
                vec![Field { size, count: rows, fields: vec![part], ..Field::word(row, 0, size, "one pointer a part") }]
            };
            let first = |element: usize| M::Atomic::new((element / members.len() * stride) as u64);
            PlacedSlice::new(&format!("{object}_pointers"), None, None, rows * members.len(), &fields, first)
        });
        Self {
            parts: (0..members.len()).map(place).collect(),
            pointers,
            part_of: topology.cpu_ids().map(|cpu| topology.part_of(scope, cpu) as u32).collect(),
            members,
            encoding,
            words,
            stride,
        }
    }

    /// What a pointer to row `index` holds: see [`ScopedBitmaps::row`].
    #[must_use]
    pub fn pointer_to(&self, index: usize) -> u64 {
        let per_row = if self.pointers.is_some() { self.parts.len() } else { self.stride };
        (index * per_row) as u64
    }

    /// The row that `pointer` points to, a value that [`ScopedBitmaps::pointer_to`] gave. The
    /// original keeps the address of an allocation in that word, a bitmap's or, when split, that of
    /// an array of pointers to bitmaps; ours keeps an index. Both are read on the way to the bits,
    /// which is what matters for the line that the pointer stands in.
    #[inline]
    #[must_use]
    pub fn row(&self, pointer: u64) -> BitmapRow<'_, M> {
        BitmapRow { bitmaps: self, pointer: pointer as usize }
    }

    /// The number of parts.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes that the bitmaps take, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| size_of_val(&**part)).sum()
    }
}

impl<M: Memory> BitmapRow<'_, M> {
    /// The words of the row in `part`.
    #[inline]
    #[track_caller]
    fn part(&self, part: usize) -> &[M::Atomic<u64>] {
        let first = match &self.bitmaps.pointers {
            None => self.pointer,
            // Relaxed: written at construction only.
            Some(pointers) => pointers[self.pointer + part].load(Ordering::Relaxed) as usize,
        };
        &self.bitmaps.parts[part][first..]
    }

    #[inline]
    #[track_caller]
    fn word_of(&self, cpu: CpuId) -> (&M::Atomic<u64>, u64) {
        let part = self.part(self.bitmaps.part_of[cpu.index()] as usize);
        (&part[cpu.index() / BITS], 1 << (cpu.index() % BITS))
    }

    /// Puts `cpu` into the row.
    #[inline]
    #[track_caller]
    pub fn set(&self, cpu: CpuId, order: Ordering) {
        let (word, bit) = self.word_of(cpu);
        word.fetch_or(bit, order);
    }

    /// Takes `cpu` out of the row.
    #[inline]
    #[track_caller]
    pub fn clear(&self, cpu: CpuId, order: Ordering) {
        let (word, bit) = self.word_of(cpu);
        word.fetch_and(!bit, order);
    }

    /// Whether `cpu` is in the row.
    #[inline]
    #[track_caller]
    pub fn contains(&self, cpu: CpuId, order: Ordering) -> bool {
        let (word, bit) = self.word_of(cpu);
        word.load(order) & bit != 0
    }

    /// Takes `cpu` out of the row; whether it was there.
    #[inline]
    #[track_caller]
    pub fn take(&self, cpu: CpuId, order: Ordering) -> bool {
        let (word, bit) = self.word_of(cpu);
        word.fetch_and(!bit, order) & bit != 0
    }

    /// The CPUs of the row that are of the part of `cpu`. Reads the words of that part.
    #[inline]
    #[track_caller]
    pub fn near(&self, cpu: CpuId, order: Ordering) -> CpuSet {
        let part = self.bitmaps.part_of[cpu.index()] as usize;
        let (words, members) = (self.part(part), &self.bitmaps.members[part]);
        let mut set = CpuSet::new();
        for index in (0..self.bitmaps.words).filter(|&index| members.word(index) != 0) {
            set.set_word(index, words[index].load(order) & members.word(index));
        }
        set
    }

    /// Takes those of `cpus` out of the row that are of the part of `cpu`: one write a word.
    #[track_caller]
    pub fn clear_near(&self, cpu: CpuId, cpus: &CpuSet, order: Ordering) {
        let part = self.bitmaps.part_of[cpu.index()] as usize;
        let (words, members) = (self.part(part), &self.bitmaps.members[part]);
        for (index, word) in words.iter().enumerate().take(self.bitmaps.words) {
            let gone = cpus.word(index) & members.word(index);
            if gone != 0 {
                word.fetch_and(!gone, order);
            }
        }
    }

    /// Whether some CPU of `allowed` is in the row. Looks at the part of `here` first and stops at
    /// the first match.
    #[inline]
    #[track_caller]
    pub fn intersects(&self, allowed: &CpuMask<M>, here: CpuId, order: Ordering) -> bool {
        let parts = self.bitmaps.parts.len();
        let first_part = self.bitmaps.part_of[here.index()] as usize;
        // From here on and around, without a division.
        for part in (first_part..parts).chain(0..first_part) {
            let words = self.part(part);
            for (index, word) in words.iter().enumerate().take(self.bitmaps.words) {
                let foreign = match self.bitmaps.encoding {
                    Encoding::Zeros => u64::MAX,
                    Encoding::ForeignOnes => self.bitmaps.members[part].word(index),
                };
                if allowed.word(index) & word.load(order) & foreign != 0 {
                    return true;
                }
            }
        }
        false
    }

    /// The CPUs of `allowed` that are in the row. Reads every word of every part.
    #[inline]
    #[track_caller]
    pub fn intersection(&self, allowed: &CpuMask<M>, order: Ordering) -> CpuSet {
        let mut set = CpuSet::new();
        for index in 0..self.bitmaps.words {
            set.push_word(self.word(index, order) & allowed.word(index));
        }
        set
    }

    /// The first CPU of the row after `previous`, or the first of all. Reads words up to the match.
    #[inline]
    #[track_caller]
    pub fn next_after(&self, previous: Option<CpuId>, order: Ordering) -> Option<CpuId> {
        let start = previous.map_or(0, |cpu| cpu.index() + 1);
        for index in start / BITS..self.bitmaps.words {
            let below = if index == start / BITS { (1 << (start % BITS)) - 1 } else { 0 };
            let word = self.word(index, order) & !below;
            if word != 0 {
                return Some(CpuId((index * BITS) as u32 + word.trailing_zeros()));
            }
        }
        None
    }

    /// The CPUs in the row: a snapshot for checkers.
    #[track_caller]
    pub fn snapshot(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for index in 0..self.bitmaps.words {
            // Relaxed: checkers look when nothing is in flight.
            set.set_word(index, self.word(index, Ordering::Relaxed));
        }
        set
    }

    /// Word `index` of the whole row, all parts combined.
    #[inline]
    #[track_caller]
    fn word(&self, index: usize, order: Ordering) -> u64 {
        let mut word = match self.bitmaps.encoding {
            Encoding::Zeros => 0,
            Encoding::ForeignOnes => u64::MAX,
        };
        for part in 0..self.bitmaps.parts.len() {
            let bits = self.part(part)[index].load(order);
            match self.bitmaps.encoding {
                Encoding::Zeros => word |= bits,
                Encoding::ForeignOnes => word &= bits,
            }
        }
        // The last word of a `ForeignOnes` row has ones beyond the last CPU.
        word & self.bitmaps.bits_of_machine(index)
    }
}

impl<M: Memory> ScopedBitmaps<M> {
    /// The bits of word `index` that stand for a CPU.
    #[inline]
    fn bits_of_machine(&self, index: usize) -> u64 {
        let bits = self.part_of.len().saturating_sub(index * BITS);
        if bits >= BITS { u64::MAX } else { (1 << bits) - 1 }
    }
}

/// A set of CPUs in shared memory that is read much and written hardly ever.
#[derive(Debug)]
pub struct CpuMask<M: Memory> {
    words: PlacedSlice<M, M::Atomic<u64>>,
}

impl<M: Memory> CpuMask<M> {
    /// The set `cpus` on a machine of `topology`.
    #[must_use]
    pub fn new(object: &str, index: Option<usize>, topology: &Topology, cpus: &CpuSet) -> Self {
        let count = topology.cpus().div_ceil(BITS);
        let fields = || vec![Field { count, ..Field::word("word", 0, size_of::<u64>(), "64 CPUs") }];
        let words = PlacedSlice::new(object, index, None, count, &fields, |word| M::Atomic::new(cpus.word(word)));
        Self { words }
    }

    /// Word `index`: CPUs `64 * index` onward.
    #[inline]
    #[track_caller]
    pub fn word(&self, index: usize) -> u64 {
        // Relaxed: a mask that changes while it is read gives a CPU of the old or of the new set;
        // callers look again under the lock that changes are made under.
        self.words[index].load(Ordering::Relaxed)
    }

    /// Whether `cpu` is in the set.
    #[inline]
    #[track_caller]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.word(cpu.index() / BITS) & 1 << (cpu.index() % BITS) != 0
    }

    /// Replaces the set.
    #[track_caller]
    pub fn store(&self, cpus: &CpuSet) {
        for (index, word) in self.words.iter().enumerate() {
            // Relaxed: as in `word`.
            word.store(cpus.word(index), Ordering::Relaxed);
        }
    }

    /// The set as a local copy.
    #[track_caller]
    pub fn load(&self) -> CpuSet {
        let mut set = CpuSet::new();
        for index in 0..self.words.len() {
            set.push_word(self.word(index));
        }
        set
    }

    /// A local copy of what both hold.
    #[track_caller]
    pub fn intersection(&self, other: &Self) -> CpuSet {
        let mut set = CpuSet::new();
        for index in 0..self.words.len() {
            set.push_word(self.word(index) & other.word(index));
        }
        set
    }
}
