//! Ids that stay where they were last used: [`Shipped`](crate::cid::Variant::Shipped), our own.
//!
//! **Claim.** A CPU that runs a task of the map again finds its id on a line that no other CPU has
//! touched, after any time, unless another task needed the id meanwhile. Nothing expires, and there
//! are no scans. No lock is taken on a switch, nor where tasks begin and end. Ids are below the
//! lesser of the numbers of the map's tasks and of the CPUs that they may use, at once and not
//! eventually: a holder of a higher id gives it up at its next switch.
//!
//! **State.** Each id has one word, on a line of its own: its last user, whether a task runs with
//! it, and a balance. The balance counts the tasks that joined or left while the number of other
//! tasks was the id's number: plus one for each that left, minus one for each that joined. It
//! begins at one. An id is needed while its balance is 0 or less.
//!
//! | word | meaning | goes to | changed by |
//! |---|---|---|---|
//! | needed, 0 or a CPU | free | in use | any CPU, by compare-exchange |
//! | needed, in use | a task runs with it on that CPU | free | that CPU |
//! | not needed, free | there are no more tasks than its number | needed | a task that joins |
//! | not needed, in use | the same, and a task runs with it | not needed, free | that CPU |
//!
//! The word is the whole state, so no CPU has to check what another CPU runs, and there is no fence
//! between two words.
//!
//! **Need.** The count of tasks tells each task that joins how many there were, and so which id
//! becomes needed. In the same way it tells each task that leaves which id is not needed any more.
//! Two tasks may reach the id's word in another order than the count: the sum is the same. The
//! number of CPUs that tasks may use only grows, so it bounds the search and is in no word.
//!
//! **Search.** A CPU takes the first free one of these: (1) the id that it last used; (2) the id
//! that its task last used, so that data follows the task; (3) an id that was never used; (4) an id
//! that a CPU of its LLC domain last used, whose data is near; (5) any id. There are as many needed
//! ids as tasks of the map that may run at once. Tasks that are still joining are not counted, but
//! cannot run before they have joined. So the search ends.
//!
//! **Invariants.** (a) While no task is joining or leaving, an id is needed exactly if it is below
//! the number of tasks. (b) Only the CPU that has set an id in use makes it free.
//!
//! **Memory ordering.** Taking an id is Acquire and leaving it is Release, on its word: the next
//! user sees what the last one did with the id's data. The operations between are
//! read-modify-writes, which continue the release sequence.
//!
//! **Cost.** A switch in: one load and one read-modify-write of lines that are the CPU's own. A
//! switch out: one more read-modify-write. Beginning or ending a task: one read-modify-write of a
//! word of the map, and one of an id that is used only while there are as many tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, CpuSet, Described, Field, LineStart, Memory, PerCpu, Placed, PlacedSlice, PlainWord, RawSpinLock,
    described,
};
use hitm_topology::{CpuId, MAX_CPUS, Scope, Topology};

use crate::base::cid::{Allocator, MapSnapshot, NONE, TaskIds, Walk};
use crate::base::id_bits::Bits;
use crate::base::numbers::{MapId, TaskId};

/// A task runs with the id.
const IN_USE: u32 = 1 << 15;
/// One task that left: the unit of the balance, which is signed.
pub(crate) const LEFT: u32 = 1 << 16;

const _: () = assert!((MAX_CPUS as u32) < IN_USE, "a CPU, counted from 1, stands below the flag");

described! {
    /// A map's words.
    pub struct CidMap<M: Memory> as "cid_map" {
        /// The number of ids that were ever used. Written while it grows, read by searches for an
        /// id.
        spread: M::Atomic<u32>,
        /// CPUs that any of the tasks may use. Written under `lock`; read as `spread`.
        allowed: M::Atomic<u32>,
        /// Taken by a CPU that adds allowed CPUs.
        lock: RawSpinLock<M>,
        users_line: LineStart,
        /// The number of tasks. Written by every task that begins or ends.
        users: M::Atomic<u32>,
    }
}

