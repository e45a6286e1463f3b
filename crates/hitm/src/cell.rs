//! The runtime's state of a task beside the scheduler's, in front of the task's future: how its
//! last poll ended, what was asked of it, and where its join handle waits.
//!
//! **Roles.** The table has a reference to a cell while its task is alive. Handles and wakers have
//! references longer. [`body`](crate::body) has the block of memory behind the cell. A cell is the
//! waker of its task, so it must not hold its own waker beyond the task's end.
//!
//! The future is accessed by the thread that has set `in_use`. It is never contended: the scheduler
//! runs a task on one CPU at a time. A second CPU that finds it set has met a bug, and panics.
//!
//! What few tasks need is made at the first use: [`Rare`].
//!
//! **Simulation.** All state here is outside the simulated memory. State that one CPU writes and
//! another reads without a simulated word in between (`aborted`, `parking`) is accessed after
//! [`Platform::settle`].

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use hitm_memory::{Native, Platform, Span};
use hitm_sched::{SwitchReason, TaskId};

use crate::body::{self, Operations, References};
use crate::contain::contain;
use crate::host::RuntimeId;
use crate::join::JoinError;
use crate::join_word::JoinWord;
use crate::options::Kept;
use crate::roles::Role;
use crate::runtime::{Handle, Inner};
use crate::spawn::REFUSED;
use crate::sync::pi_chain::TaskPi;
use crate::sync::pi_mutex::Deferred;
use crate::table::Running;
use crate::tenant::Tenant;
use crate::worker::SLICE;

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
#[derive(Default)]
enum Parking {
    /// The task is not parked, and no unpark is pending.
    #[default]
    Idle,
    /// An unpark is pending: the next park returns.
    Unparked,
    /// The task is parked; an unpark wakes this waker.
    Parked(Waker),
}

/// What few tasks need.
struct Rare<P: Platform> {
    parking: Mutex<Parking>,
    /// The priorities that the task is lent and the mutexes that it waits for.
    pi: TaskPi<P>,
    /// The mutexes to release at the end of the poll.
    deferred: Mutex<Vec<Deferred<P>>>,
}

/// One task.
pub(crate) struct Cell<P: Platform> {
    pub(crate) references: References,
    /// What is done to the future behind the cell.
    pub(crate) operations: &'static Operations<P>,
    runtime: RuntimeId,
    /// Options that are kept until the task's id is freed. Most tasks have none.
    kept: Option<Box<Kept>>,
    rare: OnceLock<Box<Rare<P>>>,
    /// The waker of the join handle. `join` says who uses it.
    place: UnsafeCell<Option<Waker>>,
    /// The remainder of its round-robin turn, in picoseconds. Only the task's CPU uses it.
    slice: AtomicU64,
    pub(crate) id: TaskId,
    /// The number of holds: one by the live task, and one per call that uses its id. See
    /// [`Cell::hold`].
    holders: AtomicU32,
    pub(crate) join: JoinWord<Native>,
    /// Whether the future is being accessed.
    in_use: AtomicBool,
    aborted: AtomicBool,
    ended: AtomicBool,
    /// Whether the task was aborted or has panicked, so that its future is being dropped.
    dying: AtomicBool,
    /// Whether `deferred` has entries. Only the task's CPU uses both.
    defers: AtomicBool,
    /// How the present poll ends if it does not end the task. Only the task's CPU uses it.
    leave: AtomicU8,
}

// SAFETY: all fields but `place` are `Sync`. `place` is used by one thread at a time: see
// `JoinWord`. Wakers are `Send`.
unsafe impl<P: Platform> Sync for Cell<P> {}

/// The exclusive access to a task's future, until it is dropped.
pub(crate) struct InUse<'a, P: Platform>(&'a Cell<P>);

impl<P: Platform> Drop for InUse<'_, P> {
    fn drop(&mut self) {
        // Release: the next access sees what this one did. Pairs with `Cell::access`.
        self.0.in_use.store(false, Ordering::Release);
    }
}

