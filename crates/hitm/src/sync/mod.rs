//! Synchronisation between tasks, on both hosts.
//!
//! All of it but [`PiMutex`] is built on one primitive, the [`Futex`]: a word in shared memory and a queue of tasks. The word is the
//! task's own business (user time); waiting and waking are system calls under the `linux` cost set.
//!
//! | | |
//! |---|---|
//! | [`Futex`] | wait while a word has a value; wake so many |
//! | [`Mutex`] | one holder |
//! | [`PiMutex`] | one owner, as urgent as the most urgent that waits |
//! | [`Condvar`] | wait for a change of what a mutex protects |
//! | [`Queue`] | a bounded first-in first-out, senders and receivers wait |
//! | [`Barrier`] | all arrive before any goes on |

mod barrier;
mod condvar;
mod futex;
mod mutex;
pub(crate) mod pi_chain;
pub(crate) mod pi_mutex;
mod pi_queue;
mod pi_word;
mod queue;

pub use barrier::Barrier;
pub use condvar::Condvar;
pub use futex::Futex;
pub use mutex::{Mutex, MutexGuard};
pub use pi_mutex::{PiLock, PiLockError, PiLook, PiMutex, PiMutexGuard, PiTryLockError};
pub use queue::{Closed, Queue};
