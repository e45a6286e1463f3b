//! The block of memory of a task: its [cell](crate::cell), and its future, later its result.
//!
//! **Layout.** One allocation. The cell comes first, so its address is that of the block.
//! References to the block do not know the type of the future. The cell has the functions that do.
//!
//! **Roles.** The thread that has set the cell's `in_use` uses the future. The
//! [word](crate::join_word) between the task and its join handle says which of them uses the
//! result, and the place of the joiner's waker.
//!
//! **References** are counted in the cell: one of the table while the task lives, one of the join
//! handle, and those of wakers, other handles and calls. A waker may outlive the task. Then it has
//! only the cell's memory.

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::{ManuallyDrop, forget, replace};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::abort;
use std::ptr::{self, NonNull, drop_in_place};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use hitm_memory::Platform;
use hitm_sched::TaskId;

use crate::block::{self, Kind};
use crate::cell::Cell;
use crate::contain::contain;
use crate::host::RuntimeId;
use crate::join::JoinError;
use crate::join_word::End;
use crate::options::Kept;

/// What is in the block behind the cell.
enum Stage<F: Future> {
    /// The task lives.
    Future(F),
    /// It has ended.
    Result(Result<F::Output, JoinError>),
    /// The result was taken or dropped, or a destructor runs.
    Gone,
}

/// It has whole lines of 64 bytes, so tasks of different CPUs share no line with each other, nor
/// with the program's objects. `hitm exec` found that pairs of tasks on two cores waited mostly for
/// such lines.
#[repr(C, align(64))]
struct Body<P: Platform, F: Future> {
    cell: Cell<P>,
    stage: UnsafeCell<Stage<F>>,
}

/// The functions of a block that know the type of its future. The address is that of a block with
/// such a future, and comes from [`Unlaunched::new`].
pub(crate) struct Operations<P: Platform> {
    /// Polls the future. Returns whether the task has ended. The caller has the use of the future.
    poll: unsafe fn(NonNull<Cell<P>>, &mut Context<'_>) -> bool,
    /// Ends the task with an error. The caller has the use of the future.
    fail: unsafe fn(NonNull<Cell<P>>, JoinError),
    /// Moves the result to an `Option<Result<F::Output, JoinError>>`. The caller has the use of the
    /// result.
    take: unsafe fn(NonNull<Cell<P>>, *mut ()),
    /// Drops the result. The caller has the use of it.
    drop_result: unsafe fn(NonNull<Cell<P>>),
    /// Frees the block. The caller had its last reference.
    free: unsafe fn(NonNull<Cell<P>>),
}

impl<P: Platform, F: Future> Body<P, F> {
    const OPERATIONS: &'static Operations<P> = &Operations {
        poll: Self::poll,
        fail: Self::fail,
        take: Self::take,
        drop_result: Self::drop_result,
        free: Self::free,
    };

    /// # Safety
    /// As [`Operations`] says, for as long as the result is used.
    unsafe fn of<'a>(cell: NonNull<Cell<P>>) -> &'a Self {
        // SAFETY: the block of this address has this type, by the caller's duty.
        unsafe { cell.cast::<Self>().as_ref() }
    }

    /// # Safety
    /// The caller has the use of the future or the result, and no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "the caller's duty says so")]
    unsafe fn stage(&self) -> &mut Stage<F> {
        // SAFETY: the caller's duty.
        unsafe { &mut *self.stage.get() }
    }

