//! Threads of C11: the C library's are those of POSIX threads under other names, and so are ours.

use std::ffi::{c_int, c_void};

use libc::{EBUSY, ENOMEM, ETIMEDOUT, timespec};

use crate::cpus::{create, create_natively, pthread_join, sched_yield};
use crate::leave::Outermost;
use crate::locks::{call, hitm_cond_broadcast, hitm_cond_signal, hitm_cond_timedwait, hitm_cond_wait};
use crate::mutex::{hitm_mutex_lock, hitm_mutex_timedlock, hitm_mutex_trylock, hitm_mutex_unlock};

/// `thrd_busy`, `thrd_error`, `thrd_nomem` and `thrd_timedout` of glibc's `threads.h`.
fn result(error: c_int) -> c_int {
    match error {
        0 => 0,
        EBUSY => 1,
        ENOMEM => 3,
        ETIMEDOUT => 4,
        _ => 2,
    }
}

/// What a thread of C11 runs natively.
struct Start {
    main: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

extern "C-unwind" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `hitm_thrd_create` leaked it for this thread.
    let Start { main, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    std::ptr::without_provenance_mut(main(argument) as isize as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_thrd_create(
    handle: *mut usize,
    main: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    pc: usize,
    frame: usize,
) -> c_int {
    let natively = || Box::into_raw(Box::new(Start { main, argument })).cast();
    result(call!(create_natively(handle, std::ptr::null(), begin, natively()), |thread| {
        create(thread, handle, std::ptr::null(), Outermost::ThreadOfC11(main, argument), (pc, frame))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_join(handle: usize, value: *mut c_int) -> c_int {
    let mut ended = 0;
    // SAFETY: as above.
    let failed = unsafe { pthread_join(handle, &raw mut ended) };
    // SAFETY: the program's argument: null or a place.
    if let Some(value) = unsafe { value.as_mut() } {
        *value = ended as c_int;
    }
    result(failed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thrd_yield() {
    // SAFETY: the program's own call.
    unsafe { sched_yield() };
}

/// The calls that are those of POSIX threads, with the caller's address as the last argument.
macro_rules! same {
    ($($name:ident($($argument:ident: $kind:ty),*) => $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind,)* pc: usize) -> c_int {
            // SAFETY: the program's own call: its duty.
            result(unsafe { $function($($argument,)* pc) })
        }
    )*};
}

same! {
    hitm_mtx_lock(mutex: usize) => hitm_mutex_lock;
    hitm_mtx_trylock(mutex: usize) => hitm_mutex_trylock;
    hitm_mtx_timedlock(mutex: usize, until: *const timespec) => hitm_mutex_timedlock;
    hitm_mtx_unlock(mutex: usize) => hitm_mutex_unlock;
    hitm_cnd_wait(condition: usize, mutex: usize) => hitm_cond_wait;
    hitm_cnd_timedwait(condition: usize, mutex: usize, until: *const timespec) => hitm_cond_timedwait;
    hitm_cnd_signal(condition: usize) => hitm_cond_signal;
    hitm_cnd_broadcast(condition: usize) => hitm_cond_broadcast;
}