described! {
    /// The word of one id.
    pub struct CidSlot<M: Memory> as "cid_slot" {
        /// The last user, counted from 1; whether it is in use; the balance. See the module.
        word: M::Atomic<u32>,
        end: LineStart,
    }
}

described! {
    /// A CPU's word of a map.
    pub struct CidSeat<M: Memory> as "cid_seat" {
        /// The CPU's last id. Its own; read by CPUs of its LLC domain that search for an id.
        recent: M::Atomic<u32>,
    }
}

/// One map.
pub(crate) struct ShippedIds<M: Memory> {
    map: MapId,
    words: Placed<M, CidMap<M>>,
    slots: PlacedSlice<M, CidSlot<M>>,
    seats: PerCpu<M, CidSeat<M>>,
    /// The CPUs that the tasks may use.
    allowed: Bits<M>,
    topology: Arc<Topology>,
}

/// Returns the word of a needed, free id that `cpu` last used. In any state it is the user's part
/// of the word.
fn parked(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

/// Returns an id's balance.
fn balance(word: u32) -> i32 {
    word.cast_signed() >> LEFT.trailing_zeros()
}

fn is_needed(word: u32) -> bool {
    balance(word) <= 0
}

impl<M: Memory> ShippedIds<M> {
    pub(crate) fn new(map: MapId, topology: Arc<Topology>) -> Self {
        let index = Some(map.0 as usize);
        let words = CidMap {
            spread: M::Atomic::new(0),
            allowed: M::Atomic::new(0),
            lock: RawSpinLock::new(),
            users_line: LineStart,
            users: M::Atomic::new(0),
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
        let slot = |_| CidSlot { word: M::Atomic::new(LEFT), end: LineStart };
        Self {
            map,
            words: Placed::new(words, index, None),
            slots: PlacedSlice::new("cid_slots", index, None, topology.cpus(), &fields, slot),
            seats: PerCpu::new(&topology, |_| CidSeat { recent: M::Atomic::new(NONE) }),
            allowed: Bits::new(map.0 as usize, &topology, &["cpus_allowed"]),
            topology,
        }
    }

    /// Returns the bound of ids in a quiescent state.
    pub(crate) fn bound(&self) -> u32 {
        // Relaxed, both: the state is quiescent.
        let allowed = self.words.allowed.load(Ordering::Relaxed);
        let needed = |&id: &u32| self.word(id).is_some_and(|word| is_needed(word.load(Ordering::Relaxed)));
        (0..allowed).take_while(needed).count() as u32
    }

    /// Returns the word of an id, or `None` if there is no such id.
    fn word(&self, id: u32) -> Option<&M::Atomic<u32>> {
        Some(&self.slots.get(id as usize)?.word)
    }

    /// Takes `id` for `cpu`, if its word is `expected`.
    fn take_if(&self, cpu: CpuId, id: u32, expected: u32) -> Option<u32> {
        let taken = expected & !(LEFT - 1) | parked(cpu) | IN_USE;
        // Acquire: sees what the last user did. Pairs with `switch_out`. Relaxed on failure:
        // nothing follows from it.
        let won = self.word(id)?.compare_exchange(expected, taken, Ordering::Acquire, Ordering::Relaxed).is_ok();
        won.then_some(id)
    }

    /// Takes `id` for `cpu`, if it is free.
    fn take(&self, cpu: CpuId, id: u32) -> Option<u32> {
        // Relaxed: the compare-exchange decides.
        let word = self.word(id)?.load(Ordering::Relaxed);
        if is_needed(word) && word & IN_USE == 0 { self.take_if(cpu, id, word) } else { None }
    }

    /// Takes an id that was never used.
    fn take_fresh(&self, cpu: CpuId) -> Option<u32> {
        let CidMap { spread, allowed, .. } = &*self.words;
        loop {
            // Relaxed, as below: the number of used ids is a hint. The id's own word decides.
            let id = spread.load(Ordering::Relaxed);
            // Relaxed: as above.
            if id >= allowed.load(Ordering::Relaxed) || !is_needed(self.word(id)?.load(Ordering::Relaxed)) {
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

    /// Takes an id that a CPU of the LLC domain last used.
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
            // Relaxed: if the number grows meanwhile, one more id is found.
            let allowed = self.words.allowed.load(Ordering::Relaxed);
            if let Some(id) = (0..allowed).find_map(|id| self.take(cpu, id)) {
                return id;
            }
        }
    }
}

impl<M: Memory> Allocator<M> for ShippedIds<M> {
    fn join(&self, _id: TaskId, _task: &TaskIds<M>, allowed: &CpuSet, _walk: &dyn Walk<M>) {
        self.allow(allowed);
        // Relaxed: only the order of its changes matters.
        let before = self.words.users.fetch_add(1, Ordering::Relaxed);
        if let Some(word) = self.word(before) {
            // Relaxed: the task runs later, ordered by its queue's lock, and then sees this.
            word.fetch_sub(LEFT, Ordering::Relaxed);
        }
    }

    fn leave(&self, _id: TaskId, _task: &TaskIds<M>, _walk: &dyn Walk<M>) {
        // Relaxed: as above.
        let after = self.words.users.fetch_sub(1, Ordering::Relaxed) - 1;
        if let Some(word) = self.word(after) {
            // Relaxed: the CPU that runs with the id sees this when it leaves the id.
            word.fetch_add(LEFT, Ordering::Relaxed);
        }
    }

    fn allow(&self, allowed: &CpuSet) {
        // The check comes first: mostly there is nothing to add, and then nothing is written.
        if self.allowed.contains_all(0, allowed) {
            return;
        }
        let _guard = self.words.lock.lock();
        let count = self.allowed.add(0, allowed);
        // Relaxed: the task that may use the CPUs runs there later, ordered by its queue's lock.
        self.words.allowed.store(count, Ordering::Relaxed);
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
        // Relaxed: the CPU's own word.
        let own = recent.load(Ordering::Relaxed);
        let id = self.take_if(cpu, own, parked(cpu)).unwrap_or_else(|| {
            let id = self.search(cpu, task.last_cid.get());
            // Relaxed: a hint for other CPUs.
            recent.store(id, Ordering::Relaxed);
            id
        });
        task.cid.set(id);
        task.last_cid.set(id);
    }

    fn reset(&self, _walk: &dyn Walk<M>) {
        let CidMap { spread, allowed, .. } = &*self.words;
        // Relaxed, all of them: no task is left, and the next one begins with a lock.
        self.slots.iter().for_each(|slot| slot.word.store(LEFT, Ordering::Relaxed));
        self.seats.iter().for_each(|seat| seat.recent.store(NONE, Ordering::Relaxed));
        spread.store(0, Ordering::Relaxed);
        allowed.store(0, Ordering::Relaxed);
        self.allowed.clear();
    }

    fn snapshot(&self, _walk: &dyn Walk<M>) -> MapSnapshot {
        let CidMap { users, allowed, .. } = &*self.words;
        // Relaxed, all of them: the state is quiescent.
        let in_use = |slot: &CidSlot<M>| slot.word.load(Ordering::Relaxed) & IN_USE != 0;
        let taken: Vec<u32> = (0..).zip(self.slots.iter()).filter(|(_, slot)| in_use(slot)).map(|(id, _)| id).collect();
        MapSnapshot {
            held: taken.clone(),
            taken,
            users: users.load(Ordering::Relaxed),
            allowed: allowed.load(Ordering::Relaxed),
            bound: self.bound(),
        }
    }
}

impl<M: Memory> fmt::Debug for ShippedIds<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShippedIds").field("map", &self.map).finish_non_exhaustive()
    }
}
