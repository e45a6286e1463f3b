//! A mutex whose waiters sleep.
//!
//! **Origin.** Drepper, "Futexes are tricky", 2011, the second mutex. It is not fair: a running
//! task may take the mutex before a woken waiter.
//!
//! **Panics.** The mutex is not poisoned. A task that panics while it holds the mutex releases it,
//! and the next holder finds the value as the task left it. A value that may be left inconsistent
//! should record that itself.
//!
//! **Cancellation.** A lock that is dropped while it waits leaves the queue. If a wakeup had chosen
//! it, the wakeup passes to the next waiter.
//!
//! **Limits.** The mutex ignores priorities: an urgent task may wait for a holder that tasks of
//! lower priority than the waiter preempt. [`PiMutex`](crate::sync::PiMutex) prevents that.
//!
//! **State.** 0 is free; 1 is held; 2 is held, and waiters may exist.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Platform};

use crate::runtime::Handle;
use crate::sync::Futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A mutual-exclusion lock with one holder at a time.
///
/// The guard may be held across waits, and its task may migrate to another CPU meanwhile.
///
/// ```
/// use std::sync::Arc;
/// # use hitm::{NativeRuntime, sync::Mutex};
/// # let runtime = NativeRuntime::with_cpus(2).unwrap();
/// # runtime.run(|handle| async move {
/// let sum = Arc::new(Mutex::new(&handle, 0));
/// let tasks: Vec<_> = (1..=4).map(|n| {
///     let sum = sum.clone();
///     handle.spawn((), async move { *sum.lock().await += n })
/// }).collect();
/// for task in tasks {
///     task.await.unwrap();
/// }
/// assert_eq!(*sum.lock().await, 10);
/// # }).unwrap();
/// ```
pub struct Mutex<P: Platform, T> {
    futex: Futex<P>,
    value: UnsafeCell<T>,
}

/// The guard of a [`Mutex`]. Dropping it releases the mutex.
#[must_use = "the mutex is released at once"]
pub struct MutexGuard<'a, P: Platform, T> {
    mutex: &'a Mutex<P, T>,
}

impl<P: Platform, T> Mutex<P, T> {
    /// Makes a free mutex that protects `value`.
    #[must_use]
    pub fn new(runtime: &Handle<P>, value: T) -> Self {
        Self { futex: Futex::new(runtime, FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the mutex is free, takes it and returns its guard.
    ///
    /// # Cancel safety
    /// A dropped lock that waits leaves the queue; a wakeup that had chosen it passes to the next
    /// waiter.
    pub async fn lock(&self) -> MutexGuard<'_, P, T> {
        if !self.try_take() {
            // Acquire: pairs with the Release in `MutexGuard::drop`.
            while self.futex.word().swap(CONTENDED, Ordering::Acquire) != FREE {
                self.futex.wait(CONTENDED).await;
            }
        }
        MutexGuard { mutex: self }
    }

    /// Takes the mutex and returns its guard if the mutex is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, P, T>> {
        self.try_take().then(|| MutexGuard { mutex: self })
    }

    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in `MutexGuard::drop`. Relaxed on failure: the caller
        // reads nothing then.
        self.futex.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<'a, P: Platform, T> MutexGuard<'a, P, T> {
    pub(crate) fn mutex(&self) -> &'a Mutex<P, T> {
        self.mutex
    }
}

// SAFETY: the mutex gives one task at a time access to the value, so `T: Send` suffices.
unsafe impl<P: Platform, T: Send> Sync for Mutex<P, T> {}
// SAFETY: sharing the guard only shares `&T`.
unsafe impl<P: Platform, T: Sync> Sync for MutexGuard<'_, P, T> {}

impl<P: Platform, T> Deref for MutexGuard<'_, P, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the mutex. The only other references to the value are those
        // borrowed from this guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<P: Platform, T> DerefMut for MutexGuard<'_, P, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the mutex and is borrowed mutably, so this is the only reference
        // to the value.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<P: Platform, T> Drop for MutexGuard<'_, P, T> {
    fn drop(&mut self) {
        // Release: publishes what the holder wrote. Pairs with the Acquires in `lock` and
        // `try_take`.
        if self.mutex.futex.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.mutex.futex.wake(1);
        }
    }
}

impl<P: Platform, T: fmt::Debug> fmt::Debug for Mutex<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("futex", &self.futex).finish_non_exhaustive()
    }
}

impl<P: Platform, T: fmt::Debug> fmt::Debug for MutexGuard<'_, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
