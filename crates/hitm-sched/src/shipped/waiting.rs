//! Advertisements of waiting tasks: words that advertise a waiting task only to the CPUs that could
//! run it.
//!
//! **Claim.** A CPU learns from one line of its own which queues hold tasks that it may take. It
//! learns from one word per LLC whether tasks wait that may run on many CPUs, and from another
//! whether one of them is urgent. Nothing is written for a task that runs at once, or for a CPU
//! that changes its priority.
//!
//! **Origin.** Ours. The kernel advertises a CPU as overloaded while it has any task that may move,
//! to all CPUs, in one word.
//!
//! **Roles.** [`Waiting::tell`] and [`Waiting::withdraw`] are called under the lock of the queue
//! that the task waits on, the *source*. The other functions are called by the CPU that the task is
//! advertised to. [`announce`](super::announce) says when.
//!
//! **State.** A CPU's line has the count of tasks that wait for it, and one slot per source: the
//! source's number and its count of tasks.
//!
//! **Invariants.** In a quiescent state: (1) a CPU's count is the sum of its slots; (2) a source
//! has at most one slot per CPU; (3) `waiting_anywhere` counts the sources whose bits are set. At
//! any time: (4) a taken slot is written only under its source's lock, so the lock's holder loads
//! and stores it. Only taking a free slot is a race.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | words, fence SeqCst in `told`, loads of priorities | store of a priority, fence SeqCst in `any_for`, words | one of them sees the other |
//!
//! A CPU that sees a count, but not yet the slot or the bit, has read before the advertiser's
//! fence. Then the advertiser sees that CPU's priority. The model checker runs these words:
//! `waiting/loom.rs`.
//!
//! **Layout.** One line per CPU, as count and slots are read together. One line per LLC for each of
//! the counts, and one or more for the bits.
//!
//! **Limits.** A CPU has slots for fifteen sources. If one of a task's CPUs has no free slot, the
//! task is advertised to all CPUs, like a task that may run on many.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, BitmapRow, CpuSet, Encoding, LINE, Memory, PerCpu, ScopedBitmaps, ScopedCounter, described,
};
use hitm_topology::{CpuId, Scope, Topology};

use crate::base::operation;
use crate::shipped::floor::Floors;

/// The number of slots: together with the count they fill a line.
const SLOTS: usize = LINE / size_of::<u32>() - 1;

/// The bits of a slot that count tasks. The others are the source's number plus one, so a free slot
/// is 0.
const COUNT_BITS: u32 = 16;

described! {
    /// The advertisements for one CPU.
    pub(crate) struct WaitingFor<M: Memory> as "waiting" {
        /// Tasks that wait elsewhere and may run here. Written by the holders of their queues, read
        /// by this CPU.
        tasks: M::Atomic<i32>,
        /// The queues that they wait on, and how many on each. Written and read like the count.
        sources: [M::Atomic<u32>; SLOTS] = words,
    }
}

const _: () = assert!(size_of::<WaitingFor<hitm_memory::Native>>() == LINE, "one line");

/// All advertisements.
pub(crate) struct Waiting<M: Memory> {
    by_cpu: PerCpu<M, WaitingFor<M>>,
    /// CPUs whose queues hold tasks that are advertised to all CPUs, by LLC.
    anywhere: ScopedCounter<M>,
    /// The same CPUs as bits, by LLC.
    sources: ScopedBitmaps<M>,
    /// Urgent tasks that are advertised to all CPUs, by LLC of their CPU. They are counted where
    /// CPUs keep wakeups; elsewhere a CPU looks at all sources.
    urgent: Option<ScopedCounter<M>>,
    /// The LLCs where a search would find no CPU.
    pub(crate) floors: Floors<M>,
}

/// The advertisements, for checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSnapshot {
    /// By CPU: the count of tasks that wait elsewhere and may run there.
    pub by_cpu: Vec<i32>,
    /// The slots: the CPU that may take the tasks, the CPU that they wait on, and their count,
    /// ascending.
    pub slots: Vec<(CpuId, CpuId, u32)>,
    /// The count of CPUs with tasks that are advertised to all CPUs.
    pub anywhere: i32,
    /// The count of urgent tasks among them, where they are counted.
    pub urgent: Option<i32>,
    /// The CPUs on which those tasks wait.
    pub sources: CpuSet,
}

