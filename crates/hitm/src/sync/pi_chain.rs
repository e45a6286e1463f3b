//! Who lends whom its priority: each task's side of PI mutexes, and the walk along the chain of those that wait for each other.
//!
//! **Origin.** The priority inheritance of Sha, Rajkumar and Lehoczky, 1990, with the chain of Linux's rt_mutex: a task is as urgent as
//! the most urgent of itself and of those at the heads of the queues of the mutexes that it owns; when that changes while it waits
//! for a mutex itself, its place in that queue changes, and with it perhaps that mutex's owner, and so on. Differences: a task may
//! wait for several mutexes at once, since futures can be joined, so the chain may branch; and a step lets go of the task's lock
//! before it takes the queue's and looks again, where the original tries the second and begins anew.
//!
//! **Protocol** of a step, for a task whose priority may have changed: for each mutex that it waits for, under the queue's lock,
//! (1) its place follows its priority; (2) if that changes who is first, the owner is told; (3) the owner's priority is worked out anew
//! and handed to the scheduler; (4) the walk goes on with the owner if it changed, or if it looks for a cycle.
//!
//! **Locks.** A mutex's queue, then one task's side of it, then the scheduler's. Never two of a kind.
//!
//! **Invariants.** At rest: 1. a task's priority is the most urgent of its own and of the first waiters of the mutexes that it owns;
//! 2. a waiter stands in its queue by its task's priority, equals in the order in which they came to it. While something is in flight:
//! 3. whoever changes a priority goes on to all that follows from it, so each breach of 1 or 2 has somebody at work on it.
//!
//! **Deadlocks.** Who waits is queued first and walks then. Of the tasks that close a cycle, the one that was queued last finds
//! all of it in place and comes back to itself; if several close it at once, each may find out.

use std::sync::{Arc, OnceLock};

use hitm_memory::{Described, Field, Lock, LockGuard, Placed, Platform};
use hitm_sched::prio::Prio;
use hitm_sched::task::{Policy, TaskId};

use crate::cell::Cell;
use crate::runtime::Inner;
use crate::sync::pi_queue::{Mark, Waiter};

/// How many tasks may wait one for another before a further one is refused: what Linux allows (`kernel.max_lock_depth`, 1,024).
pub(crate) const CHAIN_MAX: usize = 1_024;

/// Why a task may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The chain comes back to it.
    Deadlock,
    /// The chain has more than [`CHAIN_MAX`] tasks.
    TooDeep,
}

/// A task's side of PI mutexes, made when it is first needed.
pub(crate) struct TaskPi<P: Platform>(OnceLock<Placed<P, Side<P>>>);

/// In shared memory: the lock.
struct Side<P: Platform> {
    lock: Lock<P, Standing<P>>,
}

impl<P: Platform> Described for Side<P> {
    const OBJECT: &'static str = "task_pi";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects what the task is lent and what it waits for")]
    }
}

/// What a task is lent and what it waits for.
pub(crate) struct Standing<P: Platform> {
    /// How urgent it is by itself.
    own: Prio,
    policy: Policy,
    /// How urgent it is.
    effective: Prio,
    /// The mutexes that it owns and others wait for, with the most urgent of them.
    lent: Vec<(Mark, Prio)>,
    /// What it waits for.
    waits: Vec<Arc<Waiter<P>>>,
}

impl<P: Platform> Standing<P> {
    /// How urgent the task is.
    pub(crate) fn effective(&self) -> Prio {
        self.effective
    }

    /// The task waits.
    pub(crate) fn begin_wait(&mut self, waiter: &Arc<Waiter<P>>) {
        self.waits.push(waiter.clone());
    }

