//! Objects of shared memory. One that the program makes is memory of its own here: no other
//! process comes to it. What other processes may have made is refused.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};

use hitm_memory::{PathCost, Platform};
use libc::{EEXIST, ENOENT, O_CREAT, O_EXCL};

use crate::locks::{call, failed, or_errno, or_failed};
use crate::native::native;
use crate::start::{refuse_call, shared};

/// The names of the objects that the program has made.
#[derive(Default)]
pub(crate) struct Names(RefCell<BTreeSet<CString>>);

fn name_of(name: *const c_char) -> CString {
    // SAFETY: the program's argument: a name.
    unsafe { CStr::from_ptr(name) }.to_owned()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let native = native!(fn shm_open(*const c_char, c_int, libc::mode_t) -> c_int);
    or_failed(call!(native(name, flags, mode), |_thread| {
        hitm_machine::Simulated::charge(PathCost::SystemCall);
        if flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL {
            refuse_call(
                "shm_open",
                "memory that other processes may share is not simulated",
                "make the object anew (O_CREAT and O_EXCL)",
            );
        }
        if !shared().made.0.borrow_mut().insert(name_of(name)) {
            return failed(EEXIST);
        }
        // SAFETY: the name is a C string. The host's object has no name that others know.
        let file = unsafe { libc::memfd_create(c"hitm".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 { failed(libc::ENOMEM) } else { file }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shm_unlink(name: *const c_char) -> c_int {
    or_errno(call!(native!(fn shm_unlink(*const c_char) -> c_int)(name), |_thread| {
        if shared().made.0.borrow_mut().remove(&name_of(name)) { 0 } else { ENOENT }
    }))
}
