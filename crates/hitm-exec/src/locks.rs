//! Locks of POSIX threads. They lie in the program's own objects, at the C library's offsets, so
//! that false sharing with a lock is seen. Natively the C library's functions run.
//!
//! Offsets are those of glibc 2.36 on x86-64 (`struct_mutex.h`, `struct_rwlock.h` and others): they
//! are part of its binary interface.

use std::ffi::c_int;

use hitm_machine::Site;
use hitm_machine::program::{self, Seen};
use hitm_memory::Time;
use libc::{EAGAIN, EBUSY, EINTR, ETIMEDOUT, timespec};

use crate::access::{load_on_host, store_on_host, update_on_host};
use crate::cancel::point;
use crate::clock;
use crate::futex::{self, Ended};
use crate::mutex::Mutex;
use crate::native::native;
use crate::thread::Thread;

/// Runs a call on the machine's side; natively, `native`.
macro_rules! call {
    ($native:expr, |$thread:ident| $body:expr) => {
        match $crate::thread::at_call() {
            // SAFETY: the program's own call: its duty.
            None => unsafe { $native },
            Some($thread) => {
                let result = $crate::tls::on_host(|| {
                    $crate::access::enter_call($thread);
                    $body
                });
                $thread.end_call();
                $crate::signals::deliver_due($thread);
                result
            }
        }
    };
}
pub(crate) use call;

/// A spin lock is a word: 1 when free, 0 or less when held.
#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_spin_lock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_spin_lock(usize) -> c_int)(lock), |thread| {
        while update_on_host(lock, 4, pc, |value| u128::from((value as u32).wrapping_sub(1))) != 1 {
            loop {
                let bits = load_on_host(lock, 4, pc);
                if bits as i32 > 0 {
                    break;
                }
                program::spin(&[Seen { address: lock, size: 4, bits, site: Site::Code(pc) }]);
                thread.attend();
            }
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_spin_trylock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_spin_trylock(usize) -> c_int)(lock), |thread| {
        let _ = thread;
        if update_on_host(lock, 4, pc, |value| if value == 1 { 0 } else { value }) == 1 { 0 } else { EBUSY }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_spin_unlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_spin_unlock(usize) -> c_int)(lock), |thread| {
        let _ = thread;
        store_on_host(lock, 4, 1, pc);
        0
    })
}

