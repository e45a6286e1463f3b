//! A growing table of cells, indexed by task id. Entries never move.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hitm_memory::Platform;
use hitm_sched::{TASKS_MAX, TaskId};

use crate::cell::Cell;

/// The number of cells per chunk.
const CHUNK: usize = 256;

type Slot<P> = Mutex<Option<Arc<Cell<P>>>>;

type Chunk<P> = Box<[Slot<P>]>;

/// The cells of all live tasks.
pub(crate) struct Table<P: Platform>(Box<[OnceLock<Chunk<P>>]>);

impl<P: Platform> Table<P> {
    pub(crate) fn new() -> Self {
        Self((0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect())
    }

    fn slot(&self, id: TaskId) -> &Slot<P> {
        let chunk = self.0[id.0 as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Mutex::default()).collect());
        &chunk[id.0 as usize % CHUNK]
    }

    /// Replaces the cell of `id`; returns the previous one.
    pub(crate) fn replace(&self, id: TaskId, cell: Option<Arc<Cell<P>>>) -> Option<Arc<Cell<P>>> {
        std::mem::replace(&mut *self.slot(id).lock().unwrap_or_else(PoisonError::into_inner), cell)
    }

    /// Returns the cell of `id`; `None` when its task has ended.
    pub(crate) fn get(&self, id: TaskId) -> Option<Arc<Cell<P>>> {
        self.slot(id).lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the cells of all live tasks, in order of id.
    pub(crate) fn all(&self) -> Vec<Arc<Cell<P>>> {
        let chunks = self.0.iter().filter_map(OnceLock::get);
        let cell = |slot: &Slot<P>| slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        chunks.flat_map(|chunk| chunk.iter().filter_map(cell)).collect()
    }
}

impl<P: Platform> fmt::Debug for Table<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}
