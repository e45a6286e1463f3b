//! The reader-writer lock of POSIX threads, as the standard library's.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::thread;

use crate::mutex::Poison;

/// The standard library's, which the machine sees. It has the size of a `pthread_rwlock_t` more
/// than its data, so a layout may differ from that of a native build.
#[repr(C)]
pub struct RwLock<T: ?Sized> {
    raw: UnsafeCell<libc::pthread_rwlock_t>,
    poison: Poison,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives one writer, or many readers, the data.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The standard library's guard of a reader.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _here: PhantomData<*const ()>,
}

/// The standard library's guard of a writer.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    panicked_before: bool,
    _here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared data.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    /// Makes an unlocked one.
    #[must_use]
    pub const fn new(data: T) -> Self {
        let raw = UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER);
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

impl<T: ?Sized> RwLock<T> {
    fn reader(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, _here: PhantomData }
    }

    fn writer(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, panicked_before: thread::panicking(), _here: PhantomData }
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is poisoned.
    #[inline(always)]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        // SAFETY: a lock that its constant has initialised, and that has not moved since a thread
        // locked it: a guard borrows it.
        unsafe { libc::pthread_rwlock_rdlock(self.raw.get()) };
        self.poison.guard(self.reader())
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is poisoned.
    #[inline(always)]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        // SAFETY: as in `read`.
        unsafe { libc::pthread_rwlock_wrlock(self.raw.get()) };
        self.poison.guard(self.writer())
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When a writer has it, or when it is poisoned.
    #[inline(always)]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        // SAFETY: as in `read`.
        if unsafe { libc::pthread_rwlock_tryrdlock(self.raw.get()) } != 0 {
            return Err(TryLockError::WouldBlock);
        }
        Ok(self.poison.guard(self.reader())?)
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When it is locked, or poisoned.
    #[inline(always)]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        // SAFETY: as in `read`.
        if unsafe { libc::pthread_rwlock_trywrlock(self.raw.get()) } != 0 {
            return Err(TryLockError::WouldBlock);
        }
        Ok(self.poison.guard(self.writer())?)
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

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as above.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, alone.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_rwlock_unlock(self.lock.raw.get()) };
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.poison.end(self.panicked_before);
        // SAFETY: as above.
        unsafe { libc::pthread_rwlock_unlock(self.lock.raw.get()) };
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(data: T) -> Self {
        Self::new(data)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.poison.show("RwLock", self.try_read(), f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
