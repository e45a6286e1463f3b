//! The searches for an idle CPU. A new one is one file, one line below, and one row in the
//! [table of mitigations](crate::mitigation::TABLE).

use hitm_memory::Platform;
use hitm_topology::{CpuId, Scope};

use crate::base::idle::idle_mask::IdleMasks;
use crate::base::idle::sched_domains::Kept;
use crate::base::idle::view::View;

/// A search for an idle CPU. Its type has the parameters that make its variants.
pub(crate) trait Search {
    /// Returns an idle CPU for the task of `view`; with `None` the task goes to the target.
    fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId>;

    /// Returns what the scheduler must record of idle CPUs. `masks` makes the masks of a scope.
    fn keeps<P: Platform>(&self, masks: impl Fn(Scope) -> IdleMasks<P>) -> Kept<P> {
        _ = masks;
        Kept::Nothing
    }

    /// Returns whether it claims a CPU, and so begins before the target and the task's previous
    /// CPUs are examined.
    fn claims(&self) -> bool {
        false
    }

    /// Returns whether a task remembers the CPU before its last one. Otherwise its waker does.
    fn keeps_recent(&self) -> bool {
        true
    }

    /// Returns whether it reads how many CPUs of an LLC are in use, which balance then records.
    fn reads_use(&self) -> bool {
        false
    }
}

/// Declares [`IdleSearch`](crate::fair::idle::IdleSearch): any of the given searches.
macro_rules! searches {
    ($($name:ident),* $(,)?) => {
        /// A search for an idle CPU, with its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum IdleSearch {
            $(#[allow(missing_docs, reason = "the type says it")] $name($name),)*
        }

        impl Search for IdleSearch {
            #[inline]
            fn find<P: Platform>(&self, view: &View<'_, P>) -> Option<CpuId> {
                match self {
                    $(Self::$name(search) => search.find(view),)*
                }
            }

            fn keeps<P: Platform>(&self, masks: impl Fn(Scope) -> IdleMasks<P>) -> Kept<P> {
                match self {
                    $(Self::$name(search) => search.keeps(masks),)*
                }
            }

            fn claims(&self) -> bool {
                match self {
                    $(Self::$name(search) => search.claims(),)*
                }
            }

            fn keeps_recent(&self) -> bool {
                match self {
                    $(Self::$name(search) => search.keeps_recent(),)*
                }
            }

            fn reads_use(&self) -> bool {
                match self {
                    $(Self::$name(search) => search.reads_use(),)*
                }
            }
        }
    };
}

pub(crate) use searches;
