//! A mutex with priority inheritance: its owner is as urgent as its most urgent waiter.
//!
//! Use it where tasks of different priorities share data. While an urgent task waits, tasks of
//! priorities between it and the owner cannot preempt the owner. [`Mutex`](crate::sync::Mutex) is
//! cheaper where all tasks have the same priority.
//!
//! **Origin.** Linux's PI futexes and their rt_mutex; an owner's death is reported as by POSIX
//! robust mutexes. Differences: the mutex passes to the most urgent waiter at once, and no task can
//! take it before that waiter; an owner's death is reported to the next owner only, while POSIX
//! requires the next owner to declare the state consistent; a task may wait for several mutexes at
//! once.
//!
//! **Roles.** Tasks use the word ([`pi_word`](crate::sync::pi_word)); the kernel uses the queue
//! ([`pi_queue`](crate::sync::pi_queue)); each task's PI state records the lent priorities
//! ([`pi_chain`](crate::sync::pi_chain)).
//!
//! **Owner.** The task that took the mutex is its owner until the guard is dropped, even if another
//! task drops the guard. A lock belongs to the task that first polled it.
//!
//! **Death.** The owner dies with the mutex when its guard is dropped because the task panics or is
//! aborted. A guard that is dropped while a panic unwinds is released at the end of the poll. Only
//! then is it known whether the task itself panicked: on a simulated machine, the panic may be that
//! of a task on another CPU.
//!
//! **Cancellation.** A lock that is dropped while it waits leaves the queue, and no longer lends
//! its priority to the owner. A lock that had become the owner passes the mutex on.
//!
//! **Limits.** A lent priority takes effect where the CPUs next make a scheduling decision about
//! the owner: a running task is preempted only at its own checkpoints and waits. The mutex is not
//! recursive.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hitm_memory::Platform;
use hitm_sched::{Prio, TaskId};

use crate::runtime::Handle;
use crate::sync::pi_chain::{CHAIN_MAX, Refused};
use crate::sync::pi_queue::{Blocked, Claim, Outcome, PiQueue, Waiter};

/// A mutual-exclusion lock whose owner inherits the priority of its most urgent waiter.
///
/// ```
/// use std::sync::Arc;
/// # use hitm::{NativeRuntime, Priority, sync::PiMutex};
/// # let runtime = NativeRuntime::with_cpus(2).unwrap();
/// # runtime.run(|handle| async move {
/// let sum = Arc::new(PiMutex::new(&handle, 0));
/// let tasks: Vec<_> = (1..=4).map(|n| {
///     let sum = sum.clone();
///     handle.spawn(Priority::fifo(n), async move { *sum.lock().await.unwrap() += n })
/// }).collect();
/// for task in tasks {
///     task.await.unwrap();
/// }
/// assert_eq!(*sum.lock().await.unwrap(), 10);
/// # }).unwrap();
/// ```
pub struct PiMutex<P: Platform, T> {
    queue: Arc<PiQueue<P>>,
    value: UnsafeCell<T>,
}

/// The guard of a [`PiMutex`]. Dropping it releases the mutex.
#[must_use = "the mutex is released at once"]
pub struct PiMutexGuard<'a, P: Platform, T> {
    mutex: &'a PiMutex<P, T>,
    claim: Option<Claim<P>>,
}

/// The reason why [`PiMutex::lock`] failed, or took the mutex after its owner's death.
#[must_use = "in `OwnerDied` is the guard"]
pub enum PiLockError<'a, P: Platform, T> {
    /// The task owns the mutex already, or the owner waits, directly or through other tasks, for a
    /// mutex that the task owns.
    Deadlock,
    /// The chain of waiting tasks has more than 1,024 tasks.
    TooDeep,
    /// The mutex is taken, but its last owner panicked or was aborted with it and may have left the
    /// value inconsistent.
    OwnerDied(PiMutexGuard<'a, P, T>),
}

/// The reason why [`PiMutex::try_lock`] failed, or took the mutex after its owner's death.
#[must_use = "in `OwnerDied` is the guard"]
pub enum PiTryLockError<'a, P: Platform, T> {
    /// The mutex is owned.
    Owned,
    /// As [`PiLockError::OwnerDied`].
    OwnerDied(PiMutexGuard<'a, P, T>),
}

