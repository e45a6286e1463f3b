//! Giving an id back when its thread ends, as late as can be: others' destructors may still ask for
//! it.
//!
//! On Unix this is a key of the C library's thread-specific data. Its destructors run after those
//! of Rust's thread-local variables (glibc), or among them (musl, where Rust's are a key too), in
//! rounds: a destructor that sets its key again is called in the next round, of which there are
//! four (`PTHREAD_DESTRUCTOR_ITERATIONS`). Ours asks for two more rounds before it gives the id
//! back: not three, since the first round may be over when the key is first set.
//!
//! Elsewhere it is a thread-local variable of our own, whose destructor may run before others'.

#[cfg(unix)]
pub(crate) use unix::arrange;

#[cfg(not(unix))]
pub(crate) use elsewhere::arrange;

#[cfg(unix)]
mod unix {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::own;

    /// The round in which the id goes back, counted from the one in which the destructor is first
    /// called.
    const LAST_ROUND: usize = 3;

    /// The key plus one, so that zero is none. Made by the first thread that needs it; no thread
    /// waits for it.
    static KEY: AtomicUsize = AtomicUsize::new(0);

    /// Has this thread's id given back when it ends. Where the C library has no key left, or no
    /// memory, it is never given back.
    pub(crate) fn arrange() {
        if let Some(key) = key() {
            set(key, 1);
        }
    }

    /// Sets the key's value to `round`, which is not zero, and says whether that worked.
    fn set(key: libc::pthread_key_t, round: usize) -> bool {
        // SAFETY: the key was made by `make` and is never deleted. The value is a number, which
        // no code dereferences.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance_mut::<c_void>(round)) == 0 }
    }

    fn key() -> Option<libc::pthread_key_t> {
        // Acquire: pairs with the Release in `make`, though the C library needs no more than the
        // number.
        match KEY.load(Ordering::Acquire) {
            0 => make(),
            made => libc::pthread_key_t::try_from(made - 1).ok(),
        }
    }

    fn make() -> Option<libc::pthread_key_t> {
        let mut fresh = 0;
        // SAFETY: `fresh` takes the key, and the destructor has the type that is asked for.
        if unsafe { libc::pthread_key_create(&raw mut fresh, Some(thread_ends)) } != 0 {
            return None;
        }
        // Release: publishes the key; Acquire on failure: uses another thread's.
        match KEY.compare_exchange(0, fresh as usize + 1, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                watch_forks();
                Some(fresh)
            }
            Err(other) => {
                // SAFETY: made above and never set.
                unsafe { libc::pthread_key_delete(fresh) };
                libc::pthread_key_t::try_from(other - 1).ok()
            }
        }
    }

    /// Has children begin with one id held. Where the C library has no memory for it, they begin
    /// with the parent's.
    fn watch_forks() {
        // Miri knows no forks.
        #[cfg(not(miri))]
        // SAFETY: the handler only changes atomic words and a thread-local variable, which a child
        // may do after a fork.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        }
    }

    #[cfg(not(miri))]
    unsafe extern "C" fn forked() {
        own::forked();
    }

    unsafe extern "C" fn thread_ends(round: *mut c_void) {
        // The C library has set the value to null before the call.
        let round = round.addr();
        let again = round < LAST_ROUND && key().is_some_and(|key| set(key, round + 1));
        if !again {
            own::give_back();
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use crate::own;

    struct GivesBack;

    impl Drop for GivesBack {
        fn drop(&mut self) {
            own::give_back();
        }
    }

    thread_local! {
        static AT_END: GivesBack = const { GivesBack };
    }

    /// Has this thread's id given back when it ends. A thread that is past that keeps its id for
    /// ever.
    pub(crate) fn arrange() {
        // An error says that the destructor has run already.
        let _ = AT_END.try_with(|_| ());
    }
}
