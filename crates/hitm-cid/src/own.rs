//! Our own ids, for threads that the kernel gives none: the lowest that is free, held from the
//! first call until the thread ends.
//!
//! **While a thread ends** its id stays its own: destructors of thread-local variables may ask for
//! it, in any order. It goes back as late as [`at_thread_end`](crate::at_thread_end) can make it.
//! Destructors that run later still get an id that no other thread has, a new one; it goes back too
//! if the C library runs another round of destructors, and is lost to the process if not.
//!
//! **After a fork** the child has one thread, and the ids of the others are free in it.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64};

use crate::at_thread_end;
use crate::bitmap::Bitmap;
use crate::cid::IDS_MAX;
use crate::fields;
use crate::table::Table;

/// 64 ids a word, 256 in place; 2^16 words at the most.
type Ids = Bitmap<AtomicU64, AtomicPtr<AtomicU64>, 64, 4, 14>;

const _: () = assert!(
    64 * Table::<AtomicU64, AtomicPtr<AtomicU64>, 4, 14>::CAPACITY == IDS_MAX as usize,
    "the bitmap ends where ids do"
);

static IDS: Ids =
    Bitmap::new(Table::new([const { AtomicU64::new(0) }; 4], [const { AtomicPtr::new(std::ptr::null_mut()) }; 14]));

/// No id.
const NONE: u32 = u32::MAX;

thread_local! {
    /// The id that this thread holds, or [`NONE`]. It has no destructor, so it can be read until
    /// the thread is gone.
    static HELD: Cell<u32> = const { Cell::new(NONE) };
}

/// Takes an id for this thread, which reads it from here on. It holds none, since it would have
/// read that.
pub(crate) fn take() -> u32 {
    let Some(id) = IDS.take() else { panic!("no more than {IDS_MAX} threads can have a concurrency id") };
    HELD.set(id);
    fields::hold(id);
    at_thread_end::arrange();
    id
}

/// Gives this thread's id back, if it holds one.
pub(crate) fn give_back() {
    let id = HELD.replace(NONE);
    if id != NONE {
        fields::forget();
        IDS.give_back(id);
    }
}

/// In the child, after a fork: this thread is the only one.
#[cfg(unix)]
pub(crate) fn forked() {
    let held = HELD.get();
    IDS.keep_only((held != NONE).then_some(held));
}
