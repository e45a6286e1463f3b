//! A mutex whose waiters sleep.
//!
//! **Origin.** Drepper, "Futexes are tricky", 2011, the second mutex. Not fair: a task that runs may take the mutex
//! before one that was woken for it.
//!
//! **Panics.** There is no poisoning: a task that panics while it holds the mutex releases it, and the next holder finds the value as
//! it was left. A value that may be left broken should say so itself.
//!
//! **Cancellation.** A lock that is dropped while it waits leaves the queue; a wakeup that had chosen it goes to the next.
//!
//! **Limits.** It knows nothing of priorities: an urgent task waits for a holder that anything in between preempts.
//!
//! **State.** 0 free; 1 held; 2 held and somebody may wait.

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

/// One holder at a time.
///
/// The guard may be held across waits, and on another CPU than it was taken on.
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

/// Holds a [`Mutex`]; releases it when dropped.
#[must_use = "the mutex is released at once"]
pub struct MutexGuard<'a, P: Platform, T> {
    mutex: &'a Mutex<P, T>,
}

impl<P: Platform, T> Mutex<P, T> {
    /// A free mutex around `value`.
    #[must_use]
    pub fn new(runtime: &Handle<P>, value: T) -> Self {
        Self { futex: Futex::new(runtime, FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the mutex, sleeping while another task holds it.
    pub async fn lock(&self) -> MutexGuard<'_, P, T> {
        if !self.try_take() {
            // Acquire: pairs with the Release in `MutexGuard::drop`.
            while self.futex.word().swap(CONTENDED, Ordering::Acquire) != FREE {
                self.futex.wait(CONTENDED).await;
            }
        }
        MutexGuard { mutex: self }
    }

    /// Takes the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, P, T>> {
        self.try_take().then(|| MutexGuard { mutex: self })
    }

    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in `MutexGuard::drop`. Relaxed on failure: nothing is read then.
        self.futex.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The value, of a mutex that nobody else can reach.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<'a, P: Platform, T> MutexGuard<'a, P, T> {
    pub(crate) fn mutex(&self) -> &'a Mutex<P, T> {
        self.mutex
    }
}

// SAFETY: the mutex hands the value to one task at a time, which is all that `Send` asks for.
unsafe impl<P: Platform, T: Send> Sync for Mutex<P, T> {}
// SAFETY: sharing the guard shares `&T` and nothing else.
unsafe impl<P: Platform, T: Sync> Sync for MutexGuard<'_, P, T> {}

impl<P: Platform, T> Deref for MutexGuard<'_, P, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the mutex, so no other reference to the value exists, but for those borrowed from this
        // guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<P: Platform, T> DerefMut for MutexGuard<'_, P, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the mutex and is borrowed mutably, so this is the only reference to the value.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<P: Platform, T> Drop for MutexGuard<'_, P, T> {
    fn drop(&mut self) {
        // Release: publishes what the holder wrote. Pairs with the Acquires in `lock` and `try_take`.
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
