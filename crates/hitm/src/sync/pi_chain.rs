//! Priority inheritance: each task's PI state, and the walk along the chain of waiting tasks.
//!
//! **Origin.** Priority inheritance as in Sha, Rajkumar and Lehoczky, 1990, with the chain walk of
//! Linux's rt_mutex. A task's effective priority is the most urgent of its own priority and of the
//! first waiters of the mutexes that it owns. When this changes while the task waits for a mutex,
//! its place in that queue changes, perhaps also the priority of that mutex's owner, and so on.
//! Differences: a task may wait for several mutexes at once, since futures can be joined, so the
//! chain may branch. A step releases the task's lock before it takes the queue's lock, and then
//! checks again; the original tries the second lock and restarts if that fails.
//!
//! **Protocol** of a step, for a task whose priority may have changed. For each mutex that the task
//! waits for, under the queue's lock: (1) its place follows its priority; (2) if that changes the
//! first waiter, the owner is lent the new priority; (3) the owner's effective priority is computed
//! and passed to the scheduler; (4) the walk continues with the owner if its priority changed, or
//! if the walk searches for a cycle.
//!
//! **Locks.** First a mutex's queue, then one task's PI state, then the scheduler's locks. Never
//! two of a kind.
//!
//! **Invariants.** In a quiescent state: 1. a task's priority is the most urgent of its own and of
//! the first waiters of the mutexes that it owns; 2. a waiter is in its queue at its task's
//! priority, and waiters of the same priority are in order of arrival there. While a change is in
//! progress: 3. the task that changes a priority also applies all changes that follow from it, so
//! each violation of 1 or 2 is being repaired.
//!
//! **Deadlocks.** A task enqueues its wait first and walks afterwards. Of the tasks that close a
//! cycle, the last one to enqueue sees the whole cycle, and its walk comes back to itself. If
//! several tasks close it at the same time, each of them may detect it.

use std::sync::{Arc, OnceLock};

use hitm_memory::{Described, Field, Lock, LockGuard, Placed, Platform};
use hitm_sched::{Policy, Prio, TaskId};

use crate::body::CellRef;
use crate::cell::Cell;
use crate::runtime::Inner;
use crate::sync::pi_queue::{Mark, Waiter};

/// The longest allowed chain of waiting tasks: Linux's default (`kernel.max_lock_depth`, 1,024).
pub(crate) const CHAIN_MAX: usize = 1_024;

/// The reason why a task may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The chain comes back to the task.
    Deadlock,
    /// The chain has more than [`CHAIN_MAX`] tasks.
    TooDeep,
}

/// A task's PI state, made when it is first needed.
pub(crate) struct TaskPi<P: Platform>(OnceLock<Placed<P, Side<P>>>);

/// The lock, in shared memory.
struct Side<P: Platform> {
    lock: Lock<P, Standing<P>>,
}

impl<P: Platform> Described for Side<P> {
    const OBJECT: &'static str = "task_pi";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects what the task is lent and what it waits for")]
    }
}

/// The priorities that a task is lent and the mutexes that it waits for.
pub(crate) struct Standing<P: Platform> {
    /// The task's own priority.
    own: Prio,
    policy: Policy,
    /// The task's effective priority.
    effective: Prio,
    /// The mutexes that the task owns and that have waiters, each with its most urgent waiter's
    /// priority.
    lent: Vec<(Mark, Prio)>,
    /// The task's waits.
    waits: Vec<Arc<Waiter<P>>>,
}

impl<P: Platform> Standing<P> {
    /// Returns the task's effective priority.
    pub(crate) fn effective(&self) -> Prio {
        self.effective
    }

    /// Records that the task waits.
    pub(crate) fn begin_wait(&mut self, waiter: &Arc<Waiter<P>>) {
        self.waits.push(waiter.clone());
    }

    /// Records that the task does not wait any more.
    pub(crate) fn end_wait(&mut self, waiter: &Arc<Waiter<P>>) {
        self.waits.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// Sets the priority of the most urgent waiter for the mutex `mark`, which the task owns;
    /// `None` when the mutex has no waiters, or the task does not own it.
    pub(crate) fn set_lent(&mut self, mark: Mark, prio: Option<Prio>) {
        let index = self.lent.iter().position(|(other, _)| *other == mark);
        match (index, prio) {
            (Some(index), Some(prio)) => self.lent[index].1 = prio,
            (Some(index), None) => _ = self.lent.swap_remove(index),
            (None, Some(prio)) => self.lent.push((mark, prio)),
            (None, None) => {}
        }
    }

    fn most_urgent(&self) -> Prio {
        self.lent.iter().map(|&(_, prio)| prio).fold(self.own, Prio::min)
    }

    /// Passes the task's effective priority to the scheduler, and whether it is lent.
    fn tell(&self, id: TaskId, runtime: &Inner<P>) {
        if self.effective == self.own {
            runtime.operations.set_prio(id, self.effective, self.policy);
        } else {
            runtime.operations.lend_prio(id, self.effective, self.policy);
        }
    }
}

impl<P: Platform> TaskPi<P> {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }
}

