//! A PI futex: the queue of a mutex whose word lies in the memory of a program.
//!
//! [`PiMutex`](crate::sync::PiMutex) is for tasks that are written for this runtime. A program that
//! has its own mutexes takes and releases them by the word alone while no thread waits, and calls
//! the kernel otherwise. This is the kernel's side: the operations `FUTEX_LOCK_PI`,
//! `FUTEX_TRYLOCK_PI` and `FUTEX_UNLOCK_PI` of Linux, on the queue of a `PiMutex`.
//!
//! **The word** holds the number of the owner's task plus 1; bit 31 says that the owner must
//! release it by a call. That is the form of a `PiMutex`'s own word, and that of Linux's, if a
//! thread's id is the number of its task plus 1.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hitm_memory::Platform;

use crate::runtime::Handle;
use crate::sync::pi_chain::Refused;
use crate::sync::pi_queue::{Blocked, Claim, Outcome, PiQueue, Waiter};

/// The kernel's side of a mutex in a program's memory.
pub struct PiFutex<P: Platform>(Arc<PiQueue<P>>);

/// The reason why a task may not wait for a [`PiFutex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PiRefused {
    /// The task owns the mutex, or the owner waits, directly or through others, for the task.
    Deadlock,
    /// The chain of waiting tasks has more than 1,024 tasks.
    TooDeep,
}

impl<P: Platform> PiFutex<P> {
    /// The side of the mutex with this word.
    #[must_use]
    pub fn of_word(runtime: &Handle<P>, word: &'static P::Atomic<u32>) -> Self {
        Self(PiQueue::of_word(runtime, word))
    }

    /// Waits until the mutex is free and takes it for the calling task, which lends the owner its
    /// priority while it waits. A system call.
    ///
    /// # Cancel safety
    /// A dropped lock that waits leaves the queue. One that had become the owner passes the mutex
    /// on.
    ///
    /// # Errors
    /// When waiting would deadlock, or the chain of waiters is too deep.
    ///
    /// # Panics
    /// When it is polled outside a task of the runtime.
    pub fn lock(&self) -> PiFutexLock<'_, P> {
        PiFutexLock { queue: &self.0, waiter: None }
    }

    /// Takes the mutex for the calling task if it is free; returns whether it was. A system call.
    ///
    /// # Panics
    /// Outside a task of the runtime.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let claim = Claim::of_current(&self.0.runtime);
        self.0.runtime.0.system_call(|| self.0.try_take(claim)).is_some()
    }

    /// Releases the mutex, which the calling task owns. A system call.
    ///
    /// # Panics
    /// Outside a task of the runtime.
    pub fn unlock(&self) {
        let runtime = &self.0.runtime.0;
        let owner = self.0.runtime.current_cell();
        runtime.count_futex_call();
        runtime.system_call(|| self.0.release_in_kernel(runtime, &owner, false));
    }
}

/// A future that takes a [`PiFutex`]. Made by [`PiFutex::lock`].
#[must_use = "nothing is taken until it is awaited"]
pub struct PiFutexLock<'a, P: Platform> {
    queue: &'a Arc<PiQueue<P>>,
    waiter: Option<Arc<Waiter<P>>>,
}

impl<P: Platform> Future for PiFutexLock<'_, P> {
    type Output = Result<(), PiRefused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(waiter) = &self.waiter {
            // The waker is set before the outcome is read, as in a `PiMutex`.
            waiter.set_waker(context.waker());
            if waiter.outcome() == Outcome::Waits {
                return Poll::Pending;
            }
            drop(waiter.take_claim());
            self.waiter = None;
            return Poll::Ready(Ok(()));
        }
        let runtime = &self.queue.runtime.0;
        let claim = Claim::of_current(&self.queue.runtime);
        runtime.count_futex_call();
        let waker = context.waker().clone();
        match runtime.system_call(|| self.queue.block(claim, waker)) {
            Blocked::Taken(..) => Poll::Ready(Ok(())),
            Blocked::Refused(Refused::Deadlock) => Poll::Ready(Err(PiRefused::Deadlock)),
            Blocked::Refused(Refused::TooDeep) => Poll::Ready(Err(PiRefused::TooDeep)),
            Blocked::Waiting(waiter) => {
                let owns = waiter.outcome() != Outcome::Waits;
                self.waiter = Some(waiter);
                if owns { self.poll(context) } else { Poll::Pending }
            }
        }
    }
}

impl<P: Platform> Drop for PiFutexLock<'_, P> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.outcome() == Outcome::Waits && self.queue.runtime.0.in_kernel(|| self.queue.withdraw(&waiter)) {
            return;
        }
        self.queue.release(&waiter.take_claim().cell, false);
    }
}

impl<P: Platform> fmt::Debug for PiFutex<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiFutex").field("queue", &self.0).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for PiFutexLock<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiFutexLock").field("waits", &self.waiter.is_some()).finish_non_exhaustive()
    }
}
