//! The atomic words that the table and the bitmap are generic over: the standard library's, and the
//! model checker's in tests.
//!
//! Every method carries `#[track_caller]`, so that a test can name an operation by the file that
//! performs it.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// A word of 64 bits. The default is zero.
pub(crate) trait AtomicBits: Default + Send + Sync {
    /// A fence for words of this type.
    #[track_caller]
    fn fence(order: Ordering);

    #[track_caller]
    fn load(&self, order: Ordering) -> u64;

    #[track_caller]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>;

    #[track_caller]
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
}

/// A pointer that is set at most once. The default is null.
///
/// # Safety
/// `load` and the error of `set` return null, or a pointer that was handed to `set` of the same
/// object; `set` succeeds at most once. Both synchronise as the standard library's atomics do with
/// the same orderings.
pub(crate) unsafe trait AtomicPointer<T>: Default {
    #[track_caller]
    fn load(&self, order: Ordering) -> *mut T;

    /// Sets a pointer that is null.
    ///
    /// # Errors
    /// The pointer, when it is set already.
    #[track_caller]
    fn set(&self, new: *mut T, success: Ordering, failure: Ordering) -> Result<(), *mut T>;
}

impl AtomicBits for AtomicU64 {
    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_and(value, order)
    }
}

// SAFETY: nothing but `set` changes the pointer, from null alone, and what it is given is never
// null (a box).
unsafe impl<T> AtomicPointer<T> for AtomicPtr<T> {
    #[inline(always)]
    fn load(&self, order: Ordering) -> *mut T {
        self.load(order)
    }

    #[inline(always)]
    fn set(&self, new: *mut T, success: Ordering, failure: Ordering) -> Result<(), *mut T> {
        self.compare_exchange(std::ptr::null_mut(), new, success, failure).map(drop)
    }
}
