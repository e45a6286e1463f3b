//! cpupri: which CPUs run something less urgent than this.
//!
//! **Claim.** For each priority level a count of the CPUs at it and a set of them. A CPU that changes level does four
//! read-modify-writes, or stores where sets and counts are bytes; a search reads counts upward from the lowest level and looks at sets
//! where a count is not zero.
//! Use it to place a real-time task; a snapshot is all it gives, and callers look again under run queue locks.
//!
//! **Origin.** Gregory Haskins, Linux 2.6.25, in the form of v5.11 to v7.1 with 101 levels. Placements: Pan Deng, patches 1 and
//! 4 of "sched/rt: mitigate root_domain cache line contention", 2025. Differences: the orderings below instead of
//! full barriers; scopes beyond the node; counts that are split too; sets and counts of one byte a CPU.
//!
//! **Roles.** `set` is called under the run queue lock of the CPU that it is about, so two `set`s of one CPU never
//! overlap. `find` is called by anybody.
//!
//! **State.** Level, count and bit of a CPU that moves from level *old* to level *new*, in the order of the protocol:
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
//! 1. With no `set` in flight, each count is the population of its bitmap and each CPU's bit is at its level and nowhere
//!    else; an offline CPU's is nowhere.
//! 2. A CPU that moves between two levels has its bit in at least one of them at every instant.
//! 3. Who sees a count because of a CPU sees that CPU's bit, or sees it leaving.
//! 4. While a CPU only ever becomes more urgent and stays below the searcher's level, no search fails.
//! 5. What `find` returns is a non-empty subset of the allowed and active CPUs, none of which was at the searcher's level
//!    or above during the whole call.
//! 6. After the same single-threaded history every placement, scope and encoding gives the same answers.
//! 7. A `set` to the same level writes nothing.
//! 8. A CPU that becomes less urgent and then looks for overloaded ones, and one that announces itself as overloaded and then searches, do
//!    not miss each other.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `set` step 3, add Release | `find`, load of the count Acquire | the bit of step 2: invariant 3 |
//! | `set` step 4, subtract Release | `find`, load of the old count Acquire | the new count of step 3: invariant 4 |
//! | `set` step 5, clear Release | `find`, loads of the bitmap Acquire | the new count of step 3, for a search that found the old count and then an empty bitmap: invariant 4 |
//!
//! Where sets or counts are bytes, "add" and "clear" are stores of the same ordering. A plain store is right there, also to the byte of a
//! CPU that is not the caller's: every `set` of a CPU holds that CPU's queue lock (`enqueue` and `dequeue`, which get the lock's guard, and
//! `hotplug`), so a byte's stores never overlap and follow each other in the lock's order; a byte says of one CPU whether it is in, so no
//! store overwrites what somebody else said; and stores to the bytes beside it are other locations. A search pairs with a store as with
//! an add: what it reads is the entry, the leave, or a later store under the same lock, which comes after either.
//!
//! Invariant 8 is the shape SB: each of two writes a word and then reads what the other wrote. On x86 an add is a full barrier and
//! settles it. A store is none, so with counts in bytes the less urgent CPU fences, SeqCst, at the end of `set`, and with the overload
//! count in bytes the overloaded one at the end of `set_overload`.
//!
//! The last pair is needed although no count is decided by it: with Relaxed loads of the bitmap a search can see the old
//! bit gone and then, one level up, a stale count. The model checker finds it.
//!
//! **Layout.** See [`cpupri_vecs`](crate::cpupri_vecs), and `cpupri_counts` for counts that are split. The bitmaps stand elsewhere, on lines of their own, one bitmap a
//! level and part. `cpu_to_pri` is a dense array, sixteen CPUs a line, as in the original.
//!
//! **Cost.** `set`: four read-modify-writes, four to six lines; with bytes, two or four of them are stores. `find`: a load a level
//! (a line every four levels when packed, one each when split, seven lines a part when the counts are split) up to the level found, there a
//! load of each bitmap word, or of each allowed byte, twice.
//!
//! **Limits.** Not linearisable. A CPU that becomes *less* urgent may be missed by a search; it pulls for itself.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuMask, CpuSet, Encoding, Field, Form, Memory, PlacedSlice, PlainWord, ScopedSets};
use hitm_topology::{CpuId, Topology};

use crate::cpupri_counts::{Counter, LevelCounts};
use crate::cpupri_vecs::CpupriVecs;
use crate::prio::{Level, Prio};

/// The level of a CPU that is offline.
const INVALID: i32 = -1;

/// Whether a CPU's capacity suits a task: used on machines with unequal CPUs.
pub type Fits<'a> = &'a dyn Fn(CpuId) -> bool;

/// Who searches, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a, M: Memory> {
    /// Finds CPUs below this priority's level.
    pub prio: Prio,
    /// Where the task may run.
    pub allowed: &'a CpuMask<M>,
    /// The CPU that searches: its part of the bitmaps is looked at first.
    pub here: CpuId,
}

