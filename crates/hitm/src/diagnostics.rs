//! What a runtime's scheduler counts and shows of itself: for tests, benchmarks and reports. A
//! service does not need it.
//!
//! ```
//! use hitm::diagnostics::Count;
//! use hitm::{NativeRuntime, Priority};
//!
//! let runtime = NativeRuntime::with_cpus(1).unwrap();
//! let wakeups = runtime.run(|handle| async move {
//!     handle.spawn(Priority::fifo(1), async {}).await.unwrap();
//!     handle.diagnostics().stats().sum(Count::Wake)
//! });
//! assert!(wakeups.unwrap() > 0);
//! ```

use std::fmt;

use hitm_memory::{CpuSet, Described, Field, Native, Platform};
use hitm_sched::TaskId;

use crate::runtime::{Handle, Inner};
use crate::tenant::Tenant;
use crate::watch::Deadline;

pub use hitm_sched::{Conservation, Count, GroupId, MapId, MapSnapshot, Prio, Snapshot, Stats};

/// Returns the runtime's own objects in shared memory, each with its size and its fields: the
/// deadlines that CPUs watch, and the words of futexes and mutexes. Those of the scheduler are
/// `hitm_sched::LAYOUTS`.
#[must_use]
pub fn layouts() -> Vec<(&'static str, usize, Vec<Field>)> {
    let deadline = <Deadline<Native> as Described>::fields();
    [(Deadline::<Native>::OBJECT, size_of::<Deadline<Native>>(), deadline)]
        .into_iter()
        .chain(crate::sync::layouts())
        .collect()
}

/// The diagnostics of one runtime: see [`Handle::diagnostics`].
#[derive(Clone, Copy)]
pub struct Diagnostics<'a, P: Platform>(&'a Inner<P>);

impl<P: Platform> fmt::Debug for Diagnostics<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnostics").finish_non_exhaustive()
    }
}

impl<P: Platform> Handle<P> {
    /// Returns the diagnostics of the runtime's scheduler.
    #[must_use]
    pub fn diagnostics(&self) -> Diagnostics<'_, P> {
        Diagnostics(&self.0)
    }
}

impl<'a, P: Platform> Diagnostics<'a, P> {
    /// Returns the event counts.
    #[must_use]
    pub fn stats(self) -> &'a Stats {
        self.0.sched.stats()
    }

    /// Returns the whole state of the scheduler. It is consistent only while no task is woken,
    /// moved or changed; [`Snapshot::violations`] checks it.
    #[must_use]
    pub fn snapshot(self) -> Snapshot {
        self.0.sched.snapshot()
    }

    /// Returns the concurrency ids of a tenant. They are consistent only while none of its tasks is
    /// switched.
    #[must_use]
    pub fn ids_of(self, tenant: &Tenant) -> MapSnapshot {
        self.0.sched.map_snapshot(tenant.map())
    }

    /// Returns the present priority of a task, lent ones included. The answer is a hint.
    #[must_use]
    pub fn priority_of(self, task: TaskId) -> Prio {
        self.0.sched.prio_of(task)
    }

    /// Returns the CPUs where a task may run.
    #[must_use]
    pub fn cpus_of(self, task: TaskId) -> CpuSet {
        self.0.sched.allowed(task)
    }

    /// Returns whether the scheduler is the crate's own, not a form of Linux's.
    #[must_use]
    pub fn is_shipped(self) -> bool {
        self.0.sched.is_shipped()
    }

    /// Returns the bytes of the root domain's words, and the bytes of these words together with
    /// everything that their pointers lead to.
    #[must_use]
    pub fn root_domain_bytes(self) -> (usize, usize) {
        self.0.sched.root_domain_bytes()
    }

    /// Lets at most `max` tasks live at once, to test what happens when there is no room. The
    /// default is the largest number.
    pub fn limit_tasks(self, max: usize) {
        self.0.sched.limit_tasks(max);
    }
}
