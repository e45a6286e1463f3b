//! Locks of POSIX threads. They lie in the program's own objects, at the C library's offsets, so
//! that false sharing with a lock is seen. Natively the C library's functions run.
//!
//! Offsets are those of glibc 2.36 on x86-64 (`struct_mutex.h`, `struct_rwlock.h` and others): they
//! are part of its binary interface.

use std::ffi::{c_int, c_void};

use hitm_machine::Site;
use hitm_machine::program::{self, Seen};
use hitm_memory::Time;
use libc::{EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT};

use crate::access::{enter_call, load_on_host, store_on_host, update_on_host};
use crate::clock;
use crate::futex::{self, Ended};
use crate::native::native;
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// Runs a call on the machine's side; natively, `native`.
macro_rules! call {
    ($native:expr, |$thread:ident| $body:expr) => {
        match thread::current() {
            // SAFETY: the program's own call: its duty.
            None => unsafe { $native },
            Some($thread) => on_host(|| {
                enter_call($thread);
                $body
            }),
        }
    };
}
pub(crate) use call;

/// Takes a word that is 0 when free, 1 when held, and 2 when threads may wait.
fn lock_word(thread: &'static Thread, word: usize, until: Option<Time>, pc: usize, what: &'static str) -> c_int {
    if update_on_host(word, 4, pc, |held| if held == 0 { 1 } else { held }) == 0 {
        return 0;
    }
    while update_on_host(word, 4, pc, |_| 2) != 0 {
        if futex::wait(thread, word, 2, until, what) == Ended::TimedOut {
            return ETIMEDOUT;
        }
    }
    0
}

fn unlock_word(word: usize, pc: usize) {
    if update_on_host(word, 4, pc, |_| 0) == 2 {
        futex::wake(word, 1);
    }
}

/// A mutex: lock at 0, nesting at 4, owner at 8, users at 12, kind at 16.
#[derive(Clone, Copy)]
struct Mutex(usize);

/// Kinds: the low bits of the word at 16.
const RECURSIVE: u128 = 1;
const ERROR_CHECKING: u128 = 2;
/// Robust and priority-inheriting mutexes, which are not simulated yet.
const OTHER_PROTOCOLS: u128 = 0x10 | 0x20 | 0x40;

impl Mutex {
    fn kind(self, pc: usize) -> u128 {
        let kind = load_on_host(self.0 + 16, 4, pc) & 0x7f;
        if kind & OTHER_PROTOCOLS != 0 {
            crate::start::refuse("a robust, priority-inheriting or priority-protected mutex: not simulated yet");
        }
        kind & 3
    }

    fn owner(self, pc: usize) -> i32 {
        load_on_host(self.0 + 8, 4, pc) as i32
    }

    fn set_owner(self, tid: i32, users: i32, pc: usize) {
        store_on_host(self.0 + 8, 4, u128::from(tid as u32), pc);
        let before = load_on_host(self.0 + 12, 4, pc) as u32;
        store_on_host(self.0 + 12, 4, u128::from(before.wrapping_add_signed(users)), pc);
    }

    /// Takes one more hold of a mutex that the thread has, if it is of a kind that tells. Returns
    /// the result of the lock, if that was all.
    fn again(self, thread: &Thread, pc: usize, kind: u128) -> Option<c_int> {
        if kind == 0 || kind == 3 || self.owner(pc) != thread.tid {
            return None;
        }
        if kind == ERROR_CHECKING {
            return Some(EDEADLK);
        }
        let nesting = load_on_host(self.0 + 4, 4, pc);
        store_on_host(self.0 + 4, 4, nesting + 1, pc);
        Some(0)
    }

    fn taken(self, thread: &Thread, pc: usize, kind: u128) -> c_int {
        if kind == RECURSIVE {
            store_on_host(self.0 + 4, 4, 1, pc);
        }
        self.set_owner(thread.tid, 1, pc);
        0
    }

    fn lock(self, thread: &'static Thread, until: Option<Time>, pc: usize) -> c_int {
        let kind = self.kind(pc);
        if let Some(result) = self.again(thread, pc, kind) {
            return result;
        }
        match lock_word(thread, self.0, until, pc, "a mutex") {
            0 => self.taken(thread, pc, kind),
            failed => failed,
        }
    }

    fn try_lock(self, thread: &Thread, pc: usize) -> c_int {
        let kind = self.kind(pc);
        match self.again(thread, pc, kind) {
            Some(0) => return 0,
            Some(_) => return EBUSY,
            None => {}
        }
        if update_on_host(self.0, 4, pc, |held| if held == 0 { 1 } else { held }) != 0 {
            return EBUSY;
        }
        self.taken(thread, pc, kind)
    }

