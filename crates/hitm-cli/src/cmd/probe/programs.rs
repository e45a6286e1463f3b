//! Which probes there are, and their options.

use clap::{Args, Subcommand, ValueEnum};
use hitm_memory::Span;
use hitm_topology::Scope;
use hitm_workloads::probe::{CounterOperation, LockKind, MaskForm, Search, Waiting, WriteKind};

use crate::args::span;

/// Every scope, for the question which is best.
const ALL_SCOPES: &str = "machine,node,llc,core,cpu";

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Two CPUs hand a word to and fro, by distance: median, least and most of several pairs.
    #[command(after_help = "\
Examples:
  hitm run probe ping-pong --machine epyc-9754-2x128
  hitm run probe ping-pong --kind reading --machine clx-2x20")]
    PingPong {
        /// Pairs of each distance.
        #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1024))]
        pairs: u64,
        /// Round trips of each.
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        rounds: u64,
        /// How a player waits for its turn.
        #[arg(long, value_enum, default_value = "taking")]
        kind: WaitingArg,
    },
    /// Every CPU adds to a counter.
    #[command(
        after_help = "Examples:\n  hitm run probe counter --scope machine,llc --operation load-cas --participants 240"
    )]
    Counter {
        /// How it is split: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// How it is added to.
        #[arg(long, value_enum, default_value = "add")]
        operation: OperationArg,
    },
    /// CPUs set and clear what is theirs in a mask, or search it.
    #[command(after_help = "\
Examples:
  hitm run probe mask --scope machine,node,llc,core,cpu --readers 48
  hitm run probe mask --encoding bit,byte --mix 50 --search all --arbitration local-first,fifo")]
    Mask {
        /// How it is split: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// What a CPU has in it; several separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "bit")]
        encoding: Vec<EncodingArg>,
        /// What a search looks for.
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
        /// How it is split: one or more of machine, node, llc, core, cpu. Who reads reads every part.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// How it is written.
        #[arg(long, value_enum, default_value = "add")]
        kind: WriteArg,
        #[command(flatten)]
        roles: RolesArgs,
    },
    /// CPUs take a reader-writer lock, for reading or writing two words.
    #[command(
        after_help = "Examples:\n  hitm run probe rwlock --mix 99\n  hitm run probe rwlock --readers 480 --scope machine,cpu"
    )]
    Rwlock {
        /// How its readers are counted: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        #[command(flatten)]
        roles: RolesArgs,
    },
    /// CPUs look an element of a list up and hold it by a count.
    #[command(after_help = "Examples:\n  hitm run probe refcount --elements 1 --pause 1us")]
    Refcount {
        /// How references are counted: one or more of machine, node, llc, core, cpu.
        #[arg(long, value_delimiter = ',', default_value = ALL_SCOPES)]
        scope: Vec<Scope>,
        /// Elements of the list, each looked up in turn.
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
        elements: u64,
    },
    /// CPUs take a spin lock, and read and write one further line inside.
    #[command(after_help = "\
Examples:
  hitm run probe lock --participants 80 --machine clx-2x20
  hitm run probe lock --kind ticket,mcs,queued --pause 1us --arbitration local-first,fifo")]
    Lock {
        /// Which lock; several separated by commas.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "tas,ttas,ticket,ticket-back-off,mcs,queued")]
        kind: Vec<LockArg>,
        /// A turn of back-off of `tas` and `ticket-back-off`, about what a section takes with its hand-off.
        #[arg(long, value_name = "T", value_parser = span, default_value = "200ns", allow_hyphen_values = true)]
        turn: Span,
    },
    /// One CPU writes a word now and then, all others wait to see it: how long that takes, by distance.
    #[command(after_help = "Examples:\n  hitm run probe writer-readers --machine clx-2x20 --participants 80")]
    WriterReaders {
        /// How often it writes.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rounds: u32,
    },
    /// Every CPU reads a word that nobody writes.
    #[command(after_help = "Examples:\n  hitm run probe reads --machine clx-2x20")]
    Reads,
}

impl What {
    /// As on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::PingPong { .. } => "ping-pong",
            Self::Counter { .. } => "counter",
            Self::Mask { .. } => "mask",
            Self::Mix { .. } => "mix",
            Self::Rwlock { .. } => "rwlock",
            Self::Refcount { .. } => "refcount",
            Self::Lock { .. } => "lock",
            Self::WriterReaders { .. } => "writer-readers",
            Self::Reads => "reads",
        }
    }
}

/// Who reads.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RolesArgs {
    /// Per cent of each CPU's operations that read; natively each operation is timed, which costs it a look at the clock
    /// [default: 90, unless --readers].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100), conflicts_with = "readers")]
    pub(crate) mix: Option<u32>,
    /// CPUs that read and do nothing else; the others write.
    #[arg(long, value_name = "N")]
    pub(crate) readers: Option<usize>,
}

/// A value of the command line for each of a program's values, with its name.
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
        /// By trying to take the word.
        Taking => Taking,
        /// By reading it, and taking it then.
        Reading => Reading,
    }

    /// How a counter is added to.
    enum OperationArg for CounterOperation {
        /// An atomic add.
        Add => Add,
        /// A load and a compare-exchange until that succeeds.
        LoadCas => LoadCas,
        /// A compare-exchange until that succeeds, without a load before.
        CasBlind => CasBlind,
        /// A load and a plain store: counts wrong.
        LoadStore => LoadStore,
    }

    /// What a CPU has in a mask.
    enum EncodingArg for MaskForm {
        /// A bit, by read-modify-write.
        Bit => Bit,
        /// A bit, with ones in the parts of others.
        BitForeignOnes => BitForeignOnes,
        /// A byte, by plain store.
        Byte => Byte,
    }

    /// What a search looks for.
    enum SearchArg for Search {
        /// Any CPU: stops at the first.
        Any => Any,
        /// All CPUs: reads everything.
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
        /// Test-and-set, with a turn of back-off.
        Tas => TestAndSet,
        /// Test-and-set after a test.
        Ttas => TestAndTestAndSet,
        /// Ticket.
        Ticket => Ticket,
        /// Ticket, with back-off in proportion to those before.
        TicketBackOff => TicketBackOff,
        /// Mellor-Crummey and Scott's queue.
        Mcs => Mcs,
        /// Four bytes with a queue behind, as the kernel's.
        Queued => Queued,
    }
}
