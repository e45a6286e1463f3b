//! A table of cells by task number that grows and never moves.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hitm_sched::task::{TASKS_MAX, TaskId};

use crate::cell::Cell;

/// Cells in a chunk.
const CHUNK: usize = 256;

type Chunk = Box<[Mutex<Option<Arc<Cell>>>]>;

/// The cells of all tasks.
#[derive(Debug)]
pub(crate) struct Table(Box<[OnceLock<Chunk>]>);

impl Table {
    pub(crate) fn new() -> Self {
        Self((0..TASKS_MAX / CHUNK).map(|_| OnceLock::new()).collect())
    }

    fn chunk(&self, id: TaskId) -> &Chunk {
        self.0[id.0 as usize / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Mutex::default()).collect())
    }

    /// Replaces the cell of `id`; returns what was there.
    pub(crate) fn replace(&self, id: TaskId, cell: Option<Arc<Cell>>) -> Option<Arc<Cell>> {
        let mut slot = self.chunk(id)[id.0 as usize % CHUNK].lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut slot, cell)
    }

    /// The cell of `id`, while its task lives.
    pub(crate) fn get(&self, id: TaskId) -> Option<Arc<Cell>> {
        self.chunk(id)[id.0 as usize % CHUNK].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cells of all tasks that live.
    pub(crate) fn all(&self) -> Vec<Arc<Cell>> {
        let chunks = self.0.iter().filter_map(OnceLock::get);
        let cell = |slot: &Mutex<Option<Arc<Cell>>>| slot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        chunks.flat_map(|chunk| chunk.iter().filter_map(cell)).collect()
    }
}