/// The state that [`PiMutex::look`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiLook {
    /// The owner, if a task has waited since it took the mutex and its task is alive.
    pub owner: Option<TaskId>,
    /// The waiters, in the order in which they will own the mutex, each with its priority in the
    /// queue.
    pub waiters: Vec<(Prio, TaskId)>,
}

impl<P: Platform, T> PiMutex<P, T> {
    /// Makes a free mutex that protects `value`.
    #[must_use]
    pub fn new(runtime: &Handle<P>, value: T) -> Self {
        Self { queue: PiQueue::new(runtime), value: UnsafeCell::new(value) }
    }

    /// Waits until the mutex is free, takes it and returns its guard. The calling task lends the
    /// owner its priority while it waits.
    ///
    /// # Cancel safety
    /// A dropped lock that waits leaves the queue, and its priority is no longer lent. A dropped
    /// lock that had become the owner passes the mutex on.
    ///
    /// # Errors
    /// When waiting would deadlock, the chain of waiters is too deep, or the last owner died: see
    /// [`PiLockError`].
    ///
    /// # Panics
    /// When it is polled outside a task of the runtime.
    pub fn lock(&self) -> PiLock<'_, P, T> {
        PiLock { mutex: self, waiter: None }
    }

    /// Takes the mutex and returns its guard if the mutex is free.
    ///
    /// # Errors
    /// When the mutex is owned, or its last owner died: see [`PiTryLockError`].
    ///
    /// # Panics
    /// Outside a task of the runtime.
    pub fn try_lock(&self) -> Result<PiMutexGuard<'_, P, T>, PiTryLockError<'_, P, T>> {
        let claim = self.claim();
        if self.queue.word.try_take(claim.cell.id) {
            return Ok(self.guard(claim));
        }
        if self.queue.word.is_owned() {
            return Err(PiTryLockError::Owned);
        }
        match self.queue.runtime.0.system_call(|| self.queue.try_take(claim)) {
            Some((claim, Outcome::OwnsAfterDeath)) => Err(PiTryLockError::OwnerDied(self.guard(claim))),
            Some((claim, _)) => Ok(self.guard(claim)),
            None => Err(PiTryLockError::Owned),
        }
    }

    /// Returns the calling task's claim to own the mutex.
    fn claim(&self) -> Claim<P> {
        let claim = Claim::of_current(&self.queue.runtime);
        // A guard may have been dropped in this poll while a task on another CPU unwound.
        claim.cell.release_deferred(false);
        claim
    }

    fn guard(&self, claim: Claim<P>) -> PiMutexGuard<'_, P, T> {
        PiMutexGuard { mutex: self, claim: Some(claim) }
    }

    fn owned(&self, claim: Claim<P>, outcome: Outcome) -> Result<PiMutexGuard<'_, P, T>, PiLockError<'_, P, T>> {
        let guard = self.guard(claim);
        if outcome == Outcome::OwnsAfterDeath { Err(PiLockError::OwnerDied(guard)) } else { Ok(guard) }
    }

    /// Returns the owner and the queue, for checkers. Exact in a quiescent state.
    #[must_use]
    pub fn look(&self) -> PiLook {
        let (owner, waiters) = self.queue.runtime.0.visit(|| self.queue.look());
        PiLook { owner, waiters }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

// SAFETY: the mutex gives one guard at a time access to the value, so `T: Send` suffices.
unsafe impl<P: Platform, T: Send> Sync for PiMutex<P, T> {}
// SAFETY: sharing the guard only shares `&T`.
unsafe impl<P: Platform, T: Sync> Sync for PiMutexGuard<'_, P, T> {}

/// A future that takes a [`PiMutex`]. Made by [`PiMutex::lock`].
#[must_use = "nothing is taken until it is awaited"]
pub struct PiLock<'a, P: Platform, T> {
    mutex: &'a PiMutex<P, T>,
    waiter: Option<Arc<Waiter<P>>>,
}

