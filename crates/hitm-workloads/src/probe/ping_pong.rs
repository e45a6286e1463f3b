//! Two CPUs hand one word to and fro, each waiting for its turn by trying to take it: the loop of `core-to-core-latency`
//! (nviennot, 2022), failed compare-exchanges included. Or by reading it first: what a read before a write costs.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, Platform, described};
use hitm_topology::{CpuId, NodeId};

use super::timing::{Share, Start};
use super::{Measured, Probe};

/// Round trips before the timed ones.
const WARM_UP: u64 = 20;

/// How a player waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// By trying to take it.
    #[default]
    Taking,
    /// By reading until it is there, and taking it then: two transactions a hand-off.
    Reading,
}

described! {
    /// The word.
    struct Ball<M: Memory> as "probe_ball" {
        /// Whose turn it is: 0 or 1.
        turn: M::Atomic<u32>,
    }
}

/// The two participants' word.
pub struct PingPong<P: Platform> {
    ball: Placed<P, Ball<P>>,
    start: Start<P>,
    rounds: u64,
    waiting: Waiting,
}

impl<P: Platform> PingPong<P> {
    /// `rounds` round trips of a word whose home is `node`.
    #[must_use]
    pub fn new(rounds: u64, node: Option<NodeId>) -> Self {
        let ball = Placed::new(Ball { turn: P::Atomic::new(0) }, None, node);
        Self { ball, start: Start::new(2), rounds, waiting: Waiting::Taking }
    }

    /// As this, with players that wait so.
    #[must_use]
    pub fn waiting(self, waiting: Waiting) -> Self {
        Self { waiting, ..self }
    }

    fn play(&self, own: u32, rounds: u64) {
        for _ in 0..rounds {
            if self.waiting == Waiting::Reading {
                P::spin_while(&self.ball.turn, |turn| turn != own);
            }
            // Relaxed: the tool's own orderings; nothing else is communicated.
            while self.ball.turn.compare_exchange(own, 1 - own, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                // No hint that this spins: the tool has none, and some processors pause for a hand-off's time at it.
            }
        }
    }
}

impl<P: Platform> Probe<P> for PingPong<P> {
    /// Operations are hand-offs: two a round trip.
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
