//! The tasks that a CPU's own task has woken, or that the CPU has taken, and that are on no queue
//! yet: the offered tasks.
//!
//! **Claim.** A task that wakes or spawns an equal and then waits costs no lock at the wakeup, and
//! one exchange of two tasks under one lock at the switch. Real-time tasks of the least priority
//! and fair tasks of the usual weight do so also if many wait, and while other CPUs take some of
//! them: those in the ring are in no list. Real-time ones are advertised as one. Fair ones are
//! found by CPUs that look for the fullest queue.
//!
//! **Origin.** `runnext` of Go's scheduler, and the slot of Tokio's workers. Both let the newest
//! task overtake those that wait. Here it goes behind those at the switch, so the order of arrival
//! holds; that of fair tasks is by their virtual times. That others take the tasks is like Linux's
//! wake list, where a waker leaves a task to the CPU that is to run it.
//!
//! **State.** A ring for each CPU, and two counts: of the tasks that were offered, and of those
//! that were taken. A task in it is awake and on no queue. A third count, under the queue's lock,
//! is that of fair tasks which [count](crate::fair::offered) on the queue.
//!
//! **Protocol.** [`offer`](RunNext::offer): by the CPU itself, under the task's `pi_lock`, if it
//! [has a place](RunNext::has_place); or under the lock of the CPU's queue by whoever takes tasks
//! for the CPU while it runs none. [`take`](RunNext::take): under the lock of the CPU's queue, by
//! that CPU at a switch or its next checkpoint, by whoever queues another task there, changes one,
//! or takes several, or by whoever takes the CPU offline. So a task leaves the ring once, and in
//! the order of the offers.
//!
//! **Memory ordering.** Takers exclude each other by the queue's lock. A change of the task holds
//! its `pi_lock`, so it sees an offer that came before. Other takers do not hold that lock: the
//! offer publishes the task's words to them.
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `offer`: `offered`, Release | `take`: `offered`, Acquire | the number, and the task's words |
//! | `take`: `taken`, Release | `has_place`: `taken`, Acquire | that the number was read |
//!
//! An offer without the `pi_lock` is of a task that was taken under the lock of another queue. Who
//! changes the task needs the lock of the queue that the task goes to, and finds it in the ring.
//!
//! The model checker runs these words: `run_next/loom.rs`.
//!
//! **Cost.** An offer touches up to three of the CPU's lines: the count, the place, and `taken`.
//! Each of them misses once after others have taken tasks.

use std::array::from_fn;
use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LineStart, Memory, PerCpu, PlainWord, described};
use hitm_topology::{CpuId, Topology};

use crate::base::numbers::TaskId;
use crate::base::rq::RqGuard;

/// The most offered tasks of a CPU: as many as a queue of Tokio's workers has. If one more comes,
/// all of them are queued. The unit tests, of which the model checks are a part, use each place
/// again soon.
const PLACES: usize = if cfg!(test) { 2 } else { 256 };

/// The most offered tasks that are counted at once, from the first one on. An idle CPU that takes
/// half of many need not count them out again.
const COUNTED_MOST: u32 = 16;

described! {
    /// The offered tasks of one CPU.
    pub(crate) struct NextTasks<M: Memory> as "run_next" {
        /// How many were offered so far. Written by the CPU, or for it while it runs no task.
        offered: M::Atomic<u32>,
        /// 1 if a task that may not be in a ring that is advertised was offered since the CPU last
        /// switched with an empty ring. Its own.
        mixed: M::Plain<u32>,
        /// Their numbers, the n-th in the place n modulo the length. Written as `offered`.
        tasks: [M::Plain<u32>; PLACES] = words,
        taken_line: LineStart,
        /// How many were taken so far. Written by the CPU, and by others that queue or change a
        /// task there, or take several.
        taken: M::Atomic<u32>,
        /// How many of those in the ring, from the first one, are fair and [count] on the CPU's
        /// fair queue. Under the lock of the queue.
        ///
        /// [count]: crate::base::timeline::Timeline::count_in
        counted: M::Plain<u32>,
    }
}

