//! [`Pool`]: objects that are dear to make, kept where they were last used.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::per_cid::PerCid;

/// A shelf of objects for each id.
///
/// [`take`](Self::take) gives the object that was put last on the running thread's shelf, whose lines this CPU likely still has, or
/// a fresh one. When it is dropped it goes to the shelf of the id that its thread has **then**; where that shelf is full, it is
/// dropped. Objects come back as they were left.
///
/// Nobody waits: a shelf that another thread holds at this moment, which takes a preemption at a bad time, counts as empty to who
/// takes and as full to who puts back. Objects never go from one shelf to another by themselves, so threads that only take and
/// threads that only put back do not supply each other unless they share ids.
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
    /// A pool that keeps at most `capacity` objects an id, and makes those that are missing by `make`.
    pub const fn new(capacity: usize, make: F) -> Self {
        Self { shelves: PerCid::new(|| Mutex::new(Vec::new())), capacity, make }
    }

    /// This thread's shelf, unless somebody else holds it at this moment.
    fn shelf(&self) -> Option<MutexGuard<'_, Vec<T>>> {
        match self.shelves.get().try_lock() {
            Ok(shelf) => Some(shelf),
            // Nobody's code runs under the lock but ours, which leaves the shelf whole.
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
                // At once, so that a shelf allocates once, on the thread that uses it.
                if shelf.capacity() == 0 {
                    shelf.reserve_exact(self.capacity);
                }
                shelf.push(object);
                Ok(())
            }
            _ => Err(object),
        }
    }

    /// How many objects are kept, on all shelves that nobody holds at this moment.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.shelves.fold(0, |kept, _, shelf| kept + shelf.try_lock().map_or(0, |shelf| shelf.len()))
    }

    /// Drops the objects that are kept, on all shelves that nobody holds at this moment.
    pub fn clear(&self) {
        for (_, shelf) in self.shelves.iter() {
            // Taken out first: an object's destructor may use the pool.
            let objects = shelf.try_lock().map(|mut shelf| std::mem::take(&mut *shelf));
            drop(objects);
        }
    }
}

impl<T, F: Fn() -> T> Pool<T, F> {
    /// An object from this thread's shelf, or a fresh one.
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
