//! The kernel's id: where in a thread's memory it stands, and reading it.
//!
//! Linux writes a few fields into an area of each thread that has registered one (`rseq`, since 4.18), before the thread goes on
//! in user space after it was preempted, migrated or interrupted by a signal. The C library registers the area (glibc since
//! 2.35) and says where it is, as an offset from the thread pointer that is the same in every thread. This module reads two of
//! the fields. It registers nothing and writes nothing.
//!
//! | offset | field | meaning here |
//! |---|---|---|
//! | 4 | `cpu_id` | a CPU's number where the area is live; -1 before it is registered, -2 where that failed |
//! | 24 | `mm_cid` | the id, where the fields that the kernel fills in reach 28 bytes (6.3 and later) |
//!
//! **The size rule** is librseq's. The C library's size says how far the live fields reach, but with two exceptions: 20 and 32
//! both stand for the first form of the area, 32 bytes large, since versions of glibc name either without asking the kernel,
//! which fills in whatever it knows of the 32. There the kernel's own word counts, an entry of the auxiliary vector that is
//! absent before 6.3.

use std::arch::asm;
use std::ffi::{CStr, c_ulong};

use crate::cid::IDS_MAX;
use crate::support::Support;

/// The size of the first form's fields.
const FIRST_FEATURES: u64 = 20;
/// The size of the first form's area.
const FIRST_AREA: u64 = 32;
/// Where the field `cpu_id` begins.
const CPU: isize = 4;
/// Where the field `mm_cid` begins.
const ID: isize = 24;
/// Where it ends.
const ID_END: u64 = 28;
/// The auxiliary vector's entry for how many bytes of the area the kernel fills in (`AT_RSEQ_FEATURE_SIZE`).
const FEATURE_SIZE: c_ulong = 27;

/// Where the area is, from the thread pointer; a multiple of four. Proof that the C library has an area in every thread that
/// it made, at least [`ID_END`] bytes large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area(isize);

/// The size rule: how far the live fields reach, by what the C library names and by what the kernel says it fills in, 0 where it
/// says nothing.
fn live_bytes(library: u64, kernel: u64) -> u64 {
    match library {
        FIRST_FEATURES | FIRST_AREA => kernel.clamp(FIRST_FEATURES, FIRST_AREA),
        size => size,
    }
}

/// The value of a variable of the C library.
fn variable<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the name is a C string, and the handle stands for the whole program.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<T>();
    // SAFETY: the caller names a variable of this type, which the C library sets before any code of ours runs and never after.
    (!address.is_null()).then(|| unsafe { address.read() })
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
        (offset & 3 == 0).then_some(Self(offset)).ok_or(Support::NoArea)
    }

    /// The area that stands `offset` from the thread pointer, or none for a number that is no multiple of four.
    ///
    /// # Safety
    /// A multiple of four came from [`offset`](Self::offset).
    #[inline(always)]
    pub(crate) const unsafe fn of_offset(offset: isize) -> Option<Self> {
        if offset & 3 == 0 { Some(Self(offset)) } else { None }
    }

    pub(crate) const fn offset(self) -> isize {
        self.0
    }

    /// The running thread's id; none when its area is not live.
    ///
    /// The kernel may give the thread another id between the two reads, or right after them: it is an id that this thread
    /// has had during the call.
    #[inline(always)]
    pub(crate) fn id(self) -> Option<u32> {
        let (cpu, id) = (self.field::<CPU>(), self.field::<ID>());
        // The numbers that say that the area is not live are negative, as an i32; so neither is below the bound.
        if cpu | id < IDS_MAX { Some(id) } else { None }
    }

    /// Field `FIELD` of the running thread's area. The kernel writes it at any moment, so it is never assumed to be as it was.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn field<const FIELD: isize>(self) -> u32 {
        let value: u32;
        // SAFETY: the thread pointer is the base of `fs`, and the area (`self`) stands at the offset from it in every thread
        // that the C library made, for as long as the thread runs. The kernel writes for this thread alone and not while it
        // runs, so the four aligned bytes are read whole. Without `pure`, the read happens each time, as a volatile one.
        unsafe {
            asm!("mov {value:e}, dword ptr fs:[{offset} + {field}]",
                value = lateout(reg) value, offset = in(reg) self.0, field = const FIELD,
                options(nostack, preserves_flags, readonly));
        }
        value
    }

    /// Field `FIELD` of the running thread's area. The kernel writes it at any moment, so it is never assumed to be as it was.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn field<const FIELD: isize>(self) -> u32 {
        let value: u32;
        // SAFETY: `tpidr_el0` is the thread pointer, and the area (`self`) stands at the offset from it in every thread that
        // the C library made, for as long as the thread runs. The kernel writes for this thread alone and not while it runs,
        // so the four aligned bytes are read whole. Without `pure`, the read happens each time, as a volatile one.
        unsafe {
            asm!("mrs {pointer}, tpidr_el0", "add {pointer}, {pointer}, {offset}", "ldr {value:w}, [{pointer}, #{field}]",
                pointer = out(reg) _, value = lateout(reg) value, offset = in(reg) self.0, field = const FIELD,
                options(nostack, preserves_flags, readonly));
        }
        value
    }
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
