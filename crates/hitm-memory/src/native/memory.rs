//! [`Memory`] on the real machine. Everything here compiles to the instruction that it names.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use crate::memory::{Memory, Placement};
use crate::plain::PlainWord;
use crate::word::{AtomicWord, Word};

/// How often a waiter looks at a word before it offers its CPU to other threads: 20 to 90 us. The
/// thread that it waits for may have been taken off its CPU by the operating system, which a
/// scheduler in user space cannot prevent. On a busy machine the waiter has its CPU back after 4 to
/// 20 ms, so it must not offer it because of a long critical section: an idle CPU that takes 128
/// tasks holds two locks for about 10 us. Ours: with 100 looks, five of fourteen runs of
/// `spawn_many` beside eight busy processes took more than 2.3 times the median; with 2,000, none
/// took more than 2.2 times.
const LOOKS_BEFORE_GIVING_WAY: u32 = 2_000;

/// The real machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

/// A word behind a lock, natively: a Relaxed atomic.
#[repr(transparent)]
pub struct NativePlain<T: Word>(T::Std);

impl<T: Word> PlainWord<T> for NativePlain<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        Self(T::Std::new(value))
    }

    #[inline(always)]
    fn get(&self) -> T {
        // Relaxed: the lock orders it.
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, value: T) {
        // Relaxed: the lock orders it; who peeks tolerates old values.
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn peek(&self) -> T {
        // Relaxed: the caller tolerates old values.
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Word> fmt::Debug for NativePlain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(f)
    }
}

impl Memory for Native {
    const EXACT: bool = true;
    const LEAVES_OUT_READS: bool = true;
    const PREEMPTS: bool = true;

    type Atomic<T: Word> = T::Std;
    type Plain<T: Word> = NativePlain<T>;
    type Site = ();

    #[inline(always)]
    fn site() {}

    #[inline(always)]
    fn at<R>((): (), f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }

    fn spin_while<T: Word>(word: &T::Std, mut again: impl FnMut(T) -> bool) -> T {
        loop {
            if let Some(value) = Self::spin_briefly::<T>(word, &mut again) {
                return value;
            }
            Self::give_way();
        }
    }

    fn spin_briefly<T: Word>(word: &T::Std, mut again: impl FnMut(T) -> bool) -> Option<T> {
        for _ in 0..LOOKS_BEFORE_GIVING_WAY {
            // Acquire: pairs with the Release of whoever ends the wait.
            let value = word.load(Ordering::Acquire);
            if !again(value) {
                return Some(value);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn give_way() {
        std::thread::yield_now();
    }

    fn allocate(layout: Layout, _placement: &Placement<'_>) -> NonNull<u8> {
        assert_ne!(layout.size(), 0, "an object takes a line at least");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
    }

    unsafe fn deallocate(memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's duty is the same.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}
