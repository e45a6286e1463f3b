//! The kernel's side of a PI mutex: the queue of waiters by priority, and the transfer of
//! ownership.
//!
//! **Protocol.** Wait, under the queue's lock: (1) take the word if it is free, else mark it; (2)
//! record the wait in the task's PI state; (3) enqueue the waiter by its priority; (4) lend the
//! owner the first waiter's priority; then, without the lock, (5) walk the chain
//! ([`pi_chain`](crate::sync::pi_chain)). Release: (a) by the word alone if it is not marked; else,
//! under the queue's lock, (b) the first waiter becomes the owner and is lent the next waiter's
//! priority; (c) the old owner loses its lent priority; then (d) the walk continues from the old
//! owner if its priority changed; (e) the new owner is woken. The mutex is therefore never free
//! while it has waiters, and no task can take it before a waiter.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | what is published |
//! |---|---|---|
//! | `hand_over`, store of the waiter's `outcome` Release | `Waiter::outcome`, load Acquire | what the old owner wrote |
//!
//! **Cost.** Uncontended: one compare-exchange to take and one to release. Contended: two system
//! calls to release, since the word stays marked for the new owner; each takes the queue's lock and
//! the locks of the tasks' PI states.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use hitm_memory::{Described, Field, Lock, LockGuard, Placed, Platform};
use hitm_sched::{Prio, TaskId};

use crate::body::CellRef;
use crate::cell::Cell;
use crate::contain::contain;
use crate::runtime::{Handle, Inner};
use crate::sync::pi_chain::{Refused, pass_on, pass_on_for};
use crate::sync::pi_word::{Found, PiWord};

/// The address of a mutex, for comparison only.
pub(crate) type Mark = usize;

/// A hold of a task's id, which keeps the id from being reused: a task's mutexes and waits can
/// outlive the task when its guards were moved elsewhere.
pub(crate) struct Claim<P: Platform> {
    runtime: Handle<P>,
    pub(crate) cell: CellRef<P>,
}

impl<P: Platform> Claim<P> {
    /// Makes a claim for the calling task.
    ///
    /// # Panics
    /// Outside a task.
    pub(crate) fn of_current(runtime: &Handle<P>) -> Self {
        let cell = runtime.current_cell();
        assert!(cell.hold(), "a task that runs has its number");
        Self { runtime: runtime.clone(), cell }
    }
}

impl<P: Platform> Drop for Claim<P> {
    fn drop(&mut self) {
        self.runtime.0.in_kernel(|| self.runtime.0.free(&self.cell));
    }
}

/// The state of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// The task still waits.
    Waits,
    /// The task owns the mutex.
    Owns,
    /// As `Owns`, and the last owner died with the mutex.
    OwnsAfterDeath,
}

impl Outcome {
    fn owns(died: bool) -> Self {
        if died { Self::OwnsAfterDeath } else { Self::Owns }
    }
}

/// A waiting task.
pub(crate) struct Waiter<P: Platform> {
    queue: Arc<PiQueue<P>>,
    claim: Mutex<Option<Claim<P>>>,
    cell: CellRef<P>,
    waker: Mutex<Waker>,
    outcome: AtomicU8,
}

impl<P: Platform> Waiter<P> {
    /// Returns the state of the wait.
    pub(crate) fn outcome(&self) -> Outcome {
        P::settle();
        // Acquire: pairs with the Release in `hand_over`.
        match self.outcome.load(Ordering::Acquire) {
            outcome if outcome == Outcome::Owns as u8 => Outcome::Owns,
            outcome if outcome == Outcome::OwnsAfterDeath as u8 => Outcome::OwnsAfterDeath,
            _ => Outcome::Waits,
        }
    }

    /// Sets the waker to wake from now on. The caller asks for the outcome after this.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut own = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.will_wake(waker) {
            let before = std::mem::replace(&mut *own, waker.clone());
            drop(own);
            drop(before);
        }
    }

    /// Takes the claim, for the guard.
    pub(crate) fn take_claim(&self) -> Claim<P> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take().expect("a wait ends once")
    }

    /// Moves the waiter to its task's present priority. Returns the owner and whether the owner's
    /// priority has changed; `None` when the waiter does not wait any more.
    pub(crate) fn follow(self: &Arc<Self>) -> Option<(CellRef<P>, bool)> {
        let runtime = &*self.queue.runtime.0;
        let mut entries = self.queue.entries();
        let index = entries.position(self)?;
        let prio = self.cell.standing(runtime).effective();
        let moved = entries.waiters[index].0 != prio;
        if moved {
            entries.waiters.remove(index);
            entries.insert(prio, self.clone());
        }
        let changed = moved && self.queue.tell_owner(&entries);
        Some((entries.owner.clone()?, changed))
    }
}

