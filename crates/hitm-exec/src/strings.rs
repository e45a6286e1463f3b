//! The C library's functions that copy, fill and look through memory. The library is not compiled
//! by `hitm cc`, so the linker sends the program's calls here (`--wrap`): the lines are accessed on
//! the machine, one access for each, and then the library's own function does the work.

use std::ffi::c_int;

use crate::access::{enter_call, load_lines, settle_stores_to, store_lines};
use crate::thread;
use crate::tls::on_host;

/// What a call accesses: where it reads and where it writes, each an address and bytes.
struct Accesses<const READS: usize, const WRITES: usize> {
    reads: [(usize, usize); READS],
    writes: [(usize, usize); WRITES],
}

/// Accesses the lines.
#[inline(always)]
fn see<const READS: usize, const WRITES: usize>(pc: usize, accesses: impl Fn() -> Accesses<READS, WRITES>) {
    let Some(thread) = thread::current() else { return };
    on_host(|| enter_call(thread));
    // On the program's side: it looks through strings.
    let mut found = accesses();
    let has_settled = on_host(|| {
        // All of them, without a short cut.
        let all = found.reads.iter().chain(&found.writes);
        all.fold(false, |settled, &(at, bytes)| settled | settle_stores_to(at, bytes))
    });
    if has_settled {
        found = accesses();
    }
    on_host(|| {
        found.reads.into_iter().for_each(|(at, bytes)| load_lines(at, bytes, pc));
        found.writes.into_iter().for_each(|(at, bytes)| store_lines(at, bytes, pc));
    });
}

/// Functions with their arguments, the caller's address behind them, and what they access.
macro_rules! wrapped {
    ($($name:ident as $real:ident($($argument:ident: $kind:ty),*) -> $result:ty, reads [$($read:expr),*], writes [$($write:expr),*];)*) => {
        unsafe extern "C" {
            $(fn $real($($argument: $kind),*) -> $result;)*
        }
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind,)* pc: usize) -> $result {
                see(pc, || Accesses { reads: [$($read),*], writes: [$($write),*] });
                // SAFETY: the program's own call: its duty.
                unsafe { $real($($argument),*) }
            }
        )*
    };
}

/// A string with its end, or at most `most` bytes of it.
fn string(at: usize, most: usize) -> (usize, usize) {
    // SAFETY: the program says that a string is there.
    let length = unsafe { __real_strnlen(at, most) };
    (at, length.saturating_add(1).min(most))
}

/// The same, up to the first `byte`.
fn until(at: usize, byte: c_int, most: usize) -> (usize, usize) {
    // SAFETY: as above: the program's own call looks through the same bytes.
    let found = unsafe { __real_memchr(at, byte, most) };
    (at, if found == 0 { most } else { found - at + 1 })
}

/// Up to where two strings differ, or end.
fn common(one: usize, other: usize, most: usize) -> usize {
    let byte = |at: usize| {
        let at: *const u8 = std::ptr::with_exposed_provenance(at);
        // SAFETY: as above.
        unsafe { at.read_volatile() }
    };
    let mut length = 0;
    while length < most && byte(one + length) == byte(other + length) && byte(one + length) != 0 {
        length += 1;
    }
    (length + 1).min(most)
}

const ALL: usize = usize::MAX;

wrapped! {
    hitm_wrap_memcpy as __real_memcpy(to: usize, from: usize, bytes: usize) -> usize,
        reads [(from, bytes)], writes [(to, bytes)];
    hitm_wrap_memmove as __real_memmove(to: usize, from: usize, bytes: usize) -> usize,
        reads [(from, bytes)], writes [(to, bytes)];
    hitm_wrap_mempcpy as __real_mempcpy(to: usize, from: usize, bytes: usize) -> usize,
        reads [(from, bytes)], writes [(to, bytes)];
    hitm_wrap_memset as __real_memset(to: usize, byte: c_int, bytes: usize) -> usize, reads [], writes [(to, bytes)];
    hitm_wrap_bzero as __real_bzero(to: usize, bytes: usize) -> (), reads [], writes [(to, bytes)];
    hitm_wrap_memcmp as __real_memcmp(one: usize, other: usize, bytes: usize) -> c_int,
        reads [(one, bytes), (other, bytes)], writes [];
    hitm_wrap_bcmp as __real_bcmp(one: usize, other: usize, bytes: usize) -> c_int,
        reads [(one, bytes), (other, bytes)], writes [];
    hitm_wrap_memchr as __real_memchr(at: usize, byte: c_int, bytes: usize) -> usize,
        reads [until(at, byte, bytes)], writes [];
    hitm_wrap_strlen as __real_strlen(at: usize) -> usize, reads [string(at, ALL)], writes [];
    hitm_wrap_strnlen as __real_strnlen(at: usize, most: usize) -> usize, reads [string(at, most)], writes [];
    hitm_wrap_strcmp as __real_strcmp(one: usize, other: usize) -> c_int,
        reads [(one, common(one, other, ALL)), (other, common(one, other, ALL))], writes [];
    hitm_wrap_strncmp as __real_strncmp(one: usize, other: usize, most: usize) -> c_int,
        reads [(one, common(one, other, most)), (other, common(one, other, most))], writes [];
    hitm_wrap_strchr as __real_strchr(at: usize, byte: c_int) -> usize, reads [string(at, ALL)], writes [];
    hitm_wrap_strrchr as __real_strrchr(at: usize, byte: c_int) -> usize, reads [string(at, ALL)], writes [];
    hitm_wrap_strcpy as __real_strcpy(to: usize, from: usize) -> usize,
        reads [string(from, ALL)], writes [(to, string(from, ALL).1)];
    hitm_wrap_stpcpy as __real_stpcpy(to: usize, from: usize) -> usize,
        reads [string(from, ALL)], writes [(to, string(from, ALL).1)];
    hitm_wrap_strncpy as __real_strncpy(to: usize, from: usize, bytes: usize) -> usize,
        reads [string(from, bytes)], writes [(to, bytes)];
    hitm_wrap_strcat as __real_strcat(to: usize, from: usize) -> usize,
        reads [string(to, ALL), string(from, ALL)], writes [(to + string(to, ALL).1 - 1, string(from, ALL).1)];
    hitm_wrap_memcpy_chk as __real___memcpy_chk(to: usize, from: usize, bytes: usize, room: usize) -> usize,
        reads [(from, bytes)], writes [(to, bytes)];
    hitm_wrap_memmove_chk as __real___memmove_chk(to: usize, from: usize, bytes: usize, room: usize) -> usize,
        reads [(from, bytes)], writes [(to, bytes)];
    hitm_wrap_memset_chk as __real___memset_chk(to: usize, byte: c_int, bytes: usize, room: usize) -> usize,
        reads [], writes [(to, bytes)];
    hitm_wrap_strcpy_chk as __real___strcpy_chk(to: usize, from: usize, room: usize) -> usize,
        reads [string(from, ALL)], writes [(to, string(from, ALL).1)];
}
