//! Ids that CPUs keep: [`Baseline`](crate::cid::Variant::Baseline) and
//! [`Recent`](crate::cid::Variant::Recent).
//!
//! **Claim.** A CPU that runs a task of the map again within 100 ms gives it the same id, and
//! touches no word that other CPUs write. With `Recent` the CPU asks for the same id after a longer
//! time too.
//!
//! **Origin.** Linux's per-mm/CPU concurrency ids of v6.4 to v6.12 (commit 223baf9d17f2). v6.13
//! added `recent_cid`, the union of allowed CPUs and the highest allocated id: Mathieu Desnoyers,
//! "[PATCH v2 1/1] sched: Improve cache locality of RSEQ concurrency IDs for intermittent
//! workloads", LKML, 2024-10-09, commit 7e019dcc470f, and its correction 02d954c0fdf9. Differences:
//! a map's memory is its own, where the original's is a part of the process's memory, and fields
//! for other uses are padding. The words have their offsets of v6.13 in the baseline too, which
//! does not use those of `Recent`. A CPU that checks another CPU reads one word of its queue, where
//! the original follows a pointer to the running task and another to its map.
//!
//! **State.** A CPU's entry holds an id and is in one of these states:
//!
//! | state | the id's bit | goes to | changed by |
//! |---|---|---|---|
//! | unset | - | valid | its CPU, under its queue's lock |
//! | valid | set | lazy | any other CPU, by compare-exchange |
//! | valid | set | unset | its CPU, when a task ends |
//! | lazy | set | unset | the winner of the compare-exchange, which alone clears the bit |
//!
//! **Protocol.** A remote clear: (1) valid to lazy; (2) fence; (3) it checks whether a task of the
//! map runs there: if so it stops, else (4) lazy to unset, and the bit is cleared. A switch: (a)
//! the running map is stored; (b) fence; (c) the entry is read: a lazy entry is given up, a valid
//! one is used. At least one of 3 and c sees the other side, so an id in use is never given back.
//!
//! **Memory ordering.** 1, 2, 3 against a, b, c: the two SeqCst fences forbid store buffering. A
//! task's work with data of its id comes before the next owner's work: by the switch's Release of
//! the running map and the Acquire of 3, then by [`Bits`].
//!
//! **Cost.** A switch to a valid entry: two loads of shared lines, a load and a store of the CPU's
//! own line, no read-modify-write, and the fence. Otherwise the bits, at which all CPUs aim
//! together: a CPU that fails takes a lock of all maps.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuSet, LineStart, Memory, Native, PerCpu, Placed, PlainWord, RawSpinLock, Span, Time, described,
};
use hitm_topology::{CpuId, Topology};

use crate::base::cid::{Allocator, MapSnapshot, NONE, Runs, TaskIds, Walk};
use crate::base::id_bits::Bits;
use crate::base::numbers::{MapId, TaskId};

/// How long an id is kept, and the period of scans: the original's.
const KEPT_FOR: Span = Span::from_micros(100_000);

const LAZY: u32 = 1 << 31;

described! {
    /// A map's words.
    pub struct MapWords<M: Memory> as "mm" {
        other_fields: [u64; 16],
        membarrier_state: u32,
        /// Tasks of the map. Written by every task that begins or ends, read by searches for an id.
        mm_users: M::Atomic<u32>,
        /// Pointer to the CPUs' entries. Read by every switch.
        pcpu_cid: M::Atomic<u64>,
        /// The time of the next scan, nanoseconds; 0 before the first. Written by every scan, read
        /// by every tick.
        mm_cid_next_scan: M::Atomic<u64>,
        /// CPUs that any of the tasks may use. Written under `cpus_allowed_lock`, read by searches
        /// for an id.
        nr_cpus_allowed: M::Atomic<u32>,
        /// The highest allocated id plus one. Written while it grows or shrinks.
        max_nr_cid: M::Atomic<u32>,
        /// Protects the union of allowed CPUs.
        cpus_allowed_lock: RawSpinLock<M>,
        end_of_line: LineStart,
    }
}

const _: () = assert!(offset_of!(MapWords<Native>, mm_users) == 132, "the original's offset");
const _: () = assert!(offset_of!(MapWords<Native>, mm_cid_next_scan) == 144, "the original's offset");
const _: () = assert!(offset_of!(MapWords<Native>, max_nr_cid) == 156, "the original's offset");

