//! cpupri: which CPUs run something less urgent than a given priority.
//!
//! **Claim.** Each priority level has a count and a set of the CPUs at that level. A CPU that
//! changes its level does four read-modify-writes, or stores where sets and counts are bytes. A
//! search reads counts upward from the lowest level and reads the sets of levels whose count is not
//! zero. cpupri serves the placement of real-time tasks. Its answer is only a snapshot, so callers
//! check again under run queue locks.
//!
//! **Origin.** Gregory Haskins, Linux 2.6.25, in the form of v5.11 to v7.1 with 101 levels. The
//! placements are patches 1 and 4 of Pan Deng, "[PATCH v2 0/4] sched/rt: mitigate root_domain cache
//! line contention", LKML, 2025-07-21. Differences: the orderings below instead of full barriers;
//! more scopes than the node; split counts too; sets and counts of one byte per CPU.
//!
//! **Roles.** `set` is called under the run queue lock of the CPU that it is about, so two `set`s
//! of one CPU never overlap. Any CPU calls `find`.
//!
//! **State.** Level, count and bit of a CPU that moves from level *old* to level *new*, in the
//! order of the protocol:
//!
//! | step | `set` | state that others can see |
//! |---|---|---|
//! | 1 | reads its own level | old |
//! | 2 | sets its bit at new | bit at both |
//! | 3 | adds 1 to new's count | counted at both |
//! | 4 | takes 1 from old's count | counted at new |
//! | 5 | clears its bit at old | new |
//! | 6 | writes its own level | new |
//!
//! **Invariants.**
//! 1. With no `set` in flight, each count is the number of bits in its bitmap. Each online CPU's
//!    bit is at its level and at no other. An offline CPU has no bit.
//! 2. A CPU that moves between two levels has its bit in at least one of them at every instant.
//! 3. A reader that sees a count because of a CPU also sees that CPU's bit, or sees that the CPU is
//!    leaving.
//! 4. While a CPU only becomes more urgent and stays below the searcher's level, no search fails.
//! 5. `find` returns a non-empty subset of the allowed and active CPUs. None of them was at the
//!    searcher's level or above during the whole call.
//! 6. After the same single-threaded history every placement, scope and encoding gives the same
//!    answers.
//! 7. A `set` to the same level writes nothing.
//! 8. A CPU that becomes less urgent looks for overloaded CPUs next. A CPU that advertises itself
//!    as overloaded searches next. At least one of the two sees the other.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `set` step 3, add Release | `find`, load of the count Acquire | the bit of step 2: invariant 3 |
//! | `set` step 4, subtract Release | `find`, load of the old count Acquire | the new count of step 3: invariant 4 |
//! | `set` step 5, clear Release | `find`, loads of the bitmap Acquire | the new count of step 3, for a search that found the old count and then an empty bitmap: invariant 4 |
//!
//! The last row is needed although it decides no count. With Relaxed loads of the bitmap a search
//! can see that the old bit is gone and then read a stale count one level up. The model checker
//! finds this case.
//!
//! Where sets or counts are bytes, "add" and "clear" are stores of the same ordering. A plain store
//! is correct, also to the byte of a CPU other than the caller's:
//!
//! - Every `set` of a CPU holds that CPU's queue lock. Its callers are `enqueue` and `dequeue`,
//!   which take the lock's guard, and `hotplug`. So the stores to a byte never overlap, and they
//!   follow each other in the lock's order.
//! - A byte holds the state of one CPU, so a store never overwrites another CPU's state. Stores to
//!   the bytes beside it are to other locations.
//! - A search pairs with a store as with an add. It reads the store of the entry, the store of the
//!   exit, or a later store under the same lock, which comes after both.
//!
//! Invariant 8 is the store-buffering shape: two CPUs each write a word and then read the word that
//! the other wrote. On x86 an add is a full barrier, which is enough. A store is not a barrier.
//! With counts in bytes the less urgent CPU therefore executes a SeqCst fence at the end of `set`.
//! With the overload count in bytes the overloaded CPU does so at the end of `set_overload`.
//!
//! **Layout.** See [`cpupri_vecs`](super::cpupri_vecs), and `cpupri_counts` for split counts. Each
//! level and part has a bitmap on lines of its own. `cpu_to_pri` is a dense array with sixteen CPUs
//! per line, as in the original.
//!
//! **Cost.** `set`: four read-modify-writes, four to six lines; with bytes, two or four of them are
//! stores. `find`: one load per level up to the level found. That is one line per four levels when
//! packed, one line per level when split, and seven lines per part when the counts are split. At
//! the level found it loads each bitmap word, or each allowed byte, twice.
//!
//! **Limits.** It is not linearisable. A search may miss a CPU that becomes *less* urgent; that CPU
//! pulls.

