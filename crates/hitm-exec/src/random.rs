//! Random numbers of the system, from the run's seed: the same in every run with it. The hash maps
//! of some languages take theirs here.

use std::ffi::{c_int, c_uint, c_void};

use hitm_machine::Simulated;
use hitm_memory::{PathCost, Platform};
use rand_core::RngCore;

use crate::access::enter_call;
use crate::locks::{call, fail};
use crate::native::native;
use crate::start::shared;
use crate::thread;
use crate::tls::on_host;

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
    call!(native!(fn getentropy(*mut u8, usize) -> c_int)(buffer, bytes), |_thread| {
        if bytes > ENTROPY {
            return fail(libc::EIO);
        }
        // SAFETY: the program's buffer.
        unsafe { fill(buffer, bytes) };
        0
    })
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
