//! Atomics that call the machine's runtime library, by the thread sanitizer's ABI.
//!
//! A call is made with the address of the word; the library performs the access. All functions are
//! inlined into their callers: the library takes the address that it returns to for the place of
//! the access.

use std::fmt;
use std::sync::atomic::{self as real, Ordering};

/// The ABI's numbers of orderings: those of C.
#[inline(always)]
const fn in_c(order: Ordering) -> i32 {
    match order {
        Ordering::Relaxed => 0,
        Ordering::Acquire => 2,
        Ordering::Release => 3,
        Ordering::AcqRel => 4,
        // `Ordering` may grow, and this is the strongest.
        _ => 5,
    }
}

#[inline(always)]
#[track_caller]
fn for_load(order: Ordering) -> i32 {
    assert!(!matches!(order, Ordering::Release | Ordering::AcqRel), "a load cannot have the ordering {order:?}");
    in_c(order)
}

#[inline(always)]
#[track_caller]
fn for_store(order: Ordering) -> i32 {
    assert!(!matches!(order, Ordering::Acquire | Ordering::AcqRel), "a store cannot have the ordering {order:?}");
    in_c(order)
}

/// A fence, as the machine sees it.
///
/// # Panics
/// When the ordering is `Relaxed`.
#[inline(always)]
pub fn fence(order: Ordering) {
    unsafe extern "C" {
        safe fn __tsan_atomic_thread_fence(order: i32);
    }
    assert!(order != Ordering::Relaxed, "a fence cannot be relaxed");
    __tsan_atomic_thread_fence(in_c(order));
}

/// The calls for words of one width, each as C declares it. A caller gives the word of a living
/// atomic.
macro_rules! width {
    ($calls:ident, $word:ty, $bits:literal) => {
        mod $calls {
            unsafe extern "C" {
                #[link_name = concat!("__tsan_atomic", $bits, "_load")]
                pub(super) fn load(word: *const $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_store")]
                pub(super) fn store(word: *mut $word, value: $word, order: i32);
                #[link_name = concat!("__tsan_atomic", $bits, "_exchange")]
                pub(super) fn swap(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_compare_exchange_val")]
                pub(super) fn compare(word: *mut $word, old: $word, new: $word, order: i32, failure: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_add")]
                pub(super) fn add(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_sub")]
                pub(super) fn sub(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_and")]
                pub(super) fn and(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_or")]
                pub(super) fn or(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_xor")]
                pub(super) fn xor(word: *mut $word, value: $word, order: i32) -> $word;
                #[link_name = concat!("__tsan_atomic", $bits, "_fetch_nand")]
                pub(super) fn nand(word: *mut $word, value: $word, order: i32) -> $word;
            }
        }
    };
}

width!(calls8, u8, "8");
width!(calls16, u16, "16");
width!(calls32, u32, "32");
width!(calls64, u64, "64");

/// What all atomics have. `$to` and `$from` turn a value into the word of its width and back.
macro_rules! common {
    ([$($generic:tt)*] $name:ident: $value:ty, $real:ty, $calls:ident, $word:ty, $to:expr, $from:expr) => {
        impl<$($generic)*> $name<$($generic)*> {
            /// Makes one with this value.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(<$real>::new(value))
            }

            #[inline(always)]
            fn word(&self) -> *mut $word {
                self.0.as_ptr().cast()
            }

            /// See the standard library's.
            #[inline(always)]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                // SAFETY: the word of `self`.
                $from(unsafe { $calls::load(self.word(), for_load(order)) })
            }

            /// See the standard library's.
            #[inline(always)]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                // SAFETY: the word of `self`.
                unsafe { $calls::store(self.word(), $to(value), for_store(order)) }
            }

            /// See the standard library's.
            #[inline(always)]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                // SAFETY: the word of `self`.
                $from(unsafe { $calls::swap(self.word(), $to(value), in_c(order)) })
            }

            /// See the standard library's.
            ///
            /// # Errors
            /// The value, when it is another than `current`.
            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let (old, new) = ($to(current), $to(new));
                // SAFETY: the word of `self`.
                let found = unsafe { $calls::compare(self.word(), old, new, in_c(success), for_load(failure)) };
                if found == old { Ok(current) } else { Err($from(found)) }
            }

            /// See the standard library's. It never fails without a reason, as on x86-64.
            ///
            /// # Errors
            /// The value, when it is another than `current`.
            #[inline(always)]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// See the standard library's.
            ///
            /// # Errors
            /// The value, when `update` returns nothing for it.
            #[inline(always)]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut found = self.load(fetch_order);
                while let Some(new) = update(found) {
                    match self.compare_exchange_weak(found, new, set_order, fetch_order) {
                        Ok(before) => return Ok(before),
                        Err(now) => found = now,
                    }
                }
                Err(found)
            }

            /// See the standard library's.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// See the standard library's.
            #[must_use]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// See the standard library's. The machine does not see what is accessed through it.
            #[must_use]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }

        impl<$($generic)*> From<$value> for $name<$($generic)*> {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl<$($generic)*> Default for $name<$($generic)*> {
            fn default() -> Self {
                Self(<$real>::default())
            }
        }

        impl<$($generic)*> fmt::Debug for $name<$($generic)*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.load(Ordering::Relaxed), f)
            }
        }
    };
}