    fn unlock(self, thread: &Thread, pc: usize) -> c_int {
        let kind = self.kind(pc);
        if kind == RECURSIVE || kind == ERROR_CHECKING {
            if self.owner(pc) != thread.tid {
                return EPERM;
            }
            if kind == RECURSIVE {
                let nesting = load_on_host(self.0 + 4, 4, pc);
                store_on_host(self.0 + 4, 4, nesting - 1, pc);
                if nesting > 1 {
                    return 0;
                }
            }
        }
        self.set_owner(0, -1, pc);
        unlock_word(self.0, pc);
        0
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_lock(mutex: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_lock(usize) -> c_int)(mutex), |thread| Mutex(mutex).lock(thread, None, pc))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_timedlock(mutex: usize, until: *const libc::timespec, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_timedlock(usize, *const libc::timespec) -> c_int)(mutex, until), |thread| {
        Mutex(mutex).lock(thread, clock::deadline(until), pc)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_trylock(mutex: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_trylock(usize) -> c_int)(mutex), |thread| Mutex(mutex).try_lock(thread, pc))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_unlock(mutex: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_unlock(usize) -> c_int)(mutex), |thread| Mutex(mutex).unlock(thread, pc))
}

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
    let ended = futex::wait(thread, condition, sequence, until, "a condition variable");
    update_on_host(condition + 4, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
    Mutex(mutex).lock(thread, None, pc);
    if ended == Ended::TimedOut { ETIMEDOUT } else { 0 }
}

fn signal_condition(condition: usize, count: usize, pc: usize) -> c_int {
    if load_on_host(condition + 4, 4, pc) != 0 {
        update_on_host(condition, 4, pc, |sequence| u128::from((sequence as u32).wrapping_add(1)));
        futex::wake(condition, count);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_cond_wait(condition: usize, mutex: usize, pc: usize) -> c_int {
    call!(native!(c"GLIBC_2.3.2" fn pthread_cond_wait(usize, usize) -> c_int)(condition, mutex), |thread| {
        wait_for_condition(thread, condition, mutex, None, pc)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_cond_timedwait(
    condition: usize,
    mutex: usize,
    until: *const libc::timespec,
    pc: usize,
) -> c_int {
    call!(
        native!(c"GLIBC_2.3.2" fn pthread_cond_timedwait(usize, usize, *const libc::timespec) -> c_int)(
            condition, mutex, until
        ),
        |thread| wait_for_condition(thread, condition, mutex, clock::deadline(until), pc)
    )
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
            futex::wait(thread, barrier + 4, round, None, "a barrier");
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

fn wait_for_rwlock(thread: &'static Thread, lock: usize, pc: usize) {
    update_on_host(lock + 4, 4, pc, |waiters| waiters + 1);
    let held = load_on_host(lock, 4, pc) as u32;
    if held != 0 {
        futex::wait(thread, lock, held, None, "a read-write lock");
    }
    update_on_host(lock + 4, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_rwlock_rdlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_rwlock_rdlock(usize) -> c_int)(lock), |thread| {
        while !try_read(lock, pc) {
            wait_for_rwlock(thread, lock, pc);
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_rwlock_wrlock(lock: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_rwlock_wrlock(usize) -> c_int)(lock), |thread| {
        while !try_write(lock, pc) {
            wait_for_rwlock(thread, lock, pc);
        }
        0
    })
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

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_sem_wait(semaphore: usize, pc: usize) -> c_int {
    call!(native!(fn sem_wait(usize) -> c_int)(semaphore), |thread| {
        while !take_semaphore(semaphore, pc) {
            update_on_host(semaphore + WAITERS, 4, pc, |waiters| waiters + 1);
            futex::wait(thread, semaphore, 0, None, "a semaphore");
            update_on_host(semaphore + WAITERS, 4, pc, |waiters| u128::from((waiters as u32).wrapping_sub(1)));
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_sem_trywait(semaphore: usize, pc: usize) -> c_int {
    let taken = call!(native!(fn sem_trywait(usize) -> c_int)(semaphore), |thread| {
        let _ = thread;
        if take_semaphore(semaphore, pc) { 0 } else { EAGAIN }
    });
    if taken == EAGAIN { fail(EAGAIN) } else { taken }
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

/// A futex of the program's own (`FUTEX_WAIT`, `FUTEX_WAKE` and their forms with a bit set).
/// Returns a negative error. On the program's side.
pub(crate) fn system_futex(
    thread: &'static Thread,
    word: usize,
    operation: c_int,
    value: u32,
    timeout: *const libc::timespec,
) -> Result<i64, c_int> {
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    on_host(|| {
        enter_call(thread);
        match command {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
                let until = if command == libc::FUTEX_WAIT { clock::after(timeout) } else { clock::deadline(timeout) };
                match futex::wait(thread, word, value, until, "a futex") {
                    Ended::Woken => Ok(0),
                    Ended::Changed => Err(EAGAIN),
                    Ended::TimedOut => Err(ETIMEDOUT),
                }
            }
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => Ok(futex::wake(word, value as usize) as i64),
            _ => Err(EINVAL),
        }
    })
}

/// Creates a thread.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    handle: *mut usize,
    attributes: *const libc::pthread_attr_t,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let native = native!(fn pthread_create(*mut usize, *const libc::pthread_attr_t, extern "C" fn(*mut c_void) -> *mut c_void, *mut c_void) -> c_int);
    call!(native(handle, attributes, main, argument), |thread| crate::cpus::create(
        thread, handle, attributes, main, argument
    ))
}
