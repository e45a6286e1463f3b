//! Ids that stay where they were used last: [`Shipped`](super::Variant::Shipped), our own.
//!
//! **Claim.** A CPU that runs a task of the map again finds its id on a line that nobody else has touched, after any time, unless somebody
//! else needed it meanwhile. Nothing expires and nothing scans. No lock is taken on a switch. Ids are below the lesser of the map's tasks
//! and the CPUs that they may use, at once and not eventually: who holds one that is not any more gives it up where it next switches.
//!
//! **State.** One word an id, on a line of its own: who used it last, and
//!
//! | word | means | goes to | by whom |
//! |---|---|---|---|
//! | 0 or a CPU | free | in use | any CPU, by compare-exchange |
//! | in use | a task runs with it there | free | that CPU |
//! | retired, free | beyond what tasks and CPUs need | free | who makes it needed |
//! | retired, in use | the same, and a task runs with it | retired, free | that CPU |
//!
//! The word is all there is, so that nobody has to look at what another CPU runs, and no fence stands between two words.
//!
//! **Search.** A CPU takes (1) the id that it used last; (2) the one that its task used last, so that data follows the task; (3) one that
//! nobody has used yet; (4) one that a CPU of its LLC domain used last, whose data is near; (5) any. As many ids are not retired
//! as tasks of the map may run at once, so the search ends.
//!
//! **Invariants.** (a) An id is retired exactly if it is not below the limit, while nobody holds the lock. (b) The limit is the lesser of
//! users and allowed CPUs, while nobody holds the lock or is about to take it.
//!
//! **Memory ordering.** Taking an id is Acquire and leaving it Release, on its word: what was done with its data is seen by the next.
//! For (b), who changes users and who changes the CPUs each look at the other's word after a fence: store buffering is forbidden, and the
//! later of the two takes the lock.
//!
//! **Cost.** A switch in: a load and a read-modify-write of lines that are the CPU's own; out: one more. Beginning and ending tasks touch
//! a word of the map, and its lock only while there are fewer of them than CPUs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuSet, Described, Field, LineStart, Memory, PerCpu, Placed, PlacedSlice, PlainWord, RawSpinLock,
    described,
};
use hitm_topology::{CpuId, Scope, Topology};

use super::bits::Bits;
use super::{Allocator, MapId, MapSnapshot, NONE, TaskIds, Walk};
use crate::task::TaskId;

/// A task runs with the id.
const IN_USE: u32 = 1 << 30;
/// Nobody is to take the id.
const RETIRED: u32 = 1 << 31;

described! {
    /// A map's words.
    pub struct CidMap<M: Memory> as "cid_map" {
        /// Ids that are not retired. Written under `lock`; read by who has to look for an id.
        limit: M::Atomic<u32>,
        /// Ids that somebody has used. Written while it grows; read as `limit`.
        spread: M::Atomic<u32>,
        users_line: LineStart,
        /// Tasks. Written by every task that begins or ends.
        users: M::Atomic<u32>,
        /// CPUs that any of them may use.
        allowed: M::Atomic<u32>,
        /// Taken by who changes the limit.
        lock: RawSpinLock<M>,
    }
}

described! {
    /// An id.
    pub struct CidSlot<M: Memory> as "cid_slot" {
        /// Who used it last, counted from 1, and the module's flags.
        word: M::Atomic<u32>,
        end: LineStart,
    }
}

described! {
    /// What a CPU keeps of a map.
    pub struct CidSeat<M: Memory> as "cid_seat" {
        /// The id that it used last. Its own; read by CPUs of its LLC domain that look for one.
        recent: M::Atomic<u32>,
    }
}

/// One map.
pub(super) struct ShippedIds<M: Memory> {
    map: MapId,
    words: Placed<M, CidMap<M>>,
    slots: PlacedSlice<M, CidSlot<M>>,
    seats: PerCpu<M, CidSeat<M>>,
    /// The CPUs that the tasks may use.
    allowed: Bits<M>,
    topology: Arc<Topology>,
}

