//! Ids that tasks own while tasks do not outnumber ids, and CPUs own otherwise:
//! [`Owned`](crate::cid::Variant::Owned).
//!
//! **Claim.** A switch only reads words that other CPUs write, and makes no read-modify-write,
//! unless ownership has just changed or an id is exchanged for a lower one. The ownership of ids is
//! decided where it changes: where tasks begin and end.
//!
//! **Origin.** Linux's per-mm concurrency ids since v6.19 (Thomas Gleixner, "sched/mmcid", 2025,
//! read as of v7.1). There are two differences. First, the mutex spins, since nothing can sleep
//! here. Second, more allowed CPUs may let tasks own ids again. Here the next task that begins or
//! ends makes that change. In the original a worker makes it at once, so its `deferred_work` and
//! `update_deferred` are only padding here.
//!
//! **State.** A held id carries flags: none if the task owns it, `ON_CPU` if the CPU does,
//! `TRANSIT` if a running task has it until it leaves. The mode of the map tells which of the first
//! two is wanted, and whether it is about to change.
//!
//! | mode | a task gets, when it begins to run | a task keeps, when it leaves |
//! |---|---|---|
//! | tasks own | its own id | that id |
//! | CPUs own | the CPU's id | nothing |
//! | either, in transit | its own id, the CPU's, or a new one | nothing: the id goes back |
//!
//! **Protocol** of a change, under the mutex: (1) the mode is stored with `TRANSIT`; (2) fence; (3)
//! every task, or every CPU, is visited under its queue's lock: an id of the old kind is marked
//! `TRANSIT` if it is in use, else it is given back; (4) fence; (5) the mode loses `TRANSIT`. A
//! task that leaves a CPU with an id in transit passes the id to its new owner if the mode has
//! settled, else gives it back.
//!
//! **Invariants.** (a) Every taken id is held by one task or one CPU. (b) After a change no id of
//! the old kind is left, and only ids of tasks that have run without a switch since then have
//! `TRANSIT`. (c) Each id is below `max_cids`, or is exchanged for such an id when its task next
//! runs.
//!
//! **Memory ordering.** Entries and tasks' ids are under queues' locks. The visit of step 3 sees a
//! switch that held its queue's lock before the visit. A switch that holds the lock after the visit
//! sees the mode of step 1, by the lock. So the mode needs no ordering of its own. The fences are
//! the original's, and kept for their cost: the visits' locks already order step 1 before the
//! visits and step 5 after them.

use std::fmt;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hitm_memory::{AtomicWord, CpuSet, LineStart, Memory, Native, PerCpu, Placed, PlainWord, RawSpinLock, described};
use hitm_topology::{CpuId, Topology};

use crate::base::cid::{Allocator, MapSnapshot, NONE, TaskIds, Walk};
use crate::base::id_bits::Bits;
use crate::base::numbers::{MapId, TaskId};

/// Of an id: the CPU owns it. Of a mode: CPUs own ids.
pub(crate) const ON_CPU: u32 = 1 << 30;
/// Of an id: the running task has it until it leaves. Of a mode: it is about to change.
pub(crate) const TRANSIT: u32 = 1 << 29;

described! {
    /// A map's words.
    pub struct OwnedWords<M: Memory> as "mm_mm_cid" {
        /// Pointer to the CPUs' entries. Read by every switch.
        pcpu: M::Atomic<u64>,
        /// The owner of ids: tasks or CPUs. Written where tasks begin and end, read by every
        /// switch.
        mode: M::Atomic<u32>,
        /// The bound of ids. As `mode`.
        max_cids: M::Atomic<u32>,
        deferred_work: [u64; 8],
        /// Protects the limits.
        lock: RawSpinLock<M>,
        hole_after_lock: u32,
        /// Taken by tasks that begin or end.
        mutex: RawSpinLock<M>,
        rest_of_mutex: [u32; 7],
        user_list: u64,
        /// CPUs that any of the tasks may use. Under `lock`.
        nr_cpus_allowed: M::Atomic<u32>,
        /// The number of tasks. Under `mutex`.
        users: M::Atomic<u32>,
        /// With fewer tasks than this, tasks own ids again. Under `lock`.
        pcpu_thrs: M::Atomic<u32>,
        update_deferred: u32,
        end: LineStart,
    }
}

const _: () = assert!(size_of::<OwnedWords<Native>>() == 192, "the original's size");
const _: () = assert!(offset_of!(OwnedWords<Native>, lock) == 80, "the original's offset");
const _: () = assert!(offset_of!(OwnedWords<Native>, mutex) == 88, "the original's offset");
const _: () = assert!(offset_of!(OwnedWords<Native>, nr_cpus_allowed) == 128, "the original's offset");