    unsafe fn poll(cell: NonNull<Cell<P>>, context: &mut Context<'_>) -> bool {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of the future.
        let Stage::Future(future) = (unsafe { body.stage() }) else {
            panic!("task {} runs after it has ended", body.cell.id)
        };
        // SAFETY: the future is in its block until `end` drops it there.
        let future = unsafe { Pin::new_unchecked(future) };
        // Unwind safety: after a panic the future is only dropped.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            future.poll(context).map(|value| {
                P::settle();
                // A value that nothing joins is dropped here, where its panic is the task's.
                body.cell.join.is_wanted().then_some(value)
            })
        }));
        if polled.is_ok() {
            body.cell.release_deferred(false);
        }
        let (value, error) = match polled {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(value)) => (value, None),
            Err(payload) => (None, Some(JoinError::panicked(payload))),
        };
        // SAFETY: the caller has the use of the future, and the reference above has ended.
        unsafe { body.end(value, error) };
        true
    }

    unsafe fn fail(cell: NonNull<Cell<P>>, error: JoinError) {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of the future.
        unsafe { body.end(None, Some(error)) };
    }

    unsafe fn take(cell: NonNull<Cell<P>>, result: *mut ()) {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of the result.
        let stage = unsafe { body.stage() };
        // No future is moved here: there is none.
        let taken = match replace(stage, Stage::Gone) {
            Stage::Result(result) => Some(result),
            Stage::Future(_) | Stage::Gone => None,
        };
        // SAFETY: the caller's place has this type.
        unsafe { *result.cast::<Option<Result<F::Output, JoinError>>>() = taken };
    }

    unsafe fn drop_result(cell: NonNull<Cell<P>>) {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of the result.
        drop(replace(unsafe { body.stage() }, Stage::Gone));
    }

    unsafe fn free(cell: NonNull<Cell<P>>) {
        /// Gives the memory back, also when a destructor panics.
        struct Memory(NonNull<u8>, Kind);
        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: the allocator has given the memory out with this layout, and the value in
                // it is gone.
                unsafe { block::give_back(self.0, self.1) };
            }
        }
        // SAFETY: the block lives.
        let operations = unsafe { cell.as_ref() }.operations;
        let _memory = Memory(cell.cast(), Self::kind(operations));
        // SAFETY: `Unlaunched::new` has made the value, and there is no other reference.
        unsafe { cell.cast::<Self>().drop_in_place() };
    }

    /// Returns the kind of its memory. The address of the functions stands for the type: different
    /// addresses may stand for one type.
    fn kind(operations: &'static Operations<P>) -> Kind {
        Kind::new(ptr::from_ref(operations).addr(), Layout::new::<Self>())
    }

    /// Drops the future in its place.
    ///
    /// # Safety
    /// The caller has the use of the future, and no reference to it.
    unsafe fn drop_future(&self) {
        /// Notes that the place is empty, also when the destructor panics.
        struct Empty<F: Future>(*mut Stage<F>);
        impl<F: Future> Drop for Empty<F> {
            fn drop(&mut self) {
                // SAFETY: the pointer is that of `stage`, whose value was dropped before.
                unsafe { self.0.write(Stage::Gone) };
            }
        }
        let empty = Empty(self.stage.get());
        // SAFETY: the caller has the use of it. Whatever follows finds `Gone`.
        unsafe { drop_in_place(empty.0) };
    }

    /// Drops the future, then completes the join state: with the error, or else the value. There is
    /// neither if nothing joins the task.
    ///
    /// # Safety
    /// The caller has the use of the future, and no reference to it.
    unsafe fn end(&self, value: Option<F::Output>, error: Option<JoinError>) {
        let cell = &self.cell;
        cell.begin_end(error.is_some());
        // SAFETY: the caller's duty. Unwind safety: the future is gone afterwards.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { self.drop_future() }));
        let error = first_panic(error, dropped.err());
        let panicked = error.as_ref().is_some_and(JoinError::is_panic);
        let result = match error {
            None => value.map(Ok),
            Some(error) => {
                contain(|| drop(value));
                Some(Err(error))
            }
        };
        cell.end_parking();
        if let Some(result) = result {
            // SAFETY: until `JoinWord::end`, the caller has the use of the result too. The stage is
            // `Gone`, which needs no drop.
            unsafe { self.stage.get().write(Stage::Result(result)) };
        }
        // SAFETY: the caller's duty, and the result has come. The address is of the whole block.
        unsafe { tell_joiner(NonNull::from(self).cast::<Cell<P>>()) };
        if panicked {
            cell.note_panic();
        }
    }
}

/// Returns the error of a task that ended with `error` and whose future's destructor panicked with
/// `payload`. The join state reports the first panic.
fn first_panic(error: Option<JoinError>, payload: Option<Box<dyn Any + Send>>) -> Option<JoinError> {
    match (error, payload) {
        (Some(error), Some(payload)) if error.is_panic() => {
            forget(payload);
            Some(error)
        }
        (_, Some(payload)) => Some(JoinError::panicked(payload)),
        (error, None) => error,
    }
}