described! {
    /// A CPU's words of a map.
    pub struct Entry<M: Memory> as "mm_cid" {
        /// When the CPU last used it, nanoseconds. Written by the CPU, and by scans that find it in
        /// use.
        time: M::Atomic<u64>,
        /// The id. See the module's states.
        cid: M::Atomic<u32>,
        /// The CPU's previous id. Written by the CPU, and by CPUs that take it away with a task.
        recent_cid: M::Atomic<u32>,
    }
}

described! {
    /// The words that all maps of a scheduler share.
    pub struct Fallback<M: Memory> as "cid_lock" {
        /// Taken by a CPU that has lost a free id to another CPU.
        cid_lock: RawSpinLock<M>,
        /// Whether CPUs must take the lock before their first attempt.
        use_cid_lock: M::Atomic<u32>,
    }
}

impl<M: Memory> fmt::Debug for Fallback<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("use_cid_lock", &self.use_cid_lock).finish_non_exhaustive()
    }
}

impl<M: Memory> Fallback<M> {
    pub(crate) fn new() -> Self {
        Self { cid_lock: RawSpinLock::new(), use_cid_lock: M::Atomic::new(0) }
    }
}

/// The index of the CPUs that the tasks may use, among the sets of [`Bits`].
const ALLOWED: usize = 1;

/// One map.
pub(crate) struct PerCpuIds<M: Memory> {
    map: MapId,
    words: Placed<M, MapWords<M>>,
    entries: PerCpu<M, Entry<M>>,
    bits: Bits<M>,
    fallback: Arc<Placed<M, Fallback<M>>>,
    /// Whether a CPU asks for its previous id.
    asks_again: bool,
    now: fn() -> Time,
}

impl<M: Memory> PerCpuIds<M> {
    pub(crate) fn new(
        map: MapId,
        topology: &Topology,
        asks_again: bool,
        fallback: Arc<Placed<M, Fallback<M>>>,
        now: fn() -> Time,
    ) -> Self {
        let words = MapWords {
            other_fields: [0; 16],
            membarrier_state: 0,
            mm_users: M::Atomic::new(0),
            pcpu_cid: M::Atomic::new(0),
            mm_cid_next_scan: M::Atomic::new(0),
            nr_cpus_allowed: M::Atomic::new(0),
            max_nr_cid: M::Atomic::new(0),
            cpus_allowed_lock: RawSpinLock::new(),
            end_of_line: LineStart,
        };
        let entry = |_| Entry { time: M::Atomic::new(0), cid: M::Atomic::new(NONE), recent_cid: M::Atomic::new(NONE) };
        let index = map.0 as usize;
        Self {
            map,
            words: Placed::new(words, Some(index), None),
            entries: PerCpu::new(topology, entry),
            bits: Bits::new(index, topology, &["cpu_bitmap", "mm_cpus_allowed", "cidmask"]),
            fallback,
            asks_again,
            now,
        }
    }

    fn nanos(&self) -> u64 {
        (self.now)().as_picos() / 1_000
    }

    fn snapshot_time(&self, entry: &Entry<M>) {
        // Relaxed: a scan that reads an old time clears an entry that could have stayed.
        entry.time.store(self.nanos(), Ordering::Relaxed);
    }

