//! Mutexes of POSIX threads: normal, recursive and error-checking ones, with and without priority
//! inheritance, in the program's own objects.

use std::ffi::c_int;

use hitm_memory::Time;
use libc::{EBUSY, EDEADLK, EPERM, ETIMEDOUT, timespec};

use crate::access::{load_on_host, store_on_host, update_on_host};
use crate::futex::{self, Ended};
use crate::locks::call;
use crate::native::native;
use crate::start::refuse_call;
use crate::thread::{Thread, Wants};
use crate::{clock, pi};

/// Takes a word that is 0 when free, 1 when held, and 2 when threads may wait.
fn lock_word(thread: &'static Thread, word: usize, until: Option<Time>, pc: usize, what: &'static str) -> c_int {
    if update_on_host(word, 4, pc, |held| if held == 0 { 1 } else { held }) == 0 {
        return 0;
    }
    while update_on_host(word, 4, pc, |_| 2) != 0 {
        if futex::wait(thread, word, 2, until, pc, what) == Ended::TimedOut {
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
pub(crate) struct Mutex(pub(crate) usize);

/// Kinds: the low bits of the word at 16.
const RECURSIVE: u128 = 1;
const ERROR_CHECKING: u128 = 2;
/// Priority-inheriting mutexes.
const INHERITING: u128 = 0x20;
/// Robust and priority-protected mutexes.
const OTHER_PROTOCOLS: u128 = 0x10 | 0x40;

impl Mutex {
    fn kind(self, pc: usize) -> u128 {
        let kind = load_on_host(self.0 + 16, 4, pc) & 0x7f;
        if kind & OTHER_PROTOCOLS != 0 {
            refuse_call(
                "pthread_mutex_lock",
                "a robust or priority-protected mutex is not simulated",
                "make the mutex without pthread_mutexattr_setrobust and PTHREAD_PRIO_PROTECT",
            );
        }
        kind & (3 | INHERITING)
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
        let nests = kind & 3;
        if !matches!(nests, RECURSIVE | ERROR_CHECKING) || self.owner(pc) != thread.tid.get() {
            return None;
        }
        if nests == ERROR_CHECKING {
            return Some(EDEADLK);
        }
        let nesting = load_on_host(self.0 + 4, 4, pc);
        store_on_host(self.0 + 4, 4, nesting + 1, pc);
        Some(0)
    }

    fn taken(self, thread: &Thread, pc: usize, kind: u128) -> c_int {
        if kind & 3 == RECURSIVE {
            store_on_host(self.0 + 4, 4, 1, pc);
        }
        self.set_owner(thread.tid.get(), 1, pc);
        0
    }

    pub(crate) fn lock(self, thread: &'static Thread, until: Option<Time>, pc: usize) -> c_int {
        let kind = self.kind(pc);
        if let Some(result) = self.again(thread, pc, kind) {
            return result;
        }
        let failed = if kind & INHERITING != 0 {
            self.lock_inheriting(thread, until, pc)
        } else {
            lock_word(thread, self.0, until, pc, "a mutex")
        };
        if failed == 0 { self.taken(thread, pc, kind) } else { failed }
    }

    /// By the word alone if it is free, else by the kernel, as the C library does it.
    fn lock_inheriting(self, thread: &'static Thread, until: Option<Time>, pc: usize) -> c_int {
        let own = u128::from(thread.tid.get().cast_unsigned());
        let held = update_on_host(self.0, 4, pc, |held| if held == 0 { own } else { held });
        if held == 0 {
            return 0;
        }
        match pi::lock(thread, self.0, until) {
            Ok(()) => 0,
            // The C library lets a thread wait for ever that has the mutex and did not ask for
            // another answer.
            Err(EDEADLK) if held as u32 & pi::OWNER == own as u32 => {
                thread.waits_for.set("a mutex that it owns");
                loop {
                    thread.leave(Wants::Wake(None));
                }
            }
            Err(failed) => failed,
        }
    }

    fn try_lock(self, thread: &Thread, pc: usize) -> c_int {
        let kind = self.kind(pc);
        match self.again(thread, pc, kind) {
            Some(0) => return 0,
            Some(_) => return EBUSY,
            None => {}
        }
        let taken = if kind & INHERITING == 0 { 1 } else { u128::from(thread.tid.get().cast_unsigned()) };
        if update_on_host(self.0, 4, pc, |held| if held == 0 { taken } else { held }) != 0 {
            return EBUSY;
        }
        self.taken(thread, pc, kind)
    }

    pub(crate) fn unlock(self, thread: &Thread, pc: usize) -> c_int {
        let kind = self.kind(pc);
        if matches!(kind & 3, RECURSIVE | ERROR_CHECKING) {
            if self.owner(pc) != thread.tid.get() {
                return EPERM;
            }
            if kind & 3 == RECURSIVE {
                let nesting = load_on_host(self.0 + 4, 4, pc);
                store_on_host(self.0 + 4, 4, nesting - 1, pc);
                if nesting > 1 {
                    return 0;
                }
            }
        }
        self.set_owner(0, -1, pc);
        if kind & INHERITING == 0 {
            unlock_word(self.0, pc);
            return 0;
        }
        let own = u128::from(thread.tid.get().cast_unsigned());
        if update_on_host(self.0, 4, pc, |held| if held == own { 0 } else { held }) == own {
            return 0;
        }
        pi::unlock(thread, self.0, pc).err().unwrap_or(0)
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_lock(mutex: usize, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_lock(usize) -> c_int)(mutex), |thread| Mutex(mutex).lock(thread, None, pc))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hitm_mutex_timedlock(mutex: usize, until: *const timespec, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_timedlock(usize, *const timespec) -> c_int)(mutex, until), |thread| {
        Mutex(mutex).lock(thread, clock::deadline(until), pc)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hitm_mutex_clocklock(mutex: usize, clock: c_int, until: *const timespec, pc: usize) -> c_int {
    call!(native!(fn pthread_mutex_clocklock(usize, c_int, *const timespec) -> c_int)(mutex, clock, until), |thread| {
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
