//! [`Counter`]: a number that many threads add to and few read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::per_cid::PerCid;

/// A statistics counter: adding is cheap, reading adds up the slots.
///
/// Adding writes a line that, most of the time, this CPU has already. Nothing added is ever lost or counted twice, whatever
/// threads and ids do meanwhile.
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
    /// A counter at zero, without memory of its own until it is used.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: PerCid::new(|| AtomicU64::new(0)) }
    }

    /// Adds, modulo 2^64. Orders nothing: what else the thread did before may be seen by others later.
    #[inline]
    pub fn add(&self, count: u64) {
        // Relaxed: a statistic. Read-modify-write: the slot may be another thread's too by now.
        self.slots.get().fetch_add(count, Ordering::Relaxed);
    }

    /// The sum, modulo 2^64, of all that was added before; of what others add meanwhile, any part. It is no snapshot: of two
    /// adds of one thread meanwhile, the later alone may be in it.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // Relaxed: what happened before the call is seen without it.
        self.slots.fold(0, |sum: u64, _, slot| sum.wrapping_add(slot.load(Ordering::Relaxed)))
    }

    /// The slots, for who wants the parts or the memory.
    #[must_use]
    pub const fn slots(&self) -> &PerCid<AtomicU64> {
        &self.slots
    }
}
