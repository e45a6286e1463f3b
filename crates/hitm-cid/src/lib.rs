//! Small integers that no two running threads of a process share.

// The `area` that reads the kernel's ids, and the one for everywhere else.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod area;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
)))]
#[path = "area_none.rs"]
mod area;

mod at_thread_end;
mod atomics;
mod bitmap;
mod cid;
mod counter;
mod current;
#[cfg(test)]
mod loom;
mod own;
mod per_cid;
mod pool;
mod support;
mod table;

pub use cid::{Cid, Source};
pub use counter::Counter;
pub use current::{current, support};
pub use per_cid::PerCid;
pub use pool::{Pool, Pooled};
pub use support::Support;