impl<P: Platform> Cell<P> {
    /// Locks the task's PI state. All changes of the task's priority are made under this lock.
    pub(crate) fn standing(&self, runtime: &Inner<P>) -> LockGuard<'_, P, Standing<P>> {
        let side = &self.pi().0;
        if side.get().is_none() {
            let (own, policy) = self.never_lent(runtime);
            let standing = Standing { own, policy, effective: own, lent: Vec::new(), waits: Vec::new() };
            // The state is placed before it is set: a simulated CPU may be suspended here, and
            // another CPU may come. The first CPU wins.
            let _came_later = side.set(Placed::new(Side { lock: Lock::new(standing) }, None, None));
        }
        side.get().expect("just set").lock.lock()
    }

    /// Returns the priority of a task that was never lent one.
    fn never_lent(&self, runtime: &Inner<P>) -> (Prio, Policy) {
        let own = runtime.sched.prio_of(self.id);
        let policy = match own.is_real_time() {
            false => Policy::Fair(runtime.sched.nice_of(self.id)),
            true if runtime.sched.is_round_robin(self.id) => Policy::RoundRobin,
            true => Policy::Fifo,
        };
        (own, policy)
    }

    /// Returns the own priority of the calling task.
    pub(crate) fn own_priority(&self, runtime: &Inner<P>) -> (Prio, Policy) {
        if self.pi_if_any().is_none_or(|pi| pi.0.get().is_none()) {
            return self.never_lent(runtime);
        }
        let standing = self.standing(runtime);
        (standing.own, standing.policy)
    }

    /// Passes the task's effective priority to the scheduler if it has changed; returns whether it
    /// has.
    pub(crate) fn follow(&self, runtime: &Inner<P>, standing: &mut Standing<P>) -> bool {
        let effective = standing.most_urgent();
        if effective == standing.effective {
            return false;
        }
        standing.effective = effective;
        standing.tell(self.id, runtime);
        if let (Some(roles), Some(role)) = (&runtime.roles, self.role()) {
            roles.priority_change(P::now(), role);
        }
        true
    }
}

impl<P: Platform> CellRef<P> {
    /// Changes the task's own priority. Lent priorities stay.
    pub(crate) fn set_own_priority(&self, runtime: &Inner<P>, prio: Prio, policy: Policy) {
        {
            let mut standing = self.standing(runtime);
            (standing.own, standing.policy) = (prio, policy);
            standing.effective = standing.most_urgent();
            standing.tell(self.id, runtime);
        }
        pass_on(runtime, self.clone());
    }
}

/// Propagates a change of `from`'s priority along the chain of owners.
pub(crate) fn pass_on<P: Platform>(runtime: &Inner<P>, from: CellRef<P>) {
    let mut tasks = vec![from];
    while let Some(task) = tasks.pop() {
        let waits = task.standing(runtime).waits.clone();
        let owners = waits.iter().filter_map(|waiter| waiter.follow());
        tasks.extend(owners.filter(|&(_, changed)| changed).map(|(owner, _)| owner));
    }
}

/// Propagates as [`pass_on`] does, beginning with `from`, the owner of the mutex that `origin` has
/// begun to wait for.
///
/// # Errors
/// When the chain comes back to `origin` or is too deep. The priorities are updated as far as the
/// walk came.
pub(crate) fn pass_on_for<P: Platform>(
    runtime: &Inner<P>,
    from: CellRef<P>,
    origin: &CellRef<P>,
) -> Result<(), Refused> {
    let mut seen: Vec<CellRef<P>> = Vec::new();
    let mut tasks = vec![from];
    while let Some(task) = tasks.pop() {
        if task.is(origin) {
            return Err(Refused::Deadlock);
        }
        if !seen.iter().any(|other| other.is(&task)) {
            if seen.len() == CHAIN_MAX {
                return Err(Refused::TooDeep);
            }
            seen.push(task.clone());
        }
        let waits = task.standing(runtime).waits.clone();
        for (owner, changed) in waits.iter().filter_map(|waiter| waiter.follow()) {
            if changed || !seen.iter().any(|other| other.is(&owner)) {
                tasks.push(owner);
            }
        }
    }
    Ok(())
}
