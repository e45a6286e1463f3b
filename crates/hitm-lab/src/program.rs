//! Which probe, with its parameters.

use hitm_memory::{Platform, Span};
use hitm_topology::{NodeId, Scope, Topology};
use hitm_workloads::probe::{Counter, CounterOperation, Mask, PingPong, Probe, Reads};

/// A probe and its parameters. The participants are the host's business: see [`simulate`](crate::simulate).
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// See [`PingPong`].
    PingPong {
        /// Round trips that are timed.
        rounds: u64,
        /// The home of the word; the host's choice when none.
        home: Option<NodeId>,
    },
    /// See [`Counter`].
    Counter {
        /// How it is split.
        scope: Scope,
        /// How it is added to.
        operation: CounterOperation,
        /// How long everybody adds.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`Mask`].
    Mask {
        /// How it is split.
        scope: Scope,
        /// Participants that search; the others write.
        readers: usize,
        /// How long everybody goes on.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`Reads`].
    Reads {
        /// How long everybody reads.
        time: Span,
    },
}

impl Program {
    /// Its shared memory and what each of `participants` CPUs does; called inside the machine that it is for.
    #[must_use]
    pub fn make<P: Platform>(&self, topology: &Topology, participants: usize) -> Box<dyn Probe<P>> {
        match *self {
            Self::PingPong { rounds, home } => Box::new(PingPong::<P>::new(rounds, home)),
            Self::Counter { scope, operation, time, pause } => {
                Box::new(Counter::<P>::new(topology, scope, operation, participants, time, pause))
            }
            Self::Mask { scope, readers, time, pause } => {
                Box::new(Mask::<P>::new(topology, scope, participants, readers, time, pause))
            }
            Self::Reads { time } => Box::new(Reads::<P>::new(participants, time)),
        }
    }

    /// How long the participants go on, where that is a time.
    #[must_use]
    pub fn time(&self) -> Option<Span> {
        match *self {
            Self::PingPong { .. } => None,
            Self::Counter { time, .. } | Self::Mask { time, .. } | Self::Reads { time } => Some(time),
        }
    }
}
