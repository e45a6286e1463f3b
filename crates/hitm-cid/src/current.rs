//! [`current`]: the running thread's id and its source.

use std::sync::atomic::{AtomicIsize, Ordering};

use crate::area::Area;
use crate::cid::Cid;
use crate::fields;
use crate::own;
use crate::support::Support;

/// The place of the kernel's id, or the reason why there is none: an area's offset, which is a
/// multiple of four, or one of the odd numbers below. Every thread that finds it undecided writes
/// it once; all write the same value.
static SOURCE: AtomicIsize = AtomicIsize::new(UNDECIDED);

const UNDECIDED: isize = 1;
const NO_AREA: isize = 3;
const NOT_REGISTERED: isize = 5;
const NO_ID: isize = 7;
const PLATFORM: isize = 9;

const _: () =
    assert!(UNDECIDED & NO_AREA & NOT_REGISTERED & NO_ID & PLATFORM & 1 == 1, "numbers that are no offset are odd");

/// Returns the running thread's id.
///
/// At the moment of the call no other running thread had this id. That may have changed before the
/// caller looks at it: [the crate's documentation](crate#what-an-id-promises) has the details.
///
/// A call takes about as long as reading a thread-local variable. The first call of a process looks
/// for the kernel's ids. Where there are none, the first call of a thread takes one of our own ids,
/// which is returned when the thread has ended.
///
/// # Panics
/// When more than 4,194,304 threads hold ids of our own.
#[must_use]
#[inline]
pub fn current() -> Cid {
    match fields::read() {
        Some(cid) => cid,
        None => other(),
    }
}

/// [`current`] for a thread that has not asked yet, or whose area is no longer live.
#[inline(never)]
#[cold]
fn other() -> Cid {
    // SAFETY: only `decide` makes this number: an area's offset, or an odd number.
    if let Some(area) = unsafe { Area::of_offset(decide()) } {
        area.attach();
        if let Some(cid) = fields::read() {
            return cid;
        }
    }
    Cid::own(own::take())
}

/// Returns what [`SOURCE`] holds, and decides it first if needed.
fn decide() -> isize {
    // Relaxed: no memory is published with the number; a thread that sees it undecided decides the
    // same.
    let known = SOURCE.load(Ordering::Relaxed);
    if known != UNDECIDED {
        return known;
    }
    let found = match Area::find() {
        Ok(area) => area.offset(),
        Err(Support::NoArea) => NO_AREA,
        Err(Support::NotRegistered) => NOT_REGISTERED,
        Err(Support::NoId) => NO_ID,
        Err(Support::Platform | Support::Kernel) => PLATFORM,
    };
    // Relaxed: as above.
    SOURCE.store(found, Ordering::Relaxed);
    found
}

/// Returns whether this process has the kernel's ids, and if not, why.
///
/// A single thread may be without a kernel id even then, if other code has ended its registration.
/// The [`source`](Cid::source) of its ids says so. Such a thread has one of our own ids until it
/// ends.
///
/// ```
/// // Printed once at the start, it explains later measurements.
/// println!("concurrency ids: {}", hitm_cid::support());
/// ```
#[must_use]
pub fn support() -> Support {
    match decide() {
        NO_AREA => Support::NoArea,
        NOT_REGISTERED => Support::NotRegistered,
        NO_ID => Support::NoId,
        PLATFORM => Support::Platform,
        _ => Support::Kernel,
    }
}
