//! [`PlacedOnce`]: a place for a [`Placed`] value that is filled at most once.
//!
//! **Claim.** It is one word, and a look at it is one load: an `OnceLock<Placed<_, _>>` has two
//! words, and both are read.
//!
//! **State.** Null, then the address of the value. Of two threads that fill the place, one wins,
//! and the value of the other one is dropped.
//!
//! **Memory ordering.** The exchange that fills the place releases the value, and a look acquires
//! it.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::memory::Memory;
use crate::placed::Placed;

/// A place for a value in shared memory. The place itself is not in that memory: nothing on a
/// simulated machine sees it.
pub struct PlacedOnce<M: Memory, T> {
    value: AtomicPtr<T>,
    /// It owns the value. The marker is neither `Send` nor `Sync`: see below.
    owns: PhantomData<(*mut T, M)>,
}

impl<M: Memory, T> PlacedOnce<M, T> {
    /// Makes an empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(null_mut()), owns: PhantomData }
    }

    /// Returns the value, if the place was filled.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: sees the value. Pairs with `set`.
        let value = NonNull::new(self.value.load(Ordering::Acquire))?;
        // SAFETY: the address came from `Placed::into_raw` in `set`. Only `drop` takes it back, and
        // no `&mut` to the value is ever handed out.
        Some(unsafe { value.as_ref() })
    }

    /// Fills the place, unless it was filled. Returns what is in it now.
    pub fn set(&self, value: Placed<M, T>) -> &T {
        let value = value.into_raw();
        // Release: publishes the value. Pairs with `get`. Acquire on failure: sees the value of the
        // thread that was first.
        match self.value.compare_exchange(null_mut(), value.as_ptr(), Ordering::Release, Ordering::Acquire) {
            // SAFETY: as in `get`.
            Ok(_) => unsafe { value.as_ref() },
            Err(first) => {
                // SAFETY: the address came from `into_raw` above, and was not published.
                drop(unsafe { Placed::<M, T>::from_raw(value) });
                // SAFETY: as in `get`; the exchange fails only if the place was filled.
                unsafe { &*first }
            }
        }
    }

    /// Returns the value, and makes it first if there is none. Another thread may make one too;
    /// then one of both is dropped.
    pub fn get_or_make(&self, make: impl FnOnce() -> Placed<M, T>) -> &T {
        self.get().unwrap_or_else(|| self.set(make()))
    }
}

impl<M: Memory, T> Default for PlacedOnce<M, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Memory, T> Drop for PlacedOnce<M, T> {
    fn drop(&mut self) {
        if let Some(value) = NonNull::new(*self.value.get_mut()) {
            // SAFETY: the address came from `Placed::into_raw`, and nothing else takes it back.
            drop(unsafe { Placed::<M, T>::from_raw(value) });
        }
    }
}

// SAFETY: owns the value as a `Placed` does.
unsafe impl<M: Memory, T: Send> Send for PlacedOnce<M, T> {}
// SAFETY: `&T` comes out of `&PlacedOnce`, which needs `Sync`; a value goes in from one thread and
// is dropped by another one, which needs `Send`.
unsafe impl<M: Memory, T: Send + Sync> Sync for PlacedOnce<M, T> {}

impl<M: Memory, T: fmt::Debug> fmt::Debug for PlacedOnce<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::Native;
    use crate::field::{Described, Field};

    /// Shows by its count whether it was dropped.
    struct Counted {
        _alive: Arc<()>,
        number: u32,
    }

    impl Described for Counted {
        const OBJECT: &'static str = "counted";

        fn fields() -> Vec<Field> {
            Vec::new()
        }
    }

    #[test]
    fn the_first_value_stays_and_each_is_dropped_once() {
        let alive = Arc::new(());
        let value = |number| Placed::<Native, _>::new(Counted { _alive: alive.clone(), number }, None, None);
        let place = PlacedOnce::new();
        assert!(place.get().is_none());
        assert_eq!(place.set(value(1)).number, 1);
        assert_eq!(place.set(value(2)).number, 1);
        assert_eq!(place.get_or_make(|| unreachable!("there is one")).number, 1);
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&alive), 1);
        drop(PlacedOnce::<Native, Counted>::new());
    }

    #[test]
    fn threads_that_fill_a_place_see_one_value() {
        let alive = Arc::new(());
        for _ in 0..if cfg!(miri) { 4 } else { 1_000 } {
            let place = PlacedOnce::<Native, Counted>::new();
            let fill = |number| {
                let value = || Placed::new(Counted { _alive: alive.clone(), number }, None, None);
                std::ptr::from_ref(place.get_or_make(value)).addr()
            };
            let [one, other] = thread::scope(|scope| {
                let other = scope.spawn(|| fill(2));
                [fill(1), other.join().expect("it does not panic")]
            });
            assert_eq!(one, other);
            assert_eq!(Arc::strong_count(&alive), 2);
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
