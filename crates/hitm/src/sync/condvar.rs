//! A condition variable: tasks wait for a change of data that a mutex protects.
//!
//! **Protocol.** A waiter that holds the mutex (1) counts itself, (2) reads the sequence number,
//! (3) releases the mutex, (4) waits while the number is unchanged, and (5) takes the mutex again.
//! A notifier increments the number and wakes waiters. Without waiters it does neither, and makes
//! no system call. Wakeups may be spurious, so a waiter checks its condition again.
//!
//! **Cancellation.** A wait that is dropped in step 4 leaves the queue; a notification that had
//! chosen it passes to the next waiter. A wait that is dropped in step 5 was notified but has not
//! checked its condition, so it notifies another waiter in its place.
//!
//! **Limits.** A waiter misses notifications if exactly 2^32 of them occur between its steps 2 and
//! 4.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Platform};

use crate::runtime::Handle;
use crate::sync::{Futex, MutexGuard};

/// A condition variable.
///
/// ```
/// use std::sync::Arc;
/// # use hitm::{NativeRuntime, sync::{Condvar, Mutex}};
/// # let runtime = NativeRuntime::with_cpus(2).unwrap();
/// # runtime.run(|handle| async move {
/// let shared = Arc::new((Mutex::new(&handle, 0), Condvar::new(&handle)));
/// let other = shared.clone();
/// let adds = handle.spawn((), async move {
///     *other.0.lock().await += 1;
///     other.1.notify_one();
/// });
/// let mut count = shared.0.lock().await;
/// while *count == 0 {
///     count = shared.1.wait(count).await;
/// }
/// # drop(count);
/// # adds.await.unwrap();
/// # }).unwrap();
/// ```
pub struct Condvar<P: Platform> {
    /// Its word is the sequence number.
    futex: Futex<P>,
}

/// Counts a waiter out, also when its wait is dropped.
struct Counted<'a, P: Platform>(&'a Condvar<P>);

impl<P: Platform> Drop for Counted<'_, P> {
    fn drop(&mut self) {
        // Relaxed: the count is a hint for notifiers.
        self.0.futex.waiters().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiter that was notified but has not checked its condition. If it is dropped, it notifies
/// another waiter.
struct Notified<'a, P: Platform>(Option<&'a Condvar<P>>);

impl<P: Platform> Drop for Notified<'_, P> {
    fn drop(&mut self) {
        if let Some(condvar) = self.0 {
            condvar.notify_one();
        }
    }
}

impl<P: Platform> Condvar<P> {
    /// Makes a condition variable without waiters.
    #[must_use]
    pub fn new(runtime: &Handle<P>) -> Self {
        Self { futex: Futex::new(runtime, 0) }
    }

    /// Releases the mutex, waits for a notification, takes the mutex again and returns its guard.
    /// It may also return without a notification.
    ///
    /// # Cancel safety
    /// A dropped wait passes its notification to another waiter. The mutex is then not held.
    pub async fn wait<'a, T>(&self, guard: MutexGuard<'a, P, T>) -> MutexGuard<'a, P, T> {
        let mutex = guard.mutex();
        // Relaxed: the mutex orders this before the change that the waiter waits for.
        self.futex.waiters().fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self);
        // Relaxed: read before the mutex is released, so before any notification that this waiter
        // needs.
        let sequence = self.futex.word().load(Ordering::Relaxed);
        drop(guard);
        self.futex.wait(sequence).await;
        drop(counted);
        let mut notified = Notified(Some(self));
        let guard = mutex.lock().await;
        notified.0 = None;
        guard
    }

    /// Wakes one waiter. Call this with the mutex held, or after releasing it.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, count: usize) {
        // Relaxed: a waiter for a change made under the mutex was counted before it released the
        // mutex.
        if self.futex.waiters().load(Ordering::Relaxed) == 0 {
            return;
        }
        // Release: the waiter's load of the number under the queue's lock follows this. The mutex
        // publishes the change.
        self.futex.word().fetch_add(1, Ordering::Release);
        self.futex.wake(count);
    }
}

impl<P: Platform> fmt::Debug for Condvar<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("futex", &self.futex).finish()
    }
}
