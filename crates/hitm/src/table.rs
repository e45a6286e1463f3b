//! A growing table of cells, indexed by task id. Entries never move.
//!
//! **State** of an entry: the address of a cell of which the table owns a reference, or null; bit 0
//! is a lock. The lock is held while a reference is taken out or copied. It is not needed to add a
//! cell, which only the CPU that owns the id does, nor to read the cell of a task that the calling
//! CPU runs, since that CPU alone takes it out.
//!
//! **Layout.** An entry is written when a task begins and when it ends. The numbers that a program
//! with few tasks uses again and again are the first ones, a few for each CPU. Their entries are on
//! lines of their own: neighbours belong to different CPUs, and a line with eight of them was what
//! `hitm exec` found most waits for. The other entries are eight on a line.
//!
//! **Memory ordering.** A cell is added by a Release store, and removed by a Release store that
//! ends the lock. Whoever reads an entry acquires.

use std::fmt;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use hitm_memory::Platform;
use hitm_sched::{TASKS_MAX, TaskId};

use crate::body::CellRef;
use crate::cell::Cell;

/// The number of cells per chunk.
const CHUNK: usize = 256;

/// The number of entries for each CPU that are on lines of their own: 1 KiB. A CPU keeps up to 14
/// free numbers for its own next tasks.
const ALONE: usize = 16;

/// The bit that locks an entry.
const LOCKED: usize = 1;

const _: () = assert!(align_of::<Cell<hitm_memory::Native>>() > LOCKED, "the address of a cell has a free bit");

/// An entry.
struct Slot<P: Platform>(AtomicPtr<Cell<P>>);

/// An entry on a line of its own.
#[repr(align(64))]
struct Alone<P: Platform>(Slot<P>);

type Chunk<P> = Box<[Slot<P>]>;

/// The cells of all live tasks.
pub(crate) struct Table<P: Platform> {
    /// The first entries.
    first: Box<[Alone<P>]>,
    /// The others, by chunk, each made at its first need.
    chunks: Box<[OnceLock<Chunk<P>>]>,
}

/// The cell of the task that a CPU runs. The table has a reference to it meanwhile.
pub(crate) struct Running<P: Platform>(NonNull<Cell<P>>);

impl<P: Platform> Clone for Running<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Running<P> {}

impl<P: Platform> Running<P> {
    /// Returns the address of the cell, as [`CellRef::into_raw`] has given it.
    pub(crate) fn as_raw(self) -> NonNull<Cell<P>> {
        self.0
    }

    /// Returns the address of the cell.
    pub(crate) fn as_ptr(self) -> *const Cell<P> {
        self.0.as_ptr()
    }

    /// Returns the cell of an address.
    ///
    /// # Safety
    /// It came from [`as_ptr`](Self::as_ptr), and its task is running on the calling CPU.
    pub(crate) unsafe fn from_ptr(cell: *const Cell<P>) -> Option<Self> {
        NonNull::new(cell.cast_mut()).map(Self)
    }

    /// Returns a reference of its own to the cell.
    pub(crate) fn to_ref(self) -> CellRef<P> {
        // SAFETY: the address came from `CellRef::into_raw`, and the table has that reference.
        unsafe { CellRef::from_borrowed(self.0) }
    }
}

impl<P: Platform> Deref for Running<P> {
    type Target = Cell<P>;