described! {
    /// A CPU's word of a map: alone on its line.
    pub struct OwnedEntry<M: Memory> as "mm_cid_pcpu" {
        /// The CPU's id, or the running task's. Under the CPU's queue lock.
        cid: M::Plain<u32>,
    }
}

/// One map.
pub(crate) struct OwnedIds<M: Memory> {
    map: MapId,
    words: Placed<M, OwnedWords<M>>,
    entries: PerCpu<M, OwnedEntry<M>>,
    bits: Bits<M>,
    cpus: u32,
    /// The tasks of the map. Under `mutex`.
    tasks: Mutex<Vec<TaskId>>,
}

/// The index of the CPUs that the tasks may use, among the sets of [`Bits`].
const ALLOWED: usize = 0;

/// Returns whether a task owns a held id.
pub(crate) fn is_tasks(held: u32) -> bool {
    held & (ON_CPU | TRANSIT) == 0
}

pub(crate) fn is_cpus(held: u32) -> bool {
    held != NONE && held & ON_CPU != 0
}

pub(crate) fn is_in_transit(held: u32) -> bool {
    held != NONE && held & TRANSIT != 0
}

/// Returns a held id without flags.
fn id_of(held: u32) -> u32 {
    held & !(ON_CPU | TRANSIT)
}

impl<M: Memory> OwnedIds<M> {
    pub(crate) fn new(map: MapId, topology: &Topology) -> Self {
        let words = OwnedWords {
            pcpu: M::Atomic::new(0),
            mode: M::Atomic::new(0),
            max_cids: M::Atomic::new(0),
            deferred_work: [0; 8],
            lock: RawSpinLock::new(),
            hole_after_lock: 0,
            mutex: RawSpinLock::new(),
            rest_of_mutex: [0; 7],
            user_list: 0,
            nr_cpus_allowed: M::Atomic::new(0),
            users: M::Atomic::new(0),
            pcpu_thrs: M::Atomic::new(0),
            update_deferred: 0,
            end: LineStart,
        };
        let index = map.0 as usize;
        Self {
            map,
            words: Placed::new(words, Some(index), None),
            entries: PerCpu::new(topology, |_| OwnedEntry { cid: M::Plain::new(NONE) }),
            bits: Bits::new(index, topology, &["mm_cpus_allowed", "cidmask"]),
            cpus: topology.cpus() as u32,
            tasks: Mutex::default(),
        }
    }

    /// Returns the mode and the bound of ids, as a switch sees them.
    pub(crate) fn mode(&self) -> (u32, u32) {
        let OwnedWords { mode, max_cids, .. } = &*self.words;
        // Relaxed, both: the queue's lock orders them, see the module.
        (mode.load(Ordering::Relaxed), max_cids.load(Ordering::Relaxed))
    }

    /// Returns the id of `cpu`.
    #[cfg(test)]
    pub(crate) fn entry(&self, cpu: CpuId) -> u32 {
        self.entries[cpu].cid.get()
    }

    /// Takes a free id, a low one if possible.
    fn take(&self) -> u32 {
        let (_, max) = self.mode();
        loop {
            let free = self.bits.first_free(max).or_else(|| self.bits.first_free(self.cpus));
            if let Some(id) = free.filter(|&id| self.bits.take(id)) {
                return id;
            }
        }
    }

    /// Returns `id`. If it is not below `max`, exchanges it for a lower one if possible.
    fn converge(&self, id: u32, max: u32) -> u32 {
        if id < max {
            return id;
        }
        match self.bits.first_free(max).filter(|&lower| self.bits.take(lower)) {
            Some(lower) => {
                self.bits.give_back(id);
                lower
            }
            None => id,
        }
    }

