//! Who waits for a CPU: the words in which that is told to those CPUs alone that could take it.
//!
//! **Claim.** A CPU learns from one line of its own which queues hold tasks that it may take, and from a word an LLC whether tasks wait
//! that may run on many. Nothing is written for a task that runs at once, or for a CPU that changes its priority.
//!
//! **Origin.** Ours. The kernel announces a CPU as overloaded while it has any task that may move, to all CPUs, in one word.
//!
//! **Roles.** [`Waiting::tell`] and [`Waiting::withdraw`] are called under the lock of the queue that the task waits on, the *source*;
//! everything else by the CPU that it is told to. When: see [`announce`](crate::announce).
//!
//! **State.** A CPU's line has a count of what waits for it, and a slot a source: the source's number and how many of its tasks.
//!
//! **Invariants.** With nothing in flight: (1) a CPU's count is the sum of its slots; (2) a source has at most one slot of a CPU;
//! (3) `waiting_anywhere` counts the sources whose bits are set. At any time: (4) a slot that is taken is
//! written under its source's lock alone, so its owner reads and stores it; only taking a free one is a race.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | words, fence SeqCst in `told`, a look at priorities | a priority, fence SeqCst in `any_for`, words | one of them sees the other |
//!
//! Whoever sees a count and not yet the slot or the bit has looked before the other's fence, so the other sees its priority. The model
//! checker runs these words: `waiting/loom.rs`.
//!
//! **Layout.** A line a CPU: count and slots are read together. A line an LLC for the counts, and one or more for the bits.
//!
//! **Limits.** A CPU has slots for fifteen sources. A task for which one of its CPUs has no slot is told to all, like one that may use
//! many.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, BitmapRow, CpuSet, Encoding, LINE, Memory, PerCpu, ScopedBitmaps, ScopedCounter, described,
};
use hitm_topology::{CpuId, Scope, Topology};

use crate::floor::Floors;

/// With the count as many as a line has room for.
const SLOTS: usize = LINE / size_of::<u32>() - 1;

/// Bits of a slot that count tasks; the others are the source's number and one, so that a free slot is 0.
const COUNT_BITS: u32 = 16;

described! {
    /// What waits for one CPU.
    pub(crate) struct WaitingFor<M: Memory> as "waiting" {
        /// Tasks that wait elsewhere and may run here. Written by the holders of their queues, read by this CPU.
        tasks: M::Atomic<i32>,
        /// Whose queues they are in, and how many in each. Written and read as the count is.
        sources: [M::Atomic<u32>; SLOTS] = words,
    }
}

const _: () = assert!(size_of::<WaitingFor<hitm_memory::Native>>() == LINE, "one line");

/// All that is told.
pub(crate) struct Waiting<M: Memory> {
    by_cpu: PerCpu<M, WaitingFor<M>>,
    /// CPUs whose queues hold tasks that are told to all, by LLC.
    anywhere: ScopedCounter<M>,
    /// The same CPUs one by one, by LLC.
    sources: ScopedBitmaps<M>,
    /// Where nobody need be looked for.
    pub(crate) floors: Floors<M>,
}

/// What is told, for checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSnapshot {
    /// By CPU: tasks that wait elsewhere and may run there.
    pub by_cpu: Vec<i32>,
    /// Where they wait: the CPU that may take them, the CPU that they wait on, and how many, ascending.
    pub slots: Vec<(CpuId, CpuId, u32)>,
    /// How many CPUs tasks wait on that are told to all.
    pub anywhere: i32,
    /// The CPUs on which those wait.
    pub sources: CpuSet,
}

fn first_of(source: CpuId) -> u32 {
    (source.0 + 1) << COUNT_BITS | 1
}

/// The source of a slot, and how many of its tasks; none of a free one.
fn read_slot(slot: u32) -> Option<(CpuId, u32)> {
    let source = (slot >> COUNT_BITS).checked_sub(1)?;
    Some((CpuId(source), slot & ((1 << COUNT_BITS) - 1)))
}

impl<M: Memory> WaitingFor<M> {
    /// The slot of `source`, and its value.
    fn slot_of(&self, source: CpuId) -> Option<(&M::Atomic<u32>, u32)> {
        // Relaxed: whoever asks holds the source's lock, under which alone its slot is written.
        let slots = self.sources.iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
        slots.into_iter().find(|&(_, value)| read_slot(value).is_some_and(|(owner, _)| owner == source))
    }

    /// One more task of `source`; false when there is no slot for it.
    fn enter(&self, source: CpuId) -> bool {
        // First the operation that takes the line, so that all others find it. Relaxed: whoever sees the count and not yet the slot has
        // looked before the fence in `told`, and is seen by the look that follows it.
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let entered = match self.slot_of(source) {
            Some((_, value)) if value.trailing_ones() >= COUNT_BITS => false,
            Some((slot, value)) => {
                // Relaxed: before the fence in `told`, as above.
                slot.store(value + 1, Ordering::Relaxed);
                true
            }
            None => self.take_slot(source),
        };
        if !entered {
            // Relaxed: who saw it looks in vain.
            self.tasks.fetch_sub(1, Ordering::Relaxed);
        }
        entered
    }

    /// Takes a free slot for the first task of `source`. False when there is none.
    fn take_slot(&self, source: CpuId) -> bool {
        self.sources.iter().any(|slot| {
            // Relaxed: a free slot holds nothing; published by the fence in `told`.
            let taken = || slot.compare_exchange(0, first_of(source), Ordering::Relaxed, Ordering::Relaxed);
            // Relaxed: as above.
            slot.load(Ordering::Relaxed) == 0 && taken().is_ok()
        })
    }

