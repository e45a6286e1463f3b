//! The condition variable of POSIX threads, as the standard library's.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::{LockResult, PoisonError};
use std::time::{Duration, Instant};

use crate::mutex::MutexGuard;

/// The standard library's, which the machine sees.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: the functions of POSIX threads may be called from all threads.
unsafe impl Send for Condvar {}
// SAFETY: as above.
unsafe impl Sync for Condvar {}

/// Whether a wait ended because its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// See the standard library's.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Makes one.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When the mutex is poisoned.
    #[inline(always)]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        // SAFETY: the calling thread has the mutex, and has it again afterwards.
        unsafe { libc::pthread_cond_wait(self.0.get(), guard.lock().raw()) };
        guard.again()
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When the mutex is poisoned.
    #[inline(always)]
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When the mutex is poisoned.
    #[inline(always)]
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let until = after(timeout);
        // SAFETY: as in `wait`.
        let status = unsafe { libc::pthread_cond_timedwait(self.0.get(), guard.lock().raw(), &raw const until) };
        let result = WaitTimeoutResult(status == libc::ETIMEDOUT);
        match guard.again() {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
        }
    }

    /// See the standard library's.
    ///
    /// # Errors
    /// When the mutex is poisoned.
    #[inline(always)]
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let start = Instant::now();
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
    }

    /// See the standard library's.
    #[inline(always)]
    pub fn notify_one(&self) {
        // SAFETY: a condition variable that its constant has initialised.
        unsafe { libc::pthread_cond_signal(self.0.get()) };
    }

    /// See the standard library's.
    #[inline(always)]
    pub fn notify_all(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_cond_broadcast(self.0.get()) };
    }
}

/// The time `timeout` from now, on the clock of a condition variable.
fn after(timeout: Duration) -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills it in.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr()) };
    // SAFETY: it is filled in: that clock exists everywhere.
    let now = unsafe { now.assume_init() };
    let nanos = now.tv_nsec + i64::from(timeout.subsec_nanos());
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    let seconds = now.tv_sec.saturating_add(seconds).saturating_add(nanos / 1_000_000_000);
    libc::timespec { tv_sec: seconds, tv_nsec: nanos % 1_000_000_000 }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
