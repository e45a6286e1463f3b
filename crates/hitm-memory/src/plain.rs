//! Words that a lock protects, of which other CPUs may read some without the lock.

use crate::word::Word;

/// A word that a lock protects.
///
/// It is a Relaxed atomic word, and a lock's guard derefs to `&T`, never to `&mut T`: the fields
/// that remote CPUs peek at live in the same object as those that they do not, and a `&mut` over a
/// word that another CPU reads is undefined behaviour.
///
/// [`get`](PlainWord::get) and [`set`](PlainWord::set) are for the holder of the lock: the
/// simulated machine's race detector and the model checkers report two of them that nothing orders.
/// [`peek`](PlainWord::peek) is for everybody else: it may return an old value, and the caller must
/// tolerate that.
pub trait PlainWord<T: Word>: Send + Sync {
    /// A word that holds `value`.
    fn new(value: T) -> Self;

    /// Reads the word; the caller holds the lock that protects it.
    #[track_caller]
    fn get(&self) -> T;

    /// Writes the word; the caller holds the lock that protects it.
    #[track_caller]
    fn set(&self, value: T);

    /// Reads the word without the lock. The value may be old.
    #[track_caller]
    fn peek(&self) -> T;
}
