//! The runtime's state of a task beside the scheduler's: the task's future and how its last poll
//! ended.
//!
//! **Roles.** The table holds a cell while its task is alive. Handles and wakers hold the cell
//! longer, without the future. A cell is the waker of its task, so it must not hold its own waker
//! beyond the task's end.
//!
//! The future is accessed by whoever has set `in_use`. It is never contended: the scheduler runs a
//! task on one CPU at a time. A second CPU that finds it set has met a bug, and panics.
//!
//! **Simulation.** All state here is outside the simulated memory. State that one CPU writes and
//! another reads without a simulated word in between (`aborted`, `parking`) is accessed after
//! [`Platform::settle`].

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use hitm_memory::{Platform, Span};
use hitm_sched::{SwitchReason, TaskId};

use crate::contain::contain;
use crate::host;
use crate::join::{Finish, JoinError};
use crate::options::Kept;
use crate::roles::Role;
use crate::runtime::{Handle, Inner};
use crate::sync::pi_chain::TaskPi;
use crate::sync::pi_mutex::Deferred;
use crate::table::Running;
use crate::tenant::Tenant;
use crate::worker::SLICE;

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a poll that did not end the task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Leave {
    /// The task waits.
    Block,
    /// The task lets tasks of the same priority run first.
    Yield,
    /// The task is preempted.
    Preempt,
}

/// Whether a task is parked.
enum Parking {
    /// The task is not parked, and no unpark is pending.
    Idle,
    /// An unpark is pending: the next park returns.
    Unparked,
    /// The task is parked; an unpark wakes this waker.
    Parked(Waker),
}

/// One task.
pub(crate) struct Cell<P: Platform> {
    pub(crate) id: TaskId,
    pub(crate) role: Option<Role>,
    /// Kept until the task's id is freed.
    pub(crate) tenant: Option<Tenant>,
    /// Options that tasks of this task inherit, and the name.
    pub(crate) kept: Option<Box<Kept>>,
    runtime: Weak<Inner<P>>,
    /// Whether the future is being accessed.
    in_use: AtomicBool,
    task: UnsafeCell<Option<Task>>,
    finish: Arc<dyn Finish>,
    aborted: AtomicBool,
    ended: AtomicBool,
    parking: Mutex<Parking>,
    /// The priorities that the task is lent and the mutexes that it waits for.
    pub(crate) pi: TaskPi<P>,
    /// Whether the task was aborted or has panicked, so that its future is being dropped.
    dying: AtomicBool,
    /// Whether `deferred` has entries. Only the task's CPU uses both.
    defers: AtomicBool,
    /// The mutexes to release at the end of the poll.
    deferred: Mutex<Vec<Deferred<P>>>,
    /// The number of holds: one by the live task, and one per call that uses its id. See
    /// [`Cell::hold`].
    holders: AtomicU32,
    /// How the present poll ends if it does not end the task. Only the task's CPU uses this and all
    /// fields below.
    leave: AtomicU8,
    /// The remainder of its round-robin turn, in picoseconds.
    slice: AtomicU64,
    /// The CPU that the task ran on last, plus 1; 0 before the first time.
    pub(crate) last_cpu: AtomicU32,
    /// Whether the task slept before this poll.
    pub(crate) slept: AtomicBool,
}

// SAFETY: all fields but `task` are `Sync`. `task` is accessed through `InUse`, by one thread at a
// time, and futures are `Send`.
unsafe impl<P: Platform> Sync for Cell<P> {}

/// The exclusive access to a task's future, until it is dropped.
struct InUse<'a, P: Platform>(&'a Cell<P>);

impl<P: Platform> InUse<'_, P> {
    fn task(&mut self) -> &mut Option<Task> {
        // SAFETY: `in_use` lets one `InUse` of a cell exist at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.task.get() }
    }
}

impl<P: Platform> Drop for InUse<'_, P> {
    fn drop(&mut self) {
        // Release: the next access sees what this one did. Pairs with `Cell::access`.
        self.0.in_use.store(false, Ordering::Release);
    }
}

