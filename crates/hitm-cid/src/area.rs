//! The kernel's id: where in a thread's memory it stands, and reading it.
//!
//! Linux writes a few fields into an area of each thread that has registered one (`rseq`, since
//! 4.18), before the thread goes on in user space after it was preempted, migrated or interrupted
//! by a signal. The C library registers the area (glibc since 2.35) and says where it is, as an
//! offset from the thread pointer that is the same in every thread. This crate reads two of the
//! fields. It registers nothing and writes nothing.
//!
//! | offset | field | meaning here |
//! |---|---|---|
//! | 4 | `cpu_id` | a CPU's number where the area is live; -1 before it is registered, -2 where that failed |
//! | 24 | `mm_cid` | the id, where the fields that the kernel fills in reach 28 bytes (6.3 and later) |
//!
//! **The size rule** is librseq's. The C library's size says how far the live fields reach, but
//! with two exceptions: 20 and 32 both stand for the first form of the area, 32 bytes large, since
//! versions of glibc name either without asking the kernel, which fills in whatever it knows of the
//! 32. There the kernel's own word counts, an entry of the auxiliary vector that is absent before
//! 6.3.

use std::arch::asm;
use std::ffi::{CStr, c_ulong, c_void};
use std::mem::offset_of;

use crate::fields::{self, Fields};
use crate::support::Support;

/// The size of the first form's fields.
const FIRST_FEATURES: u64 = 20;
/// The size of the first form's area.
const FIRST_AREA: u64 = 32;
/// Where the id ends.
const ID_END: u64 = 28;
/// The auxiliary vector's entry for how many bytes of the area the kernel fills in
/// (`AT_RSEQ_FEATURE_SIZE`).
const FEATURE_SIZE: c_ulong = 27;
const _: () = assert!(
    offset_of!(Fields, cpu_id) == 4
        && offset_of!(Fields, _node_id) as u64 == FIRST_FEATURES
        && offset_of!(Fields, id) as u64 + 4 == ID_END
        && size_of::<Fields>() as u64 == FIRST_AREA,
    "the fields stand where the kernel has them"
);

/// Where the areas are, from the thread pointer; a multiple of four. Proof that the C library has
/// an area in every thread that it made, at least [`ID_END`] bytes large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area(isize);

/// The size rule: how far the live fields reach, by what the C library names and by what the kernel
/// says it fills in, 0 where it says nothing.
fn live_bytes(library: u64, kernel: u64) -> u64 {
    match library {
        FIRST_FEATURES | FIRST_AREA => kernel.clamp(FIRST_FEATURES, FIRST_AREA),
        size => size,
    }
}

/// The value of a variable of the C library.
fn variable<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the name is a C string, and the handle stands for the whole program.
    let address: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the caller names a variable of this type, which the C library sets before any code of
    // ours runs and never after.
    (!address.is_null()).then(|| unsafe { address.cast::<T>().read() })
}

impl Area {
    /// Looks for the area; an error says why there is none with an id.
    pub(crate) fn find() -> Result<Self, Support> {
        // The types are those of the C library's manual: `ptrdiff_t` and `unsigned int`.
        let offset = variable::<isize>(c"__rseq_offset").ok_or(Support::NoArea)?;
        let library = variable::<u32>(c"__rseq_size").ok_or(Support::NoArea)?;
        if library == 0 {
            return Err(Support::NotRegistered);
        }
        // SAFETY: has no preconditions.
        let kernel = unsafe { libc::getauxval(FEATURE_SIZE) };
        if live_bytes(library.into(), kernel) < ID_END {
            return Err(Support::NoId);
        }
        // The area begins at a multiple of 32, and thread pointers are multiples of 16.
        // SAFETY: the C library has areas of this size there, as it says.
        unsafe { Self::of_offset(offset) }.ok_or(Support::NoArea)
    }

    /// The areas that stand `offset` from the thread pointer, or none for a number that is no
    /// multiple of four.
    ///
    /// # Safety
    /// In every thread, an area of [`ID_END`] bytes or more stands at `offset`, if it is a multiple
    /// of four.
    pub(crate) const unsafe fn of_offset(offset: isize) -> Option<Self> {
        if offset & 3 == 0 { Some(Self(offset)) } else { None }
    }

    pub(crate) const fn offset(self) -> isize {
        self.0
    }

    /// Has the running thread read its id from its area from here on.
    pub(crate) fn attach(self) {
        let area = std::ptr::with_exposed_provenance(thread_pointer().wrapping_add_signed(self.0));
        // SAFETY: `self` is proof that an area stands there, which lasts as long as the thread, and
        // reaches up to the id's end.
        unsafe { fields::read_from(area) };
    }
}

/// The running thread's pointer, from which the C library counts.
fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the word at the base of `fs` is the thread pointer itself (the processor's ABI
    // supplement on thread-local storage).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the register that is the thread pointer.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_first_form_stand_for_what_the_kernel_fills_in() {
        // Library, kernel, and how far the live fields reach.
        let cases = [
            // glibc 2.36 and others on any kernel.
            (20, 0, 20),
            (20, 20, 20),
            (20, 28, 28),
            (20, 33, 32),
            // The first glibc with an area.
            (32, 0, 20),
            (32, 28, 28),
            (32, 64, 32),
            // A C library that asks the kernel.
            (28, 28, 28),
            (33, 33, 33),
            (24, 28, 24),
        ];
        for (library, kernel, expected) in cases {
            assert_eq!(live_bytes(library, kernel), expected, "{library}, {kernel}");
        }
    }
}
