//! Which map's task runs on a CPU, told to those who take ids away from others: see [`per_cpu`](super::per_cpu).
//!
//! **Memory ordering.** The CPU stores and fences before it looks at its entry; the other one fences between its change of the entry and
//! its look here. So one of them sees the other.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory};

use super::MapId;

/// From now on a task of `map` runs where `word` stands, or none that has one.
#[track_caller]
pub(crate) fn set<M: Memory>(word: &M::Atomic<u32>, map: Option<MapId>) {
    // Release: publishes what the task that was left did with data of its id. Pairs with `is`.
    word.store(map.map_or(0, |map| map.0 + 1), Ordering::Release);
    // SeqCst: who takes an id away from this CPU sees this, or the CPU sees what he did. Pairs with the fence of a remote clear.
    M::fence(Ordering::SeqCst);
}

/// Whether a task of `map` runs there.
#[track_caller]
pub(crate) fn is<M: Memory>(word: &M::Atomic<u32>, map: MapId) -> bool {
    // Acquire: sees what the last task of the map did there. Pairs with `set`.
    word.load(Ordering::Acquire) == map.0 + 1
}
