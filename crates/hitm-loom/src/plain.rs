//! [`LoomPlain`]: a word behind a lock whose holders loom checks.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Word};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

/// A word that a lock protects.
///
/// The value is a Relaxed atomic, so [`peek`](PlainWord::peek) may return a stale value. Only
/// [`get`](PlainWord::get) and [`set`](PlainWord::set) access an additional empty cell. Loom
/// reports two unordered accesses to the cell, at least one of them a `set`, as a data race.
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
        // Relaxed: the lock orders it; a caller of `peek` tolerates stale values.
        self.word.store(value.to_bits() as u64, Ordering::Relaxed);
    }

    fn peek(&self) -> T {
        if std::thread::panicking() {
            return T::from_bits(0);
        }
        // Relaxed: the caller tolerates stale values.
        T::from_bits(self.word.load(Ordering::Relaxed).into())
    }
}
