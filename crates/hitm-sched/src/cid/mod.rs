//! Concurrency ids: small numbers that distinguish the running tasks of a map, so that they can
//! index data as CPU numbers do.
//!
//! A map is shared by the tasks of one program: Linux's memory map, or a tenant of our runtime. Its
//! ids are dense, unlike CPU numbers: a map of two tasks on a machine of 400 CPUs needs two slots,
//! not 400.
//!
//! **Claims** of every variant. The random runs of `hitm`'s `tests/it/tenants.rs` check them, and
//! loom checks their orderings:
//!
//! 1. Two tasks of a map that run at the same time never have the same id.
//! 2. An id is below the number of CPUs. An id that [`Recent`](Variant::Recent) allocates is below
//!    the number of CPUs that the map's tasks may use. An id that [`Shipped`](Variant::Shipped)
//!    allocates is below the lesser of that number and the number of tasks at that time.
//! 3. In a quiescent state the number of taken ids is the number of held ids.
//!
//! There are no other promises. A task may have another id after every switch. It belongs to one
//! map for life: there is no exec.
//!
//! | variant | where | owner of an id |
//! |---|---|---|
//! | [`Baseline`](Variant::Baseline) | [`per_cpu`], Linux v6.4 to v6.12 | the CPU, until it has not used the id for 100 ms |
//! | [`Recent`](Variant::Recent) | [`per_cpu`], Linux v6.13 to v6.18 | as above, and the CPU asks for the same id again |
//! | [`Owned`](Variant::Owned) | [`owned`], Linux v6.19 and later | the task while tasks do not outnumber ids, else the CPU |
//! | [`Shipped`](Variant::Shipped) | [`shipped`], our own | its last user, until another task needs the id |

use hitm_memory::{Described, Field, Native};

use crate::linux::cid::{owned, per_cpu};
use crate::shipped;

mod ids;
mod table;

#[cfg(test)]
mod loom;

pub(crate) use ids::Ids;
pub use table::MAPS_MAX;

/// How ids are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Variant {
    /// The lowest free id. The CPU keeps it for 100 ms.
    #[default]
    Baseline,
    /// The CPU's previous id, if it is free.
    Recent,
    /// The task's own id while tasks do not outnumber ids, else the CPU's.
    Owned,
    /// The CPU's previous id, unless another task has needed it.
    Shipped,
}

/// Returns the size and the fields of an object of this module, if `object` is one.
pub(crate) fn layout(object: &str) -> Option<(usize, Vec<Field>)> {
    fn of<T: Described>() -> Option<(usize, Vec<Field>)> {
        Some((size_of::<T>(), T::fields()))
    }
    match object {
        "mm" => of::<per_cpu::MapWords<Native>>(),
        "mm_cid" => of::<per_cpu::Entry<Native>>(),
        "mm_mm_cid" => of::<owned::OwnedWords<Native>>(),
        "cid_map" => of::<shipped::ids::CidMap<Native>>(),
        _ => None,
    }
}
