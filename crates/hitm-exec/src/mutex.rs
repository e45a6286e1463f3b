//! Mutexes of POSIX threads: normal, recursive and error-checking ones, with and without priority
//! inheritance, in the program's own objects. A robust one tells the next owner that its owner
//! ended, as the C library's does: the word of the owner says so until the mutex is made
//! consistent.

use std::ffi::c_int;

use hitm_memory::Time;
use libc::{EBUSY, EDEADLK, EINVAL, ENOTRECOVERABLE, EOWNERDEAD, EPERM, ETIMEDOUT, timespec};

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
    // Where others wait the C library does not write the word first (glibc 2.36, `lowlevellock.c`).
    let mut others_wait = until.is_none() && load_on_host(word, 4, pc) == 2;
    while std::mem::take(&mut others_wait) || update_on_host(word, 4, pc, |_| 2) != 0 {
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
/// Robust mutexes.
const ROBUST: u128 = 0x10;
/// Priority-protected mutexes.
const PROTECTED: u128 = 0x40;

/// What stands for the owner of a robust mutex whose owner ended, and of one that was released
/// without being made consistent: the C library's numbers.
const INCONSISTENT: i32 = i32::MAX;
const NOT_RECOVERABLE: i32 = i32::MAX - 1;

impl Mutex {
    fn kind(self, pc: usize) -> u128 {
        let kind = load_on_host(self.0 + 16, 4, pc) & 0x7f;
        if kind & PROTECTED != 0 || kind & (ROBUST | INHERITING) == ROBUST | INHERITING {
            refuse_call(
                "pthread_mutex_lock",
                "a mutex that is priority-protected, or both robust and inheriting, is not simulated",
                "make the mutex without PTHREAD_PRIO_PROTECT, or without pthread_mutexattr_setrobust",
            );
        }
        kind & (3 | INHERITING | ROBUST)
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
        let owner = if kind & ROBUST == 0 { 0 } else { self.owner(pc) };
        if owner == NOT_RECOVERABLE {
            unlock_word(self.0, pc);
            return ENOTRECOVERABLE;
        }
        if kind & 3 == RECURSIVE {
            store_on_host(self.0 + 4, 4, 1, pc);
        }
        let is_consistent = owner != INCONSISTENT;
        self.set_owner(if is_consistent { thread.tid.get() } else { INCONSISTENT }, 1, pc);
        if kind & ROBUST != 0 {
            thread.robust.borrow_mut().push(self.0);
        }
        if is_consistent { 0 } else { EOWNERDEAD }
    }

    /// The thread ends and has this robust mutex.
    fn owner_ends(self, pc: usize) {
        self.set_owner(INCONSISTENT, -1, pc);
        unlock_word(self.0, pc);
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
        let mut next = 0;
        if kind & ROBUST != 0 {
            let mut robust = thread.robust.borrow_mut();
            let Some(place) = robust.iter().position(|&held| held == self.0) else { return EPERM };
            robust.swap_remove(place);
            drop(robust);
            if self.owner(pc) == INCONSISTENT {
                next = NOT_RECOVERABLE;
            }
        }
        self.set_owner(next, -1, pc);
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

/// A thread ends: its robust mutexes tell their next owners. On the machine's side.
pub(crate) fn end_thread(thread: &Thread) {
    let here = end_thread as *const () as usize;
    for held in thread.robust.take() {
        Mutex(held).owner_ends(here);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_consistent(mutex: usize) -> c_int {
    call!(native!(fn pthread_mutex_consistent(usize) -> c_int)(mutex), |thread| {
        let (mutex, here) = (Mutex(mutex), pthread_mutex_consistent as *const () as usize);
        if mutex.kind(here) & ROBUST == 0 || mutex.owner(here) != INCONSISTENT {
            return EINVAL;
        }
        mutex.set_owner(thread.tid.get(), 0, here);
        0
    })
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
