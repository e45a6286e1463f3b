//! Spin locks: a bare one of four bytes, and one around its data.
//!
//! **Claim.** Mutual exclusion with one atomic read-modify-write to take and one store to release, in four bytes, the
//! size and the uncontended cost of the kernel's raw spin lock.
//! Use it for the few hundred nanoseconds of a scheduler's critical section; a task that may wait for long blocks on
//! the runtime's mutex instead.
//!
//! **Origin.** Test and test-and-set. Unlike the kernel's queued lock it is not fair: who retries first after a
//! release gets it. Run queue locks see two or three contenders at most, where the order hardly matters.
//!
//! **State.** 0 free, 1 held.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `RawGuard::drop`, store Release | `RawSpinLock::lock`, compare-exchange Acquire | all that the holder wrote |
//!
//! **Cost.** Free: one read-modify-write, one store, one line. Contended: one load miss a release for each waiter, then
//! one read-modify-write.
//!
//! **Limits.** Not reentrant, not fair. A waiter spins, so a holder must not block.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::word::AtomicWord;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A spin lock of four bytes that protects whatever its owner says it does.
#[repr(transparent)]
pub struct RawSpinLock<M: Memory> {
    word: M::Atomic<u32>,
}

/// Holds a [`RawSpinLock`]; releases it when dropped.
#[must_use = "the lock is released at once"]
pub struct RawGuard<'a, M: Memory> {
    lock: &'a RawSpinLock<M>,
    site: M::Site,
}

impl<M: Memory> RawSpinLock<M> {
    /// A free lock.
    #[must_use]
    pub fn new() -> Self {
        Self { word: M::Atomic::new(FREE) }
    }

    /// Takes the lock, spinning while another CPU holds it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> RawGuard<'_, M> {
        if !self.try_take() {
            self.lock_contended();
        }
        RawGuard { lock: self, site: M::site() }
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<RawGuard<'_, M>> {
        self.try_take().then(|| RawGuard { lock: self, site: M::site() })
    }

    #[inline]
    #[track_caller]
    fn try_take(&self) -> bool {
        // Acquire: what the last holder wrote is seen. Pairs with the Release in `RawGuard::drop`.
        // Relaxed on failure: nothing is read from the protected data then.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[track_caller]
    fn lock_contended(&self) {
        loop {
            M::spin_while(&self.word, |word| word == HELD);
            if self.try_take() {
                return;
            }
        }
    }
}

impl<M: Memory> Default for RawSpinLock<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Memory> Drop for RawGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        // Release: publishes the critical section. Pairs with the Acquire in `RawSpinLock::try_take`.
        M::at(self.site, || self.lock.word.store(FREE, Ordering::Release));
    }
}

impl<M: Memory> fmt::Debug for RawSpinLock<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawSpinLock").field(&self.word).finish()
    }
}

impl<M: Memory> fmt::Debug for RawGuard<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawGuard").finish_non_exhaustive()
    }
}

/// Data behind a [`RawSpinLock`], for data of which no part is ever read without it.
///
/// What remote CPUs peek at must be [`PlainWord`](crate::PlainWord)s beside a raw lock instead: this guard hands out
/// `&mut T`.
#[derive(Default)]
pub struct Lock<M: Memory, T> {
    raw: RawSpinLock<M>,
    value: UnsafeCell<T>,
}

/// Holds a [`Lock`].
#[must_use = "the lock is released at once"]
pub struct LockGuard<'a, M: Memory, T> {
    _raw: RawGuard<'a, M>,
    value: &'a UnsafeCell<T>,
}

impl<M: Memory, T> Lock<M, T> {
    /// A free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { raw: RawSpinLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, spinning while another CPU holds it.
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, M, T> {
        LockGuard { _raw: self.raw.lock(), value: &self.value }
    }
}

// SAFETY: the lock hands the value to one thread at a time, which is all that `Send` asks for.
unsafe impl<M: Memory, T: Send> Sync for Lock<M, T> {}

impl<M: Memory, T> Deref for LockGuard<'_, M, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other reference to the value exists, but for those borrowed from
        // this guard.
        unsafe { &*self.value.get() }
    }
}

impl<M: Memory, T> DerefMut for LockGuard<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably, so this is the only reference to the value.
        unsafe { &mut *self.value.get() }
    }
}

// SAFETY: sharing the guard shares `&T` and nothing else.
unsafe impl<M: Memory, T: Sync> Sync for LockGuard<'_, M, T> {}

impl<M: Memory, T: fmt::Debug> fmt::Debug for Lock<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl<M: Memory, T: fmt::Debug> fmt::Debug for LockGuard<'_, M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
