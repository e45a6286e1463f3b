//! Options for spawning a task.

use hitm_memory::CpuSet;
use hitm_sched::{Nice, Policy, Prio};

use crate::group::Group;
use crate::roles::Role;
use crate::tenant::Tenant;

/// The priority of a task and how the task shares its CPU with tasks of the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    pub(crate) prio: Prio,
    pub(crate) policy: Policy,
}

impl Priority {
    /// Returns a FIFO priority: the task runs until it waits or a more urgent task preempts it.
    /// Priority 1 is the least urgent and 99 the most urgent.
    ///
    /// # Panics
    /// When `priority` is not 1 to 99.
    #[must_use]
    pub const fn fifo(priority: u8) -> Self {
        Self { prio: Prio::from_rt_priority(priority), policy: Policy::Fifo }
    }

    /// Returns a round-robin priority: as [`Priority::fifo`], but tasks of the same priority take
    /// turns of 100 ms.
    ///
    /// # Panics
    /// When `priority` is not 1 to 99.
    #[must_use]
    pub const fn round_robin(priority: u8) -> Self {
        Self { prio: Prio::from_rt_priority(priority), policy: Policy::RoundRobin }
    }

    /// Returns a fair priority, which is below all real-time priorities. Fair tasks share the
    /// remaining CPU time by weight. Nice -20 has the largest weight and 19 the smallest; each
    /// level has a weight about 1.25 times that of the next. Where fair tasks wait for a CPU, they
    /// get at least 50 ms of each second there, even if real-time tasks never wait.
    ///
    /// # Panics
    /// When `nice` is not -20 to 19.
    #[must_use]
    pub const fn fair(nice: i8) -> Self {
        Self { prio: Prio::NONE, policy: Policy::Fair(Nice::new(nice)) }
    }
}

impl Default for Priority {
    /// Returns FIFO 1, the least urgent real-time priority.
    fn default() -> Self {
        Self::fifo(1)
    }
}

/// Options for spawning a task. [`Priority`] and `()` convert into it; unset fields use defaults.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// The task's priority.
    pub priority: Priority,
    /// The CPUs that the task may run on; `None` for all CPUs.
    pub cpus: Option<CpuSet>,
    /// The role that the task's events are counted under; `None` for no counts.
    pub role: Option<Role>,
    /// The tenant whose id space the task uses, if any.
    pub tenant: Option<Tenant>,
    /// The scheduling group; `None` for no group.
    pub group: Option<Group>,
}

impl From<Priority> for SpawnOptions {
    fn from(priority: Priority) -> Self {
        Self { priority, ..Self::default() }
    }
}

impl From<()> for SpawnOptions {
    fn from((): ()) -> Self {
        Self::default()
    }
}
