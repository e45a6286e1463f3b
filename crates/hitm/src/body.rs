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
use std::mem::{ManuallyDrop, forget};
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
    /// The result was taken, dropped or not wanted. Or the future is gone, and its error has not
    /// come yet.
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
/// such a future, and comes from [`Unlaunched::new`]. Each type of future has a copy of them, so
/// they do no more than they must: the rest of a task's life is below, once for all types.
pub(crate) struct Operations<P: Platform> {
    /// Polls the future. If it has ended, puts its result in its place and returns true. The caller
    /// has the use of the future. A panic may come from the future, or from the destructor of the
    /// future or of a value that nothing joins.
    poll: unsafe fn(NonNull<Cell<P>>, &mut Context<'_>) -> bool,
    /// Drops the future or the result, of which the caller has the use. It is gone also if its
    /// destructor panics.
    clear: unsafe fn(NonNull<Cell<P>>),
    /// Puts an error where the future was. The caller has the use of the result, and has cleared.
    put_error: unsafe fn(NonNull<Cell<P>>, JoinError),
    /// Moves the result, unless it is gone, to an `Option<Result<F::Output, JoinError>>` that is
    /// `None`. The caller has the use of the result.
    take: unsafe fn(NonNull<Cell<P>>, *mut ()),
    /// The layout of the block.
    layout: Layout,
}

impl<P: Platform> Operations<P> {
    /// Returns the kind of a block's memory. The address of the functions stands for the type:
    /// different addresses may stand for one type.
    fn kind(&'static self) -> Kind {
        Kind::new(ptr::from_ref(self).addr(), self.layout)
    }
}

/// The value that a future leaves, or none. When this is dropped, it goes to the place where the
/// future was, so it does also if the future's destructor panics.
struct Next<F: Future> {
    place: *mut Stage<F>,
    value: Option<F::Output>,
}

impl<F: Future> Drop for Next<F> {
    fn drop(&mut self) {
        let stage = match self.value.take() {
            Some(value) => Stage::Result(Ok(value)),
            None => Stage::Gone,
        };
        // SAFETY: the pointer is that of a block's stage, and what was there has been dropped.
        unsafe { self.place.write(stage) };
    }
}

impl<P: Platform, F: Future> Body<P, F> {
    const OPERATIONS: &'static Operations<P> = &Operations {
        poll: Self::poll,
        clear: Self::clear,
        put_error: Self::put_error,
        take: Self::take,
        layout: Layout::new::<Self>(),
    };

    /// # Safety
    /// As [`Operations`] says, for as long as the result is used.
    unsafe fn of<'a>(cell: NonNull<Cell<P>>) -> &'a Self {
        // SAFETY: the block of this address has this type, by the caller's duty.
        unsafe { cell.cast::<Self>().as_ref() }
    }

    /// Drops the future or the result in its place, and puts the value there, if there is one.
    ///
    /// # Safety
    /// The caller has the use of the future or the result, and no reference to it.
    unsafe fn replace(&self, value: Option<F::Output>) {
        let place = self.stage.get();
        let _next = Next::<F> { place, value };
        // SAFETY: the caller has the use of it. Whatever follows finds what is next.
        unsafe { drop_in_place(place) };
    }

    unsafe fn poll(cell: NonNull<Cell<P>>, context: &mut Context<'_>) -> bool {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of the future.
        let Stage::Future(future) = (unsafe { &mut *body.stage.get() }) else {
            // `Cell::poll` has asserted that the task lives. A panic here would end it again.
            abort()
        };
        // SAFETY: the future is in its block until `replace` drops it there.
        let Poll::Ready(value) = unsafe { Pin::new_unchecked(future) }.poll(context) else { return false };
        // A value that nothing joins is dropped here, where its panic is the task's.
        let value = body.cell.is_wanted().then_some(value);
        body.cell.begin_end(false);
        // SAFETY: the caller has the use of the future, and the reference above has ended.
        unsafe { body.replace(value) };
        true
    }

    unsafe fn clear(cell: NonNull<Cell<P>>) {
        // SAFETY: the caller's duty.
        let body = unsafe { Self::of(cell) };
        // SAFETY: the caller has the use of what is there.
        unsafe { body.replace(None) };
    }

    unsafe fn put_error(cell: NonNull<Cell<P>>, error: JoinError) {
        // SAFETY: the caller's duty.
        let place = unsafe { Self::of(cell) }.stage.get();
        // SAFETY: the caller has the use of it, and what was there needs no drop.
        unsafe { place.write(Stage::Result(Err(error))) };
    }

    unsafe fn take(cell: NonNull<Cell<P>>, result: *mut ()) {
        // SAFETY: the caller's duty.
        let place = unsafe { Self::of(cell) }.stage.get();
        // SAFETY: the caller has the use of the result. No future is moved here: there is none.
        let Stage::Result(taken) = (unsafe { place.replace(Stage::Gone) }) else { return };
        // SAFETY: the caller's place has this type, and nothing that needs a drop.
        unsafe { result.cast::<Option<Result<F::Output, JoinError>>>().write(Some(taken)) };
    }
}

