//! A table of cells by task number that grows and never moves.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hitm_memory::Platform;
use hitm_sched::task::{TASKS_MAX, TaskId};

use crate::cell::Cell;

/// Cells in a chunk.
const CHUNK: usize = 256;

type Slot<P> = Mutex<Option<Arc<Cell<P>>>>;

/// The cells of all tasks that live.
pub(crate) struct Table<P: Platform>(Box<[OnceLock<Box<[Slot<P>]>>]>);

impl<P: Platform> Table<P> {
    pub(crate) fn new() -> Self {
        Self((0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect())
    }

    fn slot(&self, id: TaskId) -> &Slot<P> {
        let chunk = self.0[id.0 as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Mutex::default()).collect());
        &chunk[id.0 as usize % CHUNK]
    }

    /// Replaces the cell of `id`; returns what was there.
    pub(crate) fn replace(&self, id: TaskId, cell: Option<Arc<Cell<P>>>) -> Option<Arc<Cell<P>>> {
        std::mem::replace(&mut *self.slot(id).lock().unwrap_or_else(PoisonError::into_inner), cell)
    }

    /// The cell of `id`, while its task lives.
    pub(crate) fn get(&self, id: TaskId) -> Option<Arc<Cell<P>>> {
        self.slot(id).lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cells of all tasks that live, in the order of their numbers.
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
