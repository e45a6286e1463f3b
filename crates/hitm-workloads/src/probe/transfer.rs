//! One access to a line in a known state: its cost, by the state and by the CPUs that hold the
//! line.
//!
//! The loop of David, Guerraoui and Trigonakis, "Everything you always wanted to know about
//! synchronization but were afraid to ask", 2013: other CPUs bring the line into its state; then
//! one CPU accesses it once and times the access. Every round has a line of its own, so that a line
//! that was only read is exclusive to its reader.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::{CpuId, NodeId};

use super::{Measured, Probe};

/// The state of the line before the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineState {
    /// Participant 1 has written it.
    Modified,
    /// Only participant 1 has read it.
    Exclusive,
    /// Participants 1 and above have read it, one after the other.
    Shared,
    /// No CPU holds it.
    Uncached,
}

/// The access of participant 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferOperation {
    /// Loads the word.
    Load,
    /// Stores to the word, and waits until the store has taken effect.
    Store,
    /// Adds to the word.
    Add,
}

described! {
    /// The line of one round.
    struct Prepared<M: Memory> as "probe_transfer" {
        /// The word.
        word: M::Atomic<u32>,
    }
}

described! {
    /// The word that orders the steps.
    struct Step<M: Memory> as "probe_gate" {
        /// The number of completed steps.
        step: M::Atomic<u32>,
    }
}

/// The delay before the timed access, so that all earlier activity has ended.
const SETTLE: Span = Span::from_micros(2);

/// The lines, and the word that orders the steps.
pub struct Transfer<P: Platform> {
    lines: Vec<Placed<P, Prepared<P>>>,
    step: Placed<P, Step<P>>,
    participants: usize,
    state: LineState,
    operation: TransferOperation,
}

impl<P: Platform> Transfer<P> {
    /// Makes a probe with `rounds` accesses of participant 0 to lines with home `home`, which the
    /// other participants bring into `state`.
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
        // Relaxed: the step word orders the accesses.
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
            // Relaxed: the step word orders it.
            TransferOperation::Load => _ = std::hint::black_box(word.load(Ordering::Relaxed)),
            TransferOperation::Store => {
                // Relaxed: the step word orders it.
                word.store(2, Ordering::Relaxed);
                // SeqCst: not for ordering, but to wait for the store, as in the study.
                P::fence(Ordering::SeqCst);
            }
            // Relaxed: the step word orders it.
            TransferOperation::Add => _ = word.fetch_add(2, Ordering::Relaxed),
        }
        P::now().since(begin)
    }
}

impl<P: Platform> Probe<P> for Transfer<P> {
    /// Runs a participant. Operations are the timed accesses, of participant 0 alone.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        // In each round, participants 1, 2, ... prepare the line, and participant 0 is last.
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
            // Release: orders the accesses to the line before the next step.
            self.step.step.store(own + 1, Ordering::Release);
        }
        measured
    }
}
