//! The level of the machine at which state is split.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Place};

/// A level at which state can be kept once per part: the whole machine, a node, an LLC, a core or a
/// CPU.
///
/// The order is by position in [`Scope::ALL`]; a node is not necessarily larger than an LLC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// One part: the whole machine.
    Machine,
    /// One part for each NUMA node.
    Node,
    /// One part for each last-level cache domain.
    Llc,
    /// One part for each physical core.
    Core,
    /// One part for each logical CPU.
    Cpu,
}

impl Scope {
    /// Every scope, in the order of the declaration.
    pub const ALL: [Scope; 5] = [Scope::Machine, Scope::Node, Scope::Llc, Scope::Core, Scope::Cpu];

    /// Returns the name that [`Scope::from_str`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Machine => "machine",
            Scope::Node => "node",
            Scope::Llc => "llc",
            Scope::Core => "core",
            Scope::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Reads `machine`, `node`, `llc`, `core` or `cpu`, in lower case.
impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scope, Error> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            Error::new(text, Place::Whole, "there is no such scope", "use `machine`, `node`, `llc`, `core` or `cpu`")
        })
    }
}
