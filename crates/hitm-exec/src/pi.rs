//! Futexes with priority inheritance (`FUTEX_LOCK_PI`). The word is the program's, with the owner's
//! thread id; the kernel's side of each is a [`PiFutex`] of the runtime, so an owner is lent the
//! priority of its most urgent waiter, along chains of owners that wait, as under `hitm-sched`.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::rc::Rc;

use hitm::sync::{PiFutex, PiRefused};
use hitm_machine::Simulated;
use hitm_memory::{Memory, Time};
use libc::{EAGAIN, EDEADLK, EPERM, ETIMEDOUT};
use rustc_hash::FxHashMap;

use crate::access::load_on_host;
use crate::signals;
use crate::start::shared;
use crate::thread::{self, Thread, Wants};

/// The bits of the word that hold the owner: Linux's `FUTEX_TID_MASK`.
pub(crate) const OWNER: u32 = 0x3fff_ffff;

/// The kernel's side of each word that it has seen.
#[derive(Default)]
pub(crate) struct PiFutexes(RefCell<FxHashMap<usize, Rc<PiFutex<Simulated>>>>);

impl PiFutexes {
    fn of(&self, address: usize) -> Rc<PiFutex<Simulated>> {
        let known = self.0.borrow().get(&address).cloned();
        known.unwrap_or_else(|| {
            let word: NonNull<<Simulated as Memory>::Atomic<u32>> =
                NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("no program has a lock there");
            // SAFETY: the program says that a futex word is there; it is looked at in calls that
            // name it alone. A word of the machine is a standard atomic.
            let word = unsafe { word.as_ref() };
            let made = Rc::new(PiFutex::of_word(&shared().runtime, word));
            // Another CPU may have come first meanwhile.
            self.0.borrow_mut().entry(address).or_insert(made).clone()
        })
    }
}

/// Takes the mutex for the thread, in a system call; waits until then. On the machine's side.
///
/// # Errors
/// `EDEADLK`, or `ETIMEDOUT`.
pub(crate) fn lock(thread: &'static Thread, address: usize, until: Option<Time>) -> Result<(), c_int> {
    let futex = shared().pi_futexes.of(address);
    let result = Rc::new(Cell::new(Err(ETIMEDOUT)));
    let told = result.clone();
    let runtime = shared().runtime.clone();
    thread.waits_for.set("a mutex with priority inheritance");
    thread.leave(Wants::Future(Box::pin(async move {
        let ended = match until {
            None => Ok(futex.lock().await),
            Some(until) => {
                let patience = until.since(runtime.now());
                runtime.timeout(patience, futex.lock()).await
            }
        };
        told.set(match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(PiRefused::Deadlock | PiRefused::TooDeep)) => Err(EDEADLK),
            Err(_) => Err(ETIMEDOUT),
        });
    })));
    thread.waits_for.set("runs");
    signals::notice(thread);
    result.get()
}

/// Takes the mutex if it is free, in a system call.
///
/// # Errors
/// `EAGAIN` when it is owned.
pub(crate) fn try_lock(address: usize) -> Result<(), c_int> {
    if shared().pi_futexes.of(address).try_lock() { Ok(()) } else { Err(EAGAIN) }
}

/// Releases the mutex, in a system call.
///
/// # Errors
/// `EPERM` when the thread does not own it.
pub(crate) fn unlock(thread: &Thread, address: usize, pc: usize) -> Result<(), c_int> {
    if load_on_host(address, 4, pc) as u32 & OWNER != thread.tid.get().cast_unsigned() {
        return Err(EPERM);
    }
    shared().pi_futexes.of(address).unlock();
    thread::note_wake();
    Ok(())
}
