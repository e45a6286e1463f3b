//! One access to a line in a known state: what it costs, by the state and by who has the line.
//!
//! The loop of David, Guerraoui and Trigonakis, "Everything you always wanted to know about synchronization but were afraid to
//! ask", 2013: the line is brought into its state by others, then one CPU accesses it once and times that. Every round has a
//! line of its own, so that a line that was only read is exclusive to its reader.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::{CpuId, NodeId};

use super::{Measured, Probe};

/// In which state the line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    /// Participant 1 has written it.
    Modified,
    /// Participant 1 has read it, nobody else.
    Exclusive,
    /// Participants 1 and beyond have read it, one after the other.
    Shared,
    /// Nobody has it.
    Uncached,
}

/// What participant 0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferOperation {
    /// Loads it.
    Load,
    /// Stores to it, and waits for that.
    Store,
    /// Adds to it.
    Add,
}

described! {
    /// One round's line.
    struct Prepared<M: Memory> as "probe_transfer" {
        /// The word.
        word: M::Atomic<u32>,
    }
}

described! {
    /// Whose step it is.
    struct Step<M: Memory> as "probe_gate" {
        /// Counts steps.
        step: M::Atomic<u32>,
    }
}

/// Before the timed access all else has long ended.
const SETTLE: Span = Span::from_micros(2);

/// The lines, and whose step it is.
pub struct Transfer<P: Platform> {
    lines: Vec<Placed<P, Prepared<P>>>,
    step: Placed<P, Step<P>>,
    participants: usize,
    state: LineState,
    operation: TransferOperation,
}

impl<P: Platform> Transfer<P> {
    /// `rounds` accesses of participant 0 to lines at home on `home`, which the others bring into `state`.
    #[must_use]
    pub fn new(
        participants: usize,
        state: LineState,
        operation: TransferOperation,
        rounds: u64,
        home: Option<NodeId>,
    ) -> Self {
        let line = || Placed::new(Prepared { word: P::Atomic::new(0) }, None, home);
        Self {
            lines: (0..rounds).map(|_| line()).collect(),
            step: Placed::new(Step { step: P::Atomic::new(0) }, None, None),
            participants,
            state,
            operation,
        }
    }

    fn prepare(&self, index: usize, word: &P::Atomic<u32>) {
        // Relaxed: steps are ordered by their own word.
        match self.state {
            LineState::Modified if index == 1 => word.store(1, Ordering::Relaxed),
            LineState::Exclusive if index == 1 => _ = word.load(Ordering::Relaxed),
            LineState::Shared => _ = word.load(Ordering::Relaxed),
            LineState::Modified | LineState::Exclusive | LineState::Uncached => {}
        }
    }

    fn time(&self, word: &P::Atomic<u32>) -> Span {
        P::delay(SETTLE);
        let begin = P::now();
        match self.operation {
            // Relaxed: as above.
            TransferOperation::Load => _ = std::hint::black_box(word.load(Ordering::Relaxed)),
            TransferOperation::Store => {
                // Relaxed: as above.
                word.store(2, Ordering::Relaxed);
                // SeqCst: not for an order but to wait for the store, as the study did.
                P::fence(Ordering::SeqCst);
            }
            // Relaxed: as above.
            TransferOperation::Add => _ = word.fetch_add(2, Ordering::Relaxed),
        }
        P::now().since(begin)
    }
}

impl<P: Platform> Probe<P> for Transfer<P> {
    /// Operations are the timed accesses, of participant 0 alone.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        // In each round participants 1, 2, ... prepare, and 0 is last.
        let place = (index + self.participants - 1) % self.participants;
        let mut measured = Measured::default();
        for (round, line) in self.lines.iter().enumerate() {
            let own = (round * self.participants + place) as u32;
            P::spin_while(&self.step.step, |step| step != own);
            if index == 0 {
                measured.span += self.time(&line.word);
                measured.operations += 1;
                measured.with_warm_up += 1;
            } else {
                self.prepare(index, &line.word);
                P::fence(Ordering::SeqCst); // SeqCst: the preparing store is done before the next step begins.
            }
            // Release: what was done to the line comes before the next step.
            self.step.step.store(own + 1, Ordering::Release);
        }
        measured
    }
}