impl<P: Platform> Cell<P> {
    /// Returns the access to the future, unless another CPU has it.
    fn access(&self) -> Option<InUse<'_, P>> {
        // Acquire: pairs with the Release in `InUse::drop`.
        (!self.in_use.swap(true, Ordering::Acquire)).then_some(InUse(self))
    }

    pub(crate) fn new(
        runtime: Weak<Inner<P>>,
        id: TaskId,
        role: Option<Role>,
        tenant: Option<Tenant>,
        kept: Option<Box<Kept>>,
        task: Task,
        finish: Arc<dyn Finish>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            role,
            tenant,
            kept,
            runtime,
            in_use: AtomicBool::new(false),
            task: UnsafeCell::new(Some(task)),
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

    /// Asks the task to end where it next waits. The caller has settled before, and wakes the task
    /// after.
    pub(crate) fn abort(&self) {
        // Release: the CPU that ends the task sees what the aborter did before. Pairs with
        // `is_aborted`.
        self.aborted.store(true, Ordering::Release);
    }

    /// Returns whether the task was asked to end.
    pub(crate) fn is_aborted(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `abort`.
        self.aborted.load(Ordering::Acquire)
    }

    /// Returns whether the task has ended. After true, another task may use its id. After false,
    /// the task may end at any time too; a wakeup of the id's next task is then a spurious one,
    /// which tasks tolerate.
    pub(crate) fn has_ended(&self) -> bool {
        P::settle();
        // Acquire: pairs with the Release in `end`.
        self.ended.load(Ordering::Acquire)
    }

    /// Keeps the task's id from being reused until [`Cell::release`]; returns false when it may
    /// have been reused.
    #[must_use]
    pub(crate) fn hold(&self) -> bool {
        P::settle();
        let more = |holders: u32| (holders > 0).then_some(holders + 1);
        // Acquire: pairs with `release`. Relaxed on failure: the caller does nothing.
        self.holders.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Releases a hold; returns true when it was the last one and the id is free. The first hold is
    /// the task's own.
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        P::settle();
        // AcqRel: the caller that frees the id sees all that was done under the other holds.
        self.holders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Sets how the present poll ends if it does not end the task.
    pub(crate) fn set_leave(&self, leave: Leave) {
        // Relaxed: only the CPU that polls the task writes and reads this.
        self.leave.store(leave as u8, Ordering::Relaxed);
    }

    /// Notes that the task was woken by its own poll. If the poll ends without another reason, the
    /// task goes behind tasks of its priority, as a thread does that blocks and is woken (POSIX,
    /// `SCHED_FIFO`). It would be polled for ever ahead of them otherwise.
    pub(crate) fn wakes_itself(&self) {
        // Relaxed: as in `set_leave`. Its own poll calls this.
        let (block, behind) = (Leave::Block as u8, Leave::Yield as u8);
        _ = self.leave.compare_exchange(block, behind, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the remainder of the task's turn.
    pub(crate) fn slice(&self) -> Span {
        // Relaxed: as in `set_leave`; the run queue's lock orders accesses from different CPUs.
        Span::from_picos(self.slice.load(Ordering::Relaxed))
    }

    /// Sets the remainder of the task's turn; a new turn begins when nothing remains.
    pub(crate) fn set_slice(&self, left: Span) {
        let left = if left.is_zero() { SLICE } else { left };
        // Relaxed: as in `slice`.
        self.slice.store(left.as_picos(), Ordering::Relaxed);
    }

    /// Returns whether the future is being dropped because the task was aborted or has panicked.
    pub(crate) fn is_dying(&self) -> bool {
        // Relaxed: the destructors that ask run on the thread that has set it.
        self.dying.load(Ordering::Relaxed)
    }

    /// Defers the release of a PI mutex to the end of the poll, when it is known whether the task
    /// has panicked.
    pub(crate) fn defer(&self, deferred: Deferred<P>) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
        // Relaxed: only the CPU that polls the task writes and reads this.
        self.defers.store(true, Ordering::Relaxed);
    }

    /// Releases the deferred mutexes; `died` tells whether the task has died.
    pub(crate) fn release_deferred(&self, died: bool) {
        // Relaxed: as in `defer`.
        if self.defers.load(Ordering::Relaxed) {
            // Relaxed: as in `defer`.
            self.defers.store(false, Ordering::Relaxed);
            let deferred = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
            deferred.into_iter().for_each(|deferred| deferred.release(died));
        }
    }

    fn parking(&self) -> MutexGuard<'_, Parking> {
        P::settle();
        // The lock only covers moves, so the state is consistent even if a thread panicked
        // meanwhile.
        self.parking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an unpark, or consumes a pending one.
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

    /// Lets the present park, or else the next one, return.
    pub(crate) fn unpark(&self) {
        let before = std::mem::replace(&mut *self.parking(), Parking::Unparked);
        if let Parking::Parked(waker) = before {
            waker.wake();
        }
    }

    /// Polls the task. Ends it when it has finished, has panicked or was aborted.
    pub(crate) fn poll(cell: Running<P>) -> SwitchReason {
        let this = &*cell;
        let Some(mut slot) = this.access() else { panic!("task {} runs on two CPUs", this.id) };
        let Some(task) = slot.task().as_mut() else { panic!("task {} runs after it has ended", this.id) };
        let result = if this.is_aborted() {
            Err(JoinError::aborted())
        } else {
            this.set_leave(Leave::Block);
            // SAFETY: the table has a reference to the cell during the poll, and `ManuallyDrop`
            // keeps this one from being given back.
            let waker = ManuallyDrop::new(Waker::from(unsafe { Arc::from_raw(cell.as_ptr()) }));
            let mut context = Context::from_waker(&waker);
            // Unwind safety: after a panic the future is only dropped.
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
            if polled.is_ok() {
                this.release_deferred(false);
            }
            match polled {
                Ok(Poll::Pending) => return this.why(),
                Ok(Poll::Ready(())) => Ok(()),
                Err(payload) => Err(JoinError::panicked(payload)),
            }
        };
        let task = slot.task().take();
        drop(slot);
        this.end(task, result);
        SwitchReason::Exit
    }

    fn why(&self) -> SwitchReason {
        // Relaxed: only the CPU that polls the task writes and reads this.
        match self.leave.load(Ordering::Relaxed) {
            leave if leave == Leave::Yield as u8 => SwitchReason::Yield,
            leave if leave == Leave::Preempt as u8 => SwitchReason::Preempt,
            _ => SwitchReason::Block,
        }
    }

    /// Ends a task that never ran, or that no CPU will run any more, with `error`.
    pub(crate) fn discard(&self, error: JoinError) {
        // A CPU that polls the task ends it.
        let Some(mut slot) = self.access() else { return };
        let task = slot.task().take();
        drop(slot);
        if task.is_some() {
            self.end(task, Err(error));
        }
    }

    /// Drops the future, then completes the join state.
    fn end(&self, task: Option<Task>, result: Result<(), JoinError>) {
        P::settle();
        // Relaxed: only destructors on this thread read it.
        self.dying.store(result.is_err(), Ordering::Relaxed);
        self.release_deferred(true);
        // Unwind safety: the future is gone afterwards.
        let dropped: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| drop(task)));
        let result = match (result, dropped) {
            (Err(error), Err(payload)) if error.is_panic() => {
                // The join state reports the first panic.
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
        let panicked = result.as_ref().is_err_and(JoinError::is_panic);
        self.finish.finish(result);
        if panicked && let Some(runtime) = self.runtime.upgrade() {
            Handle(runtime).note_panic();
        }
    }
}

impl<P: Platform> Wake for Cell<P> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match host::current::<P>(&self.runtime) {
            Some(runtime) => runtime.wake(self),
            None => {
                if let Some(runtime) = self.runtime.upgrade() {
                    runtime.wake(self);
                }
            }
        }
    }
}

impl<P: Platform> fmt::Debug for Cell<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("id", &self.id).field("ended", &self.ended).finish_non_exhaustive()
    }
}
