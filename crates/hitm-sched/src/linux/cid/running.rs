//! The map of a CPU's running task, for CPUs that take ids away from others: see
//! [`per_cpu`](super::per_cpu).
//!
//! **Memory ordering.** The CPU stores its map and fences before it reads its entry. The other CPU
//! fences between its change of the entry and its read of the map. So one of them sees the other.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};

use crate::base::numbers::MapId;

/// Stores that the CPU of `word` runs a task of `map` from now on, or a task without a map.
#[track_caller]
pub(crate) fn set<M: Memory>(word: &M::Atomic<u32>, map: Option<MapId>) {
    // Release: publishes what the previous task did with data of its id. Pairs with `is`.
    word.store(map.map_or(0, |map| map.0 + 1), Ordering::Release);
    // SeqCst: a CPU that takes an id away from this CPU sees this store, or this CPU sees that
    // CPU's change. Pairs with the fence of a remote clear.
    M::fence(Ordering::SeqCst);
}

/// Returns whether a task of `map` runs on the CPU of `word`.
#[track_caller]
pub(crate) fn is<M: Memory>(word: &M::Atomic<u32>, map: MapId) -> bool {
    // Acquire: sees what the last task of the map did there. Pairs with `set`.
    word.load(Ordering::Acquire) == map.0 + 1
}
