//! The words from which a thread reads its id: the kernel's, or its own in the same form.
//!
//! Each thread has a pointer to one of three things:
//!
//! | pointer to | while |
//! |---|---|
//! | its area, which the kernel writes | the kernel gives it ids |
//! | fields of its own | it holds an id of our own |
//! | [`NOT_LIVE`] | it has not asked yet, or has given its id back |
//!
//! so that an id is three loads and one branch, whatever its source. The two sources differ in the
//! id's uppermost bit, which no id of the kernel has.

use std::cell::Cell;

use crate::cid::Cid;

/// The form of the area, as the kernel's interface fixes it (`struct rseq`,
/// include/uapi/linux/rseq.h).
#[repr(C, align(32))]
pub(crate) struct Fields {
    pub(crate) _cpu_id_start: u32,
    /// A CPU's number, or negative (as an i32) when the id is not kept up to date.
    pub(crate) cpu_id: u32,
    pub(crate) _rseq_cs: u64,
    pub(crate) _flags: u32,
    pub(crate) _node_id: u32,
    /// The kernel's `mm_cid`, or an id of our own with [`OWN`] set.
    pub(crate) id: u32,
}

/// Marks an id of our own.
const OWN: u32 = 1 << 31;

const fn fields(cpu_id: u32, id: u32) -> Fields {
    Fields { _cpu_id_start: 0, cpu_id, _rseq_cs: 0, _flags: 0, _node_id: 0, id }
}

/// Fields that are never live: -1 is what the kernel's have before they are registered.
static NOT_LIVE: Fields = fields(u32::MAX, 0);

// None of these has a destructor, so they can be used until the thread is gone.
thread_local! {
    /// What this thread reads its id from. It lasts as long as the thread, and reaches up to the
    /// id's end.
    static READ: Cell<*const Fields> = const { Cell::new(&raw const NOT_LIVE) };

    /// Fields of its own.
    static HELD: Cell<Fields> = const { Cell::new(fields(0, 0)) };
}

/// The running thread's id, if its fields are live.
///
/// The kernel may give the thread another id right after it was read: it is an id that this thread
/// has had during the call.
#[inline(always)]
pub(crate) fn read() -> Option<Cid> {
    let fields = READ.get();
    // SAFETY: what `READ` points to lasts as long as the thread.
    let cpu = unsafe { &raw const (*fields).cpu_id };
    // SAFETY: as above. The kernel writes for this thread alone and not while it runs, so the word
    // is read whole. Volatile, since it may have changed since the last call behind the compiler's
    // back.
    let cpu = unsafe { cpu.read_volatile() };
    if cpu.cast_signed() < 0 {
        return None;
    }
    // SAFETY: as for the CPU's number.
    let id = unsafe { &raw const (*fields).id };
    // SAFETY: as for the CPU's number.
    let id = unsafe { id.read_volatile() };
    Some(Cid::of_key(id.rotate_left(1) as usize))
}

/// Has this thread read its id from `fields` from here on.
///
/// # Safety
/// They last as long as the thread, reach up to the end of the id, and no code writes to them while
/// this thread runs.
#[allow(dead_code, reason = "where the kernel's ids are not read nobody calls it")]
pub(crate) unsafe fn read_from(fields: *const Fields) {
    READ.set(fields);
}

/// Has this thread read `id`, one of our own, from here on.
pub(crate) fn hold(id: u32) {
    HELD.with(|held| {
        held.set(fields(0, id | OWN));
        READ.set(held.as_ptr());
    });
}

/// Has this thread read no id from here on.
pub(crate) fn forget() {
    READ.set(&raw const NOT_LIVE);
}

const _: () = assert!(
    Cid::own(5).key() == (5_u32 | OWN).rotate_left(1) as usize && Cid::kernel(5).key() == 5_u32.rotate_left(1) as usize,
    "the mark becomes the key's lowest bit"
);
