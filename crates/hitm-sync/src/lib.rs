//! The standard library's [`sync`], [`thread`] and [`hint`], for programs that a simulated machine
//! runs: see the README.
//!
//! Without `--cfg hitm_stable` everything here is the standard library's. With it, atomics call the
//! machine's runtime library before each access, as the thread sanitizer's instrumentation would,
//! and locks are those of POSIX threads, which that library takes over.

/// The standard library's `thread`. It starts threads through the C library, so the machine runs
/// them.
pub use std::thread;

#[cfg(hitm_stable)]
mod atomic;
#[cfg(hitm_stable)]
mod barrier;
#[cfg(hitm_stable)]
mod condvar;
#[cfg(hitm_stable)]
mod mutex;
#[cfg(hitm_stable)]
mod rwlock;

/// The standard library's `sync`.
#[cfg(not(hitm_stable))]
pub use std::sync;

/// The standard library's `sync`, with atomics and locks that the machine sees.
#[cfg(hitm_stable)]
pub mod sync {
    pub use std::sync::{
        Arc, LazyLock, LockResult, Once, OnceLock, OnceState, PoisonError, TryLockError, TryLockResult, Weak, mpsc,
    };

    pub use crate::barrier::{Barrier, BarrierWaitResult};
    pub use crate::condvar::{Condvar, WaitTimeoutResult};
    pub use crate::mutex::{Mutex, MutexGuard};
    pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// The standard library's `atomic`.
    pub mod atomic {
        pub use std::sync::atomic::{Ordering, compiler_fence};

        pub use crate::atomic::{
            AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16,
            AtomicU32, AtomicU64, AtomicUsize, fence,
        };
    }
}

/// The standard library's `hint`.
#[cfg(not(hitm_stable))]
pub use std::hint;

/// The standard library's `hint`.
#[cfg(hitm_stable)]
pub mod hint {
    pub use std::hint::*;

    unsafe extern "C" {
        /// The mark of a basic block. It changes nothing that a program could see.
        safe fn __sanitizer_cov_trace_pc();
    }

    /// Says that the caller is in a loop that waits. A thread whose loop has changed nothing waits
    /// for the word instead of spinning.
    #[inline(always)]
    pub fn spin_loop() {
        __sanitizer_cov_trace_pc();
    }
}

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
