//! A word, and memory of whole lines.

use std::alloc::{Layout, alloc};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Word(AtomicU64);

impl Word {
    #[inline(always)]
    pub fn new() -> Self {
        Self::from(0)
    }

    #[inline(always)]
    pub fn from(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline(always)]
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn lines(layout: Layout) -> *mut u8 {
    // SAFETY: no layout of the program is without bytes.
    unsafe { alloc(layout.align_to(64).expect("a power of two").pad_to_align()) }
}

/// Gives a value lines of its own, for ever.
pub fn place<T>(value: T) -> &'static T {
    let memory = lines(Layout::new::<T>()).cast::<T>();
    // SAFETY: the memory is fresh, and has the size of a `T` or more.
    unsafe { memory.write(value) };
    // SAFETY: nothing frees it.
    unsafe { &*memory }
}

/// Gives what is made lines of its own, for ever.
pub fn make<F: FnOnce() -> T, T>(make: F) -> &'static T {
    let memory = lines(Layout::new::<T>()).cast::<T>();
    // SAFETY: as above.
    unsafe { memory.write(make()) };
    // SAFETY: as above.
    unsafe { &*memory }
}
