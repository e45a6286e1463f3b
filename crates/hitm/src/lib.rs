//! An async runtime with real-time priorities.
//!
//! Tasks are futures; each has a priority (FIFO or round-robin) and a set of CPUs that it may run on, and the
//! most urgent ones run. The scheduler is `hitm-sched`'s, so the same program runs natively, one thread a CPU, and on the
//! simulated machine of `hitm-machine`, where every contended cache line of it is reported.
//!
//! ```
//! use hitm::{NativeRuntime, Priority};
//!
//! let runtime = NativeRuntime::with_cpus(2).unwrap();
//! let answer = runtime.run(|handle| async move {
//!     let urgent = handle.spawn(Priority::fifo(80), async { 42 });
//!     urgent.await.unwrap()
//! });
//! assert_eq!(answer.unwrap(), 42);
//! ```
//!
//! **Preemption.** A task is preempted where it computes ([`Handle::compute`]) or calls [`Handle::checkpoint`], and where
//! it waits. What runs between two such points delays whoever is more urgent: that stretch is the bound of every promise
//! here.
//!
//! **Panics.** A task that panics ends, and its [`JoinHandle`] gives the panic to whoever joins it. Nothing else is hurt: not the
//! CPU, not other tasks, and a [`sync::Mutex`] that it held is released.
//!
//! **Cancellation.** A task is aborted by its handle, or by [`Handle::shutdown`]. Its future is dropped, once, where it next waits,
//! computes or checks; each primitive says what becomes of a wait that is dropped.

mod cell;
mod change;
mod contain;
mod group;
mod host;
mod join;
mod local;
mod native;
mod options;
mod population;
mod roles;
mod runtime;
mod spawn;
mod table;
mod tenant;
mod time;
mod work;
mod worker;

pub mod sync;

pub use group::Group;
pub use join::{JoinError, JoinHandle};
pub use native::{NativeError, NativeRuntime};
pub use options::{Priority, SpawnOptions};
pub use roles::{Role, RoleCounts, Roles};
pub use runtime::Handle;
pub use tenant::Tenant;
pub use time::{Elapsed, Sleep};
pub use work::{Checkpoint, Compute, YieldNow};

pub use hitm_memory::{CpuSet, Span, Time};
pub use hitm_sched::fair::group::quota::{GroupThrottling, QuotaRefused};
pub use hitm_sched::mitigation::Mitigation;
pub use hitm_sched::task::TaskId;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The functions of this crate.
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