fn first_of(source: CpuId) -> u32 {
    (source.0 + 1) << COUNT_BITS | 1
}

/// Returns the source of a slot and its count of tasks, or `None` for a free slot.
fn read_slot(slot: u32) -> Option<(CpuId, u32)> {
    let source = (slot >> COUNT_BITS).checked_sub(1)?;
    Some((CpuId(source), slot & ((1 << COUNT_BITS) - 1)))
}

impl<M: Memory> WaitingFor<M> {
    /// Returns the slot of `source`, and its value.
    fn slot_of(&self, source: CpuId) -> Option<(&M::Atomic<u32>, u32)> {
        // Relaxed: the caller holds the source's lock, and the source's slot is written only under
        // that lock.
        let slots = self.sources.iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
        slots.into_iter().find(|&(_, value)| read_slot(value).is_some_and(|(owner, _)| owner == source))
    }

    /// Adds one task of `source`. Returns false when there is no slot for it.
    fn enter(&self, source: CpuId) -> bool {
        // The operation that takes the line comes first, so that the others hit it. Relaxed: a CPU
        // that sees the count and not yet the slot has read before the fence in `told`, and the
        // look that follows the fence sees that CPU's priority.
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
            // Relaxed: a CPU that saw the count searches in vain.
            self.tasks.fetch_sub(1, Ordering::Relaxed);
        }
        entered
    }

    /// Takes a free slot for the first task of `source`. Returns false when there is none.
    fn take_slot(&self, source: CpuId) -> bool {
        self.sources.iter().any(|slot| {
            // Relaxed: a free slot holds nothing; published by the fence in `told`.
            let taken = || slot.compare_exchange(0, first_of(source), Ordering::Relaxed, Ordering::Relaxed);
            // Relaxed: as above.
            slot.load(Ordering::Relaxed) == 0 && taken().is_ok()
        })
    }

    /// Removes one task of `source`.
    fn leave(&self, source: CpuId) {
        // The operation that takes the line comes first. Relaxed: a CPU that reads the old count
        // searches in vain, which is harmless.
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
    /// Creates an object without advertisements, which `counts_urgent` tasks or does not.
    pub(crate) fn new(topology: &Topology, counts_urgent: bool) -> Self {
        let none = |_| WaitingFor { tasks: M::Atomic::new(0), sources: std::array::from_fn(|_| M::Atomic::new(0)) };
        Self {
            by_cpu: PerCpu::new(topology, none),
            anywhere: ScopedCounter::of_parts("waiting_anywhere", topology, Scope::Llc),
            urgent: counts_urgent.then(|| ScopedCounter::of_parts("waiting_urgent", topology, Scope::Llc)),
            sources: ScopedBitmaps::new("waiting_sources", "cpus", 1, topology, Scope::Llc, Encoding::Zeros),
            floors: Floors::new(topology),
        }
    }

    /// Advertises a task that waits on `source` to each of `cpus`. If one of them has no slot left,
    /// it advertises to none and returns false.
    pub(crate) fn tell(&self, source: CpuId, cpus: &CpuSet) -> bool {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        let Some(full) = cpus.iter().find(|&cpu| !self.by_cpu[cpu].enter(source)) else { return true };
        cpus.iter().take_while(|&cpu| cpu != full).for_each(|cpu| self.by_cpu[cpu].leave(source));
        false
    }

    /// Withdraws the advertisement of a task that [`Waiting::tell`] made to `cpus`.
    pub(crate) fn withdraw(&self, source: CpuId, cpus: &CpuSet) {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        cpus.iter().for_each(|cpu| self.by_cpu[cpu].leave(source));
    }

    /// Advertises to all CPUs that tasks wait on `source`. Call it for the first such task. A CPU
    /// that looks at the queue finds the further ones.
    pub(crate) fn tell_all(&self, source: CpuId) {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        // Relaxed: before the fence in `told`.
        self.all_sources().set(source, Ordering::Relaxed);
        // Relaxed: as above.
        self.anywhere.cell_of(source).fetch_add(1, Ordering::Relaxed);
    }

    /// Withdraws the advertisement of [`Waiting::tell_all`] when the last such task of `source`
    /// waits no more.
    pub(crate) fn withdraw_from_all(&self, source: CpuId) {
        let _advertising = operation::SET_OR_CLEAR.begin::<M>();
        // Relaxed: a CPU that still sees the count or the bit searches in vain at worst.
        self.anywhere.cell_of(source).fetch_sub(1, Ordering::Relaxed);
        // Relaxed: as above.
        self.all_sources().clear(source, Ordering::Relaxed);
    }

    /// Returns whether urgent tasks are counted.
    pub(crate) fn counts_urgent(&self) -> bool {
        self.urgent.is_some()
    }

    /// Counts an urgent task of `source` that is advertised to all CPUs.
    pub(crate) fn count_urgent(&self, source: CpuId) {
        if let Some(urgent) = &self.urgent {
            // Relaxed: before the fence in `told`.
            urgent.cell_of(source).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts no more a task that [`Waiting::count_urgent`] counted.
    pub(crate) fn uncount_urgent(&self, source: CpuId) {
        if let Some(urgent) = &self.urgent {
            // Relaxed: a CPU that still sees the count looks in vain at worst.
            urgent.cell_of(source).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether an urgent task is advertised to all CPUs, as `cpu` sees the count.
    #[track_caller]
    pub(crate) fn any_urgent(&self, cpu: CpuId) -> bool {
        // Relaxed inside: the caller has fenced in `any_for`.
        self.urgent.as_ref().is_some_and(|urgent| urgent.sum_of_parts(cpu, 0) > 0)
    }

    /// Ends an advertisement. From now on the CPUs see it, or they have written their priority
    /// before the caller looks at it next.
    pub(crate) fn told(&self) {
        // SeqCst: between the advertisement and the advertiser's second look. Pairs with the fence
        // in `any_for`.
        M::fence(Ordering::SeqCst);
    }

    /// Returns whether tasks are advertised to `cpu` and few others, and whether tasks are
    /// advertised to all CPUs. The caller has stored its priority before. An advertiser that this
    /// call misses sees that priority.
    pub(crate) fn any_for(&self, cpu: CpuId) -> (bool, bool) {
        let _look = operation::LOOK.begin::<M>();
        // SeqCst: between the store of the priority and these words. Pairs with the fence in
        // `told`.
        M::fence(Ordering::SeqCst);
        // Relaxed: fenced.
        (self.by_cpu[cpu].tasks.load(Ordering::Relaxed) > 0, self.any_for_all(cpu))
    }

    /// Returns whether tasks are advertised to all CPUs, as `cpu` sees it.
    #[track_caller]
    pub(crate) fn any_for_all(&self, cpu: CpuId) -> bool {
        // Relaxed inside: the caller has fenced.
        self.anywhere.sum_of_parts(cpu, 0) > 0
    }

    /// Returns the CPUs with waiting tasks that are advertised to `cpu` and few others.
    pub(crate) fn sources_for(&self, cpu: CpuId) -> CpuSet {
        self.by_cpu[cpu].sources().map(|(source, _)| source).collect()
    }

    /// Returns the CPUs with waiting tasks that are advertised to all CPUs.
    pub(crate) fn all_sources(&self) -> BitmapRow<'_, M> {
        self.sources.row(self.sources.pointer_to(0))
    }

    /// Returns the advertisements. Call it only in a quiescent state.
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
            urgent: self.urgent.as_ref().map(|urgent| urgent.sum_of_parts(CpuId(0), i32::MAX)),
            sources: self.all_sources().snapshot(),
        }
    }

    /// Returns the bytes of all words, in whole lines.
    pub(crate) fn bytes(&self) -> usize {
        self.by_cpu.iter().count() * LINE
            + self.anywhere.bytes()
            + self.urgent.as_ref().map_or(0, ScopedCounter::bytes)
            + self.sources.bytes()
            + self.floors.bytes()
    }
}

impl<M: Memory> fmt::Debug for Waiting<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("anywhere", &self.anywhere).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod loom;
