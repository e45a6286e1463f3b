//! Tasks as the scheduler sees them: the words of one.
//!
//! **State.** Every transition of a task's `state` word is a read-modify-write:
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | none | runnable or running | | |
//! | `SLEEPING` | waits for a wakeup | `Task::transition_to_sleeping`, under its run queue's lock | the waker |
//! | `WOKEN` | a wakeup came while it ran, or is in progress | any waker | the task, before it checks its condition |
//! | `DEAD` | has ended, or has not begun | itself | the next task of its slot |
//!
//! The waker that finds `SLEEPING` without `WOKEN` enqueues the task. Other wakers have nothing to
//! do. Where CPUs keep the tasks that their own tasks wake, that waker exchanges `SLEEPING` for 0.
//! So the wakeup and the beginning of the poll cost one read-modify-write less each. The queue, or
//! the ring, publishes the waker's stores.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | waker, fetch-or `WOKEN` AcqRel | task, `transition_to_running` Acquire | the waker's stores before the wakeup |
//! | task, `transition_to_sleeping` Release | waker, exchange Acquire or fetch-or AcqRel | that a CPU still has the task: `on_cpu`, for which the waker waits |
//! | creator, `transition_to_born` Release | waker, fetch-or AcqRel | the attributes of the task |
//! | CPU that leaves a task, `on_cpu` store Release | waker, `on_cpu` load Acquire | everything that the task's poll did |
//!
//! All transitions are read-modify-writes, so each continues the release sequences of the ones
//! before it, also when it is Relaxed. A wakeup that comes before `transition_to_runnable` is
//! therefore seen by the poll that follows. A poll that begins with a load of 0 may miss a later
//! wakeup; then `transition_to_sleeping` fails. The locks of the allocator of
//! [slots](super::task_table) order one task of a slot before the next one.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, LineStart, Memory, PlainWord, RawSpinLock, described};
use hitm_topology::CpuId;

use crate::base::attributes::Policy;
use crate::base::cid::TaskIds;
use crate::base::list::Links;
use crate::base::prio::Prio;

/// Bit of `round_robin`: the task takes turns with tasks of equal priority.
const ROUND_ROBIN: u32 = 1;
/// Bit of `round_robin`: its priority is lent.
const LENT: u32 = 1 << 1;

const SLEEPING: u32 = 1;
const WOKEN: u32 = 1 << 1;
const DEAD: u32 = 1 << 2;

described! {
    /// The words of a task that other CPUs touch.
    pub struct Task<M: Memory> as "task" {
        /// See the module's documentation. Written by the task and its wakers.
        state: M::Atomic<u32>,
        /// 1 while a CPU runs it or has not yet left it. Written by that CPU, read by wakers.
        on_cpu: M::Atomic<u32>,
        /// Serialises wakeups with changes of priority and affinity.
        pub(crate) pi_lock: RawSpinLock<M>,
        /// The CPU whose queue it is or was on. Written under that queue's lock, or by the waker
        /// while it sleeps.
        pub(crate) cpu: M::Plain<u32>,
        /// 1 while it is queued. Under the queue's lock.
        pub(crate) on_rq: M::Plain<u32>,
        /// The priority. Under the queue's lock; peeked at for comparisons with the running task.
        pub(crate) prio: M::Plain<i32>,
        /// The number of CPUs where it may run. As `prio`.
        pub(crate) cpus_allowed_count: M::Plain<u32>,
        /// Bits: 1 for round-robin, 2 while its priority is lent. Under the queue's lock.
        round_robin: M::Plain<u32>,
        /// Starts the line of the run list.
        rt_entity: LineStart,
        /// Its links in its priority's list.
        pub(crate) run_list: Links<M> = described,
        /// 1 while it is in a priority's list. A queued real-time task in no list is throttled: see
        /// [`real_time`](crate::fair::group::real_time).
        pub(crate) on_list: M::Plain<u32>,
        /// Its concurrency id.
        pub(crate) ids: TaskIds<M> = described,
        /// Starts the line of the pushable list.
        pushable: LineStart,
        /// Its priority when it was put into the pushable list.
        pub(crate) pushable_prio: M::Plain<i32>,
        /// How it is advertised as waiting: see [`Announced`](crate::shipped::announce::Announced).
        pub(crate) announced: M::Plain<u32>,
        /// Its links in the list of the first node of each priority.
        pub(crate) prio_list: Links<M> = described,
        /// Its links in the pushable list.
        pub(crate) node_list: Links<M> = described,
    }
}