/// How cpupri's sets and counts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpupriForm {
    /// The sets of CPUs, one a level.
    pub mask: Form,
    /// How many CPUs there are at each level. Whole, they are where the vectors have them.
    pub count: Form,
    /// How split bitmaps are encoded.
    pub encoding: Encoding,
}

impl CpupriForm {
    /// One bitmap and one count a level.
    pub const WHOLE: Self = Self { mask: Form::WHOLE, count: Form::WHOLE, encoding: Encoding::Zeros };
}

/// The parts of cpupri that stand outside the root domain's own lines.
#[derive(Debug)]
pub struct Cpupri<M: Memory> {
    masks: ScopedSets<M>,
    counts: LevelCounts<M>,
    /// Each CPU's level, or [`INVALID`]. Written and read by `set` alone.
    cpu_to_pri: PlacedSlice<M, M::Plain<i32>>,
}

impl<M: Memory> Cpupri<M> {
    /// Every CPU offline, with the vectors that go with it.
    #[must_use]
    pub fn new<V: CpupriVecs<M>>(topology: &Topology, form: CpupriForm) -> (Self, V) {
        let CpupriForm { mask, count, encoding } = form;
        let masks = ScopedSets::new("cpupri_mask", "level", V::LEVELS, topology, mask, encoding);
        let counts = LevelCounts::new(V::LEVELS, topology, count);
        let vecs = V::new(|level| masks.pointer_to(level), 0);
        let fields = || vec![Field { count: topology.cpus(), ..Field::word("cpu", 0, 4, "the CPU's level") }];
        let level_of = |_| M::Plain::new(INVALID);
        let cpu_to_pri = PlacedSlice::new("cpu_to_pri", None, None, topology.cpus(), &fields, level_of);
        (Self { masks, counts, cpu_to_pri }, vecs)
    }

    /// `cpu`, whose run queue lock the caller holds, now runs at `prio`; nothing takes it offline.
    pub fn set<V: CpupriVecs<M>>(&self, vecs: &V, cpu: CpuId, prio: Option<Prio>) {
        self.set_level(vecs, cpu, prio.map(Prio::level));
    }

    /// As [`Cpupri::set`], by level: [`Level::HIGHER`] has no priority of ours.
    pub fn set_level<V: CpupriVecs<M>>(&self, vecs: &V, cpu: CpuId, new: Option<Level>) {
        // Relaxed: a pointer that is written at construction only. So are all pointers here.
        let array = vecs.cpu_to_pri().load(Ordering::Relaxed) as usize;
        let own = &self.cpu_to_pri[array + cpu.index()];
        let old = u32::try_from(own.get()).ok().map(Level);
        if new == old {
            return;
        }
        if let Some(new) = new {
            // Relaxed: published by the add below.
            let pointer = vecs.mask(new).load(Ordering::Relaxed);
            self.masks.row(pointer).set(cpu, BIT_SET);
            match self.counts.of(vecs, cpu, new) {
                // Release: publishes the bit. Pairs with the Acquire load of the count in `available_at`.
                #[cfg(not(feature = "other-operation"))]
                Counter::Shared(count) => _ = count.fetch_add(1, COUNT_ENTERED),
                #[cfg(feature = "other-operation")]
                Counter::Shared(count) => add_by_compare_exchange::<M>(count),
                // Release: as above.
                Counter::Own(count) => count.store(1, COUNT_ENTERED),
            }
        }
        if let Some(old) = old {
            // Release, of both: publishes the entry at the new level, for a search that no longer finds this one.
            // Pairs with the Acquire load of the count in `available_at`.
            match self.counts.of(vecs, cpu, old) {
                Counter::Shared(count) => _ = count.fetch_sub(1, Ordering::Release),
                // Release: as above.
                Counter::Own(count) => count.store(0, Ordering::Release),
            }
            // Relaxed: constant, as above.
            let pointer = vecs.mask(old).load(Ordering::Relaxed);
            // Release: as for the count, for a search that has passed the count. Pairs with the Acquire loads of
            // the bitmap in `find_at`.
            self.masks.row(pointer).clear(cpu, Ordering::Release);
        }
        if self.counts.are_stored() && old.is_none_or(|old| new < Some(old)) {
            // SeqCst: a CPU that has become less urgent, or come online, looks for overloaded ones next; who announces itself as
            // overloaded searches here next: one of the two must see the other. Pairs with the operation or the fence at the end
            // of `set_overload`. The adds of other forms are such an operation.
            M::fence(Ordering::SeqCst);
        }
        own.set(new.map_or(INVALID, |level| level.0 as i32));
    }

