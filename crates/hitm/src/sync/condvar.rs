//! A condition variable: wait for a change of what a mutex protects.
//!
//! **Protocol.** A waiter, holding the mutex: (1) counts itself; (2) reads the sequence number; (3) releases the mutex; (4)
//! waits while the number is unchanged; (5) takes the mutex again. A notifier changes the number and wakes; without
//! waiters it does neither, and makes no call.
//! Wakeups may be spurious: look again at what was waited for.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Platform};

use crate::runtime::Handle;
use crate::sync::{Futex, MutexGuard};

/// A condition variable.
pub struct Condvar<P: Platform> {
    /// The word is the sequence number.
    futex: Futex<P>,
}

impl<P: Platform> Condvar<P> {
    /// One that nobody waits on.
    #[must_use]
    pub fn new(runtime: &Handle<P>) -> Self {
        Self { futex: Futex::new(runtime, 0) }
    }

    /// Releases the mutex, waits to be notified, and takes the mutex again.
    pub async fn wait<'a, T>(&self, guard: MutexGuard<'a, P, T>) -> MutexGuard<'a, P, T> {
        /// Counts the waiter out, also when the wait is dropped.
        struct Counted<'a, P: Platform>(&'a Futex<P>);
        impl<P: Platform> Drop for Counted<'_, P> {
            fn drop(&mut self) {
                // Relaxed: a hint for notifiers.
                self.0.waiters().fetch_sub(1, Ordering::Relaxed);
            }
        }
        let mutex = guard.mutex();
        // Relaxed: the mutex orders it before the change that is waited for.
        self.futex.waiters().fetch_add(1, Ordering::Relaxed);
        let counted = Counted(&self.futex);
        // Relaxed: read before the mutex is released, so before any notification that counts.
        let sequence = self.futex.word().load(Ordering::Relaxed);
        drop(guard);
        self.futex.wait(sequence).await;
        drop(counted);
        mutex.lock().await
    }

    /// Wakes one waiter. Call it with the mutex held, or after it was.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, count: usize) {
        // Relaxed: who waits for a change made under the mutex was counted before the mutex was released.
        if self.futex.waiters().load(Ordering::Relaxed) == 0 {
            return;
        }
        // Release: the waiter's look at the number under the queue's lock follows this. The mutex publishes the change.
        self.futex.word().fetch_add(1, Ordering::Release);
        self.futex.wake(count);
    }
}

impl<P: Platform> fmt::Debug for Condvar<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("futex", &self.futex).finish()
    }
}
