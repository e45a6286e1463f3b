//! The coherence model: what one access costs, given all that came before.
//!
//! **Claim.** For each line a state, an owner or sharers, a home and a queue. A transfer occupies
//! the line; requests that arrive meanwhile wait, and a policy says who is next. That is all: what
//! makes a contended line expensive is the queue, not the distance.
//!
//! **Origin.** The states are MESI of the primer (Nagarajan, Sorin, Hill, Wood 2020) without its
//! transient states: a line in flight is its new state with a time before which it serves no
//! request. Costs and structural constants are data; see `costs/`.
//!
//! **Roles.** [`Directory`] is an ordinary object: `hit` serves an access that finds its line; any
//! other is announced, and `arrive` says when it is granted; `decide` serves the waiters. It has no
//! clock and runs no code; the caller lets requests arrive in the order of time and calls `decide`
//! when told to.
//!
//! **Look-ahead.** A request takes `one_way` from its CPU to the line, `one_way_in_core` when a
//! thread of the same core has it. So a hit at time *t* is certain once every event and every CPU
//! has reached *t* - `one_way`, and, when the core owns the line, its other threads *t* -
//! `one_way_in_core`, unless something is under way to that line already: the caller need not
//! switch to the others first. This is the model's definition, not an approximation of it: results
//! are the same whether the caller makes use of it or not. A load that an earlier fill serves asks
//! for nothing: the caller shows it what the line held at *t*, also when its owner has run further.
//!
//! **State.** Over physical cores: threads of a core share its copy, and hand it to each other at a
//! cost of their own.
//!
//! | state | copies | load by a core with a copy | load by another | store or RMW by the owner | store or RMW by another |
//! |---|---|---|---|---|---|
//! | Uncached | none | - | memory; to Owned | - | memory; to Owned, dirty |
//! | Owned | the owner's | hit | transfer; to Shared | hit, dirty | transfer; to Owned by it, dirty |
//! | Shared | the sharers' | hit | from its domain or the nearest that has one | - | invalidation; to Owned by it, dirty |
//!
//! **Rules of the queue.** A request that finds the line busy, or others waiting, waits. A line
//! whose operation ends serves the next by the policy: with `fifo` the oldest; with `local-first`
//! each LLC domain serves its own in order, and all requests from outside stand in that order as
//! one entry. Who was just served keeps a wanted line for `follow_up_hits` operations more if they
//! follow at once: they were under way already. Loads that are next to each other in the order are
//! served together.
//!
//! **Invariants.** (1) A line is Owned by one core or Shared by two or more. (2) Grants of stores
//! and RMWs of a line have ascending times. (3) A CPU waits for one load or RMW at most. (4) An
//! owned line has one thread that may write it, or none after several of its core have read it.
//!
//! **Capacity.** Where caches have sizes ([`Config::capacity`](crate::Config::capacity)) a copy
//! stands in its core or, when there is no room or the core has idled for long, in level 3 of its
//! domain, and after that in memory: `directory/capacity.rs` has the rules, `caches.rs` who goes
//! first. Without them, as by default, a copy stays until another core takes it.
//!
//! **Limits.** By default caches do not overflow; where they do, neither ways to level 2 and 3 nor
//! evictions take any of a bandwidth, prefetchers do not exist, and a core wakes from any idle
//! state in `idle_exit`, or `idle_notice`. Instructions cost nothing, and clocks do not fall when
//! many cores work. Misses of one CPU to different lines, and loads that level 2 or 3 serves,
//! overlap as far as `overlapped_misses` says, and never by more than leaves each its `one_way`.
//! Interconnect links have no bandwidth of their own: traffic on one line never slows another.

use std::borrow::Cow;

mod caches;
mod copies;
mod directory;
mod latency;
mod line;
mod queue;

pub use caches::Level;
pub(crate) use caches::Moves;
pub use directory::Directory;
pub use latency::{Distance, Latencies};

/// What an access does to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reads it.
    Load,
    /// Writes it, through the store buffer.
    Store,
    /// Reads and writes it in one operation; a compare-exchange that fails is one too.
    Rmw,
}

impl Kind {
    /// Whether the access needs the line for itself.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Self::Load
    }
}

/// Who is served next on a line that several wait for: queues by LLC domain, or one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arbitration {
    /// Each LLC domain serves its own first; requests from outside take turns with them as one.
    /// Fits machines of 2017 and later.
    #[default]
    LocalFirst,
    /// Each LLC domain serves its own, whenever they arrived, up to this many in a row before
    /// requests from outside have their turn.
    Bounded(u32),
    /// In order of arrival over the whole machine. Fits machines of 2010.
    Fifo,
}

impl Arbitration {
    /// The name in commands and reports: `local-first`, `local-first:8` with a bound, `fifo`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::LocalFirst => "local-first".into(),
            Self::Bounded(most) => format!("local-first:{most}").into(),
            Self::Fifo => "fifo".into(),
        }
    }

    /// Whether LLC domains have queues of their own.
    pub(crate) fn has_domains(self) -> bool {
        self != Self::Fifo
    }

    /// How many of its own a domain serves before others have their turn.
    pub(crate) fn bound(self) -> Option<usize> {
        if let Self::Bounded(most) = self { Some(most as usize) } else { None }
    }
}

/// A mark of the access that the caller gave, so that it can tell whose store took a line: see
/// [`Miss::invalidator`].
pub type AccessId = u32;

/// No access.
pub const NO_ACCESS: AccessId = AccessId::MAX;

/// One request for a line. Times are picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The CPU.
    pub cpu: u32,
    /// The line.
    pub line: u32,
    /// What it does.
    pub kind: Kind,
    /// When it arrives at the line.
    pub time: u64,
    /// How long it was under way.
    pub way: u64,
    /// How long before it was sent it would have been under way, had the CPU not waited for an
    /// earlier miss that it does not depend on.
    pub lead: u64,
    /// The caller's mark.
    pub access: AccessId,
    /// Another: whether the CPU was in the kernel when it issued the request.
    pub kernel: bool,
}

impl Request {
    /// What is left of a transfer that takes `latency` from issuing the request, when it arrives.
    #[inline]
    fn left_of(&self, latency: u64) -> u64 {
        latency.saturating_sub(self.way + self.lead)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The line will be granted.
    Granted(Grant),
    /// It waits; a later decision grants it.
    Queued,
}

/// The line is granted.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// What was asked for.
    pub request: Request,
    /// When the access takes effect.
    pub at: u64,
    /// When the CPU goes on.
    pub done: u64,
    /// Where the line came from.
    pub miss: Miss,
}

/// Where a line came from, and why it had gone.
#[derive(Clone, Copy, Debug)]
pub struct Miss {
    /// How far away the copy was that answered.
    pub distance: Distance,
    /// Whether another core had modified the line: a HITM.
    pub dirty: bool,
    /// The store or RMW whose grant took this core's copy; none when it never had one.
    pub invalidator: AccessId,
    /// Whether a level 3 had it and no core: never when caches have no sizes.
    pub level_3: bool,
}