    /// Whether any CPU that `search` allows runs something less urgent.
    #[must_use]
    pub fn any<V: CpupriVecs<M>>(&self, vecs: &V, search: &Search<'_, M>) -> bool {
        Self::levels_below(search).any(|level| self.available_at(vecs, search, level).is_some())
    }

    /// The allowed and `active` CPUs at the lowest level that has any, if that is below the searcher's.
    #[must_use]
    pub fn find<V: CpupriVecs<M>>(&self, vecs: &V, search: &Search<'_, M>, active: &CpuMask<M>) -> Option<CpuSet> {
        Self::levels_below(search).find_map(|level| self.find_at(vecs, search, active, level))
    }

    /// As [`Cpupri::find`], of CPUs that fit; where no level has one that fits, of all.
    #[must_use]
    pub fn find_fitting<V: CpupriVecs<M>>(
        &self,
        vecs: &V,
        search: &Search<'_, M>,
        active: &CpuMask<M>,
        fits: Fits<'_>,
    ) -> Option<CpuSet> {
        let fitting = |level| {
            let found = self.find_at(vecs, search, active, level)?;
            let fitting: CpuSet = found.iter().filter(|&cpu| fits(cpu)).collect();
            (!fitting.is_empty()).then_some(fitting)
        };
        // Priority wins over fit.
        Self::levels_below(search).find_map(fitting).or_else(|| self.find(vecs, search, active))
    }

    fn levels_below(search: &Search<'_, M>) -> impl Iterator<Item = Level> + use<M> {
        (0..search.prio.level().0).map(Level)
    }

    /// The pointer to the bitmap of `level`, if an allowed CPU is in it.
    #[inline]
    fn available_at<V: CpupriVecs<M>>(&self, vecs: &V, search: &Search<'_, M>, level: Level) -> Option<u64> {
        // Acquire loads, also where the count is zero: this level is read before the next one. Pair with the Releases in
        // `set_level`.
        if !self.counts.any(vecs, level, search.here) {
            return None;
        }
        // Relaxed: constant.
        let pointer = vecs.mask(level).load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the clear in `set_level`.
        self.masks.row(pointer).intersects(search.allowed, search.here, MASK_READ).then_some(pointer)
    }

    /// The allowed and `active` CPUs at `level`, if there are any.
    #[inline]
    fn find_at<V: CpupriVecs<M>>(
        &self,
        vecs: &V,
        search: &Search<'_, M>,
        active: &CpuMask<M>,
        level: Level,
    ) -> Option<CpuSet> {
        let pointer = self.available_at(vecs, search, level)?;
        // Acquire: as in `available_at`. Bits may have gone since then.
        let mut found = self.masks.row(pointer).intersection(search.allowed, MASK_READ);
        for index in 0..found.words() {
            found.set_word(index, found.word(index) & active.word(index));
        }
        (!found.is_empty()).then_some(found)
    }

    /// Bytes of the bitmaps and the array, whole lines.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.masks.bytes() + self.counts.bytes() + size_of_val(&*self.cpu_to_pri).next_multiple_of(hitm_memory::LINE)
    }

    /// The CPUs whose bit is at `level`, for checkers.
    pub fn cpus_at<V: CpupriVecs<M>>(&self, vecs: &V, level: Level) -> CpuSet {
        // Relaxed: constant; checkers look when nothing is in flight.
        self.masks.row(vecs.mask(level).load(Ordering::Relaxed)).snapshot()
    }

    /// How many CPUs are counted at `level`, for checkers.
    pub fn count_at<V: CpupriVecs<M>>(&self, vecs: &V, level: Level) -> i32 {
        self.counts.sum(vecs, level)
    }

    /// The level that `cpu` was last set to, for checkers.
    #[must_use]
    pub fn level_of(&self, cpu: CpuId) -> Option<Level> {
        u32::try_from(self.cpu_to_pri[cpu.index()].peek()).ok().map(Level)
    }
}

/// What the feature `other-operation` puts in the place of one add: a load, then compare-exchanges until one succeeds.
#[cfg(feature = "other-operation")]
#[track_caller]
fn add_by_compare_exchange<M: Memory>(count: &M::Atomic<i32>) {
    // Relaxed: a guess, which the compare-exchange checks.
    let mut seen = count.load(Ordering::Relaxed);
    // Release, as the add that it stands for; Relaxed where it fails, which publishes nothing.
    while let Err(now) = count.compare_exchange(seen, seen + 1, COUNT_ENTERED, Ordering::Relaxed) {
        seen = now;
    }
}

/// How a bit is set: Relaxed, since the count that follows publishes it.
const BIT_SET: Ordering = Ordering::Relaxed;
/// How a level's count is raised: Release, see the module's table.
const COUNT_ENTERED: Ordering = Ordering::Release;
/// How a bitmap is read: Acquire, see the module's table.
const MASK_READ: Ordering = Ordering::Acquire;