    /// Changes an entry from lazy to unset. Returns true for the winner, which must give the id
    /// back.
    fn win(entry: &Entry<M>, id: u32) -> bool {
        // Relaxed: this is only exclusion. The bit, and the word of the running map, publish data.
        entry.cid.compare_exchange(id | LAZY, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Gives up the id of an entry, if the entry is lazy.
    fn put_lazy(&self, entry: &Entry<M>) {
        // Relaxed: ordered by the switch's fence, see the module.
        let id = entry.cid.load(Ordering::Relaxed);
        if is_lazy(id) && Self::win(entry, id & !LAZY) {
            self.bits.give_back(id & !LAZY);
        }
    }

    /// Returns the CPU's id, which it has from now on.
    fn get(&self, cpu: CpuId) -> u32 {
        // Relaxed: written at construction only.
        self.words.pcpu_cid.load(Ordering::Relaxed);
        let entry = &self.entries[cpu];
        // Relaxed: ordered by the switch's fence, see the module.
        let id = entry.cid.load(Ordering::Relaxed);
        if is_valid(id) {
            self.snapshot_time(entry);
            return id;
        }
        self.put_lazy(entry);
        let id = self.allocate(entry);
        self.snapshot_time(entry);
        // Relaxed: readers decide only by a compare-exchange.
        entry.cid.store(id, Ordering::Relaxed);
        if self.asks_again {
            // Relaxed: a hint.
            entry.recent_cid.store(id, Ordering::Relaxed);
        }
        id
    }

    fn allocate(&self, entry: &Entry<M>) -> u32 {
        let Fallback { cid_lock, use_cid_lock } = &**self.fallback;
        // Relaxed, as below: it gives CPUs that failed a chance, and excludes no CPU.
        let _guard = if use_cid_lock.load(Ordering::Relaxed) == 0 {
            if let Some(id) = self.try_allocate(entry) {
                return id;
            }
            cid_lock.lock()
        } else {
            let guard = cid_lock.lock();
            if let Some(id) = self.try_allocate(entry) {
                return id;
            }
            guard
        };
        // Relaxed: as above.
        use_cid_lock.store(1, Ordering::Relaxed);
        loop {
            if let Some(id) = self.try_allocate(entry) {
                // Relaxed: as above.
                use_cid_lock.store(0, Ordering::Relaxed);
                return id;
            }
        }
    }

    /// Returns an id, unless another CPU took the one that looked free.
    fn try_allocate(&self, entry: &Entry<M>) -> Option<u32> {
        if self.asks_again
            && let Some(id) = self.take_recent(entry).or_else(|| self.take_fresh())
        {
            return Some(id);
        }
        loop {
            if let Some(id) = self.bits.first_free(self.limit()) {
                return self.bits.take(id).then_some(id);
            }
            // A remote clear owns one and gives it back at once.
        }
    }

    /// Returns the bound of ids.
    fn limit(&self) -> u32 {
        // Relaxed: the union of allowed CPUs only grows, and the CPU of a task that needs an id is
        // in it.
        if self.asks_again {
            self.words.nr_cpus_allowed.load(Ordering::Relaxed)
        } else {
            self.entries.iter().count() as u32
        }
    }

    /// Returns the lesser of the numbers of CPUs and of tasks of the map.
    fn bound(&self) -> u32 {
        let MapWords { nr_cpus_allowed, mm_users, .. } = &*self.words;
        // Relaxed: either may change at once. Ids beyond the bound are given back later.
        nr_cpus_allowed.load(Ordering::Relaxed).min(mm_users.load(Ordering::Relaxed))
    }

    /// Takes the CPU's previous id, if it is still in the range in use and is free.
    fn take_recent(&self, entry: &Entry<M>) -> Option<u32> {
        let max = &self.words.max_nr_cid;
        // Relaxed, as below: the range of ids is a hint. The bit excludes.
        let mut highest = max.load(Ordering::Relaxed);
        loop {
            let bound = self.bound();
            if highest <= bound {
                break;
            }
            // Relaxed: as above.
            match max.compare_exchange(highest, bound, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => highest = bound,
                Err(now) => highest = now,
            }
        }
        // Relaxed: a hint.
        let recent = entry.recent_cid.load(Ordering::Relaxed);
        // This rejects `NONE` too, as it is beyond the range.
        (recent < highest && self.bits.take(recent)).then_some(recent)
    }

    /// Takes an id that was never used, within the bound of the map's tasks and CPUs.
    fn take_fresh(&self) -> Option<u32> {
        let max = &self.words.max_nr_cid;
        // Relaxed, as below: see `take_recent`.
        let mut id = max.load(Ordering::Relaxed);
        while id < self.bound() {
            // Relaxed: as above.
            match max.compare_exchange(id, id + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if self.bits.take(id) => return Some(id),
                Ok(_) => id += 1,
                Err(now) => id = now,
            }
        }
        None
    }

    /// Takes the id of `cpu` away, unless a task of the map runs there. The caller then owns it.
    fn steal(&self, cpu: CpuId, id: u32, runs: &dyn Runs) -> Option<u32> {
        let entry = &self.entries[cpu];
        // Relaxed: the fence orders it.
        entry.cid.compare_exchange(id, id | LAZY, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // SeqCst: step 2 of the module's protocol. Pairs with the fence of a switch.
        M::fence(Ordering::SeqCst);
        // A task that runs there gives the id up when it leaves.
        (!runs.runs(cpu, self.map) && Self::win(entry, id)).then_some(id)
    }

    fn remote_clear(&self, cpu: CpuId, id: u32, runs: &dyn Runs) {
        if let Some(id) = self.steal(cpu, id, runs) {
            self.bits.give_back(id);
        }
    }

    /// Returns the CPUs whose entries are valid, with their ids.
    fn valid(&self) -> impl Iterator<Item = (CpuId, u32, &Entry<M>)> {
        let numbered = (0..).map(CpuId).zip(self.entries.iter());
        // Relaxed: the caller acts by a compare-exchange.
        numbered.map(|(cpu, entry)| (cpu, entry.cid.load(Ordering::Relaxed), entry)).filter(|&(_, id, _)| is_valid(id))
    }
}

fn is_valid(id: u32) -> bool {
    id & LAZY == 0
}

fn is_lazy(id: u32) -> bool {
    id != NONE && id & LAZY != 0
}

impl<M: Memory> Allocator<M> for PerCpuIds<M> {
    fn join(&self, _id: TaskId, _task: &TaskIds<M>, allowed: &CpuSet, _walk: &dyn Walk<M>) {
        // Relaxed: a count. The task begins with its queue's lock.
        self.words.mm_users.fetch_add(1, Ordering::Relaxed);
        // A thread of the original has its creator's affinity.
        if self.asks_again && !self.bits.contains_all(ALLOWED, allowed) {
            self.allow(allowed);
        }
    }

    fn leave(&self, _id: TaskId, _task: &TaskIds<M>, _walk: &dyn Walk<M>) {
        // Relaxed: as above.
        self.words.mm_users.fetch_sub(1, Ordering::Relaxed);
    }

    fn allow(&self, allowed: &CpuSet) {
        // The union of allowed CPUs came with `recent_cid`.
        if !self.asks_again {
            return;
        }
        let _guard = self.words.cpus_allowed_lock.lock();
        let count = self.bits.add(ALLOWED, allowed);
        // Relaxed: under the lock. The load before the store keeps the line shared when nothing
        // changes.
        if self.words.nr_cpus_allowed.load(Ordering::Relaxed) != count {
            // Relaxed: a CPU that reads an older count finds fewer ids, and its own task's CPU is
            // counted.
            self.words.nr_cpus_allowed.store(count, Ordering::Relaxed);
        }
    }

    fn switch_out(&self, cpu: CpuId, task: &TaskIds<M>, ends: bool) {
        // Relaxed: written at construction only.
        self.words.pcpu_cid.load(Ordering::Relaxed);
        let entry = &self.entries[cpu];
        task.cid.set(NONE);
        if !ends {
            self.snapshot_time(entry);
            self.put_lazy(entry);
            return;
        }
        task.last_cid.set(NONE);
        // Relaxed, as below: a CPU that sees the entry, before it sees that nothing runs here,
        // fails at the compare-exchange.
        let mut id = entry.cid.load(Ordering::Relaxed);
        while id != NONE {
            // Relaxed: as above.
            match entry.cid.compare_exchange(id, NONE, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.bits.give_back(id & !LAZY),
                Err(now) => id = now,
            }
        }
    }

    fn switch_in(&self, cpu: CpuId, task: &TaskIds<M>) {
        let id = self.get(cpu);
        task.cid.set(id);
        task.last_cid.set(id);
    }

    fn arrive(&self, cpu: CpuId, from: CpuId, task: &TaskIds<M>, task_cpus: u32, runs: &dyn Runs) {
        let entry = &self.entries[cpu];
        let MapWords { mm_users, nr_cpus_allowed, .. } = &*self.words;
        // Relaxed: the CPU's lock is held. Other CPUs only take ids away.
        let has_one = entry.cid.load(Ordering::Relaxed) != NONE
            // Relaxed: a hint.
            || self.asks_again && entry.recent_cid.load(Ordering::Relaxed) != NONE;
        // Relaxed, and below: hints whether ids are worth gathering.
        let users = mm_users.load(Ordering::Relaxed);
        // Relaxed: as above.
        let cpus = if self.asks_again { nr_cpus_allowed.load(Ordering::Relaxed) } else { task_cpus };
        if has_one && users >= cpus {
            return;
        }
        let last = task.last_cid.get();
        // Relaxed: the steal checks it.
        if last == NONE || self.entries[from].cid.load(Ordering::Relaxed) != last {
            return;
        }
        if runs.runs(from, self.map) {
            return task.last_cid.set(NONE);
        }
        let Some(id) = self.steal(from, last, runs) else { return task.last_cid.set(NONE) };
        if self.asks_again {
            // Relaxed: a hint.
            self.entries[from].recent_cid.store(NONE, Ordering::Relaxed);
        }
        if has_one {
            return self.bits.give_back(id);
        }
        self.snapshot_time(entry);
        // Relaxed: under its CPU's lock, and it is unset.
        entry.cid.store(id, Ordering::Relaxed);
        if self.asks_again {
            // Relaxed: a hint.
            entry.recent_cid.store(id, Ordering::Relaxed);
        }
    }

    fn tick(&self) -> bool {
        // Relaxed: a hint; the scan's compare-exchange decides.
        self.nanos() >= self.words.mm_cid_next_scan.load(Ordering::Relaxed)
    }

    fn scan(&self, runs: &dyn Runs) {
        let kept = KEPT_FOR.as_picos() / 1_000;
        let (next, now) = (&self.words.mm_cid_next_scan, self.nanos());
        // Relaxed, as below: one winner, which publishes nothing by it.
        let due = next.load(Ordering::Relaxed);
        // Relaxed: as above.
        let has_won =
            now >= due && next.compare_exchange(due, now + kept, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !has_won || due == 0 {
            return;
        }
        for (cpu, id, entry) in self.valid() {
            if runs.runs(cpu, self.map) {
                // Relaxed: as in `snapshot_time`.
                entry.time.store(now, Ordering::Relaxed);
            } else if now >= entry.time.load(Ordering::Relaxed) + kept {
                self.remote_clear(cpu, id, runs);
            }
        }
        // The remaining ids are gathered at the low end: a CPU whose id is not below the number of
        // taken ids gives it up.
        let weight = self.bits.population();
        for (cpu, id, _) in self.valid() {
            if id >= weight {
                self.remote_clear(cpu, id, runs);
            }
        }
    }

    #[cfg(test)]
    fn take_away(&self, cpu: CpuId, runs: &dyn Runs) {
        if let Some((cpu, id, _)) = self.valid().find(|&(valid, ..)| valid == cpu) {
            self.remote_clear(cpu, id, runs);
        }
    }

    fn reset(&self, _walk: &dyn Walk<M>) {
        for entry in self.entries.iter() {
            // Relaxed, all of them: no task is left, and the next one begins with a lock.
            entry.time.store(0, Ordering::Relaxed);
            entry.cid.store(NONE, Ordering::Relaxed);
            entry.recent_cid.store(NONE, Ordering::Relaxed);
        }
        self.bits.clear();
        let MapWords { mm_cid_next_scan, nr_cpus_allowed, max_nr_cid, .. } = &*self.words;
        // Relaxed: as above.
        mm_cid_next_scan.store(0, Ordering::Relaxed);
        nr_cpus_allowed.store(0, Ordering::Relaxed);
        max_nr_cid.store(0, Ordering::Relaxed);
    }

    fn snapshot(&self, _walk: &dyn Walk<M>) -> MapSnapshot {
        // Relaxed: the state is quiescent.
        let held = self.entries.iter().map(|entry| entry.cid.load(Ordering::Relaxed)).filter(|&id| id != NONE);
        let mut held: Vec<u32> = held.map(|id| id & !LAZY).collect();
        held.sort_unstable();
        MapSnapshot {
            taken: self.bits.taken(),
            held,
            // Relaxed: as above.
            users: self.words.mm_users.load(Ordering::Relaxed),
            allowed: self.words.nr_cpus_allowed.load(Ordering::Relaxed),
            bound: self.limit(),
        }
    }
}

impl<M: Memory> fmt::Debug for PerCpuIds<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuIds")
            .field("map", &self.map)
            .field("asks_again", &self.asks_again)
            .finish_non_exhaustive()
    }
}
