//! The task count, and whether tasks may still be spawned: no task can enter after the last one has
//! left.
//!
//! **Claim.** While the runtime runs, a CPU that spawns or ends a task writes only a line of its
//! own.
//!
//! **Origin.** The per-CPU reference counts of Linux, which become one count when an object is to
//! end.
//!
//! **State.** A word for each CPU: bit 0 says that the CPU is closed, the others count the tasks
//! that entered there less those that left there. The difference may be negative, since a task may
//! leave on another CPU than it entered. Once a CPU is closed, its difference has no meaning. A
//! word of the runtime counts the tasks that are left, and has [`CLOSING`] more until all CPUs are
//! closed. Another word says how far the stop is.
//!
//! **Protocol.** The stop: (1) marks that it has begun; (2) closes each CPU, and adds the CPU's
//! difference to the tasks that are left; (3) takes `CLOSING` away; (4) marks that all CPUs are
//! closed. A task that enters adds to its CPU's word, and has entered if the CPU was open. A task
//! that leaves subtracts from its CPU's word; if the CPU was closed, also from the tasks that are
//! left. Whoever brings these to zero has seen the last task leave.
//!
//! **Invariants.** (1) A task that entered is counted once, in a difference or in what is left. (2)
//! What is left cannot be zero before (3): `CLOSING` is more than the tasks that can live.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | a task that leaves an open CPU | the stop, which closes that CPU | what the task did |
//! | the stop, and tasks that leave closed CPUs | the last of them | what all tasks did |
//!
//! All of these operations are AcqRel. The model checker runs these words: `task_count/loom.rs`.
//!
//! **Cost.** A spawn or an end: one read-modify-write of the CPU's own line, and a load of a line
//! that is written when the runtime stops.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Native, PerCpu, Placed, described};
use hitm_sched::TASKS_MAX;
use hitm_topology::{CpuId, Topology};

/// The bit of a CPU's word that says that the CPU is closed.
const CLOSED: u64 = 1;
/// One task in a CPU's word.
const ONE: u64 = 2;

/// What is left has so many more while CPUs are being closed.
const CLOSING: u64 = 1 << 40;

const _: () = assert!((TASKS_MAX as u64) < CLOSING / 2, "differences never reach it");

const OPEN: u32 = 0;
const STOPPING: u32 = 1;
const STOPPED: u32 = 2;

described! {
    /// The tasks of one CPU.
    pub(crate) struct Tasks<M: Memory> as "task_count" {
        /// See the module's documentation. Written by the CPU, and by whoever stops the runtime.
        tasks: M::Atomic<u64>,
    }
}

described! {
    /// The tasks of a runtime that stops.
    pub(crate) struct Left<M: Memory> as "tasks_left" {
        /// How far the stop is. Written when the runtime stops, read at each spawn.
        state: M::Atomic<u32>,
        /// See the module's documentation. Written once the runtime stops.
        left: M::Atomic<u64>,
    }
}

/// The state that [`TaskCount::stop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Stop {
    /// An earlier call had stopped the runtime.
    Again,
    /// No task is alive.
    Empty,
    /// Tasks are alive; the caller must abort them.
    Inhabited,
}

/// The number of live tasks, and the stop.
pub(crate) struct TaskCount<M: Memory> {
    cpus: PerCpu<M, Tasks<M>>,
    stop: Placed<M, Left<M>>,
}

