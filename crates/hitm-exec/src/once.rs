//! What is done once, and what is done at a thread's end: `pthread_once`, keys of thread-specific
//! data with their destructors, and destructors of C++ thread-local objects.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use hitm_machine::program;

use crate::access::{enter_call, load_on_host, store_on_host, update_on_host};
use crate::futex;
use crate::native::native;
use crate::start::shared;
use crate::thread::{self, Thread};
use crate::tls::on_host;

/// States of the word of `pthread_once`: as in glibc's `pthread_once.c`, without its generations,
/// which are for `fork`.
const NEVER: u128 = 0;
const UNDER_WAY: u128 = 1;
const DONE: u128 = 2;

/// The word of a function that runs.
struct UnderWay {
    thread: &'static Thread,
    word: usize,
    pc: usize,
    /// Whether the function has returned.
    is_done: bool,
}

/// A function that throws, or ends its thread, was not done: the next call runs it.
impl Drop for UnderWay {
    fn drop(&mut self) {
        on_host(|| {
            enter_call(self.thread);
            store_on_host(self.word, 4, if self.is_done { DONE } else { NEVER }, self.pc);
            // Whoever waits must find the word's new state.
            program::fence();
            futex::wake(self.word, usize::MAX);
        });
    }
}

/// `pthread_once`, and `call_once` of C11, which returns nothing.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn hitm_once(word: usize, initialise: extern "C-unwind" fn(), pc: usize) -> c_int {
    let Some(thread) = thread::current() else {
        let native = native!(unwinding fn pthread_once(usize, extern "C-unwind" fn()) -> c_int);
        // SAFETY: the program's own call: its duty.
        return unsafe { native(word, initialise) };
    };
    let is_first = on_host(|| {
        enter_call(thread);
        loop {
            match load_on_host(word, 4, pc) {
                DONE => return false,
                UNDER_WAY => {
                    futex::wait(thread, word, UNDER_WAY as u32, None, pc, "what another thread does once");
                }
                _ if update_on_host(word, 4, pc, |state| if state == NEVER { UNDER_WAY } else { state }) == NEVER => {
                    return true;
                }
                _ => {}
            }
        }
    });
    if is_first {
        let mut under_way = UnderWay { thread, word, pc, is_done: false };
        initialise();
        under_way.is_done = true;
    }
    0
}

type Destructor = extern "C" fn(*mut c_void);

/// The keys that have a destructor.
#[derive(Default)]
pub(crate) struct Keys(RefCell<Vec<(c_uint, Destructor)>>);

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_create(key: *mut c_uint, destructor: Option<Destructor>) -> c_int {
    let create = native!(fn pthread_key_create(*mut c_uint, Option<Destructor>) -> c_int);
    // SAFETY: the program's own call: its duty. A thread of the host that ends calls the
    // destructor; those that lend their storage never do.
    let failed = unsafe { create(key, destructor) };
    if failed == 0
        && thread::current().is_some()
        && let Some(destructor) = destructor
    {
        // SAFETY: the call has set it.
        let key = unsafe { *key };
        on_host(|| shared().keys.0.borrow_mut().push((key, destructor)));
    }
    failed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_delete(key: c_uint) -> c_int {
    if thread::current().is_some() {
        on_host(|| shared().keys.0.borrow_mut().retain(|&(known, _)| known != key));
    }
    // SAFETY: the program's own call: its duty.
    unsafe { native!(fn pthread_key_delete(c_uint) -> c_int)(key) }
}

/// Rounds of destructors that set values again: `PTHREAD_DESTRUCTOR_ITERATIONS`.
const ROUNDS: usize = 4;

/// Ends the calling thread's thread-local objects and thread-specific data. On the program's side.
pub(crate) fn end_thread() {
    if let Some(thread) = thread::current() {
        thread.cancel.end();
    }
    // What the C library calls for `thread_local` objects of C++; it is not in its headers.
    // SAFETY: both are C strings.
    let destroy = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, c"__call_tls_dtors".as_ptr(), c"GLIBC_PRIVATE".as_ptr()) };
    if !destroy.is_null() {
        // SAFETY: the C library's function of this name has this type.
        let destroy: extern "C" fn() = unsafe { std::mem::transmute(destroy) };
        destroy();
    }
    for _ in 0..ROUNDS {
        let keys = on_host(|| shared().keys.0.borrow().clone());
        let mut is_done = true;
        for (key, destructor) in keys {
            // SAFETY: the key is the program's.
            let value = unsafe { libc::pthread_getspecific(key) };
            if !value.is_null() {
                is_done = false;
                // SAFETY: as above.
                unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
                destructor(value);
            }
        }
        if is_done {
            return;
        }
    }
}
