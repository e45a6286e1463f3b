//! Synchronisation between tasks, on both hosts.
//!
//! All primitives but [`PiMutex`] are built on [`Futex`]: a word in shared memory and a queue of
//! tasks. Tasks access the word in user mode. Waiting and waking are system calls, with the costs
//! of the `linux` cost set.
//!
//! | primitive | purpose |
//! |---|---|
//! | [`Futex`] | wait while a word has a value; wake up to `n` waiters |
//! | [`Mutex`] | one holder |
//! | [`PiMutex`] | one owner, which inherits the priority of its most urgent waiter |
//! | [`PiFutex`] | the kernel's side of a mutex with priority inheritance in a program's own memory |
//! | [`Condvar`] | wait for a change of data that a mutex protects |
//! | [`Queue`] | a bounded FIFO queue in which senders and receivers wait |
//! | [`Barrier`] | all tasks arrive before any of them goes on |

mod barrier;
mod condvar;
mod futex;
mod mutex;
pub(crate) mod pi_chain;
mod pi_futex;
pub(crate) mod pi_mutex;
mod pi_queue;
mod pi_word;
mod queue;

use hitm_memory::{Described, Field, Native};

/// Returns the objects of the primitives, each with its size and its fields.
pub(crate) fn layouts() -> [(&'static str, usize, Vec<Field>); 3] {
    fn of<T: Described>() -> (&'static str, usize, Vec<Field>) {
        (T::OBJECT, size_of::<T>(), T::fields())
    }
    [of::<futex::FutexWord<Native>>(), of::<futex::Bucket<Native>>(), of::<pi_word::PiWord<Native>>()]
}

pub use barrier::Barrier;
pub use condvar::Condvar;
pub use futex::Futex;
pub use mutex::{Mutex, MutexGuard};
pub use pi_futex::{PiFutex, PiFutexLock, PiRefused};
pub use pi_mutex::{PiLock, PiLockError, PiLook, PiMutex, PiMutexGuard, PiTryLockError};
pub use queue::{Queue, SendError};
