//! [`Loom`]: a [`Memory`] over loom's words.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Memory, Placement, Word};

use crate::defect::{Access, Fate, Op};
use crate::plain::LoomPlain;
use crate::word::LoomAtomic;

/// The number of loads in vain by a waiter after which the rest of that execution is no longer
/// varied.
///
/// Otherwise two waiters could load in turns for ever while the third thread, for which both wait,
/// is not scheduled. A load changes nothing. So every continuation after a second load in vain also
/// occurs in an execution in which the thread loaded later.
const LOOKS_VARIED: u32 = 2;

/// The model checker's memory. Its words can be created and used only inside a
/// [`Model`](crate::Model).
#[derive(Clone, Copy, Debug, Default)]
pub struct Loom;

thread_local! {
    /// How many waits of this execution will still be broken off. A model runs on one thread.
    static BREAKS_OFF: Cell<usize> = const { Cell::new(0) };
}

/// The next `count` waits that can be broken off are, after a look in vain.
pub(crate) fn break_off(count: usize) {
    BREAKS_OFF.set(count);
}

impl Memory for Loom {
    const EXACT: bool = false;

    type Atomic<T: Word> = LoomAtomic<T>;
    type Plain<T: Word> = LoomPlain<T>;
    type Site = ();

    fn site() {}

    fn at<R>((): (), f: impl FnOnce() -> R) -> R {
        f()
    }

    fn fence(order: Ordering) {
        if std::thread::panicking() {
            return;
        }
        let access = Access::new::<()>(Op::Fence, order, None);
        match access.fate() {
            // A relaxed fence has no effect.
            Fate::Performed(Ordering::Relaxed) | Fate::Lost => {}
            Fate::Performed(order) => loom::sync::atomic::fence(order),
            Fate::Held => access.hold(move || loom::sync::atomic::fence(order)),
        }
        access.release_held();
    }

    fn spin_while<T: Word>(word: &LoomAtomic<T>, mut again: impl FnMut(T) -> bool) -> T {
        for look in 1.. {
            // Acquire: pairs with the Release of the store that ends the wait.
            let value = word.load(Ordering::Acquire);
            // After a fault no thread ends a wait.
            if !again(value) || std::thread::panicking() {
                return value;
            }
            if look == LOOKS_VARIED {
                loom::skip_branch();
            }
            // Lets the other threads run, and promises that the next load returns a newer value if
            // there is one.
            loom::thread::yield_now();
        }
        unreachable!("the loop has no end")
    }

    fn spin_briefly<T: Word>(word: &LoomAtomic<T>, mut again: impl FnMut(T) -> bool) -> Option<T> {
        if BREAKS_OFF.get() == 0 {
            return Some(Self::spin_while(word, again));
        }
        // Acquire: as in `spin_while`.
        let value = word.load(Ordering::Acquire);
        if !again(value) {
            return Some(value);
        }
        // Other threads may have run during the load.
        match BREAKS_OFF.get().checked_sub(1) {
            Some(left) => {
                BREAKS_OFF.set(left);
                None
            }
            None => Some(Self::spin_while(word, again)),
        }
    }

    fn give_way() {
        loom::thread::yield_now();
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
