//! A probe with its parameters.

use hitm_memory::{Platform, Span};
use hitm_topology::{CpuId, NodeId, Scope, Topology};
use hitm_workloads::probe::{
    Budget, CountBy, Counter, CounterOperation, Guard, LineState, LockKind, Locks, Lookup, Mask, MaskForm, Mix,
    PingPong, Probe, Reads, Refcount, Roles, RwLock, RwLockKind, Search, Transfer, TransferOperation, Waiting,
    WriteKind, WriterReaders,
};

/// A probe and its parameters. The host chooses the participants: see
/// [`simulate`](crate::simulate).
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// See [`PingPong`].
    PingPong {
        /// Round trips that are timed.
        rounds: u64,
        /// The home of the word; `None` leaves it to the host.
        home: Option<NodeId>,
        /// How a player waits for its turn.
        waiting: Waiting,
    },
    /// See [`Counter`].
    Counter {
        /// How it is split.
        scope: Scope,
        /// The operation that adds.
        operation: CounterOperation,
        /// Length of the run.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`Mask`].
    Mask {
        /// How it is split.
        scope: Scope,
        /// The entry of a CPU.
        form: MaskForm,
        /// The result of a search.
        search: Search,
        /// The CPUs that search.
        roles: Roles,
        /// Length of the run.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`Mix`].
    Mix {
        /// How the word is split.
        scope: Scope,
        /// The operation that writes.
        kind: WriteKind,
        /// The readers.
        roles: Roles,
        /// Length of the run.
        time: Span,
        /// Work after each operation.
        pause: Span,
    },
    /// See [`RwLock`].
    RwLock {
        /// The kind of lock.
        kind: RwLockKind,
        /// The readers.
        roles: Roles,
        /// Length of the run.
        time: Span,
        /// Work after each section.
        pause: Span,
    },
    /// See [`Lookup`].
    Lookup {
        /// What a reader does before and after.
        guard: Guard,
        /// Elements of the list.
        elements: usize,
        /// Length of the run.
        time: Span,
        /// Work after each look-up.
        pause: Span,
    },
    /// See [`Refcount`].
    Refcount {
        /// The scope of a count of references.
        scope: Scope,
        /// How a reference is taken and dropped.
        by: CountBy,
        /// Elements of the list.
        elements: usize,
        /// Length of the run.
        time: Span,
        /// Work after each look-up.
        pause: Span,
    },
    /// See [`Locks`].
    Lock {
        /// The kind of lock.
        kind: LockKind,
        /// The length of a turn of back-off.
        turn: Span,
        /// Length of the run.
        time: Span,
        /// Work after each section.
        pause: Span,
        /// Whether the length of this work is drawn.
        is_drawn: bool,
    },
    /// See [`WriterReaders`]: the first CPU writes.
    WriterReaders {
        /// Number of writes.
        rounds: u32,
        /// Work of the writer before each write.
        gap: Span,
    },
    /// See [`Transfer`]: the first CPU is timed.
    Transfer {
        /// The state of the line before.
        state: LineState,
        /// The operation of the first CPU.
        operation: TransferOperation,
        /// Lines, one after the other.
        rounds: u64,
        /// Their home.
        home: Option<NodeId>,
    },
    /// See [`Reads`].
    Reads {
        /// Length of the run.
        time: Span,
    },
}

impl Program {
    /// Makes its shared memory, with what each of `cpus` does. Called inside the machine that it is
    /// for.
    #[must_use]
    pub fn make<P: Platform>(&self, topology: &Topology, cpus: &[CpuId]) -> Box<dyn Probe<P>> {
        let participants = cpus.len();
        let budget = |time, pause| Budget { participants, time, pause, is_drawn: false };
        match *self {
            Self::PingPong { rounds, home, waiting } => Box::new(PingPong::<P>::new(rounds, home).waiting(waiting)),
            Self::Counter { scope, operation, time, pause } => {
                Box::new(Counter::<P>::new(topology, scope, operation, participants, time, pause))
            }
            Self::Mask { scope, form, search, roles, time, pause } => {
                Box::new(Mask::<P>::new(topology, scope, form, search, roles, budget(time, pause)))
            }
            Self::Mix { scope, kind, roles, time, pause } => {
                Box::new(Mix::<P>::new(topology, scope, kind, roles, budget(time, pause)))
            }
            Self::RwLock { kind, roles, time, pause } => {
                Box::new(RwLock::<P>::new(topology, kind, roles, budget(time, pause)))
            }
            Self::Lookup { guard, elements, time, pause } => {
                Box::new(Lookup::<P>::new(guard, elements, budget(time, pause)))
            }
            Self::Refcount { scope, by, elements, time, pause } => {
                Box::new(Refcount::<P>::new(topology, scope, by, elements, budget(time, pause)))
            }
            Self::Lock { kind, turn, time, pause, is_drawn } => {
                let budget = Budget { is_drawn, ..budget(time, pause) };
                Box::new(Locks::<P>::new(topology, kind, cpus, turn, budget))
            }
            Self::WriterReaders { rounds, gap } => Box::new(WriterReaders::<P>::new(participants, rounds, gap)),
            Self::Transfer { state, operation, rounds, home } => {
                Box::new(Transfer::<P>::new(participants, state, operation, rounds, home))
            }
            Self::Reads { time } => Box::new(Reads::<P>::new(participants, time)),
        }
    }

    /// Returns the same program with the length `new`, if it has a length.
    #[must_use]
    pub fn lasting(&self, new: Span) -> Self {
        let mut program = self.clone();
        if let Some(time) = program.time_mut() {
            *time = new;
        }
        program
    }

    /// Returns the length of the run, for programs that run for a time.
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
            | Self::Lookup { time, .. }
            | Self::Refcount { time, .. }
            | Self::Lock { time, .. }
            | Self::Reads { time } => Some(time),
        }
    }
}
