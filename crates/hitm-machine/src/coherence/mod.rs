//! The coherence model: the cost of one access, given all earlier ones.
//!
//! **Claim.** Each line has a state, an owner or sharers, a home and a queue. A transfer occupies
//! the line; requests that arrive meanwhile wait, and a policy decides which is next. That is all:
//! the queue makes a contended line expensive, not the distance.
//!
//! **Origin.** The states are MESI of the primer (Nagarajan, Sorin, Hill, Wood 2020) without its
//! transient states: a line in flight has its new state and a time before which it serves no
//! request. Costs and structural constants are data; see `costs/`.
//!
//! **Roles.** [`Directory`] is an ordinary object. `hit` serves an access that finds its line. Any
//! other access is announced; `arrive` says when it is granted, and `decide` serves the waiters.
//! The directory has no clock and runs no code: the caller lets requests arrive in the order of
//! time, and calls `decide` when asked to.
//!
//! **Look-ahead.** A request takes `one_way` from its CPU to the line, or `one_way_in_core` when a
//! thread of the same core has it. So a hit at time *t* is certain once every event and every CPU
//! has reached *t* - `one_way`, and, if the core owns the line, its other threads *t* -
//! `one_way_in_core`, unless a request to that line is under way already. The caller then need not
//! switch to the other CPUs first. This is the model's definition, not an approximation: results do
//! not depend on whether the caller uses it. A load that an earlier fill serves sends no request:
//! the caller gives it the line's value at *t*, even if the owner has run further.
//!
//! **State.** Per physical core: the threads of a core share its copy, and pass it to each other at
//! a cost of its own.
//!
//! | state | copies | load by a core with a copy | load by another | store or RMW by the owner | store or RMW by another |
//! |---|---|---|---|---|---|
//! | Uncached | none | - | memory; to Owned | - | memory; to Owned, dirty |
//! | Owned | the owner's | hit | transfer; to Shared | hit, dirty | transfer; to Owned by it, dirty |
//! | Shared | the sharers' | hit | from its domain or the nearest that has one | - | invalidation; to Owned by it, dirty |
//!
//! **Rules of the queue.** A request waits if the line is busy or has other waiters. When an
//! operation of a line ends, the policy decides which request is next. With `fifo` it is the
//! oldest. With `local-first` each LLC domain serves its own requests in order, and all requests
//! from outside share one entry in that order. The CPU that was just served keeps a wanted line for
//! `follow_up_hits` more operations if they follow at once: they were under way already. Loads that
//! are next to each other in the order are served together.
//!
//! **Invariants.** (1) A line is Owned by one core, or Shared by two or more. (2) Grants of stores
//! and RMWs of a line have ascending times. (3) A CPU waits for at most one load or RMW. (4) An
//! owned line has one thread that may write it, or none after several threads of its core have read
//! it.
//!
//! **Capacity.** Where caches have sizes ([`Config::capacity`](crate::Config::capacity)), a copy is
//! in its core, then in the L3 of its domain, then in memory. It moves on when there is no room, or
//! when its core has idled for long. `directory/capacity.rs` has the rules; `caches.rs` chooses the
//! line to evict. Without sizes, the default, a copy stays until another core takes it.
//!
//! **Limits.** By default caches do not overflow. With sizes, paths to L2 and L3 and evictions take
//! no bandwidth. There are no prefetchers. A core wakes from any idle state in `idle_exit`, or
//! `idle_notice`. Instructions cost nothing, and clocks do not fall when many cores work. Misses of
//! one CPU to different lines, and loads that L2 or L3 serve, overlap as far as `overlapped_misses`
//! says, and each keeps at least its `one_way`. Links between packages have no bandwidth of their
//! own: traffic on one line never slows another.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod caches;
mod copies;
mod directory;
mod latency;
mod line;
mod protocol;
mod queue;

pub(crate) use caches::Level;
pub use caches::Moves;
pub use directory::Directory;
pub use latency::{Distance, Latencies};
pub use protocol::table as protocol;

