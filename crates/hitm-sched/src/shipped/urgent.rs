//! The most urgent task of an LLC that its CPU has not begun.
//!
//! **Claim.** A task that was woken onto a CPU that must first leave something less urgent is taken
//! by the first CPU of the LLC that comes to a switch or a checkpoint. So it does not wait for one
//! CPU that is inside a long poll, or whose thread the operating system has preempted.
//!
//! **Origin.** Ours. The kernel interrupts the CPU instead, and a hypervisor that has preempted
//! that CPU delays the task.
//!
//! **State.** One word per LLC: the priority of the task and the CPU that it waits for, or
//! [`NONE`]. The more urgent of two tasks replaces the other.
//!
//! **Protocol.** The waker, under the lock of the queue: tells. The CPU that begins the task, or
//! one that takes it, under the same lock: withdraws. A CPU at a switch reads the word. If the task
//! is more urgent than its next one, it tries the lock of that queue once, and takes the task.
//!
//! **Invariant.** In a quiescent state the word names no queue from which nothing urgent waits. A
//! word that names a queue is written and withdrawn under the queue's lock, or replaced by a more
//! urgent one.
//!
//! **Memory ordering.** Relaxed: a hint. The queue's lock orders what is taken. A CPU that misses
//! the word finds it at its next switch; the CPU that the task waits for does not need it.
//!
//! **Cost.** A switch: one load of a line that is written only when urgent tasks wait. Such a
//! wakeup: two read-modify-writes of it.
//!
//! **Limits.** Only one task per LLC is named, and none of the least urgent real-time priority.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placed, described};
use hitm_topology::{CpuId, MAX_CPUS, Scope, Topology};

use crate::base::prio::Prio;

/// No task.
const NONE: u32 = u32::MAX;

/// The bits of the CPU.
const CPU_BITS: u32 = 16;

const _: () = assert!(MAX_CPUS <= 1 << CPU_BITS, "a CPU fits");

/// Relaxed: see the module.
const HINT: Ordering = Ordering::Relaxed;

described! {
    /// The word of an LLC.
    pub(crate) struct Urgent<M: Memory> as "llc_urgent" {
        /// Priority and CPU. Written by wakers of urgent tasks, and by the CPUs that begin them;
        /// read at each switch.
        word: M::Atomic<u32>,
    }
}

/// The words of all LLCs.
pub(crate) struct UrgentTasks<M: Memory> {
    by_llc: Box<[Placed<M, Urgent<M>>]>,
    llc_of: Box<[u32]>,
}

/// A task that waits, as a word names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) prio: Prio,
    pub(crate) cpu: CpuId,
}

impl Named {
    fn to_word(self) -> u32 {
        (self.prio.0 as u32) << CPU_BITS | self.cpu.0
    }

    fn of_word(word: u32) -> Option<Self> {
        let cpu = CpuId(word % (1 << CPU_BITS));
        (word != NONE).then_some(Self { prio: Prio((word >> CPU_BITS) as i32), cpu })
    }
}

impl<M: Memory> UrgentTasks<M> {
    /// Creates the words; no task waits.
    pub(crate) fn new(topology: &Topology) -> Self {
        let none = |llc| {
            let node = topology.cpu(topology.cpus_of(Scope::Llc, llc)[0]).node;
            Placed::new(Urgent { word: M::Atomic::new(NONE) }, Some(llc), Some(node))
        };
        Self {
            by_llc: (0..topology.llcs()).map(none).collect(),
            llc_of: topology.cpu_ids().map(|cpu| topology.part_of(Scope::Llc, cpu) as u32).collect(),
        }
    }

    #[inline]
    fn word(&self, cpu: CpuId) -> &M::Atomic<u32> {
        &self.by_llc[self.llc_of[cpu.index()] as usize].word
    }

    /// Names a task that waits for its CPU. The caller holds the lock of the CPU's queue.
    pub(crate) fn tell(&self, named: Named) {
        let word = self.word(named.cpu);
        if named.to_word() < word.load(HINT) {
            word.fetch_min(named.to_word(), HINT);
        }
    }

    /// Returns the task that is named to `cpu`.
    #[inline]
    pub(crate) fn named_to(&self, cpu: CpuId) -> Option<Named> {
        Named::of_word(self.word(cpu).load(HINT))
    }

    /// Withdraws a name. The caller holds the lock of the queue of `named.cpu`.
    pub(crate) fn withdraw(&self, named: Named) {
        // If it fails, a more urgent task has replaced it.
        let _replaced = self.word(named.cpu).compare_exchange(named.to_word(), NONE, HINT, HINT);
    }
}

impl<M: Memory> fmt::Debug for UrgentTasks<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_llc.iter().map(|urgent| Named::of_word(urgent.word.load(HINT)))).finish()
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn the_most_urgent_task_is_named() {
        let topology = hitm_topology::parse("pack:2 core:2 pu:1").expect("two LLCs");
        let urgent = UrgentTasks::<Native>::new(&topology);
        let [low, high] = [(50, 0), (9, 1)].map(|(prio, cpu)| Named { prio: Prio(prio), cpu: CpuId(cpu) });
        urgent.tell(low);
        assert_eq!([0, 1, 2].map(|cpu| urgent.named_to(CpuId(cpu))), [Some(low), Some(low), None]);
        urgent.tell(high);
        urgent.withdraw(low);
        assert_eq!(urgent.named_to(CpuId(0)), Some(high));
        urgent.tell(low);
        urgent.withdraw(high);
        assert_eq!(urgent.named_to(CpuId(0)), None, "a less urgent task is not remembered");
    }
}