/// Tells the joiner of the block's task that the task has ended.
///
/// # Safety
/// The address is that of the whole block, to which a reference exists. The caller had the use of
/// the future, which is gone, and has that of the result.
unsafe fn tell_joiner<P: Platform>(block: NonNull<Cell<P>>) {
    // SAFETY: the block lives.
    let cell = unsafe { block.as_ref() };
    cell.set_ended();
    match cell.join.end() {
        End::Nothing => {}
        End::Wake => {
            // SAFETY: the word gives the place to the task.
            let waker = unsafe { cell.place() }.take();
            contain(|| waker.map_or((), Waker::wake));
        }
        End::Drop => {
            // SAFETY: the word gives the result to the task.
            contain(|| unsafe { (cell.operations.drop_result)(block) });
        }
    }
}

/// A counted reference to a task's block.
pub(crate) struct CellRef<P: Platform>(NonNull<Cell<P>>);

// SAFETY: all of the block that a reference reaches is `Sync`, or is used by one thread at a time:
// see the module's documentation. Futures, results and wakers are `Send`.
unsafe impl<P: Platform> Send for CellRef<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for CellRef<P> {}

/// The number of references to a block.
#[derive(Debug)]
pub(crate) struct References(AtomicUsize);

/// More references than memory has room for: their number has overflowed.
const TOO_MANY: usize = isize::MAX as usize;

impl References {
    /// One.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(1))
    }

    fn add(&self) {
        // Relaxed: the caller has a reference, from which the new one is made.
        if self.0.fetch_add(1, Ordering::Relaxed) > TOO_MANY {
            abort();
        }
    }

    /// Returns whether it was the last one.
    fn remove(&self) -> bool {
        // Release: what is done by this reference comes before the block is freed.
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Acquire: pairs with the Release above, of all other references.
        fence(Ordering::Acquire);
        true
    }
}

/// The block of a task that was not spawned yet: nothing else has a reference.
pub(crate) struct Unlaunched<P: Platform>(CellRef<P>);

impl<P: Platform> Unlaunched<P> {
    /// Makes the block of a task.
    pub(crate) fn new<F>(runtime: RuntimeId, future: F) -> Self
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let operations = Body::<P, F>::OPERATIONS;
        let body = Body { cell: Cell::new(runtime, operations), stage: UnsafeCell::new(Stage::Future(future)) };
        let Some(memory) = block::reuse(Body::<P, F>::kind(operations)) else {
            return Self(CellRef(NonNull::from(Box::leak(Box::new(body))).cast()));
        };
        // SAFETY: the memory has the layout of a body, and nothing uses it.
        unsafe { memory.cast().write(body) };
        Self(CellRef(memory.cast()))
    }

    /// Gives the task its id, and what it keeps of its options.
    pub(crate) fn launch(mut self, id: TaskId, kept: Option<Box<Kept>>) -> CellRef<P> {
        // SAFETY: the address is that of a block, which lives, and there is no other reference.
        unsafe { self.0.0.as_mut() }.launch(id, kept);
        self.0
    }
}

impl<P: Platform> CellRef<P> {
    /// Gives the reference away as an address.
    pub(crate) fn into_raw(self) -> NonNull<Cell<P>> {
        ManuallyDrop::new(self).0
    }

    /// Takes a reference back.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and is used so once.
    pub(crate) unsafe fn from_raw(cell: NonNull<Cell<P>>) -> Self {
        Self(cell)
    }

    /// Makes a new reference.
    ///
    /// # Safety
    /// The address came from [`into_raw`](Self::into_raw), and that reference exists.
    pub(crate) unsafe fn from_borrowed(cell: NonNull<Cell<P>>) -> Self {
        // SAFETY: the block lives, since there is a reference.
        unsafe { cell.as_ref() }.references.add();
        Self(cell)
    }

    /// Returns whether both are of one task.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Ends a task that never ran, or that no CPU will run any more, with `error`.
    pub(crate) fn discard(&self, error: JoinError) {
        // A CPU that polls the task ends it.
        let Some(_use) = self.access() else { return };
        if !self.is_over() {
            // SAFETY: the reference is to this block, and `_use` is the use of the future.
            unsafe { (self.operations.fail)(self.0, error) };
        }
    }

