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
//! A native program needs no handle: [`spawn`](fn@spawn), [`sleep`] and others use the runtime of
//! the calling thread, which `#[hitm::main]` makes. The guide is `docs/runtime.md` in the
//! repository.
//!
//! | feature | what it brings |
//! |---|---|
//! | `macros` (default) | `#[hitm::main]`, `#[hitm::test]` |
//! | `io` | `net`, `io`: sockets on Unix, which the runtime's own CPUs wait for |
//! | `blocking` | `spawn_blocking` |
//! | `tokio`, `hyper`, `futures` | `compat`: libraries that expect another runtime |
//! | `tracing` | a span per task |
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

mod abort_handle;
mod ambient;
mod block;
mod blocking;
mod body;
mod builder;
mod cell;
mod change;
#[cfg(any(feature = "futures", feature = "hyper", feature = "tokio"))]
pub mod compat;
mod contain;
pub mod diagnostics;
mod embedded;
#[cfg(unix)]
mod exposed;
pub mod fork_join;
mod group;
mod host;
mod interval;
#[cfg(all(feature = "io", unix))]
pub mod io;
mod join;
mod join_set;
mod join_word;
mod local;
mod local_task;
mod metrics;
mod native;
#[cfg(all(feature = "io", unix))]
pub mod net;
mod observe;
mod options;
mod roles;
mod runtime;
mod scope;
mod snapshot;
mod spawn;
mod table;
mod task_count;
mod task_local;
mod tenant;
mod time;
#[cfg(feature = "tracing")]
mod trace;
mod watch;
mod work;
mod worker;

#[doc(hidden)]
pub mod start;
pub mod sync;

pub use abort_handle::{AbortHandle, AbortOnDrop};
pub use ambient::{
    Entered, checkpoint, interval, interval_at, now, set_deadline, sleep, sleep_until, spawn, spawn_with, task_name,
    timeout, timeout_at, yield_now,
};
pub use blocking::block_in_place;
#[cfg(feature = "blocking")]
pub use blocking::{BlockingTask, spawn_blocking};
pub use builder::Builder;
pub use embedded::Embedded;
pub use fork_join::join;
pub use group::{Group, GroupThrottle};
pub use interval::{Interval, MissedTicks};
pub use join::{JoinError, JoinHandle};
pub use join_set::JoinSet;
pub use local_task::spawn_local;
pub use metrics::{Class, SlowPoll};
pub use native::{NativeError, NativeRuntime};
pub use observe::PanicPolicy;
pub use options::{Priority, SpawnOptions};
pub use roles::{Role, RoleCounts, Roles};
pub use runtime::Handle;
pub use scope::{Scope, ScopedTask};
pub use snapshot::{ClassMetrics, Histogram, MetricsSnapshot};
pub use task_local::{Scoped, TaskLocal};
pub use tenant::Tenant;
pub use time::{Elapsed, Sleep};
pub use work::{Checkpoint, Compute, YieldNow};

pub use hitm_memory::{CpuSet, Memory, Native, Platform, Span, Time};
pub use hitm_sched::{GroupThrottling, Mitigation, QuotaRefused, SliceRefused, TaskId, WeightRefused};
pub use hitm_topology::{CpuId, Error as TopologyError, Topology, parse as parse_topology};

/// A join handle of the native runtime.
pub type Task<T> = JoinHandle<Native, T>;

/// Runs an async `main` function on a new runtime with the settings of [`Builder`]'s defaults, or
/// with as many threads as `cpus` says. The body runs on the main thread, by [`Handle::block_on`]:
/// it may borrow and need not be `Send`. Tasks that are left when it returns are aborted.
///
/// ```
/// #[hitm::main(cpus = 2)]
/// async fn main() {
///     let task = hitm::spawn(async { 6 * 7 });
///     assert_eq!(task.await.unwrap(), 42);
/// }
/// ```
///
/// Other arguments, functions that are not `async`, and functions with arguments do not compile:
///
/// ```compile_fail
/// #[hitm::main(cpus = 0)]
/// async fn main() {}
/// ```
/// ```compile_fail
/// #[hitm::main]
/// fn main() {}
/// ```
///
/// # Panics
/// When the runtime cannot be made.
#[cfg(feature = "macros")]
pub use hitm_macros::main;
/// Makes an async function a test that runs on a new runtime with one thread, or with as many as
/// `cpus` says. The body runs on the test's thread, by [`Handle::block_on`].
///
/// ```
/// #[hitm::test(cpus = 2)]
/// async fn sums() -> Result<(), hitm::JoinError> {
///     assert_eq!(hitm::spawn(async { 1 + 1 }).await?, 2);
///     Ok(())
/// }
/// ```
///
/// # Panics
/// When the runtime cannot be made.
#[cfg(feature = "macros")]
pub use hitm_macros::test;

/// Compiles and runs the README's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the examples of the guide as tests.
#[cfg(all(doctest, feature = "io"))]
#[doc = include_str!("../../../docs/runtime.md")]
struct Guide;

/// Compiles and runs the examples of the page on Tokio as tests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/from-tokio.md")]
struct FromTokio;

/// The functions of this crate, for reports of the simulated machine.
#[doc(hidden)]
pub static FUNCTIONS: hitm_memory::FunctionTable = include!(concat!(env!("OUT_DIR"), "/functions.rs"));
