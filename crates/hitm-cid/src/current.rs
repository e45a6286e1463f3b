//! [`current`]: the running thread's id, and which source it is from.

use std::sync::atomic::{AtomicIsize, Ordering};

use crate::area::Area;
use crate::cid::Cid;
use crate::fields;
use crate::own;
use crate::support::Support;

/// Where the kernel's id is, or why there is none: an area's offset, which is a multiple of four, or one of the odd numbers
/// below. Written once by each thread that finds it undecided, all with the same value.
static SOURCE: AtomicIsize = AtomicIsize::new(UNDECIDED);

const UNDECIDED: isize = 1;
const NO_AREA: isize = 3;
const NOT_REGISTERED: isize = 5;
const NO_ID: isize = 7;
const PLATFORM: isize = 9;

const _: () = assert!(UNDECIDED & NO_AREA & NOT_REGISTERED & NO_ID & PLATFORM & 1 == 1, "what is no offset is odd");

/// The running thread's id.
///
/// What it promises, and what not, is said [in the crate's documentation](crate#what-an-id-promises). In short: at the moment of
/// the call no other running thread had it, and that may have changed before the caller looks at it.
///
/// It takes about as long as reading a thread-local variable. The first call of a process looks for the kernel's id; where there
/// is none, the first call of a thread takes an id of our own, which goes back when the thread has ended.
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

/// As `current`, where this thread has not asked yet, or its area is no longer live.
#[inline(never)]
#[cold]
fn other() -> Cid {
    // SAFETY: `decide` is the only one to make this number: an area's offset, or an odd number.
    if let Some(area) = unsafe { Area::of_offset(decide()) } {
        area.attach();
        if let Some(cid) = fields::read() {
            return cid;
        }
    }
    Cid::own(own::take())
}

/// What [`SOURCE`] holds, decided if it was not.
fn decide() -> isize {
    // Relaxed: the number is all there is, no memory is published with it; who sees it undecided decides the same again.
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

/// Whether the kernel's ids can be had in this process, and if not, why.
///
/// A single thread may be without one all the same, when somebody else has ended its registration; the
/// [`source`](Cid::source) of its ids says so. Such a thread has one of our own until it ends.
///
/// ```
/// // Printed once at the start, it explains a good deal later.
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
