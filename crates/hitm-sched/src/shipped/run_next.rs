//! The task that takes the place of its waker on a CPU: the offered task. It does not go through
//! the queue.
//!
//! **Claim.** A task that wakes or spawns an equal and then waits costs no lock at the wakeup, and
//! one exchange of two tasks under one lock at the switch. This holds for fair tasks if no other
//! waits there.
//!
//! **Origin.** `runnext` of Go's scheduler, and the slot of Tokio's workers. Both let the newest
//! task overtake those that wait. Here it goes behind those at the switch, so the order of arrival
//! holds; that of fair tasks is by their virtual times.
//!
//! **State.** A word for each CPU: a task's number plus 1, or 0. The task in it is awake and on no
//! queue.
//!
//! **Protocol.** [`offer`](RunNext::offer): by the CPU itself, under the task's `pi_lock`, if the
//! word is empty. [`take`](RunNext::take): under the lock of the CPU's queue, by that CPU at its
//! next switch or checkpoint, by whoever queues another task there or changes one, or by whoever
//! takes the CPU offline. So a task leaves the word once.
//!
//! **Memory ordering.** Takers exclude each other by the queue's lock. A change of the task holds
//! its `pi_lock`, so it sees an offer that came before. Other takers do not hold that lock: the
//! offer publishes the task's words to them.
//!
//! The model checker runs this word: `run_next/loom.rs`.
//!
//! **Cost.** The CPU's own line.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, PerCpu, described};
use hitm_topology::{CpuId, Topology};

use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;

described! {
    /// The offered task of one CPU.
    pub(crate) struct NextTask<M: Memory> as "run_next" {
        /// The task, counted from 1; 0 for none. Written by the CPU, and by others that queue or
        /// change a task there.
        task: M::Atomic<u32>,
    }
}

/// The offered task of each CPU.
pub(crate) struct RunNext<M: Memory> {
    cpus: PerCpu<M, NextTask<M>>,
}

impl<M: Memory> RunNext<M> {
    /// Creates the words of CPUs that have no such task.
    pub(crate) fn new(topology: &Topology) -> Self {
        Self { cpus: PerCpu::new(topology, |_| NextTask { task: M::Atomic::new(0) }) }
    }

    /// Returns the offered task of `cpu`: exact under the lock of its queue. The CPU itself sees
    /// none that is not there, and another CPU may take the task just now.
    #[inline]
    pub(crate) fn peek(&self, cpu: CpuId) -> Option<TaskId> {
        // Relaxed: a number by itself. Whoever uses the task takes it first.
        self.cpus[cpu].task.load(Ordering::Relaxed).checked_sub(1).map(TaskId)
    }

    /// Offers `id` to `cpu`, which calls. It has no offered task yet. The caller holds the task's
    /// `pi_lock`.
    #[inline]
    pub(crate) fn offer(&self, cpu: CpuId, id: TaskId) {
        // Release: publishes the task's words. Pairs with the Acquire of `take`.
        self.cpus[cpu].task.store(id.0 + 1, Ordering::Release);
    }

    /// Takes the offered task of the CPU of `rq`.
    #[inline]
    pub(crate) fn take(&self, rq: &RqGuard<'_, M>) -> Option<TaskId> {
        let word = &self.cpus[rq.cpu].task;
        // Acquire: sees the task's words. Pairs with the Release of `offer`.
        let id = word.load(Ordering::Acquire).checked_sub(1).map(TaskId)?;
        // Relaxed: the CPU itself offers next, and other takers hold the lock of the queue.
        word.store(0, Ordering::Relaxed);
        Some(id)
    }
}

impl<M: Memory> fmt::Debug for RunNext<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunNext").finish_non_exhaustive()
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;