use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuMask, CpuSet, Encoding, Field, Form, Memory, PlacedSlice, PlainWord, Record, ScopedSets,
};
use hitm_topology::{CpuId, Topology};

use crate::base::operation;
use crate::base::prio::{Level, Prio};
use crate::linux::cpupri_counts::{Counter, LevelCounts};
use crate::linux::cpupri_vecs::{CpupriOrder, CpupriVecs};

/// The level of a CPU that is offline.
const INVALID: i32 = -1;

/// Returns whether a CPU's capacity suits a task. It is for machines with unequal CPUs.
pub(crate) type Fits<'a> = &'a dyn Fn(CpuId) -> bool;

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a, M: Memory> {
    /// The search finds CPUs below this priority's level.
    pub prio: Prio,
    /// The CPUs where the task may run.
    pub allowed: &'a CpuMask<M>,
    /// The searching CPU. The search begins with its part of the bitmaps.
    pub here: CpuId,
}

/// How cpupri's sets and counts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpupriForm {
    /// The sets of CPUs, one per level.
    pub mask: Form,
    /// The counts of CPUs per level. In the whole form they are in the vectors.
    pub count: Form,
    /// How split bitmaps are encoded.
    pub encoding: Encoding,
}

impl CpupriForm {
    /// One bitmap and one count per level.
    pub const WHOLE: Self = Self { mask: Form::WHOLE, count: Form::WHOLE, encoding: Encoding::Zeros };
}

/// cpupri: its vectors, and what their pointers lead to.
#[derive(Debug)]
pub struct Cpupri<M: Memory> {
    vecs: CpupriVecs<M>,
    sets: CpupriSets<M>,
}

/// The parts of cpupri outside the lines of its vectors.
#[derive(Debug)]
pub(crate) struct CpupriSets<M: Memory> {
    masks: ScopedSets<M>,
    counts: LevelCounts<M>,
    /// Each CPU's level, or [`INVALID`]. Only `set` writes and reads it.
    cpu_to_pri: PlacedSlice<M, M::Plain<i32>>,
}

impl<M: Memory> CpupriSets<M> {
    /// Creates the parts, with all CPUs offline.
    pub(crate) fn new(topology: &Topology, form: CpupriForm, levels: usize) -> Self {
        let CpupriForm { mask, count, encoding } = form;
        let masks = ScopedSets::new("cpupri_mask", "level", levels, topology, mask, encoding);
        let counts = LevelCounts::new(levels, topology, count);
        let fields = || vec![Field { count: topology.cpus(), ..Field::word("cpu", 0, 4, "the CPU's level") }];
        let level_of = |_| M::Plain::new(INVALID);
        let cpu_to_pri = PlacedSlice::new("cpu_to_pri", None, None, topology.cpus(), &fields, level_of);
        Self { masks, counts, cpu_to_pri }
    }
}

impl<M: Memory> Cpupri<M> {
    /// Creates a cpupri with all CPUs offline, on lines of its own. The levels of its priorities
    /// are below `levels`.
    #[must_use]
    pub fn new(topology: &Topology, order: &CpupriOrder, form: CpupriForm, levels: usize) -> Self {
        let sets = CpupriSets::new(topology, form, levels);
        let mut record = Record::new("cpupri", None, None, order.layout::<M>(levels));
        Self::put(&mut record, "", order, sets)
    }