    /// Returns the id, with its owner's flags, of a task that begins to run. The task holds `own`
    /// and the CPU holds `cpus`.
    fn enter(&self, own: u32, cpus: u32) -> u32 {
        let (mode, max) = self.mode();
        let [own, cpus] = [is_tasks(own).then_some(own), is_cpus(cpus).then(|| id_of(cpus))];
        // The id to keep, and the one to give back.
        let (kept, spare) =
            if mode & ON_CPU == 0 { (own.or(cpus), own.and(cpus)) } else { (cpus.or(own), cpus.and(own)) };
        if let Some(spare) = spare {
            self.bits.give_back(spare);
        }
        let id = kept.unwrap_or_else(|| self.take());
        match mode {
            _ if mode & TRANSIT != 0 => id | TRANSIT,
            _ => self.converge(id, max) | mode,
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tasks that can run at once.
    fn optimum(&self) -> u32 {
        let OwnedWords { nr_cpus_allowed, users, .. } = &*self.words;
        // Relaxed, both: under the lock. The mutex protects `users`, which may be a moment old
        // without it.
        nr_cpus_allowed.load(Ordering::Relaxed).min(users.load(Ordering::Relaxed))
    }

    /// Updates the bound of ids. Called with `lock`.
    fn update_limit(&self) {
        let optimum = self.optimum();
        // Relaxed: under the lock. A switch that sees an old bound exchanges its id once more.
        self.words.max_cids.store((optimum + optimum / 4).min(self.cpus), Ordering::Relaxed);
    }

    /// Updates the number of tasks below which tasks own ids again, while CPUs do. Called with
    /// `lock`.
    fn update_threshold(&self) {
        let optimum = self.optimum();
        // Relaxed: under the lock.
        self.words.pcpu_thrs.store((optimum - optimum / 4).min(self.cpus / 2).max(1), Ordering::Relaxed);
    }

    /// Returns the wanted owner of ids. Called with `mutex`.
    fn wanted(&self) -> u32 {
        let OwnedWords { max_cids, users, pcpu_thrs, mode, lock, .. } = &*self.words;
        let _guard = lock.lock();
        self.update_limit();
        // Relaxed, both: under the lock and the mutex.
        let (users, mode) = (users.load(Ordering::Relaxed), mode.load(Ordering::Relaxed));
        match mode & ON_CPU {
            0 if users > max_cids.load(Ordering::Relaxed) => ON_CPU,
            // Relaxed: under the lock.
            ON_CPU if users < pcpu_thrs.load(Ordering::Relaxed) => 0,
            same => same,
        }
    }

    /// Makes the wanted owner own the ids, and visits all holders of ids of the other kind. Called
    /// with `mutex`.
    fn settle(&self, walk: &dyn Walk<M>) {
        let OwnedWords { mode, lock, .. } = &*self.words;
        let wanted = self.wanted();
        // Relaxed: written only under the mutex.
        if mode.load(Ordering::Relaxed) == wanted {
            return;
        }
        // Relaxed, both stores: the visits' locks order them.
        mode.store(wanted | TRANSIT, Ordering::Relaxed);
        // SeqCst: the original's. A switch that takes a queue's lock after the visit below sees the
        // mode, by the lock.
        M::fence(Ordering::SeqCst);
        match wanted {
            0 => (0..self.cpus).map(CpuId).for_each(|cpu| self.take_from_cpu(cpu, walk)),
            _ => self.tasks().iter().for_each(|&task| self.take_from_task(task, walk)),
        }
        // SeqCst: the original's, as above. The visits are over.
        M::fence(Ordering::SeqCst);
        // Relaxed: as above.
        mode.store(wanted, Ordering::Relaxed);
        if wanted == ON_CPU {
            let _guard = lock.lock();
            self.update_threshold();
        }
    }

    fn take_from_task(&self, task: TaskId, walk: &dyn Walk<M>) {
        walk.with_task(task, &mut |ids, cpu, runs| {
            let held = ids.last_cid.get();
            match (is_tasks(held), runs) {
                (false, _) => {}
                (true, true) => {
                    ids.last_cid.set(held | TRANSIT);
                    self.entries[cpu].cid.set(held | TRANSIT);
                }
                (true, false) => {
                    ids.last_cid.set(NONE);
                    self.bits.give_back(held);
                }
            }
        });
    }

    fn take_from_cpu(&self, cpu: CpuId, walk: &dyn Walk<M>) {
        walk.with_cpu(cpu, self.map, &mut |running| {
            let held = self.entries[cpu].cid.get();
            match (is_cpus(held), running) {
                (false, _) => {}
                (true, Some(ids)) => {
                    ids.last_cid.set(id_of(held) | TRANSIT);
                    self.entries[cpu].cid.set(id_of(held) | TRANSIT);
                }
                (true, None) => {
                    self.entries[cpu].cid.set(NONE);
                    self.bits.give_back(id_of(held));
                }
            }
        });
    }
}

impl<M: Memory> Allocator<M> for OwnedIds<M> {
    fn join(&self, id: TaskId, task: &TaskIds<M>, allowed: &CpuSet, walk: &dyn Walk<M>) {
        let OwnedWords { mutex, users, mode, .. } = &*self.words;
        let _guard = mutex.lock();
        // Relaxed: under the mutex.
        users.store(users.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.allow(allowed);
        self.settle(walk);
        // Not before: the task does not run yet, and needs no visit.
        self.tasks().push(id);
        // Relaxed: as above.
        if mode.load(Ordering::Relaxed) == 0 {
            task.last_cid.set(self.take());
        }
    }

    fn leave(&self, id: TaskId, task: &TaskIds<M>, walk: &dyn Walk<M>) {
        let OwnedWords { mutex, users, .. } = &*self.words;
        let _guard = mutex.lock();
        // Relaxed: under the mutex.
        users.store(users.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.tasks().retain(|&other| other != id);
        let held = task.last_cid.get();
        if is_tasks(held) {
            // The task never ran.
            task.last_cid.set(NONE);
            self.bits.give_back(held);
        }
        self.settle(walk);
    }

    fn allow(&self, allowed: &CpuSet) {
        let OwnedWords { lock, nr_cpus_allowed, mode, .. } = &*self.words;
        let _guard = lock.lock();
        let count = self.bits.add(ALLOWED, allowed);
        // Relaxed, all of them: under the lock.
        if nr_cpus_allowed.load(Ordering::Relaxed) == count {
            return;
        }
        nr_cpus_allowed.store(count, Ordering::Relaxed);
        self.update_limit();
        if mode.load(Ordering::Relaxed) & ON_CPU != 0 {
            self.update_threshold();
        }
    }

    fn switch_out(&self, cpu: CpuId, task: &TaskIds<M>, ends: bool) {
        let held = task.last_cid.get();
        task.cid.set(NONE);
        let (mode, max) = self.mode();
        let id = id_of(held);
        let (tasks, cpus) = match held {
            // The id goes to its new owner, or back.
            _ if is_in_transit(held) && !ends && mode & TRANSIT == 0 && id < max => {
                if mode & ON_CPU == 0 {
                    (id, NONE)
                } else {
                    (NONE, id | ON_CPU)
                }
            }
            _ if is_in_transit(held) || ends && is_tasks(held) => {
                self.bits.give_back(id);
                (NONE, NONE)
            }
            // The CPU keeps the id.
            _ if is_cpus(held) => (NONE, held),
            _ => return,
        };
        task.last_cid.set(tasks);
        self.entries[cpu].cid.set(cpus);
    }

    fn switch_in(&self, cpu: CpuId, task: &TaskIds<M>) {
        // Relaxed: written at construction only.
        self.words.pcpu.load(Ordering::Relaxed);
        let entry = &self.entries[cpu].cid;
        let held = self.enter(task.last_cid.get(), entry.get());
        if entry.get() != held {
            entry.set(held);
        }
        if task.last_cid.get() != held {
            task.last_cid.set(held);
        }
        task.cid.set(id_of(held));
    }

    fn reset(&self, walk: &dyn Walk<M>) {
        let OwnedWords { mode, max_cids, nr_cpus_allowed, pcpu_thrs, .. } = &*self.words;
        for word in [mode, max_cids, nr_cpus_allowed, pcpu_thrs] {
            // Relaxed: no task is left, and the next one begins with a lock.
            word.store(0, Ordering::Relaxed);
        }
        for cpu in (0..self.cpus).map(CpuId) {
            walk.with_cpu(cpu, self.map, &mut |_| self.entries[cpu].cid.set(NONE));
        }
        self.bits.clear();
    }

    fn snapshot(&self, walk: &dyn Walk<M>) -> MapSnapshot {
        let OwnedWords { mutex, users, nr_cpus_allowed, .. } = &*self.words;
        // A task that has left may still be in `settle`.
        let _guard = mutex.lock();
        let entries = self.entries.iter().map(|entry| entry.cid.peek());
        let mut held: Vec<u32> = entries.filter(|&held| is_cpus(held)).map(id_of).collect();
        for &task in self.tasks().iter() {
            walk.with_task(task, &mut |ids, _, _| {
                let own = ids.last_cid.get();
                held.extend((is_tasks(own) || is_in_transit(own)).then(|| id_of(own)));
            });
        }
        held.sort_unstable();
        MapSnapshot {
            taken: self.bits.taken(),
            held,
            // Relaxed, both: the state is quiescent.
            users: users.load(Ordering::Relaxed),
            allowed: nr_cpus_allowed.load(Ordering::Relaxed),
            bound: self.cpus,
        }
    }
}

impl<M: Memory> fmt::Debug for OwnedIds<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedIds").field("map", &self.map).finish_non_exhaustive()
    }
}
