//! [`Counter`]: a number to which many threads add and which few read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::per_cid::PerCid;

/// A statistics counter: an add is cheap, a read sums the slots.
///
/// An add writes a line that this CPU's cache usually has already. No add is lost or counted twice,
/// whatever threads and ids do meanwhile.
///
/// ```
/// use hitm_cid::Counter;
///
/// static REQUESTS: Counter = Counter::new();
///
/// std::thread::scope(|scope| {
///     for _ in 0..8 {
///         scope.spawn(|| (0..1_000).for_each(|_| REQUESTS.add(1)));
///     }
/// });
/// assert_eq!(REQUESTS.sum(), 8_000);
/// ```
#[derive(Debug, Default)]
pub struct Counter {
    slots: PerCid<AtomicU64>,
}

impl Counter {
    /// Creates a counter at zero. It allocates when it is first used.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: PerCid::new(|| AtomicU64::new(0)) }
    }

    /// Adds `count`, modulo 2^64. An add orders nothing: other threads may see earlier writes of
    /// this thread later.
    #[inline]
    pub fn add(&self, count: u64) {
        // Relaxed: a statistic. A read-modify-write, since another thread may use the slot too by
        // now.
        self.slots.get().fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the sum, modulo 2^64, of all earlier adds and of any part of the concurrent ones. It
    /// is no snapshot: of two concurrent adds of one thread it may contain only the later one.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // Relaxed: the call sees what happened before it in any case.
        self.slots.fold(0, |sum: u64, _, slot| sum.wrapping_add(slot.load(Ordering::Relaxed)))
    }

    /// Returns the slots, for their parts or their memory.
    #[must_use]
    pub const fn slots(&self) -> &PerCid<AtomicU64> {
        &self.slots
    }
}
