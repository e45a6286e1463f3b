//! The probes and their options.

use clap::{Args, Subcommand, ValueEnum};
use hitm_memory::Span;
use hitm_topology::Scope;
use hitm_workloads::probe::{CountBy, CounterOperation, Guard, LockKind, MaskForm, Search, Waiting, WriteKind};

use crate::args::span;

/// Every scope, to find the best.
const ALL_SCOPES: &str = "machine,node,llc,core,cpu";

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Two CPUs pass a word back and forth, by distance: median, minimum and maximum of several
    /// pairs.
    #[command(after_help = "\
Examples:
  hitm run probe ping-pong --machine epyc-9754-2x128
  hitm run probe ping-pong --kind reading --machine clx-2x20")]
    PingPong {
        /// Pairs per distance.
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1024))]
        pairs: u64,
        /// Round trips per pair.
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        rounds: u64,
        /// How a CPU waits for its turn.
        #[arg(long, value_enum, default_value = "taking")]
        kind: WaitingArg,
    },
    /// Every CPU adds to a counter.
    #[command(
        after_help = "Examples:\n  hitm run probe counter --scope machine,llc --operation load-cas --participants 240"
    )]
    Counter {
        /// Scope of a part, one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// Operation that adds.
        #[arg(long, value_enum, default_value = "add")]
        operation: OperationArg,
    },
    /// CPUs set and clear their own entry in a mask, or search the mask.
    #[command(after_help = "\
Examples:
  hitm run probe mask --scope machine,node,llc,core,cpu --readers 48
  hitm run probe mask --encoding bit,byte --mix 50 --search all --arbitration local-first,fifo")]
    Mask {
        /// Scope of a part, one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// Entry of a CPU; several are separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "bit")]
        encoding: Vec<EncodingArg>,
        /// Result of a search.
        #[arg(long, value_enum, default_value = "any")]
        search: SearchArg,
        #[command(flatten)]
        roles: RolesArgs,
    },
    /// CPUs read and write a word.
    #[command(after_help = "\
Examples:
  hitm run probe mix --mix 99 --arbitration local-first,fifo
  hitm run probe mix --kind store --readers 240 --scope machine,llc")]
    Mix {
        /// Scope of a part, one or more of machine, node, llc, core, cpu; a reader reads every
        /// part.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// Operation that writes.
        #[arg(long, value_enum, default_value = "add")]
        kind: WriteArg,
        #[command(flatten)]
        roles: RolesArgs,
    },
    /// CPUs take a reader-writer lock and read or write two words.
    #[command(
        after_help = "Examples:\n  hitm run probe rwlock --mix 99\n  hitm run probe rwlock --readers 480 --scope machine,cpu\n  hitm run probe rwlock --kind counted,phased --scope machine --mix 100"
    )]
    Rwlock {
        /// Kind of lock; several are separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "counted")]
        kind: Vec<RwLockArg>,
        /// Scope of a count of readers of `counted`, one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        #[command(flatten)]
        roles: RolesArgs,
    },
    /// CPUs look up an element of a list and hold a reference to it.
    #[command(
        after_help = "Examples:\n  hitm run probe refcount --elements 1 --pause 1us\n  hitm run probe refcount --by load-cas --scope machine"
    )]
    Refcount {
        /// Scope of a count of references, one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// Elements of the list, looked up in turn.
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
        elements: u64,
        /// How a reference is taken and dropped.
        #[arg(long, value_enum, default_value = "add")]
        by: CountByArg,
    },
    /// CPUs look up an element of a list that no CPU writes.
    #[command(after_help = "Examples:\n  hitm run probe lookup --machine skx-8x28 --participants 56")]
    Lookup {
        /// What a reader does around a look-up; several are separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "none,grace-period,sequence")]
        guard: Vec<GuardArg>,
        /// Elements of the list, looked up in turn.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=4096))]
        elements: u64,
    },
    /// CPUs take a spin lock and read and write one more line inside.
    #[command(after_help = "\
Examples:
  hitm run probe lock --participants 80 --machine clx-2x20
  hitm run probe lock --kind ticket,mcs,queued --pause 1us --arbitration local-first,fifo")]
    Lock {
        /// Kind of lock; several are separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "tas,ttas,ticket,ticket-back-off,mcs,queued")]
        kind: Vec<LockArg>,
        /// Back-off of `tas` and `ticket-back-off` per turn: about the time of a section with its
        /// transfer.
        #[arg(long, value_name = "T", value_parser = span, default_value = "200ns", allow_hyphen_values = true)]
        turn: Span,
        /// Lengths of the pauses of `--pause`.
        #[arg(long, value_enum, default_value = "drawn")]
        pauses: PausesArg,
    },
    /// One CPU writes a word from time to time; the others wait for the new value. Delays by
    /// distance.
    #[command(after_help = "Examples:\n  hitm run probe writer-readers --machine clx-2x20 --participants 80")]
    WriterReaders {
        /// Number of writes.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rounds: u32,
    },
    /// Every CPU reads a word that no CPU writes.
    #[command(after_help = "Examples:\n  hitm run probe reads --machine clx-2x20")]
    Reads,
}

