//! [`Pool`]: objects that are expensive to make, kept where they were last used.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::per_cid::PerCid;

/// One shelf of objects per id.
///
/// [`take`](Self::take) returns the object that was last put on the running thread's shelf, whose
/// lines this CPU likely still has, or a fresh one. A dropped [`Pooled`] goes to the shelf of the
/// id that its thread has **then**; if that shelf is full, the object is dropped. Objects return in
/// the state in which they were left.
///
/// No thread waits. A shelf that another thread holds at this moment, which happens after a badly
/// timed preemption, counts as empty for a take and as full for a put. Objects never move between
/// shelves. Threads that only take therefore get nothing from threads that only put, unless they
/// share ids.
///
/// ```
/// use hitm_cid::Pool;
///
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(4, || Vec::with_capacity(4096));
///
/// let mut buffer = BUFFERS.take();
/// buffer.clear();
/// buffer.extend_from_slice(b"no allocation, but for the first of an id");
/// ```
pub struct Pool<T, F = fn() -> T> {
    shelves: PerCid<Mutex<Vec<T>>>,
    capacity: usize,
    make: F,
}

impl<T, F> Pool<T, F> {
    /// Creates a pool that keeps at most `capacity` objects per id and makes missing ones by
    /// `make`.
    pub const fn new(capacity: usize, make: F) -> Self {
        Self { shelves: PerCid::new(|| Mutex::new(Vec::new())), capacity, make }
    }

    /// This thread's shelf, unless another thread holds it at this moment.
    fn shelf(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        match self.shelves.get().try_lock() {
            Ok(shelf) => Some(shelf),
            // Only our code runs under the lock, and it leaves the shelf whole.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Puts `object` on this thread's shelf.
    ///
    /// # Errors
    /// The object, when the shelf is full or held by another thread.
    pub fn put(&self, object: T) -> Result<(), T> {
        match self.shelf() {
            Some(mut shelf) if shelf.len() < self.capacity => {
                // Reserved at once: a shelf allocates once, on the thread that uses it.
                if shelf.capacity() == 0 {
                    shelf.reserve_exact(self.capacity);
                }
                shelf.push(object);
                Ok(())
            }
            _ => Err(object),
        }
    }

    /// Returns the number of objects on all shelves that no thread holds at this moment.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.shelves.fold(0, |kept, _, shelf| kept + shelf.try_lock().map_or(0, |shelf| shelf.len()))
    }

    /// Drops the objects on all shelves that no thread holds at this moment.
    pub fn clear(&self) {
        for (_, shelf) in self.shelves.iter() {
            // Taken out first: an object's destructor may use the pool.
            let objects = shelf.try_lock().map(|mut shelf| std::mem::take(&mut *shelf));
            drop(objects);
        }
    }
}

impl<T, F: Fn() -> T> Pool<T, F> {
    /// Returns an object from this thread's shelf, or a fresh one.
    ///
    /// # Panics
    /// When making one panics, and as [`current`](crate::current) does.
    pub fn take(&self) -> Pooled<'_, T, F> {
        let kept = self.shelf().and_then(|mut shelf| shelf.pop());
        Pooled { object: ManuallyDrop::new(kept.unwrap_or_else(|| (self.make)())), pool: self }
    }
}

impl<T, F> fmt::Debug for Pool<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("capacity", &self.capacity).field("kept", &self.kept()).finish_non_exhaustive()
    }
}

/// An object of a [`Pool`], which goes back when this is dropped.
pub struct Pooled<'a, T, F = fn() -> T> {
    /// Taken out by `drop` and `detach` alone.
    object: ManuallyDrop<T>,
    pool: &'a Pool<T, F>,
}

impl<T, F> Pooled<'_, T, F> {
    /// The object itself; it does not go back.
    #[must_use]
    pub fn detach(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped nor used again, so the object is taken out once.
        unsafe { ManuallyDrop::take(&mut this.object) }
    }
}

impl<T, F> Drop for Pooled<'_, T, F> {
    fn drop(&mut self) {
        // SAFETY: `self` is not used after its destructor, so the object is taken out once.
        let object = unsafe { ManuallyDrop::take(&mut self.object) };
        // Dropped here, outside of the lock, where the shelf does not take it.
        drop(self.pool.put(object));
    }
}

impl<T, F> Deref for Pooled<'_, T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T, F> DerefMut for Pooled<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: fmt::Debug, F> fmt::Debug for Pooled<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
