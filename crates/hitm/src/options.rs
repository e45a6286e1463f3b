//! What a task is spawned with.

use hitm_memory::CpuSet;
use hitm_sched::fair::weight::Nice;
use hitm_sched::prio::Prio;
use hitm_sched::task::Policy;

use crate::group::Group;
use crate::roles::Role;
use crate::tenant::Tenant;

/// How urgent a task is and how it shares its CPU with equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    pub(crate) prio: Prio,
    pub(crate) policy: Policy,
}

impl Priority {
    /// Runs until it waits or something more urgent comes. 1 is the least urgent, 99 the most.
    ///
    /// # Panics
    /// When `priority` is not 1 to 99.
    #[must_use]
    pub const fn fifo(priority: u8) -> Self {
        Self { prio: Prio::from_rt_priority(priority), policy: Policy::Fifo }
    }

    /// As [`Priority::fifo`], and tasks of one priority take turns of 100 ms.
    ///
    /// # Panics
    /// When `priority` is not 1 to 99.
    #[must_use]
    pub const fn round_robin(priority: u8) -> Self {
        Self { prio: Prio::from_rt_priority(priority), policy: Policy::RoundRobin }
    }

    /// Below all real-time priorities: fair tasks share what those leave, by weight. -20 is the greediest, 19 the nicest; a level is a
    /// quarter more than the next. Whatever real-time tasks do, a CPU runs fair tasks that wait there for 50 ms of each second.
    ///
    /// # Panics
    /// When `nice` is not -20 to 19.
    #[must_use]
    pub const fn fair(nice: i8) -> Self {
        Self { prio: Prio::NONE, policy: Policy::Fair(Nice::new(nice)) }
    }
}

impl Default for Priority {
    /// FIFO 1: below everything that asks for more.
    fn default() -> Self {
        Self::fifo(1)
    }
}

/// What a task is spawned with. A [`Priority`] alone is one too, and so is `()`: what is not said is the default.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// How urgent it is.
    pub priority: Priority,
    /// Where it may run; none for everywhere.
    pub cpus: Option<CpuSet>,
    /// What it is counted as.
    pub role: Option<Role>,
    /// Whose concurrency ids it has; none for none.
    pub tenant: Option<Tenant>,
    /// With whom it shares as one; none for nobody.
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