/// The effect of an access on its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AccessKind")]
pub enum Kind {
    /// Reads it.
    Load,
    /// Writes it, through the store buffer.
    Store,
    /// Reads and writes it in one operation. A compare-exchange that fails is one too.
    Rmw,
}

impl Kind {
    /// Returns whether the access needs the line exclusively.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Self::Load
    }

    /// Returns the name in reports: `load`, `store` or `rmw`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Rmw => "rmw",
        }
    }

    /// Returns whether the access reads the line.
    #[must_use]
    pub fn is_read(self) -> bool {
        self != Self::Store
    }
}

/// Which of several waiters a line serves next: one queue per LLC domain, or one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arbitration {
    /// Each LLC domain serves its own requests first; all requests from outside take turns with
    /// them as one. Fits machines of 2017 and later.
    #[default]
    LocalFirst,
    /// Each LLC domain serves its own requests, whenever they arrived, up to this many in a row;
    /// then requests from outside have their turn.
    Bounded(u32),
    /// In order of arrival over the whole machine. Fits machines of 2010.
    Fifo,
}

impl Arbitration {
    /// Returns the name in commands and reports: `local-first`, `local-first:8` with a bound,
    /// `fifo`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::LocalFirst => "local-first".into(),
            Self::Bounded(most) => format!("local-first:{most}").into(),
            Self::Fifo => "fifo".into(),
        }
    }

    /// Returns whether each LLC domain has a queue.
    pub(crate) fn has_domains(self) -> bool {
        self != Self::Fifo
    }

    /// Returns how many of its own requests a domain serves before others have their turn.
    pub(crate) fn bound(self) -> Option<u32> {
        if let Self::Bounded(most) = self { Some(most) } else { None }
    }
}

/// The caller's mark of an access, so that it can tell which store invalidated a copy: see
/// [`Miss::invalidator`].
pub(crate) type AccessId = u32;

/// No access.
pub(crate) const NO_ACCESS: AccessId = AccessId::MAX;

/// One request for a line. Times are picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The CPU.
    pub cpu: u32,
    /// The line.
    pub line: u32,
    /// The kind of access.
    pub kind: Kind,
    /// When it arrives at the line.
    pub time: u64,
    /// Its time on the way.
    pub way: u64,
    /// Overlap credit: how much earlier the miss could have been issued if it had not waited for an
    /// independent one.
    pub lead: u64,
    /// The caller's mark.
    pub access: AccessId,
    /// Whether the request was issued in kernel mode.
    pub kernel: bool,
    /// The caller's mark of what the CPU was doing.
    pub operation: u8,
}

impl Request {
    /// Returns what is left, at the request's arrival, of a transfer that takes `latency` from its
    /// issue.
    #[inline]
    fn left_of(&self, latency: u64) -> u64 {
        latency.saturating_sub(self.way + self.lead)
    }
}

/// The outcome of a request.
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
    /// The request.
    pub request: Request,
    /// When the access takes effect.
    pub at: u64,
    /// When the CPU goes on.
    pub done: u64,
    /// Where the line came from.
    pub miss: Miss,
}

impl Miss {
    /// A copy at `distance` answered, and no store had invalidated this core's.
    pub(crate) const fn plain(distance: Distance, level_3: bool) -> Self {
        Self { distance, dirty: false, invalidator: NO_ACCESS, taker: None, level_3 }
    }
}

/// Where a line came from, and why it was not there.
#[derive(Clone, Copy, Debug)]
pub struct Miss {
    /// The distance of the copy that answered.
    pub distance: Distance,
    /// Whether another core had modified the line: a HITM.
    pub(crate) dirty: bool,
    /// The store or RMW whose grant invalidated this core's copy; [`NO_ACCESS`] if it never had
    /// one.
    pub invalidator: AccessId,
    /// The core of that store or RMW.
    pub(crate) taker: Option<u16>,
    /// Whether an L3 had the line and no core: never when caches have no sizes.
    pub level_3: bool,
}
