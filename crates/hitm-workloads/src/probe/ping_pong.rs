//! Two CPUs pass one word back and forth. Each waits for its turn by trying to take it: the loop of
//! `core-to-core-latency` (nviennot, 2022), including failed compare-exchanges. Alternatively each
//! reads the word first, which shows the cost of a read before a write.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, described};
use hitm_topology::{CpuId, NodeId};

use super::timing::{Share, Start};
use super::{Measured, Probe};

/// The round trips before the timed ones.
const WARM_UP: u64 = 20;

/// How a player waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// By trying to take the word.
    #[default]
    Taking,
    /// By reading until it is the player's turn, and then taking it: two transactions per transfer.
    Reading,
}

described! {
    /// The word.
    struct Ball<M: Memory> as "probe_ball" {
        /// The player whose turn it is: 0 or 1.
        turn: M::Atomic<u32>,
    }
}

/// The word of the two participants.
pub struct PingPong<P: Platform> {
    ball: Placed<P, Ball<P>>,
    start: Start<P>,
    rounds: u64,
    waiting: Waiting,
}

impl<P: Platform> PingPong<P> {
    /// Makes a probe with `rounds` round trips of a word whose home is `node`.
    #[must_use]
    pub fn new(rounds: u64, node: Option<NodeId>) -> Self {
        let ball = Placed::new(Ball { turn: P::Atomic::new(0) }, None, node);
        Self { ball, start: Start::new(2), rounds, waiting: Waiting::Taking }
    }

    /// Sets how the players wait.
    #[must_use]
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    fn play(&self, own: u32, rounds: u64) {
        for _ in 0..rounds {
            if self.waiting == Waiting::Reading {
                P::spin_while(&self.ball.turn, |turn| turn != own);
            }
            // Relaxed: the original tool's ordering; the word publishes nothing else.
            while self.ball.turn.compare_exchange(own, 1 - own, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                // No spin hint: the tool has none, and on some processors the hint pauses for as
                // long as a transfer takes.
            }
        }
    }
}

impl<P: Platform> Probe<P> for PingPong<P> {
    /// Runs a player. Operations are transfers: two per round trip.
    fn run(&self, index: usize, _cpu: CpuId) -> Measured {
        self.start.wait();
        self.play(index as u32, WARM_UP);
        let begin = P::now();
        self.play(index as u32, self.rounds);
        let span = P::now().since(begin);
        let (operations, with_warm_up) = (2 * self.rounds, 2 * (self.rounds + WARM_UP));
        let writes = Share { operations, span, with_warm_up };
        Measured { operations, span, with_warm_up, reads: Share::default(), writes }
    }
}
