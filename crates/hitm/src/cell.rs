//! What the runtime keeps of a task beside the scheduler's words: its future and how it left its last poll.
//!
//! **Roles.** The table holds a cell while its task lives; handles and wakers hold it longer, without the future. A cell is the
//! waker of its task, so it must not hold a waker of its own beyond the task's end.
//!
//! The future is in a mutex that is never contended: the scheduler runs a task on one CPU at a time. A second CPU that
//! finds it taken has met a bug, and says so.
//!
//! **Simulation.** All that is here stands outside the simulated memory. What one CPU writes and another reads without having
//! been led there by a simulated word (`aborted`, `parking`) is touched after [`Platform::settle`].

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use hitm_memory::{Platform, Span};
use hitm_sched::scheduler::Why;
use hitm_sched::task::TaskId;

use crate::contain::contain;
use crate::join::{Finish, JoinError};
use crate::roles::Role;
use crate::runtime::Inner;
use crate::sync::pi_chain::TaskPi;
use crate::sync::pi_mutex::Deferred;
use crate::tenant::Tenant;
use crate::worker::SLICE;

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a poll that did not end the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Leave {
    /// It waits.
    Block,
    /// It lets its equals go first.
    Yield,
    /// It makes way.
    Preempt,
}

/// Whether a task is parked.
enum Parking {
    /// It is not, and was not unparked either.
    Idle,
    /// It was unparked: the next park returns.
    Unparked,
    /// It is, and this wakes who waits for that.
    Parked(Waker),
}

/// One task.
pub(crate) struct Cell<P: Platform> {
    pub(crate) id: TaskId,
    pub(crate) role: Option<Role>,
    /// Kept until the task's number was given back.
    pub(crate) tenant: Option<Tenant>,
    runtime: Weak<Inner<P>>,
    task: Mutex<Option<Task>>,
    finish: Arc<dyn Finish>,
    aborted: AtomicBool,
    ended: AtomicBool,
    parking: Mutex<Parking>,
    /// What it is lent and what it waits for.
    pub(crate) pi: TaskPi<P>,
    /// It was aborted or has panicked, and its future is being dropped.
    dying: AtomicBool,
    /// Whether `deferred` has any. Its own CPU's alone, as is that.
    defers: AtomicBool,
    /// What is released at the end of the poll.
    deferred: Mutex<Vec<Deferred<P>>>,
    /// The task while it lives, and calls that use its number: see [`Cell::hold`].
    holders: AtomicU32,
    /// How the present poll ends if it does not end the task. Its own CPU's alone, like all below.
    leave: AtomicU8,
    /// What is left of its turn, in picoseconds.
    slice: AtomicU64,
    /// The CPU that it ran on last, counted from 1; 0 before the first time.
    pub(crate) last_cpu: AtomicU32,
    /// Whether it slept before this poll.
    pub(crate) slept: AtomicBool,
}