impl<M: Memory> NextTasks<M> {
    fn place(&self, count: u32) -> &M::Plain<u32> {
        &self.tasks[count as usize % PLACES]
    }
}

/// The offered tasks of each CPU.
pub(crate) struct RunNext<M: Memory> {
    cpus: PerCpu<M, NextTasks<M>>,
}

impl<M: Memory> RunNext<M> {
    /// Creates the rings of CPUs that have no such task.
    pub(crate) fn new(topology: &Topology) -> Self {
        Self {
            cpus: PerCpu::new(topology, |_| NextTasks {
                offered: M::Atomic::new(0),
                mixed: M::Plain::new(0),
                tasks: from_fn(|_| M::Plain::new(0)),
                taken_line: LineStart,
                taken: M::Atomic::new(0),
                counted: M::Plain::new(0),
            }),
        }
    }

    /// Returns how many tasks are offered to `cpu`. The CPU itself, under the lock of its queue,
    /// sees the exact number. Under the lock alone, more may come; without it, some may go.
    #[inline]
    pub(crate) fn count(&self, cpu: CpuId) -> u32 {
        let ring = &self.cpus[cpu];
        // Relaxed, both: numbers by themselves. Whoever uses a task takes it first.
        ring.offered.load(Ordering::Relaxed).wrapping_sub(ring.taken.load(Ordering::Relaxed))
    }

    /// Returns how many tasks are offered to another CPU: a hint.
    pub(crate) fn hint(&self, cpu: CpuId) -> u32 {
        // The two numbers are of two moments.
        self.count(cpu).min(PLACES as u32)
    }

