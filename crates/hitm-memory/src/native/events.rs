//! Events of the operating system, such as a socket that has data: idle workers wait for them.
//!
//! **Claim.** While a worker idles, an event is found at once. While all workers run tasks, an
//! event is found when a worker next takes interrupts, [`LOOK`] after the last look. While some
//! workers sleep and the others are inside long polls, an event is found [`GUARD`] late at most. No
//! worker wakes while there is nothing to do.
//!
//! **Roles.** One source per [`NativeWorkers`](crate::NativeWorkers). At most one worker waits in
//! the source: it *attends*. The other idle workers are parked. One of them may be the *guard*: it
//! is parked for [`GUARD`] at most.
//!
//! **Protocol.** An idle worker (1) claims the source, (2) waits there, (3) releases it. If it
//! leaves for work, (4) it sees to it that a guard exists: it unparks a parked worker if there is
//! no guard. An idle worker whose claim fails (5) shows that it is parked, (6) looks at the claim
//! once more, (7) parks: as the guard, if a worker has left the source within the last [`GUARD`]
//! and there is no guard; otherwise without end. A worker that is unparked begins at 1.
//!
//! So under a steady flow of events, the guard wakes once per [`GUARD`], and the worker that leaves
//! the source makes no system call.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | 3, fence SeqCst, 4 reads who is parked | 5, fence SeqCst, 6 | store buffering is forbidden: the leaver unparks the worker, or the worker sees the release |
//! | `waits` set, fence SeqCst, `pending` read, 2 | `pending` set, fence SeqCst, `waits` read | the worker does not wait, or the sender of the interrupt notifies the source |
//!
//! **Cost.** Without a source: a load per idle period. With one: a busy worker reads the clock at
//! each look for interrupts, and the claim's line once per [`LOOK`].

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long busy workers leave the source alone: a look is a system call of about a microsecond.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// How late an event is found while the worker that attended is inside a long poll.
pub(super) const GUARD: Duration = Duration::from_millis(1);

/// A source of events, such as a poller of sockets.
pub trait EventSource: Send + Sync {
    /// Waits for events, for `timeout` at most, or until [`notify`](Self::notify); without end for
    /// `None`. Keeps what came. Returns whether anything came. One thread at a time calls.
    fn wait(&self, timeout: Option<Duration>) -> bool;

    /// Ends the present wait, or else the next one.
    fn notify(&self);
}

/// The source of one set of workers and who attends it.
#[derive(Default)]
pub(super) struct Events {
    /// Written once. Every worker reads it whenever it looks for interrupts.
    source: OnceLock<Arc<dyn EventSource>>,
    claim: Claim,
}

/// Who attends the source. Workers write it each time that one of them looks at the source, so it
/// has two lines of its own (the prefetcher pulls pairs).
#[derive(Default)]
#[repr(align(128))]
struct Claim {
    /// Whether a worker waits in the source or looks at it.
    claimed: AtomicBool,
    /// When a worker last released it, in nanoseconds.
    released: AtomicU64,
    /// Until when a guard is parked, in nanoseconds.
    guarded: AtomicU64,
}

impl Events {
    /// Sets the source; returns false when there is one.
    pub(super) fn set(&self, source: Arc<dyn EventSource>) -> bool {
        self.source.set(source).is_ok()
    }

    pub(super) fn source(&self) -> Option<&Arc<dyn EventSource>> {
        self.source.get()
    }

    /// Claims the source, if it exists and no worker has it.
    pub(super) fn claim(&self) -> Option<&Arc<dyn EventSource>> {
        let source = self.source.get()?;
        // Relaxed: a hint that saves the swap. Acquire: pairs with the Release in `release`.
        (!self.claim.claimed.load(Ordering::Relaxed) && !self.claim.claimed.swap(true, Ordering::Acquire))
            .then_some(source)
    }

    /// Releases the source at `now`.
    pub(super) fn release(&self, now: u64) {
        // Relaxed: published by the store below.
        self.claim.released.store(now, Ordering::Relaxed);
        // Release: pairs with the Acquire in `claim`.
        self.claim.claimed.store(false, Ordering::Release);
    }

    pub(super) fn is_claimed(&self) -> bool {
        // Relaxed: the caller has fenced, or takes a hint.
        self.claim.claimed.load(Ordering::Relaxed)
    }

    /// Returns whether no worker has looked at the source for a while.
    pub(super) fn are_due(&self, now: u64) -> bool {
        // Relaxed: a hint; `claim` decides.
        !self.is_claimed() && now.saturating_sub(self.claim.released.load(Ordering::Relaxed)) >= LOOK.as_nanos() as u64
    }

    /// Returns whether a guard is parked at `now`.
    pub(super) fn has_guard(&self, now: u64) -> bool {
        // Relaxed: if two workers become guards, one of them wakes in vain.
        self.claim.guarded.load(Ordering::Relaxed) > now
    }

    /// Returns whether the caller is to be the guard, and if so notes it.
    pub(super) fn becomes_guard(&self, now: u64) -> bool {
        let guard = GUARD.as_nanos() as u64;
        // Relaxed: as in `has_guard`.
        let is_recent = now.saturating_sub(self.claim.released.load(Ordering::Relaxed)) < guard;
        let becomes = is_recent && !self.has_guard(now);
        if becomes {
            // Relaxed: as in `has_guard`.
            self.claim.guarded.store(now + guard, Ordering::Relaxed);
        }
        becomes
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("claimed", &self.claim.claimed).finish_non_exhaustive()
    }
}