impl What {
    /// Returns the name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::PingPong { .. } => "ping-pong",
            Self::Counter { .. } => "counter",
            Self::Mask { .. } => "mask",
            Self::Mix { .. } => "mix",
            Self::Rwlock { .. } => "rwlock",
            Self::Refcount { .. } => "refcount",
            Self::Lookup { .. } => "lookup",
            Self::Lock { .. } => "lock",
            Self::WriterReaders { .. } => "writer-readers",
            Self::Reads => "reads",
        }
    }
}

/// The readers.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RolesArgs {
    /// Percentage of each CPU's operations that read. Natively each operation is timed, which costs
    /// it a read of the clock [default: 90, unless --readers].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100), conflicts_with = "readers")]
    pub(crate) mix: Option<u32>,
    /// Number of CPUs that only read; the others write.
    #[arg(long, value_name = "N")]
    pub(crate) readers: Option<usize>,
}

/// Declares the command line's names for the values of a program's parameter.
macro_rules! values {
    ($($(#[$doc:meta])* enum $arg:ident for $value:ty { $($(#[$variant_doc:meta])* $variant:ident => $to:ident),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub(crate) enum $arg {
            $($(#[$variant_doc])* $variant,)+
        }

        impl From<$arg> for $value {
            fn from(arg: $arg) -> Self {
                match arg {
                    $($arg::$variant => Self::$to,)+
                }
            }
        }
    )+};
}

values! {
    /// How a player waits.
    enum WaitingArg for Waiting {
        /// It tries to take the word.
        Taking => Taking,
        /// It reads the word, then takes it.
        Reading => Reading,
    }

    /// How a counter is added to.
    enum OperationArg for CounterOperation {
        /// An atomic add.
        Add => Add,
        /// A load and a compare-exchange, until one succeeds.
        LoadCas => LoadCas,
        /// A compare-exchange without a load before, until one succeeds.
        CasBlind => CasBlind,
        /// A load and a plain store: increments get lost.
        LoadStore => LoadStore,
    }

    /// How a reference is taken and dropped.
    enum CountByArg for CountBy {
        /// By an atomic add and subtraction.
        Add => Add,
        /// By a load and a compare-exchange, loaded again after a failure.
        LoadCas => LoadCas,
    }

    /// What a reader does around a look-up.
    enum GuardArg for Guard {
        /// Nothing.
        None => None,
        /// It stores the grace period to its own word, and 0, each with a barrier of the compiler
        /// (RCU of user space whose writers interrupt readers).
        GracePeriod => GracePeriod,
        /// It loads a sequence twice, each with a full barrier (read side of a sequence lock).
        Sequence => Sequence,
    }

    /// What a CPU has in a mask.
    enum EncodingArg for MaskForm {
        /// A bit, written by a read-modify-write.
        Bit => Bit,
        /// A bit, with ones in the parts of others.
        BitForeignOnes => BitForeignOnes,
        /// A byte, written by a plain store.
        Byte => Byte,
    }

    /// Result of a search.
    enum SearchArg for Search {
        /// Any CPU: the search stops at the first.
        Any => Any,
        /// All CPUs: the search reads everything.
        All => All,
    }

    /// How a word is written.
    enum WriteArg for WriteKind {
        /// By an atomic add.
        Add => Add,
        /// By a plain store.
        Store => Store,
    }

    /// Which lock.
    enum LockArg for LockKind {
        /// Test-and-set with back-off.
        Tas => TestAndSet,
        /// Test, then test-and-set.
        Ttas => TestAndTestAndSet,
        /// Ticket lock.
        Ticket => Ticket,
        /// Ticket lock with back-off in proportion to the waiters before.
        TicketBackOff => TicketBackOff,
        /// Mellor-Crummey and Scott's queue lock (MCS).
        Mcs => Mcs,
        /// Four bytes with a queue, as the kernel's queued spin lock.
        Queued => Queued,
    }
}

/// Which lengths pauses have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PausesArg {
    /// Drawn, with the given mean.
    Drawn,
    /// All the same: then CPUs queue in one order for ever.
    Fixed,
}

/// Which reader-writer lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RwLockArg {
    /// A flag, and the readers counted by scope.
    Counted,
    /// One word, whose readers enter by an add and leave by a load and a compare-exchange, as
    /// those of the GNU C Library do.
    Phased,
}