    /// It does not any more.
    pub(crate) fn end_wait(&mut self, waiter: &Arc<Waiter<P>>) {
        self.waits.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// The most urgent that waits for the mutex of `mark`, which the task owns; none when nobody does, or it does not own it.
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

    /// Tells the scheduler how urgent the task is, and whether it is lent that.
    fn tell(&self, id: TaskId, runtime: &Inner<P>) {
        if self.effective == self.own {
            runtime.sched.set_prio(id, self.effective, self.policy);
        } else {
            runtime.sched.lend_prio(id, self.effective, self.policy);
        }
    }
}

impl<P: Platform> TaskPi<P> {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }
}

impl<P: Platform> Cell<P> {
    /// The task's side of PI mutexes. All changes of its priority are made under it.
    pub(crate) fn standing(&self, runtime: &Inner<P>) -> LockGuard<'_, P, Standing<P>> {
        let side = &self.pi.0;
        if side.get().is_none() {
            let own = runtime.sched.prio_of(self.id);
            let policy = match own.is_real_time() {
                false => Policy::Fair(runtime.sched.nice_of(self.id)),
                true if runtime.sched.is_round_robin(self.id) => Policy::RoundRobin,
                true => Policy::Fifo,
            };
            let standing = Standing { own, policy, effective: own, lent: Vec::new(), waits: Vec::new() };
            // Placed before it is set: a simulated CPU may be suspended here, and another may come. The first wins.
            let _came_later = side.set(Placed::new(Side { lock: Lock::new(standing) }, None, None));
        }
        side.get().expect("just set").lock.lock()
    }

    /// Hands the task's priority to the scheduler if it has changed; true if it has.
    pub(crate) fn follow(&self, runtime: &Inner<P>, standing: &mut Standing<P>) -> bool {
        let effective = standing.most_urgent();
        if effective == standing.effective {
            return false;
        }
        standing.effective = effective;
        standing.tell(self.id, runtime);
        if let (Some(roles), Some(role)) = (&runtime.roles, self.role) {
            roles.priority_change(P::now(), role);
        }
        true
    }

    /// Changes how urgent the task is by itself. What it is lent stays.
    pub(crate) fn set_own_priority(self: &Arc<Self>, runtime: &Inner<P>, prio: Prio, policy: Policy) {
        {
            let mut standing = self.standing(runtime);
            (standing.own, standing.policy) = (prio, policy);
            standing.effective = standing.most_urgent();
            standing.tell(self.id, runtime);
        }
        pass_on(runtime, self.clone());
    }
}

/// `from` may have another priority: what it waits for follows, and so on.
pub(crate) fn pass_on<P: Platform>(runtime: &Inner<P>, from: Arc<Cell<P>>) {
    let mut tasks = vec![from];
    while let Some(task) = tasks.pop() {
        let waits = task.standing(runtime).waits.clone();
        let owners = waits.iter().filter_map(|waiter| waiter.follow());
        tasks.extend(owners.filter(|&(_, changed)| changed).map(|(owner, _)| owner));
    }
}

/// As [`pass_on`], from the owner of what `origin` has begun to wait for.
///
/// # Errors
/// When the chain comes back to `origin` or is too deep. Priorities have followed as far as it was walked.
pub(crate) fn pass_on_for<P: Platform>(
    runtime: &Inner<P>,
    from: Arc<Cell<P>>,
    origin: &Arc<Cell<P>>,
) -> Result<(), Refused> {
    let mut seen: Vec<Arc<Cell<P>>> = Vec::new();
    let mut tasks = vec![from];
    while let Some(task) = tasks.pop() {
        if Arc::ptr_eq(&task, origin) {
            return Err(Refused::Deadlock);
        }
        if !seen.iter().any(|other| Arc::ptr_eq(other, &task)) {
            if seen.len() == CHAIN_MAX {
                return Err(Refused::TooDeep);
            }
            seen.push(task.clone());
        }
        let waits = task.standing(runtime).waits.clone();
        for (owner, changed) in waits.iter().filter_map(|waiter| waiter.follow()) {
            if changed || !seen.iter().any(|other| Arc::ptr_eq(other, &owner)) {
                tasks.push(owner);
            }
        }
    }
    Ok(())
}