/// The operations that return the value before.
macro_rules! updates {
    ($calls:ident, $value:ty, $to:expr, $from:expr, $($name:ident $call:ident),*) => {
        $(
            /// See the standard library's.
            #[inline(always)]
            pub fn $name(&self, value: $value, order: Ordering) -> $value {
                // SAFETY: the word of `self`.
                $from(unsafe { $calls::$call(self.word(), $to(value), in_c(order)) })
            }
        )*
    };
}

macro_rules! integers {
    ($($name:ident: $value:ty, $real:ty, $calls:ident, $word:ty;)*) => {
        $(
            /// The standard library's, which the machine sees.
            #[repr(transparent)]
            pub struct $name($real);

            common!([] $name: $value, $real, $calls, $word, |value| value as $word, |word| word as $value);

            impl $name {
                updates!(
                    $calls, $value, |value| value as $word, |word| word as $value,
                    fetch_add add, fetch_sub sub, fetch_and and, fetch_or or, fetch_xor xor, fetch_nand nand
                );

                /// See the standard library's.
                #[inline(always)]
                pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    let (Ok(before) | Err(before)) =
                        self.fetch_update(order, Ordering::Relaxed, |now| Some(now.max(value)));
                    before
                }

                /// See the standard library's.
                #[inline(always)]
                pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                    let (Ok(before) | Err(before)) =
                        self.fetch_update(order, Ordering::Relaxed, |now| Some(now.min(value)));
                    before
                }
            }
        )*
    };
}

integers! {
    AtomicU8: u8, real::AtomicU8, calls8, u8;
    AtomicI8: i8, real::AtomicI8, calls8, u8;
    AtomicU16: u16, real::AtomicU16, calls16, u16;
    AtomicI16: i16, real::AtomicI16, calls16, u16;
    AtomicU32: u32, real::AtomicU32, calls32, u32;
    AtomicI32: i32, real::AtomicI32, calls32, u32;
    AtomicU64: u64, real::AtomicU64, calls64, u64;
    AtomicI64: i64, real::AtomicI64, calls64, u64;
    AtomicUsize: usize, real::AtomicUsize, calls64, u64;
    AtomicIsize: isize, real::AtomicIsize, calls64, u64;
}

/// The standard library's, which the machine sees.
#[repr(transparent)]
pub struct AtomicBool(real::AtomicBool);

common!([] AtomicBool: bool, real::AtomicBool, calls8, u8, u8::from, |word| word != 0);

impl AtomicBool {
    updates!(calls8, bool, u8::from, |word| word != 0, fetch_and and, fetch_or or, fetch_xor xor);

    /// See the standard library's.
    #[inline(always)]
    pub fn fetch_not(&self, order: Ordering) -> bool {
        self.fetch_xor(true, order)
    }
}

/// The standard library's, which the machine sees.
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

common!(
    [T] AtomicPtr: *mut T, real::AtomicPtr<T>, calls64, u64,
    |pointer: *mut T| pointer.expose_provenance() as u64,
    |word| std::ptr::with_exposed_provenance_mut(word as usize)
);