    /// Returns the tasks that are offered to `cpu`, in order: as exact as [`count`](Self::count).
    pub(crate) fn peek(&self, cpu: CpuId) -> impl Iterator<Item = TaskId> + '_ {
        let ring = &self.cpus[cpu];
        // Relaxed, both: as in `count`.
        let (offered, taken) = (ring.offered.load(Ordering::Relaxed), ring.taken.load(Ordering::Relaxed));
        // Without the lock, the two are of two moments.
        let count = offered.wrapping_sub(taken).min(PLACES as u32);
        (0..count).map(move |nth| TaskId(ring.place(taken.wrapping_add(nth)).peek()))
    }

    /// Returns the first task that is offered to `cpu`: as exact as [`count`](Self::count).
    #[inline]
    pub(crate) fn first(&self, cpu: CpuId) -> Option<TaskId> {
        let ring = &self.cpus[cpu];
        // Relaxed, both: as in `count`.
        let (offered, taken) = (ring.offered.load(Ordering::Relaxed), ring.taken.load(Ordering::Relaxed));
        (offered != taken).then(|| TaskId(ring.place(taken).peek()))
    }

    /// Returns the task that is offered to `cpu` if there is just one: as exact as
    /// [`count`](Self::count).
    #[inline]
    pub(crate) fn only(&self, cpu: CpuId) -> Option<TaskId> {
        if self.count(cpu) == 1 { self.first(cpu) } else { None }
    }

    /// Returns whether `cpu`, which calls, has a place for one more task. If so, it has one until
    /// it offers a task.
    #[inline]
    pub(crate) fn has_place(&self, cpu: CpuId) -> bool {
        let ring = &self.cpus[cpu];
        // Acquire: the number that was in the place has been read. Pairs with the Release of
        // `take`.
        let taken = ring.taken.load(Ordering::Acquire);
        // Relaxed: written by this CPU alone.
        ring.offered.load(Ordering::Relaxed).wrapping_sub(taken) as usize != PLACES
    }

    /// Returns whether the tasks that are offered to `cpu`, which calls, may be advertised as one.
    #[inline]
    pub(crate) fn may_be_told(&self, cpu: CpuId) -> bool {
        self.cpus[cpu].mixed.get() == 0
    }

    /// Notes that no task is offered to `cpu`, which calls.
    #[inline]
    pub(crate) fn note_empty(&self, cpu: CpuId) {
        let mixed = &self.cpus[cpu].mixed;
        if mixed.get() != 0 {
            mixed.set(0);
        }
    }

    /// Offers `id` to `cpu`, which has a place, behind the tasks that are offered already. With
    /// `may_be_told` it may be in a ring that is advertised. The caller is the CPU and holds the
    /// task's `pi_lock`, or holds the lock of its queue while it runs no task.
    #[inline]
    pub(crate) fn offer(&self, cpu: CpuId, id: TaskId, may_be_told: bool) {
        let ring = &self.cpus[cpu];
        if !may_be_told {
            ring.mixed.set(1);
        }
        // Relaxed: written by this CPU alone, or ordered by the lock.
        let offered = ring.offered.load(Ordering::Relaxed);
        ring.place(offered).set(id.0);
        // Release: publishes the number and the task's words. Pairs with the Acquire of `take`.
        ring.offered.store(offered.wrapping_add(1), Ordering::Release);
    }

    /// Returns the offered tasks of `cpu` that are counted, for checkers.
    pub(crate) fn counted(&self, cpu: CpuId) -> Vec<TaskId> {
        self.peek(cpu).take(self.cpus[cpu].counted.peek() as usize).collect()
    }

    /// Returns the offered tasks of the CPU of `rq`, which calls, that are to be counted and are
    /// not yet.
    pub(crate) fn uncounted(&self, rq: &RqGuard<'_, M>) -> impl Iterator<Item = TaskId> + '_ {
        let ring = &self.cpus[rq.cpu];
        // Relaxed, both: the CPU's own, or written under the lock.
        let (offered, taken) = (ring.offered.load(Ordering::Relaxed), ring.taken.load(Ordering::Relaxed));
        let (first, count) = (ring.counted.get(), offered.wrapping_sub(taken).min(COUNTED_MOST));
        (first..count).map(move |nth| TaskId(ring.place(taken.wrapping_add(nth)).get()))
    }

    /// Returns the task that is offered to the CPU of `rq`, which calls, if there is just one, and
    /// it is not counted yet.
    pub(crate) fn only_uncounted(&self, rq: &RqGuard<'_, M>) -> Option<TaskId> {
        self.only(rq.cpu).filter(|_| self.cpus[rq.cpu].counted.get() == 0)
    }

    /// Returns whether the first offered task of the CPU of `rq`, which calls, is counted.
    pub(crate) fn counts_first(&self, rq: &RqGuard<'_, M>) -> bool {
        self.cpus[rq.cpu].counted.get() != 0
    }

    /// The first task of those counts from now on.
    pub(crate) fn count_one(&self, rq: &RqGuard<'_, M>) {
        let counted = &self.cpus[rq.cpu].counted;
        counted.set(counted.get() + 1);
    }

    /// Takes the first offered task of the CPU of `rq`. Returns it, and whether it was counted.
    #[inline]
    pub(crate) fn take(&self, rq: &RqGuard<'_, M>) -> Option<(TaskId, bool)> {
        let ring = &self.cpus[rq.cpu];
        // Relaxed: written under the lock.
        let taken = ring.taken.load(Ordering::Relaxed);
        // Acquire: sees the number and the task's words. Pairs with the Release of `offer`.
        if ring.offered.load(Ordering::Acquire) == taken {
            return None;
        }
        let id = TaskId(ring.place(taken).get());
        // Release: the place is free. Pairs with the Acquire of `has_place`.
        ring.taken.store(taken.wrapping_add(1), Ordering::Release);
        let counted = ring.counted.get();
        if counted != 0 {
            ring.counted.set(counted - 1);
        }
        Some((id, counted != 0))
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
