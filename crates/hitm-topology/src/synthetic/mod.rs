//! hwloc synthetic strings: a machine in one line, such as `pack:2 l3:3 core:40 pu:2`.
//!
//! The grammar (hwloc's documentation, page "Synthetic topologies", and the inputs that its 2.9
//! release accepts):
//!
//! ```text
//! string    = [attributes] { level | attached }
//! level     = [type ":"] count [attributes]      count children below each object of the level above
//! attached  = "[" node [attributes] "]"          memory attached to each object of the level above
//! type      = package | socket | die | core | pu | numanode | node | group[N] | tile | module | l1 .. l5, with a
//!             suffix d, u or i (l1 .. l3) and the word cache: `L1dCache`; without regard to case, and as short as two
//!             letters
//! attributes = "(" { "indexes=" (list | loops | types) | ("size=" | "memory=" | "memorysidecachesize=") amount } ")"
//! list      = OS index of every object of the level, separated by commas
//! loops     = step "*" count { ":" step "*" count }
//! types     = type { ":" type }                  the level above over which to count first, then next
//! ```
//!
//! Levels without types get hwloc's: in this order of importance a node, a package, a core, up to
//! four caches, groups. Without nodes the machine is one node. Sizes are checked and not used. The
//! last level is `pu`; where it is missing, each object of the last level has one (hwloc refuses
//! that).
//!
//! These inputs are refused although hwloc accepts them: numbers in hexadecimal or octal, two
//! levels of the same cache, indexes that hwloc would ignore with a warning.
//!
//! - `scan`: text to levels;
//! - `kind`: the names of types, and the types of levels that have none;
//! - `indexes`: OS indices;
//! - `read`: levels to a machine;
//! - `write`: a machine to text.

mod indexes;
mod kind;
mod read;
mod scan;
mod write;

pub(crate) use read::read;

/// Whether a text can be a synthetic string.
pub(crate) fn looks_like_one(text: &str) -> bool {
    text.contains(':') || text.trim_ascii_start().starts_with(|c: char| c.is_ascii_digit() || c == '(' || c == '[')
}
