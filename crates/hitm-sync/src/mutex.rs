//! The mutex of POSIX threads, as the standard library's.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::thread;

/// Whether a panic has left the data of a lock half changed. The machine does not see it.
#[derive(Debug, Default)]
pub(crate) struct Poison(AtomicBool);

impl Poison {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn is_set(&self) -> bool {
        // Relaxed: the lock orders it.
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        // Relaxed: as above.
        self.0.store(false, Ordering::Relaxed);
    }

    /// Ends an access that began when the thread panicked or not.
    pub(crate) fn end(&self, panicked_before: bool) {
        if !panicked_before && thread::panicking() {
            // Relaxed: as above.
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns what gives access to the data, as an error if the data may be half changed.
    pub(crate) fn guard<G>(&self, guard: G) -> LockResult<G> {
        if self.is_set() { Err(PoisonError::new(guard)) } else { Ok(guard) }
    }

    /// Shows the lock `name`, with its data if `tried` could lock it.
    pub(crate) fn show<G: Deref<Target: fmt::Debug>>(
        &self,
        name: &str,
        tried: TryLockResult<G>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        match tried {
            Ok(guard) => shown.field("data", &&*guard),
            Err(TryLockError::Poisoned(error)) => shown.field("data", &&**error.get_ref()),
            Err(TryLockError::WouldBlock) => shown.field("data", &format_args!("<locked>")),
        };
        shown.field("poisoned", &self.is_set()).finish_non_exhaustive()
    }
}

/// The standard library's, which the machine sees. It has the size of a `pthread_mutex_t` more than
/// its data, so a layout may differ from that of a native build.
#[repr(C)]
pub struct Mutex<T: ?Sized> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    poison: Poison,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time the data.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// The standard library's guard.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    panicked_before: bool,
    /// A thread unlocks what it has locked.
    _here: std::marker::PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared data.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// Makes an unlocked one.
    #[must_use]
    pub const fn new(data: T) -> Self {
        let raw = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        Self { raw, poison: Poison::new(), data: UnsafeCell::new(data) }
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.poison.guard(self.data.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.raw.get()
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, panicked_before: thread::panicking(), _here: std::marker::PhantomData }
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is poisoned.
    #[inline(always)]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: a mutex that its constant has initialised, and that has not moved since a thread
        // locked it: a guard borrows it.
        unsafe { libc::pthread_mutex_lock(self.raw()) };
        self.poison.guard(self.guard())
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is locked, or poisoned.
    #[inline(always)]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        // SAFETY: as in `lock`.
        if unsafe { libc::pthread_mutex_trylock(self.raw()) } != 0 {
            return Err(TryLockError::WouldBlock);
        }
        Ok(self.poison.guard(self.guard())?)
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.poison.guard(self.data.get_mut())
    }

    /// See the standard library's.
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_set()
    }

    /// See the standard library's.
    pub fn clear_poison(&self) {
        self.poison.clear();
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(crate) fn lock(&self) -> &'a Mutex<T> {
        self.lock
    }

    /// What a wait returns: the same guard, or the error of a poisoned lock.
    pub(crate) fn again(self) -> LockResult<Self> {
        self.lock.poison.guard(self)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.poison.end(self.panicked_before);
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.lock.raw()) };
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.poison.show("Mutex", self.try_lock(), f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
