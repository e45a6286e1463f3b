//! Events of the operating system, such as a socket that has data: idle workers wait for them.
//!
//! **Claim.** While a worker waits in the source, an event is found at once. While all workers run
//! tasks, each of them checks every [`LOOK`] when a worker last looked at the source. It looks
//! itself if that was [`BETWEEN_LOOKS`] ago, divided by the number of workers, but at least
//! [`BETWEEN_LOOKS_MIN`] and at most [`LOOK`]. For [`RARE_LOOKS`] after a look that took longer
//! than [`HELD_UP`], it is [`LOOK`]. While some workers sleep and the others are inside long polls,
//! an event is found [`GUARD`] late at most. No worker wakes while there is nothing to do.
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
//! each look for interrupts, and the claim's line once per [`LOOK`]. All looks together take a
//! hundredth of the workers' time at most (a fiftieth with one worker).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often a busy worker sees whether the source is due for a look.
pub(super) const LOOK: Duration = Duration::from_micros(50);

/// How long all busy workers leave the source alone, times their number. A look is a system call of
/// about a microsecond, so the looks take a hundredth of the workers' time at most. One worker
/// leaves the source alone for [`LOOK`], as two do.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// The least of that time. While a worker looks, no other one can. So all events wait if the
/// operating system gives that worker's CPU to another thread. Ours: a worker looks for a tenth of
/// the time then.
const BETWEEN_LOOKS_MIN: Duration = Duration::from_micros(10);

/// If a look takes longer, another thread most often had the CPU.
const HELD_UP: Duration = Duration::from_micros(200);

/// How long the workers then look once per [`LOOK`] only: other threads use their CPUs, and may do
/// so again. Frequent looks begin again once no look was held up for so long.
const RARE_LOOKS: Duration = Duration::from_millis(100);

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
pub(super) struct Events {
    /// Written once. Every worker reads it whenever it looks for interrupts.
    source: OnceLock<Arc<dyn EventSource>>,
    /// How long all busy workers leave the source alone, in nanoseconds. Never written.
    between_looks: u64,
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
    /// Until when the workers look once per [`LOOK`], in nanoseconds.
    rare_until: AtomicU64,
}

impl Events {
    /// Creates what `workers` workers share: no source yet.
    pub(super) fn new(workers: usize) -> Self {
        let between = (BETWEEN_LOOKS / workers.max(1) as u32).clamp(BETWEEN_LOOKS_MIN, LOOK);
        Self { source: OnceLock::new(), between_looks: between.as_nanos() as u64, claim: Claim::default() }
    }

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

    /// Releases the source at `now` after a look that began at `begin`.
    pub(super) fn release_after_look(&self, begin: u64, now: u64) {
        if now.saturating_sub(begin) > HELD_UP.as_nanos() as u64 {
            // Relaxed: whoever sees an old value looks sooner.
            self.claim.rare_until.store(now + RARE_LOOKS.as_nanos() as u64, Ordering::Relaxed);
        }
        self.release(now);
    }

    /// Returns whether no worker has looked at the source for a while.
    pub(super) fn are_due(&self, now: u64) -> bool {
        // Relaxed: a hint; `claim` decides.
        if self.is_claimed() {
            return false;
        }
        // Relaxed: as in `release_after_look`.
        let are_rare = now < self.claim.rare_until.load(Ordering::Relaxed);
        let between = if are_rare { LOOK.as_nanos() as u64 } else { self.between_looks };
        // Relaxed: a hint, as above.
        now.saturating_sub(self.claim.released.load(Ordering::Relaxed)) >= between
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long after a release at `now` the source is due again, in whole microseconds.
    fn due_after(events: &Events, now: u64) -> u64 {
        (0..).find(|micros| events.are_due(now + micros * 1_000)).expect("it is due at last")
    }

    #[test]
    fn many_workers_look_more_often_than_few() {
        let between = |workers| {
            let events = Events::new(workers);
            events.release(1_000);
            due_after(&events, 1_000)
        };
        assert_eq!([1, 2, 4, 8, 10, 480].map(between), [50, 50, 25, 13, 10, 10]);
    }

    #[test]
    fn looks_are_rare_for_a_while_after_one_that_was_held_up() {
        let events = Events::new(480);
        events.release_after_look(0, 150_000);
        assert_eq!(due_after(&events, 150_000), 10);
        let (begin, held_up) = (1_000_000, 1_300_000);
        events.release_after_look(begin, held_up);
        assert_eq!(due_after(&events, held_up), 50);
        let later = held_up + RARE_LOOKS.as_nanos() as u64;
        events.release_after_look(later, later + 1_000);
        assert_eq!(due_after(&events, later + 1_000), 10);
    }
}