/// The result of [`Task::wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// The task slept. The caller must enqueue it.
    Slept,
    /// The task runs, or another waker is waking it. The caller has nothing to do.
    Noted,
    /// The task has ended.
    Dead,
}

impl<M: Memory> Task<M> {
    pub(super) fn new() -> Self {
        Self {
            state: M::Atomic::new(DEAD),
            on_cpu: M::Atomic::new(0),
            pi_lock: RawSpinLock::new(),
            cpu: M::Plain::new(0),
            on_rq: M::Plain::new(0),
            prio: M::Plain::new(Prio::NONE.0),
            cpus_allowed_count: M::Plain::new(0),
            round_robin: M::Plain::new(0),
            rt_entity: LineStart,
            run_list: Links::unlinked(),
            on_list: M::Plain::new(0),
            ids: TaskIds::new(),
            pushable: LineStart,
            pushable_prio: M::Plain::new(0),
            announced: M::Plain::new(0),
            prio_list: Links::unlinked(),
            node_list: Links::unlinked(),
        }
    }

    /// Starts a poll: the task consumes all wakeups up to now, later ones count.
    #[track_caller]
    pub(crate) fn transition_to_running(&self) {
        // Acquire: sees the wakers' stores before they set `WOKEN`. Pairs with `wake`.
        self.state.swap(0, Ordering::Acquire);
    }