/// Drops the future and ends the task with `error`.
///
/// # Safety
/// The address came from [`CellRef::into_raw`]. A reference to the block exists during the call,
/// and the caller has the use of the future.
pub(crate) unsafe fn fail<P: Platform>(block: NonNull<Cell<P>>, error: JoinError) {
    // SAFETY: the block lives.
    let cell = unsafe { block.as_ref() };
    let operations = cell.operations;
    cell.begin_end(true);
    // SAFETY: the caller's duty. Unwind safety: the future is gone afterwards.
    let cleared = catch_unwind(AssertUnwindSafe(|| unsafe { (operations.clear)(block) }));
    let error = first_panic(error, cleared.err());
    let is_panic = error.is_panic();
    // SAFETY: until `JoinWord::end`, the caller has the use of the result too.
    unsafe { (operations.put_error)(block, error) };
    // SAFETY: the caller's duty, and the error is the result.
    unsafe { end(block, true) };
    if is_panic {
        cell.note_panic();
    }
}

/// Returns the error of a task that ended with `error` and whose future's destructor panicked with
/// `payload`. The join state reports the first panic.
fn first_panic(error: JoinError, payload: Option<Box<dyn Any + Send>>) -> JoinError {
    match payload {
        Some(payload) if error.is_panic() => {
            forget(payload);
            error
        }
        Some(payload) => JoinError::panicked(payload),
        None => error,
    }
}

/// Ends the task of the block, whose future is gone, and tells the joiner. The task is done, or has
/// `died`.
///
/// # Safety
/// The address is that of the whole block, to which a reference exists. The caller had the use of
/// the future, and has that of the result.
unsafe fn end<P: Platform>(block: NonNull<Cell<P>>, died: bool) {
    // SAFETY: the block lives.
    let cell = unsafe { block.as_ref() };
    // Those of the future's destructor, which ran after `begin_end`.
    cell.release_deferred(died);
    cell.end_parking();
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
            contain(|| unsafe { (cell.operations.clear)(block) });
            cell.release_deferred(died);
        }
    }
}

/// Frees a block: drops what is left in it, and gives its memory back, also when a destructor
/// panics.
///
/// # Safety
/// The caller had its last reference.
unsafe fn free<P: Platform>(block: NonNull<Cell<P>>) {
    struct Memory(NonNull<u8>, Kind);
    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the allocator has given the memory out with this layout, and the value in it
            // is gone.
            unsafe { block::give_back(self.0, self.1) };
        }
    }
    struct Header<P: Platform>(NonNull<Cell<P>>);
    impl<P: Platform> Drop for Header<P> {
        fn drop(&mut self) {
            // SAFETY: `Unlaunched::new` has made the cell, and nothing uses it any more.
            unsafe { self.0.drop_in_place() };
        }
    }
    // SAFETY: the block lives.
    let operations = unsafe { block.as_ref() }.operations;
    let _memory = Memory(block.cast(), operations.kind());
    let _header = Header(block);
    // SAFETY: there is no other reference.
    unsafe { (operations.clear)(block) };
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
        let Some(memory) = block::reuse(operations.kind()) else {
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
            unsafe { fail(self.0, error) };
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
        unsafe { (self.operations.clear)(self.0) };
    }
}

/// Polls the task of the block, whose future the caller uses. Returns whether the task has ended.
///
/// # Safety
/// As [`fail`].
pub(crate) unsafe fn poll<P: Platform>(block: NonNull<Cell<P>>) -> bool {
    let raw = RawWaker::new(block.as_ptr().cast_const().cast(), vtable::<P>());
    // SAFETY: the table follows the contract of wakers, and `ManuallyDrop` keeps this waker from
    // giving back a reference that is not its own.
    let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw) });
    // SAFETY: the block lives.
    let cell = unsafe { block.as_ref() };
    let mut context = Context::from_waker(&waker);
    // SAFETY: the caller's duty. Unwind safety: after a panic, what is there is only dropped.
    let polled = catch_unwind(AssertUnwindSafe(|| unsafe { (cell.operations.poll)(block, &mut context) }));
    match polled {
        Ok(false) => {
            cell.release_deferred(false);
            return false;
        }
        // SAFETY: the caller's duty, and the result has come.
        Ok(true) => unsafe { end(block, false) },
        // SAFETY: the caller's duty.
        Err(payload) => unsafe { fail(block, JoinError::panicked(payload)) },
    }
    true
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
            // SAFETY: it was the last reference.
            unsafe { free(self.0) };
        }
    }
}

#[cfg(test)]
mod tests;
