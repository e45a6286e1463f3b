//! Random numbers of the system, from the run's seed: the same in every run with it. The hash maps
//! of some languages take theirs here.
//!
//! The processor's own instruction, `rdrand`, cannot be caught; `std::random_device` of C++, which
//! uses it, is answered here.

use std::ffi::{c_int, c_uint, c_void};

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::locks::{call, or_errno};
use crate::native::native;
use crate::start::shared;
use crate::tls;

/// What `getentropy` gives at most, in bytes (its manual page).
const ENTROPY: usize = 256;

/// Fills a buffer, as the kernel does in a system call.
///
/// # Safety
/// The buffer has `bytes` writable bytes.
pub(crate) unsafe fn fill(buffer: *mut u8, bytes: usize) {
    Simulated::charge(PathCost::SystemCall);
    // SAFETY: the caller's duty.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, bytes) };
    shared().random.borrow_mut().fill_bytes(buffer);
}

/// Where a thread's storage has the value by which compilers notice that a stack was overwritten
/// (the System V ABI of x86-64, and glibc's `tcbhead_t`).
const GUARD: usize = 0x28;

/// Sets what the kernel and the C library took from the system at the program's start: the 16
/// random bytes that the kernel hands over (`AT_RANDOM`), and the guard of the stack, which new
/// threads inherit. No function of the calling thread that has taken the guard is to return.
pub(crate) fn set_at_start(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    // SAFETY: it reads the auxiliary vector.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    let bytes: *mut [u8; 16] = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the kernel has put 16 bytes there, on the program's stack, or the address is null.
    if let Some(bytes) = unsafe { bytes.as_mut() } {
        random.fill_bytes(bytes);
    }
    // As the C library does it: the lowest byte is 0, which ends a string.
    let guard = random.next_u64() << 8;
    let place: *mut u64 = std::ptr::with_exposed_provenance_mut(tls::base() + GUARD);
    // SAFETY: the storage of the calling thread.
    unsafe { place.write(guard) };
}

/// `std::random_device::_M_getval` of the C++ library.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ZNSt13random_device9_M_getvalEv(device: usize) -> c_uint {
    let native = native!(fn _ZNSt13random_device9_M_getvalEv(usize) -> c_uint);
    call!(native(device), |_thread| shared().random.borrow_mut().next_u32())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, bytes: usize, flags: c_uint) -> isize {
    call!(native!(fn getrandom(*mut u8, usize, c_uint) -> isize)(buffer, bytes, flags), |_thread| {
        // SAFETY: the program's buffer.
        unsafe { fill(buffer, bytes) };
        bytes.cast_signed()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getentropy(buffer: *mut u8, bytes: usize) -> c_int {
    or_errno(call!(native!(fn getentropy(*mut u8, usize) -> c_int)(buffer, bytes), |_thread| {
        if bytes > ENTROPY {
            return libc::EIO;
        }
        // SAFETY: the program's buffer.
        unsafe { fill(buffer, bytes) };
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arc4random_buf(buffer: *mut c_void, bytes: usize) {
    call!(native!(fn arc4random_buf(*mut c_void, usize) -> ())(buffer, bytes), |_thread| {
        // SAFETY: the program's buffer.
        unsafe { fill(buffer.cast(), bytes) };
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arc4random() -> u32 {
    call!(native!(fn arc4random() -> u32)(), |_thread| shared().random.borrow_mut().next_u32())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arc4random_uniform(bound: u32) -> u32 {
    call!(native!(fn arc4random_uniform(u32) -> u32)(bound), |_thread| {
        let number = u64::from(shared().random.borrow_mut().next_u32());
        // The upper half of the product: each value is as likely as another, to 2^-32.
        ((number * u64::from(bound)) >> u32::BITS) as u32
    })
}