    /// Puts the task to sleep. Returns false when it was woken meanwhile and must check its
    /// condition again.
    #[must_use]
    #[track_caller]
    pub(crate) fn transition_to_sleeping(&self) -> bool {
        // Release: publishes `on_cpu` to the next waker, which must wait until this CPU has left
        // the task. Pairs with `wake`. Relaxed on failure: `transition_to_running` comes before the
        // task checks its condition again.
        self.state.compare_exchange(0, SLEEPING, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Makes a prepared task sleep.
    #[track_caller]
    pub(crate) fn transition_to_born(&self) {
        // Release: publishes the task's attributes to its waker, also to one whose wakeup was meant
        // for the number's last task. Pairs with `wake`.
        self.state.swap(SLEEPING, Ordering::Release);
    }

    /// Ends the task.
    #[track_caller]
    pub(crate) fn transition_to_dead(&self) {
        // Relaxed: late wakers see that the task has ended and use nothing else of it.
        self.state.swap(DEAD, Ordering::Relaxed);
    }

    /// Makes a task that slept, or begins, runnable before it is enqueued.
    #[track_caller]
    pub(crate) fn transition_to_runnable(&self) {
        // Relaxed: `WOKEN` stays set, so the task checks what it was woken for.
        // `transition_to_running` sees the waker's stores through the release sequence.
        self.state.swap(WOKEN, Ordering::Relaxed);
    }

    /// Records a wakeup.
    #[track_caller]
    pub(crate) fn wake(&self) -> Wake {
        // AcqRel: publishes the waker's stores. From a sleeping task it sees the attributes, and
        // that a CPU may still have the task. Pairs with the transitions above.
        let before = self.state.fetch_or(WOKEN, Ordering::AcqRel);
        match before {
            _ if before & DEAD != 0 => Wake::Dead,
            SLEEPING => Wake::Slept,
            _ => Wake::Noted,
        }
    }

    /// Records a wakeup, as [`wake`](Self::wake) does. A task that slept is runnable from then on,
    /// and has no wakeup to consume: it has been woken, and not yet run.
    #[track_caller]
    pub(crate) fn wake_up(&self) -> Wake {
        // Acquire: sees the attributes, and that a CPU may still have the task. Pairs with
        // `transition_to_sleeping` and `transition_to_born`. The queue publishes the waker's stores
        // to the poll. Relaxed on failure: `wake` follows.
        if self.state.compare_exchange(SLEEPING, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Wake::Slept;
        }
        let wake = self.wake();
        if wake == Wake::Slept {
            // It has fallen asleep between the two.
            self.transition_to_runnable();
        }
        wake
    }

    /// Makes a new task runnable, where [`wake_up`](Self::wake_up) records the wakeups.
    #[track_caller]
    pub(crate) fn transition_to_begun(&self) {
        // Acquire: sees the stores of wakers that came before. Pairs with `wake`. The queue
        // publishes them to the first poll.
        self.state.swap(0, Ordering::Acquire);
    }

    /// Starts a poll, as [`transition_to_running`](Self::transition_to_running) does, where
    /// [`wake_up`](Self::wake_up) records the wakeups: most tasks have none to consume.
    #[track_caller]
    pub(crate) fn consume_wakeups(&self) {
        // Relaxed: a wakeup that this misses makes `transition_to_sleeping` fail.
        if self.state.load(Ordering::Relaxed) != 0 {
            self.transition_to_running();
        }
    }

    /// Returns whether the task sleeps and no wakeup has begun, for checkers.
    #[track_caller]
    pub(crate) fn is_sleeping(&self) -> bool {
        // Relaxed: checkers look in a quiescent state.
        self.state.load(Ordering::Relaxed) == SLEEPING
    }

    /// Returns whether the slot is free, for checkers.
    #[track_caller]
    pub(crate) fn is_dead(&self) -> bool {
        // Relaxed: as above.
        self.state.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Marks that a CPU begins to run the task.
    #[track_caller]
    pub(crate) fn set_on_cpu(&self) {
        // Relaxed: under the run queue lock. The task's next sleep publishes it.
        self.on_cpu.store(1, Ordering::Relaxed);
    }

    /// Marks that the CPU that ran the task has left it.
    #[track_caller]
    pub(crate) fn clear_on_cpu(&self) {
        // Release: publishes everything that the poll did. Pairs with the Acquire in
        // `wait_off_cpu`.
        self.on_cpu.store(0, Ordering::Release);
    }

    /// Returns whether a CPU runs the task. The caller holds the lock of the task's queue.
    #[track_caller]
    pub(crate) fn is_on_cpu(&self) -> bool {
        // Relaxed: set under that lock. A stale 1 makes the caller leave the task where it is.
        self.on_cpu.load(Ordering::Relaxed) != 0
    }

    /// Waits until the CPU that ran it has left it.
    #[track_caller]
    pub(crate) fn wait_off_cpu(&self) {
        // Acquire inside: pairs with the Release in `clear_on_cpu`.
        M::spin_while(&self.on_cpu, |on_cpu| on_cpu != 0);
    }

    /// Returns the priority: exact under the queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn prio(&self) -> Prio {
        Prio(self.prio.peek())
    }

    /// Returns whether the task is round-robin: exact under the queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn is_round_robin(&self) -> bool {
        self.round_robin.peek() & ROUND_ROBIN != 0
    }

    /// Returns 1 if the task is round-robin, else 0. The caller holds the queue's lock.
    #[track_caller]
    pub(crate) fn round_robin(&self) -> u32 {
        self.round_robin.get() & ROUND_ROBIN
    }

    /// Returns whether a real-time priority of the task is lent by a waiter: exact under the
    /// queue's lock, else a hint.
    #[track_caller]
    pub(crate) fn is_lent(&self) -> bool {
        self.round_robin.peek() & LENT != 0
    }

    /// Sets the policy and whether the priority is lent. A fair task's real-time priority is always
    /// lent.
    #[track_caller]
    pub(crate) fn set_policy(&self, policy: Policy, is_lent: bool) {
        let turns = if policy == Policy::RoundRobin { ROUND_ROBIN } else { 0 };
        let lent = if is_lent || policy.nice().is_some() { LENT } else { 0 };
        self.round_robin.set(turns | lent);
    }

    /// Returns the task's CPU: exact under the queue's lock or the task's own lock, else a hint.
    #[track_caller]
    pub(crate) fn cpu(&self) -> CpuId {
        CpuId(self.cpu.peek())
    }

    /// Returns whether the task may run on more than one CPU.
    #[track_caller]
    pub(crate) fn can_move(&self) -> bool {
        self.cpus_allowed_count.peek() > 1
    }
}

impl<M: Memory> fmt::Debug for Task<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("state", &self.state).field("prio", &self.prio).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod loom;

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    #[test]
    fn one_waker_queues_a_sleeper() {
        let task = Task::<Native>::new();
        task.state.swap(SLEEPING, Ordering::AcqRel);
        assert_eq!(task.wake(), Wake::Slept);
        assert_eq!(task.wake(), Wake::Noted);
        task.transition_to_runnable();
        assert_eq!(task.wake(), Wake::Noted);
        task.transition_to_running();
        assert!(task.transition_to_sleeping());
        assert!(task.is_sleeping());
    }

    #[test]
    fn a_wakeup_during_a_poll_is_not_lost() {
        let task = Task::<Native>::new();
        task.transition_to_running();
        assert_eq!(task.wake(), Wake::Noted);
        assert!(!task.transition_to_sleeping());
        task.transition_to_dead();
        assert_eq!(task.wake(), Wake::Dead);
    }
}