impl<P: Platform> Cell<P> {
    /// Returns the access to the future, unless another CPU has it.
    pub(crate) fn access(&self) -> Option<InUse<'_, P>> {
        // Acquire: pairs with the Release in `InUse::drop`.
        (!self.in_use.swap(true, Ordering::Acquire)).then_some(InUse(self))
    }

    /// Makes the cell of a task that was not spawned yet.
    pub(crate) fn new(runtime: RuntimeId, operations: &'static Operations<P>) -> Self {
        Self {
            references: References::new(),
            operations,
            runtime,
            kept: None,
            rare: OnceLock::new(),
            place: UnsafeCell::new(None),
            slice: AtomicU64::new(SLICE.as_picos()),
            id: REFUSED,
            holders: AtomicU32::new(1),
            join: JoinWord::new(),
            in_use: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            defers: AtomicBool::new(false),
            leave: AtomicU8::new(Leave::Block as u8),
        }
    }

    /// Gives the task its id, and what it keeps of its options.
    pub(crate) fn launch(&mut self, id: TaskId, kept: Option<Box<Kept>>) {
        self.id = id;
        self.kept = kept;
    }

    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_deref()
    }

    pub(crate) fn role(&self) -> Option<Role> {
        self.kept()?.role()
    }

    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        self.kept()?.tenant()
    }

    fn rare(&self) -> &Rare<P> {
        self.rare
            .get_or_init(|| Box::new(Rare { parking: Mutex::default(), pi: TaskPi::new(), deferred: Mutex::default() }))
    }

    /// Returns the task's PI state.
    pub(crate) fn pi(&self) -> &TaskPi<P> {
        &self.rare().pi
    }

    /// Returns the task's PI state, if it may have one.
    pub(crate) fn pi_if_any(&self) -> Option<&TaskPi<P>> {
        self.rare.get().map(|rare| &rare.pi)
    }

    /// Returns the place of the join handle's waker.
    ///
    /// # Safety
    /// The [word](JoinWord) has given it to the caller, and there is no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "the caller's duty says so")]
    pub(crate) unsafe fn place(&self) -> &mut Option<Waker> {
        // SAFETY: the caller's duty.
        unsafe { &mut *self.place.get() }
    }

    /// Returns the number of the task's runtime.
    pub(crate) fn runtime(&self) -> RuntimeId {
        self.runtime
    }

    /// Runs `f` with the task's runtime, unless it is gone.
    pub(crate) fn with_runtime(&self, f: impl FnOnce(&Inner<P>)) {
        _ = self.runtime.with(f);
    }

    pub(crate) fn wake(&self) {
        self.with_runtime(|runtime| runtime.wake(self));
    }

    pub(crate) fn note_panic(&self) {
        if let Some(runtime) = self.runtime.find() {
            Handle::<P>(runtime).note_panic();
        }
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
        // Acquire: pairs with the Release in `set_ended`.
        self.ended.load(Ordering::Acquire)
    }

    /// Returns whether the task has ended, for whoever has the access to the future.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: set under that access.
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ended(&self) {
        // Release: pairs with the Acquire in `has_ended`.
        self.ended.store(true, Ordering::Release);
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
        self.rare().deferred.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
        // Relaxed: only the CPU that polls the task writes and reads this.
        self.defers.store(true, Ordering::Relaxed);
    }

    /// Releases the deferred mutexes; `died` tells whether the task has died.
    #[inline]
    pub(crate) fn release_deferred(&self, died: bool) {
        // Relaxed: as in `defer`.
        if self.defers.load(Ordering::Relaxed) {
            // Relaxed: as in `defer`.
            self.defers.store(false, Ordering::Relaxed);
            let deferred = take(&mut *self.rare().deferred.lock().unwrap_or_else(PoisonError::into_inner));
            deferred.into_iter().for_each(|deferred| deferred.release(died));
        }
    }

    fn parking(&self) -> MutexGuard<'_, Parking> {
        P::settle();
        // The lock only covers moves, so the state is consistent even if a thread panicked
        // meanwhile.
        self.rare().parking.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(_use) = this.access() else { panic!("task {} runs on two CPUs", this.id) };
        assert!(!this.is_over(), "task {} runs after it has ended", this.id);
        if this.is_aborted() {
            // SAFETY: the table has a reference during the poll, and `_use` is the use of the
            // future, which is there: the task has not ended.
            unsafe { body::fail(cell.as_raw(), JoinError::aborted()) };
            return SwitchReason::Exit;
        }
        this.set_leave(Leave::Block);
        // SAFETY: as above.
        if unsafe { body::poll(cell.as_raw()) } { SwitchReason::Exit } else { this.why() }
    }

    fn why(&self) -> SwitchReason {
        // Relaxed: only the CPU that polls the task writes and reads this.
        match self.leave.load(Ordering::Relaxed) {
            leave if leave == Leave::Yield as u8 => SwitchReason::Yield,
            leave if leave == Leave::Preempt as u8 => SwitchReason::Preempt,
            _ => SwitchReason::Block,
        }
    }

    /// Returns whether the value of a task that is done has a joiner. The caller has the use of the
    /// future.
    pub(crate) fn is_wanted(&self) -> bool {
        P::settle();
        self.join.is_wanted()
    }

    /// Begins the task's end: it `dies`, or is done. The caller drops the future next.
    pub(crate) fn begin_end(&self, dies: bool) {
        P::settle();
        // Relaxed: only destructors on this thread read it.
        self.dying.store(dies, Ordering::Relaxed);
        self.release_deferred(dies);
    }

    /// Drops what the task has left of its parking.
    pub(crate) fn end_parking(&self) {
        P::settle();
        if self.rare.get().is_some() {
            let parking = take(&mut *self.parking());
            contain(|| drop(parking));
        }
    }
}

impl<P: Platform> fmt::Debug for Cell<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("id", &self.id).field("ended", &self.ended).finish_non_exhaustive()
    }
}