/// A PI mutex without its value.
pub(crate) struct PiQueue<P: Platform> {
    pub(crate) runtime: Handle<P>,
    pub(crate) word: Place<P>,
    kernel: Placed<P, Kernel<P>>,
}

/// Where the word of a mutex lies.
pub(crate) enum Place<P: Platform> {
    /// In an object of ours.
    Own(Placed<P, PiWord<P>>),
    /// In the memory of a program.
    Program(&'static PiWord<P>),
}

impl<P: Platform> Deref for Place<P> {
    type Target = PiWord<P>;

    fn deref(&self) -> &PiWord<P> {
        match self {
            Self::Own(word) => word,
            Self::Program(word) => word,
        }
    }
}

/// The lock, in shared memory.
struct Kernel<P: Platform> {
    lock: Lock<P, Entries<P>>,
}

impl<P: Platform> Described for Kernel<P> {
    const OBJECT: &'static str = "pi_queue";

    fn fields() -> Vec<Field> {
        vec![Field::word("lock", 0, 4, "protects the owner and the queue")]
    }
}

/// The state under the lock.
struct Entries<P: Platform> {
    /// The owner, once a task has waited for it; `None` when the owner's task has ended but its
    /// guard exists elsewhere.
    owner: Option<CellRef<P>>,
    /// The most urgent waiter first; waiters of the same priority in order of arrival.
    waiters: Vec<(Prio, Arc<Waiter<P>>)>,
}

impl<P: Platform> Entries<P> {
    fn position(&self, waiter: &Arc<Waiter<P>>) -> Option<usize> {
        self.waiters.iter().position(|(_, other)| Arc::ptr_eq(other, waiter))
    }

    fn insert(&mut self, prio: Prio, waiter: Arc<Waiter<P>>) {
        let place = self.waiters.partition_point(|&(other, _)| other <= prio);
        self.waiters.insert(place, (prio, waiter));
    }

    fn first(&self) -> Option<Prio> {
        self.waiters.first().map(|&(prio, _)| prio)
    }
}

/// The result of [`PiQueue::block`].
pub(crate) enum Blocked<P: Platform> {
    /// The mutex was free; the task owns it.
    Taken(Claim<P>, Outcome),
    /// The task waits.
    Waiting(Arc<Waiter<P>>),
    /// The task may not wait.
    Refused(Refused),
}

impl<P: Platform> PiQueue<P> {
    pub(crate) fn new(runtime: &Handle<P>) -> Arc<Self> {
        Self::with_word(runtime, Place::Own(Placed::new(PiWord::new(), None, None)))
    }

    /// The queue of a mutex whose word is a program's.
    pub(crate) fn of_word(runtime: &Handle<P>, word: &'static P::Atomic<u32>) -> Arc<Self> {
        Self::with_word(runtime, Place::Program(PiWord::of(word)))
    }

    fn with_word(runtime: &Handle<P>, word: Place<P>) -> Arc<Self> {
        let entries = Entries { owner: None, waiters: Vec::new() };
        Arc::new(Self {
            runtime: runtime.clone(),
            word,
            kernel: Placed::new(Kernel { lock: Lock::new(entries) }, None, None),
        })
    }

    fn mark(&self) -> Mark {
        std::ptr::from_ref(self).addr()
    }

    fn entries(&self) -> LockGuard<'_, P, Entries<P>> {
        self.kernel.lock.lock()
    }

    /// Lends the owner the first waiter's priority; returns true when that changes the owner's
    /// priority.
    fn tell_owner(&self, entries: &Entries<P>) -> bool {
        let Some(owner) = &entries.owner else { return false };
        self.lend(owner, entries.first())
    }

    /// Sets the priority that this mutex lends to `task`; returns true when that changes the task's
    /// priority. Under the queue's lock.
    fn lend(&self, task: &Cell<P>, prio: Option<Prio>) -> bool {
        let mut standing = task.standing(&self.runtime.0);
        standing.set_lent(self.mark(), prio);
        task.follow(&self.runtime.0, &mut standing)
    }