/// A condition variable. The C library has two groups of waiters; here there is one: a sequence at
/// 0 and the number of waiters at 4, on the same line.
fn wait_for_condition(
    thread: &'static Thread,
    condition: usize,
    mutex: usize,
    until: Option<Time>,
    pc: usize,
) -> c_int {
    update_on_host(condition + 4, 4, pc, |waiters| waiters + 1);
    let sequence = load_on_host(condition, 4, pc) as u32;
    Mutex(mutex).unlock(thread, pc);
    let ended = futex::wait(thread, condition, sequence, until, pc, "a condition variable");
    // A thread that is cancelled has the mutex when its cleanup handlers run.
    thread.cancel.goes_on();
    update_on_host(condition + 4, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
    // The owner of a robust mutex may have ended.
    match Mutex(mutex).lock(thread, None, pc) {
        0 if ended == Ended::TimedOut => ETIMEDOUT,
        locked => locked,
    }
}

fn signal_condition(condition: usize, count: usize, pc: usize) -> c_int {
    if load_on_host(condition + 4, 4, pc) != 0 {
        update_on_host(condition, 4, pc, |sequence| u128::from((sequence as u32).wrapping_add(1)));
        futex::wake(condition, count);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn hitm_cond_wait(condition: usize, mutex: usize, pc: usize) -> c_int {
    point(|| {
        call!(native!(c"GLIBC_2.3.2" fn pthread_cond_wait(usize, usize) -> c_int)(condition, mutex), |thread| {
            wait_for_condition(thread, condition, mutex, None, pc)
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn hitm_cond_timedwait(
    condition: usize,
    mutex: usize,
    until: *const timespec,
    pc: usize,
) -> c_int {
    point(|| {
        call!(
            native!(c"GLIBC_2.3.2" fn pthread_cond_timedwait(usize, usize, *const timespec) -> c_int)(
                condition, mutex, until
            ),
            |thread| wait_for_condition(thread, condition, mutex, clock::deadline(until), pc)
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_cond_clockwait(
    condition: usize,
    mutex: usize,
    clock: c_int,
    until: *const timespec,
    pc: usize,
) -> c_int {
    point(|| {
        call!(
            native!(fn pthread_cond_clockwait(usize, usize, c_int, *const timespec) -> c_int)(
                condition, mutex, clock, until
            ),
            |thread| wait_for_condition(thread, condition, mutex, clock::deadline(until), pc)
        )
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_cond_signal(condition: usize, pc: usize) -> c_int {
    call!(native!(c"GLIBC_2.3.2" fn pthread_cond_signal(usize) -> c_int)(condition), |thread| {
        let _ = thread;
        signal_condition(condition, 1, pc)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_cond_broadcast(condition: usize, pc: usize) -> c_int {
    call!(native!(c"GLIBC_2.3.2" fn pthread_cond_broadcast(usize) -> c_int)(condition), |thread| {
        let _ = thread;
        signal_condition(condition, usize::MAX, pc)
    })
}

/// A barrier: threads that have come at 0, the round at 4, the count at 8.
#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_barrier_wait(barrier: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_barrier_wait(usize) -> c_int)(barrier), |thread| {
        let round = load_on_host(barrier + 4, 4, pc) as u32;
        let count = load_on_host(barrier + 8, 4, pc);
        if update_on_host(barrier, 4, pc, |come| come + 1) + 1 == count {
            store_on_host(barrier, 4, 0, pc);
            update_on_host(barrier + 4, 4, pc, |round| u128::from((round as u32).wrapping_add(1)));
            futex::wake(barrier + 4, usize::MAX);
            // PTHREAD_BARRIER_SERIAL_THREAD.
            return -1;
        }
        while load_on_host(barrier + 4, 4, pc) as u32 == round {
            futex::wait(thread, barrier + 4, round, None, pc, "a barrier");
        }
        0
    })
}

/// A read-write lock: readers at 0, with the highest bit for a writer; waiters at 4.
const WRITER: u128 = 1 << 31;

fn try_read(lock: usize, pc: usize) -> bool {
    update_on_host(lock, 4, pc, |held| if held & WRITER == 0 { held + 1 } else { held }) & WRITER == 0
}

fn try_write(lock: usize, pc: usize) -> bool {
    update_on_host(lock, 4, pc, |held| if held == 0 { WRITER } else { held }) == 0
}

/// Waits until `take` has the lock.
fn lock_rwlock(
    thread: &'static Thread,
    lock: usize,
    until: Option<Time>,
    pc: usize,
    take: impl Fn(usize, usize) -> bool,
) -> c_int {
    while !take(lock, pc) {
        update_on_host(lock + 4, 4, pc, |waiters| waiters + 1);
        let held = load_on_host(lock, 4, pc) as u32;
        let ended = match held {
            0 => Ended::Changed,
            _ => futex::wait(thread, lock, held, until, pc, "a read-write lock"),
        };
        update_on_host(lock + 4, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
        if ended == Ended::TimedOut {
            return ETIMEDOUT;
        }
    }
    0
}

/// The forms that wait.
macro_rules! rwlock_waits {
    ($($name:ident of $native:ident($($argument:ident: $kind:ty),*) by $take:ident until $until:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(lock: usize, $($argument: $kind,)* pc: usize) -> c_int {
            call!(native!(fn $native(usize $(, $kind)*) -> c_int)(lock $(, $argument)*), |thread| {
                lock_rwlock(thread, lock, $until, pc, $take)
            })
        }
    )*};
}

rwlock_waits! {
    hitm_rwlock_rdlock of pthread_rwlock_rdlock() by try_read until None;
    hitm_rwlock_wrlock of pthread_rwlock_wrlock() by try_write until None;
    hitm_rwlock_timedrdlock of pthread_rwlock_timedrdlock(until: *const timespec)
        by try_read until clock::deadline(until);
    hitm_rwlock_timedwrlock of pthread_rwlock_timedwrlock(until: *const timespec)
        by try_write until clock::deadline(until);
    hitm_rwlock_clockrdlock of pthread_rwlock_clockrdlock(clock: c_int, until: *const timespec)
        by try_read until clock::deadline(until);
    hitm_rwlock_clockwrlock of pthread_rwlock_clockwrlock(clock: c_int, until: *const timespec)
        by try_write until clock::deadline(until);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_rwlock_tryrdlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_rwlock_tryrdlock(usize) -> c_int)(lock), |thread| {
        let _ = thread;
        if try_read(lock, pc) { 0 } else { EBUSY }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_rwlock_trywrlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_rwlock_trywrlock(usize) -> c_int)(lock), |thread| {
        let _ = thread;
        if try_write(lock, pc) { 0 } else { EBUSY }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_rwlock_unlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_rwlock_unlock(usize) -> c_int)(lock), |thread| {
        let _ = thread;
        let held = update_on_host(lock, 4, pc, |held| if held & WRITER == 0 { held - 1 } else { 0 });
        let is_free = held & WRITER != 0 || held == 1;
        if is_free && load_on_host(lock + 4, 4, pc) != 0 {
            futex::wake(lock, usize::MAX);
        }
        0
    })
}

/// A semaphore: its value at 0, the number of waiters at 8.
const WAITERS: usize = 8;

fn take_semaphore(semaphore: usize, pc: usize) -> bool {
    update_on_host(semaphore, 4, pc, |value| value.saturating_sub(1)) != 0
}

fn wait_for_semaphore(thread: &'static Thread, semaphore: usize, until: Option<Time>, pc: usize) -> c_int {
    while !take_semaphore(semaphore, pc) {
        update_on_host(semaphore + WAITERS, 4, pc, |waiters| waiters + 1);
        let ended = futex::wait(thread, semaphore, 0, until, pc, "a semaphore");
        update_on_host(semaphore + WAITERS, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
        match ended {
            Ended::TimedOut => return ETIMEDOUT,
            Ended::Interrupted { restarts: false } => return EINTR,
            _ => {}
        }
    }
    0
}

/// The result of a call that tells an error by `errno`. Called on the program's side.
pub(crate) fn or_errno(error: c_int) -> c_int {
    if error > 0 { fail(error) } else { error }
}

/// An error of a call whose good results are not negative; -1 is the C library's own, which has set
/// `errno`.
pub(crate) fn failed(error: c_int) -> c_int {
    -1 - error
}

/// The result of a call with such errors. Called on the program's side.
pub(crate) fn or_failed(result: c_int) -> c_int {
    if result < -1 { fail(-1 - result) } else { result }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_sem_wait(semaphore: usize, pc: usize) -> c_int {
    point(|| {
        or_errno(call!(native!(fn sem_wait(usize) -> c_int)(semaphore), |thread| {
            wait_for_semaphore(thread, semaphore, None, pc)
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_sem_timedwait(semaphore: usize, until: *const timespec, pc: usize) -> c_int {
    point(|| {
        or_errno(call!(native!(fn sem_timedwait(usize, *const timespec) -> c_int)(semaphore, until), |thread| {
            wait_for_semaphore(thread, semaphore, clock::deadline(until), pc)
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_sem_clockwait(
    semaphore: usize,
    clock: c_int,
    until: *const timespec,
    pc: usize,
) -> c_int {
    point(|| {
        or_errno(call!(
            native!(fn sem_clockwait(usize, c_int, *const timespec) -> c_int)(semaphore, clock, until),
            |thread| wait_for_semaphore(thread, semaphore, clock::deadline(until), pc)
        ))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_sem_trywait(semaphore: usize, pc: usize) -> c_int {
    or_errno(call!(native!(fn sem_trywait(usize) -> c_int)(semaphore), |thread| {
        let _ = thread;
        if take_semaphore(semaphore, pc) { 0 } else { EAGAIN }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_sem_post(semaphore: usize, pc: usize) -> c_int {
    call!(native!(fn sem_post(usize) -> c_int)(semaphore), |thread| {
        let _ = thread;
        update_on_host(semaphore, 4, pc, |value| value + 1);
        if load_on_host(semaphore + WAITERS, 4, pc) != 0 {
            futex::wake(semaphore, 1);
        }
        0
    })
}

/// Sets `errno` of the program's thread. Called on the program's side.
pub(crate) fn fail(error: c_int) -> c_int {
    // SAFETY: it returns the place of the calling thread's own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = error };
    -1
}