fn parked(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

impl<M: Memory> ShippedIds<M> {
    pub(super) fn new(map: MapId, topology: Arc<Topology>) -> Self {
        let index = Some(map.0 as usize);
        let words = CidMap {
            limit: M::Atomic::new(0),
            spread: M::Atomic::new(0),
            users_line: LineStart,
            users: M::Atomic::new(0),
            allowed: M::Atomic::new(0),
            lock: RawSpinLock::new(),
        };
        let fields = || {
            let size = size_of::<CidSlot<M>>();
            let field = Field {
                size,
                count: topology.cpus(),
                fields: CidSlot::<M>::fields(),
                ..Field::word("slot", 0, size, "an id")
            };
            vec![field]
        };
        let slot = |_| CidSlot { word: M::Atomic::new(RETIRED), end: LineStart };
        Self {
            map,
            words: Placed::new(words, index, None),
            slots: PlacedSlice::new("cid_slots", index, None, topology.cpus(), &fields, slot),
            seats: PerCpu::new(&topology, |_| CidSeat { recent: M::Atomic::new(NONE) }),
            allowed: Bits::new(map.0 as usize, &topology, &["cpus_allowed"]),
            topology,
        }
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> u32 {
        // Relaxed: nothing is in flight.
        self.words.limit.load(Ordering::Relaxed)
    }

    /// The word of an id; none of no id.
    fn word(&self, id: u32) -> Option<&M::Atomic<u32>> {
        Some(&self.slots.get(id as usize)?.word)
    }

    /// `id` for `cpu`, if its word is `expected`.
    fn take_if(&self, cpu: CpuId, id: u32, expected: u32) -> Option<u32> {
        let taken = parked(cpu) | IN_USE;
        // Acquire: sees what the last user did. Pairs with `switch_out`. Relaxed on failure: nothing is concluded.
        let won = self.word(id)?.compare_exchange(expected, taken, Ordering::Acquire, Ordering::Relaxed).is_ok();
        won.then_some(id)
    }

    /// `id` for `cpu`, if it is free.
    fn take(&self, cpu: CpuId, id: u32) -> Option<u32> {
        // Relaxed: the compare-exchange decides.
        let word = self.word(id)?.load(Ordering::Relaxed);
        if word & (IN_USE | RETIRED) == 0 { self.take_if(cpu, id, word) } else { None }
    }

    /// One that nobody has used yet.
    fn take_fresh(&self, cpu: CpuId) -> Option<u32> {
        let CidMap { limit, spread, .. } = &*self.words;
        loop {
            // Relaxed, as below: how far ids are spread is a hint; the id's own word decides.
            let id = spread.load(Ordering::Relaxed);
            // Relaxed: as above.
            if id >= limit.load(Ordering::Relaxed) {
                return None;
            }
            // Relaxed: as above.
            if spread.compare_exchange(id, id + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                && let Some(id) = self.take(cpu, id)
            {
                return Some(id);
            }
        }
    }

    /// One that a CPU of the LLC domain has used last.
    fn take_near(&self, cpu: CpuId) -> Option<u32> {
        let near = self.topology.cpus_of(Scope::Llc, self.topology.part_of(Scope::Llc, cpu));
        // Relaxed: a hint.
        near.iter().find_map(|&other| self.take(cpu, self.seats[other].recent.load(Ordering::Relaxed)))
    }

    fn search(&self, cpu: CpuId, last: u32) -> u32 {
        let first = self.take(cpu, last).or_else(|| self.take_fresh(cpu)).or_else(|| self.take_near(cpu));
        if let Some(id) = first {
            return id;
        }
        loop {
            // Relaxed: one more is found where it grew meanwhile, and none that was retired is taken.
            let limit = self.words.limit.load(Ordering::Relaxed);
            if let Some(id) = (0..limit).find_map(|id| self.take(cpu, id)) {
                return id;
            }
        }
    }

    /// Users or allowed CPUs have changed, in a way that may change the limit.
    fn adjust(&self) {
        let CidMap { limit, users, allowed, lock, .. } = &*self.words;
        let _guard = lock.lock();
        // Relaxed, all of them: who changes either later takes the lock later.
        let wanted = users.load(Ordering::Relaxed).min(allowed.load(Ordering::Relaxed));
        let mut now = limit.load(Ordering::Relaxed);
        while now < wanted {
            // Relaxed: nobody has used it since it was retired, or he gave it up by its word.
            self.slots[now as usize].word.fetch_and(!RETIRED, Ordering::Relaxed);
            now += 1;
        }
        while now > wanted {
            now -= 1;
            // Relaxed: whoever runs with it sees so when he leaves it.
            self.slots[now as usize].word.fetch_or(RETIRED, Ordering::Relaxed);
        }
        // Relaxed: a hint for searches.
        limit.store(now, Ordering::Relaxed);
    }

    /// The number of users was `before` and is one more, or less.
    fn adjust_users(&self, lesser: u32) {
        // SeqCst: sees the CPUs that are allowed, or who allows them sees the users. Pairs with the fence in `allow`.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence. With as many users as CPUs before and after, the limit stays.
        if lesser < self.words.allowed.load(Ordering::Relaxed) {
            self.adjust();
        }
    }
}

impl<M: Memory> Allocator<M> for ShippedIds<M> {
    fn join(&self, _id: TaskId, _task: &TaskIds<M>, allowed: &CpuSet, _walk: &dyn Walk<M>) {
        // Relaxed: `adjust_users` orders it.
        let before = self.words.users.fetch_add(1, Ordering::Relaxed);
        self.allow(allowed);
        self.adjust_users(before);
    }

    fn leave(&self, _id: TaskId, _task: &TaskIds<M>, _walk: &dyn Walk<M>) {
        // Relaxed: as above.
        let before = self.words.users.fetch_sub(1, Ordering::Relaxed);
        self.adjust_users(before - 1);
    }

    fn allow(&self, allowed: &CpuSet) {
        // Looking first: mostly there is nothing to add, and then nothing is written.
        if self.allowed.contains_all(allowed) {
            return;
        }
        {
            let _guard = self.words.lock.lock();
            let count = self.allowed.add(0, allowed);
            // Relaxed: ordered by the fence below.
            self.words.allowed.store(count, Ordering::Relaxed);
        }
        // SeqCst: sees the users, or who changes them sees the CPUs. Pairs with the fence in `adjust_users`.
        M::fence(Ordering::SeqCst);
        self.adjust();
    }

    fn switch_out(&self, _cpu: CpuId, task: &TaskIds<M>, _ends: bool) {
        let id = task.cid.get();
        task.cid.set(NONE);
        let word = self.word(id).expect("a task that runs has an id");
        // Release: publishes what the task did with the id's data. Pairs with `take_if`.
        let before = word.fetch_and(!IN_USE, Ordering::Release);
        assert_ne!(before & IN_USE, 0, "id {id} is given back twice");
    }

    fn switch_in(&self, cpu: CpuId, task: &TaskIds<M>) {
        let recent = &self.seats[cpu].recent;
        // Relaxed: the CPU's own.
        let own = recent.load(Ordering::Relaxed);
        let id = self.take_if(cpu, own, parked(cpu)).unwrap_or_else(|| {
            let id = self.search(cpu, task.last_cid.get());
            // Relaxed: a hint for others.
            recent.store(id, Ordering::Relaxed);
            id
        });
        task.cid.set(id);
        task.last_cid.set(id);
    }

    fn reset(&self, _walk: &dyn Walk<M>) {
        let CidMap { limit, spread, allowed, .. } = &*self.words;
        // Relaxed, all of them: no task is left, and the next one begins by a lock.
        self.slots.iter().for_each(|slot| slot.word.store(RETIRED, Ordering::Relaxed));
        self.seats.iter().for_each(|seat| seat.recent.store(NONE, Ordering::Relaxed));
        limit.store(0, Ordering::Relaxed);
        spread.store(0, Ordering::Relaxed);
        allowed.store(0, Ordering::Relaxed);
        self.allowed.clear();
    }

    fn snapshot(&self, _walk: &dyn Walk<M>) -> MapSnapshot {
        let CidMap { limit, users, allowed, .. } = &*self.words;
        // Relaxed, all of them: nothing is in flight.
        let in_use = |slot: &CidSlot<M>| slot.word.load(Ordering::Relaxed) & IN_USE != 0;
        let taken: Vec<u32> = (0..).zip(self.slots.iter()).filter(|(_, slot)| in_use(slot)).map(|(id, _)| id).collect();
        MapSnapshot {
            held: taken.clone(),
            taken,
            users: users.load(Ordering::Relaxed),
            allowed: allowed.load(Ordering::Relaxed),
            bound: limit.load(Ordering::Relaxed),
        }
    }
}

impl<M: Memory> fmt::Debug for ShippedIds<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShippedIds").field("map", &self.map).finish_non_exhaustive()
    }
}
