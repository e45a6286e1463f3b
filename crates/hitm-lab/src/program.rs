//! Which probe, with its parameters.

use hitm_memory::{Platform, Span};
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use hitm_workloads::probe::{
    Counter, CounterOperation, Effort, LineState, LockKind, Locks, Mask, MaskForm, Mix, PingPong, Probe, Reads,
    Refcount, Roles, RwLock, Search, Transfer, TransferOperation, Waiting, WriteKind, WriterReaders,
};

/// A probe and its parameters. The participants are the host's business: see [`simulate`](crate::simulate).
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// See [`PingPong`].
    PingPong {
        /// Round trips that are timed.
        rounds: u64,
        /// The home of the word; the host's choice when none.
        home: Option<NodeId>,
        /// How a player waits for its turn.
        waiting: Waiting,
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
        /// What a CPU has in it.
        form: MaskForm,
        /// What a search looks for.
        search: Search,
        /// Who searches.
        roles: Roles,
        /// How long everybody goes on.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`Mix`].
    Mix {
        /// How the word is split.
        scope: Scope,
        /// How it is written.
        kind: WriteKind,
        /// Who reads.
        roles: Roles,
        /// How long everybody goes on.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`RwLock`].
    RwLock {
        /// How the readers are counted.
        scope: Scope,
        /// Who reads.
        roles: Roles,
        /// How long everybody goes on.
        time: Span,
        /// Work after each section.
        pause: Span,
    },
    /// See [`Refcount`].
    Refcount {
        /// How references are counted.
        scope: Scope,
        /// Elements of the list.
        elements: usize,
        /// How long everybody goes on.
        time: Span,
        /// Work after each look-up.
        pause: Span,
    },
    /// See [`Locks`].
    Lock {
        /// Which lock.
        kind: LockKind,
        /// How long a turn of back-off is.
        turn: Span,
        /// How long everybody goes on.
        time: Span,
        /// Work after each section.
        pause: Span,
    },
    /// See [`WriterReaders`]: the first CPU writes.
    WriterReaders {
        /// How often it writes.
        rounds: u32,
        /// How long it works before each.
        gap: Span,
    },
    /// See [`Transfer`]: the first CPU is timed.
    Transfer {
        /// The state of the line before.
        state: LineState,
        /// What the first CPU does.
        operation: TransferOperation,
        /// Lines, one after the other.
        rounds: u64,
        /// Their home.
        home: Option<NodeId>,
    },
    /// See [`Reads`].
    Reads {
        /// How long everybody reads.
        time: Span,
    },
}

impl Program {
    /// Its shared memory and what each of `cpus` does; called inside the machine that it is for.
    #[must_use]
    pub fn make<P: Platform>(&self, topology: &Topology, cpus: &[CpuId]) -> Box<dyn Probe<P>> {
        let participants = cpus.len();
        let effort = |time, pause| Effort { participants, time, pause };
        match *self {
            Self::PingPong { rounds, home, waiting } => Box::new(PingPong::<P>::new(rounds, home).waiting(waiting)),
            Self::Counter { scope, operation, time, pause } => {
                Box::new(Counter::<P>::new(topology, scope, operation, participants, time, pause))
            }
            Self::Mask { scope, form, search, roles, time, pause } => {
                Box::new(Mask::<P>::new(topology, scope, form, search, roles, effort(time, pause)))
            }
            Self::Mix { scope, kind, roles, time, pause } => {
                Box::new(Mix::<P>::new(topology, scope, kind, roles, effort(time, pause)))
            }
            Self::RwLock { scope, roles, time, pause } => {
                Box::new(RwLock::<P>::new(topology, scope, roles, effort(time, pause)))
            }
            Self::Refcount { scope, elements, time, pause } => {
                Box::new(Refcount::<P>::new(topology, scope, elements, effort(time, pause)))
            }
            Self::Lock { kind, turn, time, pause } => {
                Box::new(Locks::<P>::new(topology, kind, cpus, turn, effort(time, pause)))
            }
            Self::WriterReaders { rounds, gap } => Box::new(WriterReaders::<P>::new(participants, rounds, gap)),
            Self::Transfer { state, operation, rounds, home } => {
                Box::new(Transfer::<P>::new(participants, state, operation, rounds, home))
            }
            Self::Reads { time } => Box::new(Reads::<P>::new(participants, time)),
        }
    }

    /// The same program, going on for `new`, where it goes on for a time.
    #[must_use]
    pub fn lasting(&self, new: Span) -> Self {
        let mut program = self.clone();
        if let Some(time) = program.time_mut() {
            *time = new;
        }
        program
    }

    /// How long the participants go on, where that is a time.
    #[must_use]
    pub fn time(&self) -> Option<Span> {
        self.clone().time_mut().copied()
    }

    fn time_mut(&mut self) -> Option<&mut Span> {
        match self {
            Self::PingPong { .. } | Self::Transfer { .. } | Self::WriterReaders { .. } => None,
            Self::Counter { time, .. }
            | Self::Mask { time, .. }
            | Self::Mix { time, .. }
            | Self::RwLock { time, .. }
            | Self::Refcount { time, .. }
            | Self::Lock { time, .. }
            | Self::Reads { time } => Some(time),
        }
    }
}