    /// One task of `source` less.
    fn leave(&self, source: CpuId) {
        // First the operation that takes the line. Relaxed: who misses what leaves misses nothing, who sees it looks in vain.
        self.tasks.fetch_sub(1, Ordering::Relaxed);
        let Some((slot, value)) = self.slot_of(source) else { unreachable!("its task was entered") };
        let left = if value == first_of(source) { 0 } else { value - 1 };
        // Relaxed: as above.
        slot.store(left, Ordering::Relaxed);
    }

    fn sources(&self) -> impl Iterator<Item = (CpuId, u32)> {
        // Relaxed: the caller has fenced, or nothing is in flight.
        self.sources.iter().filter_map(|slot| read_slot(slot.load(Ordering::Relaxed)))
    }
}

impl<M: Memory> Waiting<M> {
    /// Nobody waits.
    pub(crate) fn new(topology: &Topology) -> Self {
        let none = |_| WaitingFor { tasks: M::Atomic::new(0), sources: std::array::from_fn(|_| M::Atomic::new(0)) };
        Self {
            by_cpu: PerCpu::new(topology, none),
            anywhere: ScopedCounter::of_parts("waiting_anywhere", topology, Scope::Llc),
            sources: ScopedBitmaps::new("waiting_sources", "cpus", 1, topology, Scope::Llc, Encoding::Zeros),
            floors: Floors::new(topology),
        }
    }

    /// Tells each of `cpus` of a task that waits on `source`. False, and nobody is told, when one of them has no slot left.
    pub(crate) fn tell(&self, source: CpuId, cpus: &CpuSet) -> bool {
        let Some(full) = cpus.iter().find(|&cpu| !self.by_cpu[cpu].enter(source)) else { return true };
        cpus.iter().take_while(|&cpu| cpu != full).for_each(|cpu| self.by_cpu[cpu].leave(source));
        false
    }

    /// The task of which [`Waiting::tell`] told `cpus` does not wait on `source` any more.
    pub(crate) fn withdraw(&self, source: CpuId, cpus: &CpuSet) {
        cpus.iter().for_each(|cpu| self.by_cpu[cpu].leave(source));
    }

    /// Tells all CPUs that tasks wait on `source`: of the first one. Of further ones its queue tells whoever looks there.
    pub(crate) fn tell_all(&self, source: CpuId) {
        // Relaxed: before the fence in `told`.
        self.all_sources().set(source, Ordering::Relaxed);
        // Relaxed: as above.
        self.anywhere.cell_of(source).fetch_add(1, Ordering::Relaxed);
    }

    /// The last of the tasks of which [`Waiting::tell_all`] told does not wait on `source` any more.
    pub(crate) fn withdraw_from_all(&self, source: CpuId) {
        // Relaxed: who still sees the count or the bit looks in vain at worst.
        self.anywhere.cell_of(source).fetch_sub(1, Ordering::Relaxed);
        // Relaxed: as above.
        self.all_sources().clear(source, Ordering::Relaxed);
    }

    /// Ends the telling: whoever was told sees it from now on, or has written before what the caller looks at next.
    pub(crate) fn told(&self) {
        // SeqCst: between what was told and the teller's second look. Pairs with the fence in `any_for`.
        M::fence(Ordering::SeqCst);
    }

    /// Whether something waits that is told to `cpu` and few others, and whether something is told to all. Asked after a write: whoever
    /// tells and is not seen here sees that.
    pub(crate) fn any_for(&self, cpu: CpuId) -> (bool, bool) {
        // SeqCst: between that write and these words. Pairs with the fence in `told`.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        (self.by_cpu[cpu].tasks.load(Ordering::Relaxed) > 0, self.any_for_all(cpu))
    }

    /// Whether something is told to all, as `cpu` sees it.
    #[track_caller]
    pub(crate) fn any_for_all(&self, cpu: CpuId) -> bool {
        // Relaxed inside: the caller has fenced.
        self.anywhere.sum_of_parts(cpu, 0) > 0
    }

    /// The CPUs on which tasks wait that are told to `cpu` and few others.
    pub(crate) fn sources_for(&self, cpu: CpuId) -> CpuSet {
        self.by_cpu[cpu].sources().map(|(source, _)| source).collect()
    }

    /// The CPUs on which tasks wait that are told to all.
    pub(crate) fn all_sources(&self) -> BitmapRow<'_, M> {
        self.sources.row(self.sources.pointer_to(0))
    }

    /// What is told. Only when nothing is in flight.
    pub(crate) fn snapshot(&self) -> WaitingSnapshot {
        // Relaxed: nothing is in flight.
        let tasks = |waiting: &WaitingFor<M>| waiting.tasks.load(Ordering::Relaxed);
        let slots = |(cpu, waiting): (CpuId, &WaitingFor<M>)| {
            waiting.sources().map(|(source, count)| (cpu, source, count)).collect::<Vec<_>>()
        };
        let mut slots: Vec<_> = (0..).map(CpuId).zip(self.by_cpu.iter()).flat_map(slots).collect();
        slots.sort_unstable();
        WaitingSnapshot {
            by_cpu: self.by_cpu.iter().map(tasks).collect(),
            slots,
            anywhere: self.anywhere.sum_of_parts(CpuId(0), i32::MAX),
            sources: self.all_sources().snapshot(),
        }
    }

    /// Bytes of all of it, whole lines.
    pub(crate) fn bytes(&self) -> usize {
        self.by_cpu.iter().count() * LINE + self.anywhere.bytes() + self.sources.bytes() + self.floors.bytes()
    }
}

impl<M: Memory> fmt::Debug for Waiting<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("anywhere", &self.anywhere).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod loom;
