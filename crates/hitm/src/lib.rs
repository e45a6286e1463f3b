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

mod cell;
mod join;
mod native;
mod options;
mod roles;
mod runtime;
mod table;
mod time;
mod work;
mod worker;

pub mod sync;

pub use join::{JoinError, JoinHandle};
pub use native::{NativeError, NativeRuntime};
pub use options::{Priority, SpawnOptions};
pub use roles::{Role, RoleCounts, Roles};
pub use runtime::{Handle, Host};
pub use time::Sleep;
pub use work::{Checkpoint, Compute, YieldNow};

pub use hitm_memory::{CpuSet, Span, Time};
pub use hitm_sched::mitigation::Mitigation;
pub use hitm_sched::task::TaskId;
