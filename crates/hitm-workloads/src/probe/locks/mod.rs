//! Spin locks through one trait, and the probe that contends for one.
//!
//! | kind | waits | lines an acquisition touches | order |
//! |---|---|---|---|
//! | [`TestAndSet`] | by trying again | the lock's | any |
//! | [`TestAndSet`], test first | reading, tries when it is free | the lock's | any |
//! | [`Ticket`] | reading who is served | the lock's | of arrival |
//! | [`Ticket`], back-off | as above, with a pause by place in the queue | the lock's | of arrival |
//! | [`Mcs`] | on a word of its own | the lock's, its own, its successor's | of arrival |
//! | [`Queued`] | first waiter on the lock, all others on words of their own | as Mcs | of arrival, once it waits |
//!
//! The scheduler's own lock is [`RawSpinLock`](hitm_memory::RawSpinLock), a ticket lock; these are here to be compared.

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

use super::timing::{Course, Effort};
use super::{Measured, Probe};

/// A lock of which each participant is known by a number.
pub trait SpinLock: Send + Sync {
    /// Takes the lock, spinning while another holds it. `back_off(n)` pauses for `n` turns, where the kind pauses.
    fn acquire(&self, participant: usize, back_off: &dyn Fn(u32));

    /// Lets it go; the participant holds it.
    fn release(&self, participant: usize);
}

/// Which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// [`TestAndSet`] that tries again at once.
    TestAndSet,
    /// [`TestAndSet`] that reads until the lock is free.
    TestAndTestAndSet,
    /// [`Ticket`] that reads until it is served.
    Ticket,
    /// [`Ticket`] that pauses in proportion to those before it.
    TicketBackOff,
    /// [`Mcs`].
    Mcs,
    /// [`Queued`].
    Queued,
}

impl LockKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::TestAndSet, Self::TestAndTestAndSet, Self::Ticket, Self::TicketBackOff, Self::Mcs, Self::Queued];

    /// A free lock for those who run on `cpus`; participant `i` on `cpus[i]`.
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

    /// Whether waiters pause by themselves, for turns of a given length.
    #[must_use]
    pub fn backs_off(self) -> bool {
        matches!(self, Self::TestAndSet | Self::TicketBackOff)
    }
}

described! {
    /// What the lock protects: one further line.
    struct Protected<M: Memory> as "probe_protected" {
        /// Sections so far.
        sections: M::Plain<u64>,
    }
}

/// Every participant takes one lock, reads and writes one further line, and lets it go.
pub struct Locks<P: Platform> {
    lock: Box<dyn SpinLock>,
    protected: Placed<P, Protected<P>>,
    course: Course<P>,
    turn: Span,
}

impl<P: Platform> Locks<P> {
    /// Those on `cpus` contend for `effort.time`. Kinds that [back off](LockKind::backs_off) do it in turns of `turn`; with no
    /// time at all they try again at once.
    #[must_use]
    pub fn new(topology: &Topology, kind: LockKind, cpus: &[CpuId], turn: Span, effort: Effort) -> Self {
        Self {
            lock: kind.make::<P>(topology, cpus),
            protected: Placed::new(Protected { sections: P::Plain::new(0) }, None, None),
            course: Course::new(effort),
            turn,
        }
    }

    /// Sections so far: as many as the participants together report, those before the timed ones included.
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
    /// Operations are sections.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        self.course.repeat(|| {
            self.lock.acquire(index, &|turns| self.back_off(turns));
            self.protected.sections.set(self.protected.sections.get() + 1);
            self.lock.release(index);
        })
    }
}