    /// Puts the vectors into a record in whose layout they are under `prefix`.
    pub(crate) fn put(record: &mut Record<M>, prefix: &str, order: &CpupriOrder, sets: CpupriSets<M>) -> Self {
        Self { vecs: CpupriVecs::put(record, prefix, order, |level| sets.masks.pointer_to(level)), sets }
    }

    /// Sets the priority that `cpu` now runs at; `None` takes it offline. The caller holds the run
    /// queue lock of `cpu`.
    pub fn set(&self, cpu: CpuId, prio: Option<Prio>) {
        self.set_level(cpu, prio.map(Prio::level));
    }

    /// Sets the level like [`Cpupri::set`]. No priority of ours has the level [`Level::HIGHER`].
    pub fn set_level(&self, cpu: CpuId, new: Option<Level>) {
        let _change = operation::LEVEL_CHANGE.begin::<M>();
        // Relaxed: this pointer is written at construction only. The same holds for all pointers
        // here.
        let array = self.vecs.cpu_to_pri.load(Ordering::Relaxed) as usize;
        let own = &self.sets.cpu_to_pri[array + cpu.index()];
        let old = u32::try_from(own.get()).ok().map(Level);
        if new == old {
            return;
        }
        if let Some(new) = new {
            // Relaxed: published by the add below.
            let pointer = self.vecs.mask(new).load(Ordering::Relaxed);
            self.sets.masks.row(pointer).set(cpu, BIT_SET);
            match self.sets.counts.of(&self.vecs, cpu, new) {
                // Release: publishes the bit. Pairs with the Acquire load of the count in
                // `next_available`.
                Counter::Shared(count) => _ = count.fetch_add(1, COUNT_ENTERED),
                // Release: as above.
                Counter::Own(count) => count.store(1, COUNT_ENTERED),
            }
        }
        if let Some(old) = old {
            // Release, of both: publishes the entry at the new level to a search that does not find
            // this one any more. Pairs with the Acquire load of the count in `next_available`.
            match self.sets.counts.of(&self.vecs, cpu, old) {
                Counter::Shared(count) => _ = count.fetch_sub(1, Ordering::Release),
                // Release: as above.
                Counter::Own(count) => count.store(0, Ordering::Release),
            }
            // Relaxed: constant, as above.
            let pointer = self.vecs.mask(old).load(Ordering::Relaxed);
            // Release: as for the count, for a search that has passed the count. Pairs with the
            // Acquire loads of the bitmap in `find_at`.
            self.sets.masks.row(pointer).clear(cpu, Ordering::Release);
        }
        if self.sets.counts.are_stored() && old.is_none_or(|old| new < Some(old)) {
            // SeqCst: a CPU that has become less urgent, or has come online, looks for overloaded
            // CPUs next. A CPU that advertises itself as overloaded searches here next. One of the
            // two must see the other. Pairs with the operation or the fence at the end of
            // `set_overload`. In other forms the add is such an operation.
            M::fence(Ordering::SeqCst);
        }
        own.set(new.map_or(INVALID, |level| level.0 as i32));
    }

    /// Returns whether a CPU that `search` allows runs something less urgent.
    #[must_use]
    pub fn any(&self, search: &Search<'_, M>) -> bool {
        let _search = operation::SEARCH.begin::<M>();
        self.next_available(search, Level::NORMAL).is_some()
    }

    /// Returns the allowed and `active` CPUs at the lowest level that has such CPUs, if that level
    /// is below the searcher's.
    #[must_use]
    pub fn find(&self, search: &Search<'_, M>, active: &CpuMask<M>) -> Option<CpuSet> {
        self.find_where(search, active, Some)
    }