    /// Takes the result; returns `None` if it was taken before.
    ///
    /// # Safety
    /// `T` is the output of the block's future, and the word has given the result to the caller.
    pub(crate) unsafe fn take_result<T>(&self) -> Option<Result<T, JoinError>> {
        let mut result: Option<Result<T, JoinError>> = None;
        // SAFETY: the reference is to this block; the rest is the caller's duty.
        unsafe { (self.operations.take)(self.0, (&raw mut result).cast()) };
        result
    }

    /// Drops the result, if it was not taken.
    ///
    /// # Safety
    /// The word has given the result to the caller.
    pub(crate) unsafe fn drop_result(&self) {
        // SAFETY: the reference is to this block; the rest is the caller's duty.
        unsafe { (self.operations.drop_result)(self.0) };
    }
}

/// Polls the task of the block, whose future the caller uses. Returns whether the task has ended.
///
/// # Safety
/// The address came from [`CellRef::into_raw`]. A reference to the block exists during the call,
/// and the caller has the use of the future.
pub(crate) unsafe fn poll<P: Platform>(cell: NonNull<Cell<P>>) -> bool {
    let raw = RawWaker::new(cell.as_ptr().cast_const().cast(), vtable::<P>());
    // SAFETY: the table follows the contract of wakers, and `ManuallyDrop` keeps this waker from
    // giving back a reference that is not its own.
    let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw) });
    // SAFETY: the block lives.
    let operations = unsafe { cell.as_ref() }.operations;
    // SAFETY: the caller's duty.
    unsafe { (operations.poll)(cell, &mut Context::from_waker(&waker)) }
}

/// Ends the task of the block with `error`, as [`poll`] does.
///
/// # Safety
/// As [`poll`].
pub(crate) unsafe fn fail<P: Platform>(cell: NonNull<Cell<P>>, error: JoinError) {
    // SAFETY: the block lives.
    let operations = unsafe { cell.as_ref() }.operations;
    // SAFETY: the caller's duty.
    unsafe { (operations.fail)(cell, error) };
}

/// The functions of a task's waker, whose data is the address of a block. It has a reference.
fn vtable<P: Platform>() -> &'static RawWakerVTable {
    /// # Safety
    /// The data is that of a waker of `vtable`.
    unsafe fn block<P: Platform>(data: *const ()) -> NonNull<Cell<P>> {
        // SAFETY: the address of a block is not null.
        unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
    }
    unsafe fn clone<P: Platform>(data: *const ()) -> RawWaker {
        // SAFETY: the data is the waker's.
        let cell = unsafe { block::<P>(data) };
        // SAFETY: the waker has a reference.
        let cell = unsafe { CellRef::from_borrowed(cell) };
        RawWaker::new(cell.into_raw().as_ptr().cast_const().cast(), vtable::<P>())
    }
    unsafe fn wake<P: Platform>(data: *const ()) {
        // SAFETY: the data is the waker's.
        let cell = unsafe { block::<P>(data) };
        // SAFETY: the waker's reference, which is given back.
        unsafe { CellRef::from_raw(cell) }.wake();
    }
    unsafe fn wake_by_ref<P: Platform>(data: *const ()) {
        // SAFETY: the data is the waker's.
        let cell = unsafe { block::<P>(data) };
        // SAFETY: the waker has a reference during the call.
        unsafe { cell.as_ref() }.wake();
    }
    unsafe fn drop_waker<P: Platform>(data: *const ()) {
        // SAFETY: the data is the waker's.
        let cell = unsafe { block::<P>(data) };
        // SAFETY: the waker's reference, which is given back.
        drop(unsafe { CellRef::from_raw(cell) });
    }
    &RawWakerVTable::new(clone::<P>, wake::<P>, wake_by_ref::<P>, drop_waker::<P>)
}

impl<P: Platform> Deref for CellRef<P> {
    type Target = Cell<P>;

    fn deref(&self) -> &Cell<P> {
        // SAFETY: the block lives while there is a reference.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Platform> Clone for CellRef<P> {
    fn clone(&self) -> Self {
        self.references.add();
        Self(self.0)
    }
}

impl<P: Platform> Drop for CellRef<P> {
    fn drop(&mut self) {
        if self.references.remove() {
            let free = self.operations.free;
            // SAFETY: it was the last reference.
            unsafe { free(self.0) };
        }
    }
}

#[cfg(test)]
mod tests;
