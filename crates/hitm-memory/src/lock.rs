//! Spin locks: a bare one of four bytes, and one around its data.
//!
//! **Claim.** Mutual exclusion in order of arrival, with one atomic read-modify-write to take and
//! one store to release, in four bytes, the size and very nearly the uncontended cost of the
//! kernel's raw spin lock. Use it for the few hundred nanoseconds of a scheduler's critical
//! section; a task that may wait for long blocks on the runtime's mutex instead.
//!
//! **Origin.** The ticket lock of Mellor-Crummey and Scott, "Algorithms for scalable
//! synchronization on shared-memory multiprocessors", 1991. The kernel's lock is fair too, by a
//! queue behind the word. A test-and-test-and-set lock is not fair: a CPU that releases it has its
//! cache line, and can take it again first. Linux 2.6.25 took ticket locks after one CPU had got
//! the lock a million times in a row (N. Piggin). On the simulated machine the others never get it.
//!
//! **State.** `next`: the ticket of who comes next; `served`: the ticket that holds the lock. Free
//! when they are equal. Each ticket from `served` up to `next`, without that one, belongs to one
//! thread. The thread with the last of them can give it back, and no other one can.
//!
//! **Memory ordering.**
//!
//! | release side | acquire side | publishes |
//! |---|---|---|
//! | `RawGuard::drop`, store Release of `served` | `RawSpinLock::lock` and `try_lock`, load Acquire of `served` | all that the holder wrote |
//!
//! **Cost.** Free: one read-modify-write, one load that hits, one store, one cache line. Contended:
//! one load miss a release for each waiter. Natively, who leaves the queue and comes back adds two
//! read-modify-writes.
//!
//! **Leaving the queue.** A thread that has waited for long gives its CPU up, and may get it back
//! after milliseconds. It must not be served meanwhile: all others would wait for a thread that
//! only waits itself. So it gives its ticket back first, and takes another one afterwards. It can
//! do so once it is the last of the queue. Those behind it have waited for long soon too, and leave
//! before it.
//!
//! **Limits.** Not reentrant. 65,535 waiters. A waiter spins, so a holder must not block. A thread
//! that the operating system takes off its CPU while it holds the lock, or while it spins in the
//! queue, keeps those behind it waiting, so threads should not be more than CPUs. A thread that
//! leaves may be passed by others, as often as it leaves.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::word::AtomicWord;

/// A spin lock of four bytes that protects whatever its owner says it does.
#[repr(C)]
pub struct RawSpinLock<M: Memory> {
    /// Written by who arrives.
    next: M::Atomic<u16>,
    /// Written by the holder, read by all waiters.
    served: M::Atomic<u16>,
}

/// Holds a [`RawSpinLock`]; releases it when dropped.
#[must_use = "the lock is released at once"]
pub struct RawGuard<'a, M: Memory> {
    lock: &'a RawSpinLock<M>,
    ticket: u16,
    site: M::Site,
}

impl<M: Memory> RawSpinLock<M> {
    /// A free lock.
    #[must_use]
    pub fn new() -> Self {
        Self { next: M::Atomic::new(0), served: M::Atomic::new(0) }
    }

