//! Spin locks behind one trait, and the probe that contends for one.
//!
//! | kind | how a waiter waits | lines per acquisition | order |
//! |---|---|---|---|
//! | [`TestAndSet`] | tries again | the lock's | any |
//! | [`TestAndSet`], test first | reads, and tries when the lock is free | the lock's | any |
//! | [`Ticket`] | reads the served ticket | the lock's | of arrival |
//! | [`Ticket`], back-off | as above, with a pause by place in the queue | the lock's | of arrival |
//! | [`Mcs`] | on a word of its own | the lock's, its own, its successor's | of arrival |
//! | [`Queued`] | the first waiter on the lock, all others on words of their own | as Mcs | of arrival among waiters |
//!
//! The scheduler's own lock is [`RawSpinLock`](hitm_memory::RawSpinLock), a ticket lock. The locks
//! here are for comparison.

mod mcs;
mod queued;
mod test_and_set;
mod ticket;
mod waiters;

use hitm_memory::{Memory, Placed, PlainWord, Platform, Span, described};
use hitm_topology::{CpuId, Topology};

pub use mcs::Mcs;
pub use queued::Queued;
pub use test_and_set::TestAndSet;
pub use ticket::Ticket;

use super::timing::{Budget, Timer};
use super::{Measured, Probe};

/// A spin lock that knows each participant by a number.
pub trait SpinLock: Send + Sync {
    /// Takes the lock, spinning while another participant holds it. `back_off(n)` pauses for `n`
    /// turns, in kinds that pause.
    fn acquire(&self, participant: usize, back_off: &dyn Fn(u32));

    /// Releases the lock, which the participant holds.
    fn release(&self, participant: usize);
}

/// The kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// [`TestAndSet`] that tries again at once.
    TestAndSet,
    /// [`TestAndSet`] that reads until the lock is free.
    TestAndTestAndSet,
    /// [`Ticket`] that reads until it is served.
    Ticket,
    /// [`Ticket`] that pauses in proportion to the number of waiters before it.
    TicketBackOff,
    /// [`Mcs`].
    Mcs,
    /// [`Queued`].
    Queued,
}

impl LockKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::TestAndSet, Self::TestAndTestAndSet, Self::Ticket, Self::TicketBackOff, Self::Mcs, Self::Queued];

    /// Makes a free lock for participants on `cpus`; participant `i` runs on `cpus[i]`.
    #[must_use]
    pub fn make<M: Memory>(self, topology: &Topology, cpus: &[CpuId]) -> Box<dyn SpinLock> {
        match self {
            Self::TestAndSet => Box::new(TestAndSet::<M>::new(false)),
            Self::TestAndTestAndSet => Box::new(TestAndSet::<M>::new(true)),
            Self::Ticket => Box::new(Ticket::<M>::new(false)),
            Self::TicketBackOff => Box::new(Ticket::<M>::new(true)),
            Self::Mcs => Box::new(Mcs::<M>::new(topology, cpus)),
            Self::Queued => Box::new(Queued::<M>::new(topology, cpus)),
        }
    }

    /// Returns whether waiters pause by themselves, for turns of a given length.
    #[must_use]
    pub fn backs_off(self) -> bool {
        matches!(self, Self::TestAndSet | Self::TicketBackOff)
    }
}

described! {
    /// The data that the lock protects: one further line.
    struct Protected<M: Memory> as "probe_protected" {
        /// The sections so far.
        sections: M::Plain<u64>,
    }
}

/// A probe in which every participant takes one lock, reads and writes one further line, and
/// releases the lock.
pub struct Locks<P: Platform> {
    lock: Box<dyn SpinLock>,
    protected: Placed<P, Protected<P>>,
    timer: Timer<P>,
    turn: Span,
}

impl<P: Platform> Locks<P> {
    /// Makes a probe in which participants on `cpus` contend for `budget.time`. Kinds that [back
    /// off](LockKind::backs_off) pause in turns of `turn`; with a zero `turn` they try again at
    /// once.
    #[must_use]
    pub fn new(topology: &Topology, kind: LockKind, cpus: &[CpuId], turn: Span, budget: Budget) -> Self {
        Self {
            lock: kind.make::<P>(topology, cpus),
            protected: Placed::new(Protected { sections: P::Plain::new(0) }, None, None),
            timer: Timer::new(budget),
            turn,
        }
    }

    /// Returns the sections so far: the sum of the participants' operations, including those before
    /// the timed ones.
    #[must_use]
    pub fn sections(&self) -> u64 {
        self.protected.sections.peek()
    }

    fn back_off(&self, turns: u32) {
        if self.turn.is_zero() {
            std::hint::spin_loop();
        } else {
            P::delay(self.turn * u64::from(turns));
        }
    }
}

impl<P: Platform> Probe<P> for Locks<P> {
    /// Runs a participant. Operations are sections.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        self.timer.repeat(|| {
            self.lock.acquire(index, &|turns| self.back_off(turns));
            self.protected.sections.set(self.protected.sections.get() + 1);
            self.lock.release(index);
        })
    }
}
