//! Thread-local storage: the FS register of x86-64.
//!
//! A program's thread runs with the storage of a host thread that was made for it and is parked for
//! ever. The machine runs with the storage of its own host thread. Whatever enters the machine from
//! the program's code switches to that, and back.

use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::quick::settle;

/// The FS base of the machine's host thread; 0 where the program runs natively.
pub(crate) static HOST: AtomicUsize = AtomicUsize::new(0);

/// Bit 1 of `AT_HWCAP2`: the kernel lets programs read and write the FS base (Linux,
/// Documentation/arch/x86/x86_64/fsgs.rst).
const FSGSBASE: u64 = 1 << 1;

/// Whether the processor and the kernel let a program set the FS base.
pub(crate) fn is_settable() -> bool {
    // SAFETY: it reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// The FS base of the code that runs.
#[inline]
pub(crate) fn base() -> usize {
    let base;
    // SAFETY: the instruction reads a register; `is_settable` was asked at the start.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets the FS base.
///
/// # Safety
/// `base` is that of a living thread, and no reference to thread-local storage is alive.
#[inline]
unsafe fn set_base(base: usize) {
    // SAFETY: the caller's duty.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// The calling thread is the machine's.
pub(crate) fn adopt_host() {
    // Relaxed: the machine's thread alone reads it.
    HOST.store(base(), Ordering::Relaxed);
}

/// Runs `f` with the storage of the machine's host thread.
#[inline]
pub(crate) fn on_host<R>(f: impl FnOnce() -> R) -> R {
    settle();
    with_base(HOST.load(Ordering::Relaxed), f)
}

/// Runs `f` with the storage that starts at `new`: that of a parked thread.
#[inline]
pub(crate) fn with_base<R>(new: usize, f: impl FnOnce() -> R) -> R {
    let before = base();
    // SAFETY: the machine's host thread lives, and parked threads never end. Code here keeps no
    // reference to thread-local storage over a call of this function.
    unsafe { set_base(new) };
    let result = f();
    // SAFETY: as above.
    unsafe { set_base(before) };
    result
}