    /// Takes the lock, spinning while other CPUs that came before hold it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> RawGuard<'_, M> {
        // Relaxed: a ticket gives an order and publishes nothing.
        let mut ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: what the last holder wrote is seen. Pairs with the Release in `RawGuard::drop`.
        if self.served.load(Ordering::Acquire) != ticket {
            ticket = self.wait(ticket);
        }
        RawGuard { lock: self, ticket, site: M::site() }
    }

    /// Waits until the thread is served, and returns the ticket that it then has; now it has
    /// `ticket`.
    #[track_caller]
    fn wait(&self, mut ticket: u16) -> u16 {
        loop {
            // Its loads are Acquire: as in `lock`.
            if M::spin_briefly(&self.served, |served| served != ticket).is_some() {
                return ticket;
            }
            // Relaxed: as in `lock`. It succeeds only while no thread is behind: the next one to
            // come gets this ticket. If the ticket is served meanwhile, the lock is free.
            let behind = ticket.wrapping_add(1);
            if self.next.compare_exchange(behind, ticket, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                M::give_way();
                // Relaxed: as in `lock`.
                ticket = self.next.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns how many CPUs wait for the lock: a hint.
    #[must_use]
    #[track_caller]
    pub fn waiters(&self) -> u16 {
        // Relaxed: a hint.
        let served = self.served.load(Ordering::Relaxed);
        // Relaxed: as above. The ticket that is served is the holder's.
        self.next.load(Ordering::Relaxed).wrapping_sub(served).saturating_sub(1)
    }

    /// Returns whether a CPU holds the lock: a hint.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn is_held(&self) -> bool {
        // Relaxed, both: a hint.
        self.next.load(Ordering::Relaxed) != self.served.load(Ordering::Relaxed)
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<RawGuard<'_, M>> {
        // Acquire: as in `lock`.
        let ticket = self.served.load(Ordering::Acquire);
        // Relaxed: as in `lock`. It succeeds only while the ticket that is served is the next one:
        // no CPU holds the lock.
        let after = ticket.wrapping_add(1);
        if self.next.compare_exchange(ticket, after, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        // Unless the thread was off its CPU in between, and 65,536 tickets have been handed out:
        // then it has a place in the queue. Acquire: as in `lock`.
        let ticket =
            if M::PREEMPTS && self.served.load(Ordering::Acquire) != ticket { self.wait(ticket) } else { ticket };
        Some(RawGuard { lock: self, ticket, site: M::site() })
    }
}

impl<M: Memory> Default for RawSpinLock<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Memory> Drop for RawGuard<'_, M> {
    #[inline]
    fn drop(&mut self) {
        // Release: publishes the critical section. Pairs with the Acquire in `RawSpinLock::lock`
        // and `try_lock`.
        M::at(self.site, || self.lock.served.store(self.ticket.wrapping_add(1), Ordering::Release));
    }
}

impl<M: Memory> fmt::Debug for RawSpinLock<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSpinLock").field("next", &self.next).field("served", &self.served).finish()
    }
}

impl<M: Memory> fmt::Debug for RawGuard<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawGuard").finish_non_exhaustive()
    }
}

/// Data behind a [`RawSpinLock`], for data of which no part is ever read without it.
///
/// What remote CPUs peek at must be [`PlainWord`](crate::PlainWord)s beside a raw lock instead:
/// this guard hands out `&mut T`.
///
/// The lock comes first: who describes an object gives it the offset of the whole.
#[derive(Default)]
#[repr(C)]
pub struct Lock<M: Memory, T> {
    raw: RawSpinLock<M>,
    value: UnsafeCell<T>,
}

/// Holds a [`Lock`].
#[must_use = "the lock is released at once"]
pub struct LockGuard<'a, M: Memory, T> {
    _raw: RawGuard<'a, M>,
    value: &'a UnsafeCell<T>,
}

impl<M: Memory, T> Lock<M, T> {
    /// A free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { raw: RawSpinLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, spinning while another CPU holds it.
    #[track_caller]
    pub fn lock(&self) -> LockGuard<'_, M, T> {
        LockGuard { _raw: self.raw.lock(), value: &self.value }
    }
}

// SAFETY: the lock hands the value to one thread at a time, which is all that `Send` asks for.
unsafe impl<M: Memory, T: Send> Sync for Lock<M, T> {}

impl<M: Memory, T> Deref for LockGuard<'_, M, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so no other reference to the value exists, but for
        // those borrowed from this guard.
        unsafe { &*self.value.get() }
    }
}

impl<M: Memory, T> DerefMut for LockGuard<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed mutably, so this is the only reference
        // to the value.
        unsafe { &mut *self.value.get() }
    }
}

// SAFETY: sharing the guard shares `&T` and nothing else.
unsafe impl<M: Memory, T: Sync> Sync for LockGuard<'_, M, T> {}

impl<M: Memory, T: fmt::Debug> fmt::Debug for Lock<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl<M: Memory, T: fmt::Debug> fmt::Debug for LockGuard<'_, M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