impl<M: Memory> TaskCount<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self {
            cpus: PerCpu::new(topology, |_| Tasks { tasks: M::Atomic::new(0) }),
            stop: Placed::new(Left { state: M::Atomic::new(OPEN), left: M::Atomic::new(CLOSING) }, None, None),
        }
    }

    /// Counts a task in, on `cpu`; returns false when the runtime is stopping.
    #[must_use]
    pub(crate) fn enter(&self, cpu: CpuId) -> bool {
        // Relaxed: the count publishes nothing. `begin` in `spawn` has a fence for the stop.
        self.cpus[cpu].tasks.fetch_add(ONE, Ordering::Relaxed) & CLOSED == 0
    }

    /// Counts a task out, on `cpu`; returns true when it was the last one and no more can come.
    #[must_use]
    pub(crate) fn leave(&self, cpu: CpuId) -> bool {
        // AcqRel: the table of the module.
        if self.cpus[cpu].tasks.fetch_sub(ONE, Ordering::AcqRel) & CLOSED == 0 {
            return false;
        }
        // AcqRel: the last task to leave sees all that the other tasks did.
        self.stop.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Stops the runtime: no task enters from now on.
    pub(crate) fn stop(&self) -> Stop {
        let Left { state, left } = &*self.stop;
        // AcqRel: publishes what the caller did before to spawns that see it. Acquire on failure:
        // sees what an earlier stop did.
        if state.compare_exchange(OPEN, STOPPING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Acquire inside: pairs with the Release below. The other stop closes the CPUs.
            M::spin_while(state, |state| state != STOPPED);
            return Stop::Again;
        }
        for cpu in self.cpus.iter() {
            // AcqRel: sees what the tasks did that left here. Tasks that enter or leave from now on
            // find it closed.
            let tasks = cpu.tasks.fetch_or(CLOSED, Ordering::AcqRel);
            // An arithmetic shift: the difference may be negative.
            let difference = (tasks.cast_signed() >> 1).cast_unsigned();
            // AcqRel: publishes what those tasks did to the last one that leaves.
            left.fetch_add(difference, Ordering::AcqRel);
        }
        // AcqRel: as above.
        let is_empty = left.fetch_sub(CLOSING, Ordering::AcqRel) == CLOSING;
        // Release: pairs with the wait above.
        state.store(STOPPED, Ordering::Release);
        if is_empty { Stop::Empty } else { Stop::Inhabited }
    }

    /// Returns whether the runtime is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire: pairs with `stop`.
        self.stop.state.load(Ordering::Acquire) != OPEN
    }

    /// Returns the number of live tasks: exact if no CPU changes it meanwhile.
    pub(crate) fn count(&self) -> usize {
        // Relaxed, both: a statistic.
        let open = |cpu: &Tasks<M>| match cpu.tasks.load(Ordering::Relaxed) {
            tasks if tasks & CLOSED == 0 => tasks.cast_signed() >> 1,
            _ => 0,
        };
        let left = self.stop.left.load(Ordering::Relaxed);
        let left = if left > CLOSING / 2 { left.wrapping_sub(CLOSING) } else { left };
        let tasks = self.cpus.iter().map(open).sum::<i64>() + left.cast_signed();
        usize::try_from(tasks).unwrap_or(0)
    }
}

/// The task count of a runtime. A runtime around a form of the original has it outside the
/// simulated memory, since a kernel has other words in its place.
pub(crate) enum AnyTaskCount<M: Memory> {
    Seen(TaskCount<M>),
    Unseen(TaskCount<Native>),
}

impl<M: Memory> AnyTaskCount<M> {
    /// Creates the count of a runtime whose CPUs keep wakeups, or that of another.
    pub(crate) fn new(topology: &Topology, keeps_wakeups: bool) -> Self {
        if keeps_wakeups { Self::Seen(TaskCount::new(topology)) } else { Self::Unseen(TaskCount::new(topology)) }
    }

    /// Does [`TaskCount::enter`].
    #[must_use]
    pub(crate) fn enter(&self, cpu: CpuId) -> bool {
        match self {
            Self::Seen(count) => count.enter(cpu),
            Self::Unseen(count) => count.enter(cpu),
        }
    }

    /// Does [`TaskCount::leave`].
    #[must_use]
    pub(crate) fn leave(&self, cpu: CpuId) -> bool {
        match self {
            Self::Seen(count) => count.leave(cpu),
            Self::Unseen(count) => count.leave(cpu),
        }
    }

    /// Does [`TaskCount::stop`].
    pub(crate) fn stop(&self) -> Stop {
        match self {
            Self::Seen(count) => count.stop(),
            Self::Unseen(count) => count.stop(),
        }
    }

    /// Does [`TaskCount::is_stopping`].
    pub(crate) fn is_stopping(&self) -> bool {
        match self {
            Self::Seen(count) => count.is_stopping(),
            Self::Unseen(count) => count.is_stopping(),
        }
    }

    /// Does [`TaskCount::count`].
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Seen(count) => count.count(),
            Self::Unseen(count) => count.count(),
        }
    }
}

// Miri cannot run the model checker's coroutines.
#[cfg(all(test, not(miri)))]
mod loom;

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: [CpuId; 2] = [CpuId(0), CpuId(1)];

    fn of_two_cpus() -> TaskCount<Native> {
        TaskCount::new(&hitm_topology::parse("core:2 pu:1").expect("a machine"))
    }

    #[test]
    fn the_last_to_leave_is_told_once() {
        for [leaves, last] in [CPUS, [CPUS[1], CPUS[0]]] {
            let task_count = of_two_cpus();
            assert!((0..3).all(|_| task_count.enter(CPUS[0])));
            assert!(!task_count.leave(leaves), "more may come");
            assert_eq!(task_count.count(), 2);
            assert_eq!(task_count.stop(), Stop::Inhabited);
            assert_eq!(task_count.stop(), Stop::Again);
            assert!(CPUS.iter().all(|&cpu| !task_count.enter(cpu)));
            assert!(!task_count.leave(leaves), "one is left");
            assert_eq!(task_count.count(), 1);
            assert!(task_count.leave(last));
            assert_eq!(task_count.count(), 0);
        }
    }

    #[test]
    fn an_empty_runtime_stops_at_once() {
        let task_count = of_two_cpus();
        assert!(task_count.enter(CPUS[0]));
        assert!(!task_count.leave(CPUS[1]));
        assert!(!task_count.is_stopping());
        assert_eq!(task_count.stop(), Stop::Empty);
        assert!(task_count.is_stopping());
    }
}
