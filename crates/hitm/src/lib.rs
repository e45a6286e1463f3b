//! An async runtime with real-time priorities.
//!
//! Tasks are futures. Each task has a priority (FIFO, round-robin or fair) and a set of CPUs that
//! it may run on. The most urgent tasks run. The scheduler comes from `hitm-sched`, so the same
//! program runs natively, with one thread per CPU, and on the simulated machine of `hitm-machine`,
//! which reports every contended cache line in simulated memory.
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
//! **Preemption.** A task can be preempted where it computes ([`Handle::compute`]), calls
//! [`Handle::checkpoint`] or waits. Code between two such points delays more urgent tasks. The
//! longest such stretch bounds every latency that this crate promises.
//!
//! **Panics.** A task that panics ends, and its [`JoinHandle`] returns the panic to the joiner. The
//! CPU and all other tasks go on. A [`sync::Mutex`] that the task held is released.
//!
//! **Cancellation.** A task is aborted by [`JoinHandle::abort`] or [`Handle::shutdown`]. Its future
//! is dropped once, where the task next waits, computes or reaches a checkpoint. Each primitive
//! documents what a dropped wait does.

mod builder;
mod cell;
mod change;
mod contain;
pub mod diagnostics;
mod group;
mod host;
mod join;
mod local;
mod native;
mod options;
mod roles;
mod runtime;
mod spawn;
mod table;
mod task_count;
mod tenant;
mod time;
mod watch;
mod work;
mod worker;

pub mod sync;

pub use builder::Builder;
pub use group::Group;
pub use join::{JoinError, JoinHandle};
pub use native::{NativeError, NativeRuntime};
pub use options::{Priority, SpawnOptions};
pub use roles::{Role, RoleCounts, Roles};
pub use runtime::Handle;
pub use tenant::Tenant;
pub use time::{Elapsed, Sleep};
pub use work::{Checkpoint, Compute, YieldNow};

pub use hitm_memory::{CpuSet, Memory, Native, Platform, Span, Time};
pub use hitm_sched::{GroupThrottling, Mitigation, QuotaRefused, TaskId, WeightRefused};
pub use hitm_topology::{CpuId, Error as TopologyError, Topology, parse as parse_topology};

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The functions of this crate, for reports of the simulated machine.
#[doc(hidden)]
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
