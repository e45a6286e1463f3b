//! Where the program's own variables lie in their lines.
//!
//! The linker puts this library's variables after the program's, in the same sections. A section
//! begins at a multiple of its largest alignment. So that a variable of the program has the same
//! place in its line with every build of this library, each kind of section has a variable here
//! with the alignment of a page; thread-local ones have that of a line, since a thread's storage
//! ends where its own block begins.

use std::hint::black_box;
use std::sync::atomic::AtomicU8;

#[repr(align(4096))]
struct Page(AtomicU8);

/// Has an address in it, as constants of the program may: such lie in a section of their own.
#[repr(align(4096))]
struct Pointing(&'static AtomicU8);

#[repr(align(64))]
struct Line(AtomicU8);

static ZEROED: Page = Page(AtomicU8::new(0));
static WRITTEN: Page = Page(AtomicU8::new(1));
static POINTING: Pointing = Pointing(&ZEROED.0);

thread_local! {
    static ZEROED_IN_THREAD: Line = const { Line(AtomicU8::new(0)) };
    static WRITTEN_IN_THREAD: Line = const { Line(AtomicU8::new(1)) };
}

/// Keeps the variables in a program that is linked without what it does not use.
pub(crate) fn keep() {
    black_box((&raw const ZEROED.0, &raw const WRITTEN.0, &raw const POINTING.0));
    ZEROED_IN_THREAD.with(|line| black_box(&raw const line.0));
    WRITTEN_IN_THREAD.with(|line| black_box(&raw const line.0));
}
