//! [`LoomPlain`]: a word behind a lock, with loom watching the lock's holders.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Word};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

/// A word that a lock protects.
///
/// The value is a Relaxed atomic, so that [`peek`](PlainWord::peek) may return an old one. Beside it stands a cell without
/// contents that only [`get`](PlainWord::get) and [`set`](PlainWord::set) touch: loom reports two of them that nothing
/// orders, one at least a `set`, as a data race.
#[derive(Debug)]
pub struct LoomPlain<T: Word> {
    word: AtomicU64,
    holders: UnsafeCell<()>,
    holds: std::marker::PhantomData<fn(T) -> T>,
}

// SAFETY: the cell holds no data, it is only told of accesses.
unsafe impl<T: Word> Sync for LoomPlain<T> {}

impl<T: Word> PlainWord<T> for LoomPlain<T> {
    fn new(value: T) -> Self {
        Self {
            word: AtomicU64::new(value.to_bits() as u64),
            holders: UnsafeCell::new(()),
            holds: std::marker::PhantomData,
        }
    }

    fn get(&self) -> T {
        if std::thread::panicking() {
            return T::from_bits(0);
        }
        self.holders.with(|_| ());
        self.peek()
    }

    fn set(&self, value: T) {
        if std::thread::panicking() {
            return;
        }
        self.holders.with_mut(|_| ());
        // Relaxed: the lock orders it; who peeks tolerates old values.
        self.word.store(value.to_bits() as u64, Ordering::Relaxed);
    }

    fn peek(&self) -> T {
        if std::thread::panicking() {
            return T::from_bits(0);
        }
        // Relaxed: the caller tolerates old values.
        T::from_bits(self.word.load(Ordering::Relaxed).into())
    }
}