    /// Takes the mutex for the claim's task, or enqueues the task. In a system call.
    pub(crate) fn block(self: &Arc<Self>, claim: Claim<P>, waker: Waker) -> Blocked<P> {
        let runtime = &*self.runtime.0;
        let cell = claim.cell.clone();
        let (waiter, owner) = {
            let mut entries = self.entries();
            let owner = match self.word.take_or_mark(cell.id) {
                Found::Free { died } => return Blocked::Taken(claim, Outcome::owns(died)),
                Found::Owned(owner) if owner == cell.id => return Blocked::Refused(Refused::Deadlock),
                Found::Owned(owner) => owner,
            };
            if entries.owner.is_none() {
                P::settle();
                entries.owner = runtime.cells.get(owner);
            }
            let waiter = Arc::new(Waiter {
                queue: self.clone(),
                claim: Mutex::new(Some(claim)),
                cell: cell.clone(),
                waker: Mutex::new(waker),
                outcome: AtomicU8::new(Outcome::Waits as u8),
            });
            let prio = {
                let mut standing = cell.standing(runtime);
                standing.begin_wait(&waiter);
                standing.effective()
            };
            entries.insert(prio, waiter.clone());
            self.tell_owner(&entries);
            (waiter, entries.owner.clone())
        };
        match owner.map_or(Ok(()), |owner| pass_on_for(runtime, owner, &cell)) {
            Ok(()) => Blocked::Waiting(waiter),
            Err(refused) if self.withdraw(&waiter) => Blocked::Refused(refused),
            // The mutex passed to this waiter meanwhile.
            Err(_) => Blocked::Waiting(waiter),
        }
    }

    /// Takes the mutex for the claim's task if the mutex is free. In a system call.
    pub(crate) fn try_take(&self, claim: Claim<P>) -> Option<(Claim<P>, Outcome)> {
        let _entries = self.entries();
        match self.word.take_if_free(claim.cell.id) {
            Found::Free { died } => Some((claim, Outcome::owns(died))),
            Found::Owned(_) => None,
        }
    }

    /// Removes a waiter from the queue; returns false when it owns the mutex by now.
    pub(crate) fn withdraw(&self, waiter: &Arc<Waiter<P>>) -> bool {
        let runtime = &*self.runtime.0;
        let changed = {
            let mut entries = self.entries();
            let Some(index) = entries.position(waiter) else { return false };
            entries.waiters.remove(index);
            waiter.cell.standing(runtime).end_wait(waiter);
            self.tell_owner(&entries).then(|| entries.owner.clone()).flatten()
        };
        if let Some(owner) = changed {
            pass_on(runtime, owner);
        }
        true
    }

    /// Releases the mutex; the owner may have `died` with it.
    pub(crate) fn release(&self, owner: &CellRef<P>, died: bool) {
        if !died && self.word.try_give_back(owner.id) {
            return;
        }
        let runtime = &self.runtime.0;
        runtime.count_futex_call();
        runtime.system_call(|| self.release_in_kernel(runtime, owner, died));
    }

    pub(crate) fn release_in_kernel(&self, runtime: &Inner<P>, owner: &CellRef<P>, died: bool) {
        let (next, changed) = {
            let mut entries = self.entries();
            let next = self.hand_over(runtime, &mut entries, died);
            (next, self.lend(owner, None))
        };
        if changed {
            pass_on(runtime, owner.clone());
        }
        if let Some(next) = next {
            let waker = next.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // A waker may be user code.
            contain(|| waker.wake());
        }
    }

    /// Step b: makes the first waiter, if any, the owner.
    fn hand_over(&self, runtime: &Inner<P>, entries: &mut Entries<P>, died: bool) -> Option<Arc<Waiter<P>>> {
        if entries.waiters.is_empty() {
            entries.owner = None;
            self.word.free(died);
            return None;
        }
        let (_, next) = entries.waiters.remove(0);
        self.word.hand_over(next.cell.id);
        entries.owner = Some(next.cell.clone());
        {
            let mut standing = next.cell.standing(runtime);
            standing.end_wait(&next);
            standing.set_lent(self.mark(), entries.first());
            next.cell.follow(runtime, &mut standing);
        }
        P::settle();
        // Release: the new owner sees what the old one wrote. Pairs with `Waiter::outcome`.
        next.outcome.store(Outcome::owns(died) as u8, Ordering::Release);
        Some(next)
    }

    /// Returns the owner and the waiters with their priorities, in queue order, for checkers. Exact
    /// only in a quiescent state.
    pub(crate) fn look(&self) -> (Option<TaskId>, Vec<(Prio, TaskId)>) {
        let entries = self.entries();
        let waiters = entries.waiters.iter().map(|(prio, waiter)| (*prio, waiter.cell.id));
        (entries.owner.as_ref().map(|owner| owner.id), waiters.collect())
    }
}

impl<P: Platform> fmt::Debug for PiQueue<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiQueue").field("owned", &self.word.is_owned()).finish_non_exhaustive()
    }
}