    fn deref(&self) -> &Cell<P> {
        // SAFETY: the table has a reference while the task runs, and this value is used by the CPU
        // that runs it, before that CPU releases the task.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Platform> Slot<P> {
    fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Locks the entry and returns its address; does nothing if it is empty. The lock is held for a
    /// few instructions. An empty entry is never locked, so that a cell can be added.
    fn lock(&self) -> Option<*mut Cell<P>> {
        loop {
            // Relaxed: the exchange acquires.
            let cell = self.0.load(Ordering::Relaxed);
            if cell.is_null() {
                return None;
            }
            let locked = cell.map_addr(|addr| addr | LOCKED);
            // Acquire: pairs with the Release in `set`. Relaxed on failure: the loop looks again.
            if cell.addr() & LOCKED == 0
                && self.0.compare_exchange_weak(cell, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Some(cell);
            }
            std::thread::yield_now();
        }
    }

    /// Sets the address, and releases the lock if it is held.
    fn set(&self, cell: *mut Cell<P>) {
        // Release: publishes the cell, or that it is gone. Pairs with `lock` and `Table::running`.
        self.0.store(cell, Ordering::Release);
    }

    fn get(&self) -> Option<CellRef<P>> {
        let cell = self.lock()?;
        // SAFETY: the table has a reference, which no CPU takes out while the lock is held.
        let found = NonNull::new(cell).map(|cell| unsafe { CellRef::from_borrowed(cell) });
        self.set(cell);
        found
    }

    fn take(&self) -> Option<CellRef<P>> {
        let cell = self.lock()?;
        self.set(null_mut());
        // SAFETY: the table's own reference, which the entry has no longer.
        NonNull::new(cell).map(|cell| unsafe { CellRef::from_raw(cell) })
    }
}

impl<P: Platform> Drop for Slot<P> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<P: Platform> Table<P> {
    /// Makes an empty table for a machine of `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            first: (0..cpus * ALONE).map(|_| Alone(Slot::new())).collect(),
            chunks: (0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect(),
        }
    }

    fn slot(&self, id: TaskId) -> &Slot<P> {
        let index = id.0 as usize;
        if let Some(Alone(slot)) = self.first.get(index) {
            return slot;
        }
        let chunk = self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::new()).collect());
        &chunk[index % CHUNK]
    }

    /// Adds the cell of a new task. The entry is empty.
    pub(crate) fn add(&self, cell: &CellRef<P>) {
        self.slot(cell.id).set(cell.clone().into_raw().as_ptr());
    }

    /// Removes the cell of `id`.
    pub(crate) fn remove(&self, id: TaskId) -> Option<CellRef<P>> {
        self.slot(id).take()
    }

    /// Returns the cell of `id`; `None` when its task has ended.
    pub(crate) fn get(&self, id: TaskId) -> Option<CellRef<P>> {
        self.slot(id).get()
    }

    /// Returns the cell of `id`, which the calling CPU runs from now on.
    ///
    /// # Safety
    /// The scheduler has just picked `id` for the calling CPU, which alone removes its cell, after
    /// the last use of the result.
    pub(crate) unsafe fn running(&self, id: TaskId) -> Option<Running<P>> {
        // Acquire: pairs with the Release in `set`.
        let cell = self.slot(id).0.load(Ordering::Acquire);
        // The entry may be locked for a moment.
        NonNull::new(cell.map_addr(|addr| addr & !LOCKED)).map(Running)
    }

    /// Returns the cells of all live tasks, in order of id.
    pub(crate) fn all(&self) -> Vec<CellRef<P>> {
        self.those(|_| true)
    }

    /// Returns the cells of the live tasks that are `wanted`, in order of id. The entries of the
    /// others are not locked: on a machine of 480 CPUs, each of which looked for its own tasks, the
    /// CPUs waited longer for the locks of a few tasks than for anything else.
    #[cold]
    pub(crate) fn those(&self, wanted: impl Fn(TaskId) -> bool) -> Vec<CellRef<P>> {
        let first = self.first.iter().map(|Alone(slot)| slot).zip(0..);
        let others = self.chunks.iter().zip((0..).step_by(CHUNK));
        let others = others.filter_map(|(chunk, from)| Some(chunk.get()?.iter().zip(from..))).flatten();
        // Acquire: sees what the scheduler has of the task, which `wanted` may read. Pairs with the
        // Release in `set`.
        let lives = |slot: &Slot<P>| !slot.0.load(Ordering::Acquire).is_null();
        let found = first.chain(others).filter(|&(slot, id)| lives(slot) && wanted(TaskId(id)));
        found.filter_map(|(slot, _)| slot.get()).collect()
    }
}

impl<P: Platform> fmt::Debug for Table<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

// The entries own references to cells, which may be dropped on any thread.
const _: () = {
    const fn may_be_shared<T: Send + Sync>() {}
    may_be_shared::<CellRef<hitm_memory::Native>>();
};
