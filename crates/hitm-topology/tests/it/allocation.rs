//! Measures the memory that a piece of code uses at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted by thread: tests run in parallel and none starts threads of its
/// own.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// The bytes in use, and their maximum since the last reset.
    static BYTES: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // Fails only while the thread ends, when no test measures any more.
    let _ = BYTES.try_with(|cell| {
        let (now, most) = cell.get();
        cell.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is passed on to `System` unchanged, and counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same for `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // In the worst case old and new block exist at once.
        count(size as isize);
        // SAFETY: the caller keeps the contract of `realloc`, and `pointer` came from `System`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        count(-(layout.size() as isize));
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and returns the most bytes that this thread had in use beyond those from before.
pub(crate) fn most_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (before, _) = BYTES.get();
    BYTES.set((before, before));
    let result = work();
    let (_, most) = BYTES.get();
    (result, (most - before).max(0) as usize)
}

#[test]
fn counts_what_is_in_use_at_once() {
    let (_, most) = most_bytes(|| {
        drop(vec![1u8; 1 << 20]);
        vec![1u8; 1 << 10]
    });
    assert!((1 << 20..1 << 21).contains(&most), "{most}");
}