impl<P: Platform> Cell<P> {
    pub(crate) fn new(
        runtime: Weak<Inner<P>>,
        id: TaskId,
        role: Option<Role>,
        tenant: Option<Tenant>,
        task: Task,
        finish: Arc<dyn Finish>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            role,
            tenant,
            runtime,
            task: Mutex::new(Some(task)),
            finish,
            aborted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            parking: Mutex::new(Parking::Idle),
            pi: TaskPi::new(),
            dying: AtomicBool::new(false),
            defers: AtomicBool::new(false),
            deferred: Mutex::new(Vec::new()),
            holders: AtomicU32::new(1),
            leave: AtomicU8::new(Leave::Block as u8),
            slice: AtomicU64::new(SLICE.as_picos()),
            last_cpu: AtomicU32::new(0),
            slept: AtomicBool::new(true),
        })
    }

    /// Asks the task to end where it next waits. The caller, who has settled, wakes it.
    pub(crate) fn abort(&self) {
        // Release: what the aborter did before is seen by the CPU that ends the task. Pairs with `is_aborted`.
        self.aborted.store(true, Ordering::Release);
    }

    /// Whether the task was asked to end.
    pub(crate) fn is_aborted(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `abort`.
        self.aborted.load(Ordering::Acquire)
    }

    /// Whether the task has ended: its number may be another's by now. After a false it may have, too: a wakeup of whoever
    /// has the number is one of the spurious ones that tasks put up with.
    pub(crate) fn has_ended(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `end`.
        self.ended.load(Ordering::Acquire)
    }

    /// Keeps the task's number from being used again until [`Cell::release`]; false when it may have been.
    #[must_use]
    pub(crate) fn hold(&self) -> bool {
        P::settle();
        let more = |holders: u32| (holders > 0).then_some(holders + 1);
        // Acquire: pairs with `release`. Relaxed on failure: the caller does nothing.
        self.holders.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Gives a hold back; true when it was the last and the number is free. The first is the task's own.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        P::settle();
        // AcqRel: whoever frees the number has seen all that was done under it.
        self.holders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How the present poll ends if it does not end the task.
    pub(crate) fn set_leave(&self, leave: Leave) {
        // Relaxed: written and read on the CPU that polls.
        self.leave.store(leave as u8, Ordering::Relaxed);
    }

    /// What is left of its turn.
    pub(crate) fn slice(&self) -> Span {
        // Relaxed: as above; between CPUs the run queue's lock orders it.
        Span::from_picos(self.slice.load(Ordering::Relaxed))
    }

    /// What is left of its turn; a new one when nothing is.
    pub(crate) fn set_slice(&self, left: Span) {
        let left = if left.is_zero() { SLICE } else { left };
        // Relaxed: as above.
        self.slice.store(left.as_picos(), Ordering::Relaxed);
    }

    /// Whether its future is being dropped because it was aborted or has panicked.
    pub(crate) fn is_dying(&self) -> bool {
        // Relaxed: asked by who drops what was in the future, the thread that has set it.
        self.dying.load(Ordering::Relaxed)
    }

    /// Releases a PI mutex at the end of the poll, when it is known whether the task has panicked.
    pub(crate) fn defer(&self, deferred: Deferred<P>) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
        // Relaxed: written and read on the CPU that polls.
        self.defers.store(true, Ordering::Relaxed);
    }

    /// Releases what was put off; the task has `died` or not.
    pub(crate) fn release_deferred(&self, died: bool) {
        // Relaxed: as above.
        if self.defers.swap(false, Ordering::Relaxed) {
            let deferred = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
            deferred.into_iter().for_each(|deferred| deferred.release(died));
        }
    }

    fn parking(&self) -> MutexGuard<'_, Parking> {
        P::settle();
        // Only moves happen while it is held, so it is whole even if a thread panicked meanwhile.
        self.parking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an unpark, or takes the one that came before.
    pub(crate) fn poll_park(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut parking = self.parking();
        let unparked = matches!(*parking, Parking::Unparked);
        let next = if unparked { Parking::Idle } else { Parking::Parked(waker) };
        let before = std::mem::replace(&mut *parking, next);
        drop(parking);
        drop(before);
        if unparked { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Lets the next, or the present, park return.
    pub(crate) fn unpark(&self) {
        let before = std::mem::replace(&mut *self.parking(), Parking::Unparked);
        if let Parking::Parked(waker) = before {
            waker.wake();
        }
    }

    /// Polls the task, and ends it when it is done, has panicked or was aborted.
    pub(crate) fn poll(self: &Arc<Self>) -> Why {
        let mut slot = match self.task.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::WouldBlock) => panic!("task {} runs on two CPUs", self.id),
            // Another CPU's task was unwinding when this mutex was released, on a simulated machine.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let Some(task) = slot.as_mut() else { panic!("task {} runs after it has ended", self.id) };
        let result = if self.is_aborted() {
            Err(JoinError::aborted())
        } else {
            self.set_leave(Leave::Block);
            let waker = Waker::from(self.clone());
            let mut context = Context::from_waker(&waker);
            // Unwind safety: after a panic the future is dropped and never looked at again.
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
            if polled.is_ok() {
                self.release_deferred(false);
            }
            match polled {
                Ok(Poll::Pending) => return self.why(),
                Ok(Poll::Ready(())) => Ok(()),
                Err(payload) => Err(JoinError::panicked(payload)),
            }
        };
        let task = slot.take();
        drop(slot);
        self.end(task, result);
        Why::Exit
    }

    fn why(&self) -> Why {
        // Relaxed: written and read on the CPU that polls.
        match self.leave.load(Ordering::Relaxed) {
            leave if leave == Leave::Yield as u8 => Why::Yield,
            leave if leave == Leave::Preempt as u8 => Why::Preempt,
            _ => Why::Block,
        }
    }

    /// Ends a task that never ran, or that no CPU will run any more.
    pub(crate) fn discard(&self) {
        // A CPU that polls it ends it.
        let Ok(mut slot) = self.task.try_lock() else { return };
        let task = slot.take();
        drop(slot);
        if task.is_some() {
            self.end(task, Err(JoinError::aborted()));
        }
    }

    /// Drops the future, then tells who waits for the task.
    fn end(&self, task: Option<Task>, result: Result<(), JoinError>) {
        P::settle();
        // Relaxed: this thread drops what asks.
        self.dying.store(result.is_err(), Ordering::Relaxed);
        self.release_deferred(true);
        // Unwind safety: the future is gone afterwards.
        let dropped: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| drop(task)));
        let result = match (result, dropped) {
            (Err(error), Err(payload)) if error.is_panic() => {
                // The first panic is the one to tell of.
                std::mem::forget(payload);
                Err(error)
            }
            (_, Err(payload)) => Err(JoinError::panicked(payload)),
            (result, Ok(())) => result,
        };
        let parking = std::mem::replace(&mut *self.parking(), Parking::Idle);
        contain(|| drop(parking));
        // Release: pairs with the Acquire in `has_ended`.
        self.ended.store(true, Ordering::Release);
        self.finish.finish(result);
    }
}

impl<P: Platform> Wake for Cell<P> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade() {
            runtime.wake(self);
        }
    }
}

impl<P: Platform> fmt::Debug for Cell<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("id", &self.id).field("ended", &self.ended).finish_non_exhaustive()
    }
}