    /// Searches like [`Cpupri::find`], but only for CPUs that fit. If no level has a CPU that fits,
    /// all CPUs count.
    #[must_use]
    pub fn find_fitting(&self, search: &Search<'_, M>, active: &CpuMask<M>, fits: Fits<'_>) -> Option<CpuSet> {
        let fitting = |found: CpuSet| {
            let fitting: CpuSet = found.iter().filter(|&cpu| fits(cpu)).collect();
            (!fitting.is_empty()).then_some(fitting)
        };
        // Priority comes before fit.
        self.find_where(search, active, fitting).or_else(|| self.find(search, active))
    }

    /// Returns what `accept` makes of the CPUs at the lowest level where it accepts them.
    #[inline]
    fn find_where(
        &self,
        search: &Search<'_, M>,
        active: &CpuMask<M>,
        accept: impl Fn(CpuSet) -> Option<CpuSet>,
    ) -> Option<CpuSet> {
        let _search = operation::SEARCH.begin::<M>();
        let mut from = Level::NORMAL;
        while let Some((level, pointer)) = self.next_available(search, from) {
            if let Some(found) = self.find_at(search, active, pointer).and_then(&accept) {
                return Some(found);
            }
            from = Level(level.0 + 1);
        }
        None
    }

    /// Returns the lowest level from `from` up to the searcher's whose bitmap has an allowed CPU,
    /// and the pointer to that bitmap.
    #[inline]
    fn next_available(&self, search: &Search<'_, M>, mut from: Level) -> Option<(Level, u64)> {
        let end = search.prio.level();
        loop {
            // Acquire loads, also where the count is zero, so a level is read before the next one.
            // They pair with the Releases in `set_level`.
            let level = self.sets.counts.first_of(&self.vecs, from, end, search.here)?;
            // Relaxed: constant.
            let pointer = self.vecs.mask(level).load(Ordering::Relaxed);
            // Acquire: pairs with the Release of the clear in `set_level`.
            if self.sets.masks.row(pointer).intersects(search.allowed, search.here, MASK_READ) {
                return Some((level, pointer));
            }
            from = Level(level.0 + 1);
        }
    }

    /// Returns the allowed and `active` CPUs of the bitmap at `pointer`, if there are any.
    #[inline]
    fn find_at(&self, search: &Search<'_, M>, active: &CpuMask<M>, pointer: u64) -> Option<CpuSet> {
        // Acquire: as in `next_available`. Bits may have been cleared since then.
        let mut found = self.sets.masks.row(pointer).intersection(search.allowed, MASK_READ);
        for index in 0..found.words() {
            found.set_word(index, found.word(index) & active.word(index));
        }
        (!found.is_empty()).then_some(found)
    }

    /// Returns the bytes of the bitmaps and the array, in whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sets.masks.bytes()
            + self.sets.counts.bytes()
            + size_of_val(&*self.sets.cpu_to_pri).next_multiple_of(hitm_memory::LINE)
    }

    /// Returns the CPUs whose bit is at `level`, for checkers.
    pub fn cpus_at(&self, level: Level) -> CpuSet {
        // Relaxed: constant; checkers look in a quiescent state.
        self.sets.masks.row(self.vecs.mask(level).load(Ordering::Relaxed)).snapshot()
    }

    /// Returns the count of CPUs at `level`, for checkers.
    pub fn count_at(&self, level: Level) -> i32 {
        self.sets.counts.sum(&self.vecs, level)
    }

    /// Returns the level that `cpu` was last set to, for checkers.
    #[must_use]
    pub fn level_of(&self, cpu: CpuId) -> Option<Level> {
        u32::try_from(self.sets.cpu_to_pri[cpu.index()].peek()).ok().map(Level)
    }
}

/// The ordering of setting a bit: Relaxed, as the count that follows publishes the bit.
const BIT_SET: Ordering = Ordering::Relaxed;
/// The ordering of incrementing a level's count: Release, see the module's table.
const COUNT_ENTERED: Ordering = Ordering::Release;
/// The ordering of reading a bitmap: Acquire, see the module's table.
const MASK_READ: Ordering = Ordering::Acquire;