impl<'a, P: Platform, T> Future for PiLock<'a, P, T> {
    type Output = Result<PiMutexGuard<'a, P, T>, PiLockError<'a, P, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        let queue = &mutex.queue;
        if let Some(waiter) = &self.waiter {
            // The waker is set before the outcome is read: a task that makes this task the owner
            // later finds the new waker.
            waiter.set_waker(context.waker());
            let outcome = waiter.outcome();
            if outcome == Outcome::Waits {
                return Poll::Pending;
            }
            let claim = waiter.take_claim();
            self.waiter = None;
            return Poll::Ready(mutex.owned(claim, outcome));
        }
        let claim = mutex.claim();
        if queue.word.try_take(claim.cell.id) {
            return Poll::Ready(Ok(mutex.guard(claim)));
        }
        queue.runtime.0.count_futex_call();
        let waker = context.waker().clone();
        match queue.runtime.0.system_call(|| queue.block(claim, waker)) {
            Blocked::Taken(claim, outcome) => Poll::Ready(mutex.owned(claim, outcome)),
            Blocked::Refused(Refused::Deadlock) => Poll::Ready(Err(PiLockError::Deadlock)),
            Blocked::Refused(Refused::TooDeep) => Poll::Ready(Err(PiLockError::TooDeep)),
            Blocked::Waiting(waiter) => {
                let owns = waiter.outcome() != Outcome::Waits;
                self.waiter = Some(waiter);
                // The task was woken already, perhaps during this poll. In both cases it is polled
                // again.
                if owns { self.poll(context) } else { Poll::Pending }
            }
        }
    }
}

impl<P: Platform, T> Drop for PiLock<'_, P, T> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let queue = &self.mutex.queue;
        if waiter.outcome() == Outcome::Waits && queue.runtime.0.in_kernel(|| queue.withdraw(&waiter)) {
            return;
        }
        // This lock never saw the value, so the report of the last owner's death passes to the next
        // owner.
        let died = waiter.outcome() == Outcome::OwnsAfterDeath;
        queue.release(&waiter.take_claim().cell, died);
    }
}

impl<P: Platform, T> Deref for PiMutexGuard<'_, P, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard owns the mutex. The only other references to the value are those
        // borrowed from this guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<P: Platform, T> DerefMut for PiMutexGuard<'_, P, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard owns the mutex and is borrowed mutably, so this is the only reference
        // to the value.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<P: Platform, T> Drop for PiMutexGuard<'_, P, T> {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let queue = &self.mutex.queue;
        let dies = claim.cell.is_dying();
        if !dies && std::thread::panicking() && queue.runtime.0.current_id() == Some(claim.cell.id) {
            let cell = claim.cell.clone();
            cell.defer(Deferred { queue: queue.clone(), claim });
            return;
        }
        queue.release(&claim.cell, dies);
    }
}

/// A release that waits for the end of its task's poll.
pub(crate) struct Deferred<P: Platform> {
    queue: Arc<PiQueue<P>>,
    claim: Claim<P>,
}

impl<P: Platform> Deferred<P> {
    /// Releases the mutex. By now it is known whether the owner has `died`.
    pub(crate) fn release(self, died: bool) {
        self.queue.release(&self.claim.cell, died);
    }
}

impl<'a, P: Platform, T> PiLockError<'a, P, T> {
    /// Returns the guard of a mutex that was taken although its last owner died.
    #[must_use]
    pub fn into_guard(self) -> Option<PiMutexGuard<'a, P, T>> {
        match self {
            Self::OwnerDied(guard) => Some(guard),
            Self::Deadlock | Self::TooDeep => None,
        }
    }
}

impl<P: Platform, T> fmt::Display for PiLockError<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock => f.write_str("waiting for the mutex would wait for the task itself"),
            Self::TooDeep => write!(f, "more than {CHAIN_MAX} tasks wait one for another"),
            Self::OwnerDied(_) => f.write_str("the last owner of the mutex died with it"),
        }
    }
}

impl<P: Platform, T> fmt::Debug for PiLockError<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadlock => "Deadlock",
            Self::TooDeep => "TooDeep",
            Self::OwnerDied(_) => "OwnerDied",
        })
    }
}

impl<P: Platform, T> std::error::Error for PiLockError<'_, P, T> {}

impl<P: Platform, T> fmt::Display for PiTryLockError<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "the mutex is owned",
            Self::OwnerDied(_) => "the last owner of the mutex died with it",
        })
    }
}

impl<P: Platform, T> fmt::Debug for PiTryLockError<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "Owned",
            Self::OwnerDied(_) => "OwnerDied",
        })
    }
}

impl<P: Platform, T> std::error::Error for PiTryLockError<'_, P, T> {}

impl<P: Platform, T> fmt::Debug for PiMutex<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<P: Platform, T: fmt::Debug> fmt::Debug for PiMutexGuard<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<P: Platform, T> fmt::Debug for PiLock<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiLock").field("waits", &self.waiter.is_some()).finish_non_exhaustive()
    }
}
