//! What a runtime says of a task and of a wakeup.

use hitm_memory::CpuSet;

use crate::base::numbers::{GroupId, MapId};
use crate::base::prio::Prio;
use crate::base::weight::Nice;

/// How tasks of equal priority share a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A task runs until it waits or until a more urgent task comes.
    #[default]
    Fifo,
    /// As `Fifo`, but tasks of equal priority take turns.
    RoundRobin,
    /// A fair task. Fair tasks share by weight the time that real-time tasks leave. Its priority is
    /// [`Prio::NONE`] unless it is lent one.
    Fair(Nice),
}

impl Policy {
    /// Returns the nice level of a fair task.
    #[must_use]
    pub const fn nice(self) -> Option<Nice> {
        match self {
            Self::Fair(nice) => Some(nice),
            Self::Fifo | Self::RoundRobin => None,
        }
    }
}

/// A hint from a waker about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeHint {
    /// No hint.
    #[default]
    None,
    /// The waker is about to sleep, so its CPU may soon have room: Linux's sync wakeup. Fair tasks
    /// use it.
    WakerSleeps,
    /// The calling CPU polls the waker. A task that is no more urgent may wait for that CPU, where
    /// the scheduler [keeps](crate::Mitigation::keeping_wakeups) such tasks.
    Polled,
}

/// The attributes of a new task.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// The priority: a real-time priority, or [`Prio::NONE`] for a fair task without a lent
    /// priority.
    pub prio: Prio,
    /// How the task shares its CPU with tasks of equal priority.
    pub policy: Policy,
    /// The CPUs where it may run; `None` for all CPUs.
    pub allowed: Option<CpuSet>,
    /// The map that its concurrency ids belong to, or `None`. Made by
    /// [`Scheduler::make_map`](crate::scheduler::Scheduler::make_map).
    pub map: Option<MapId>,
    /// The scheduling group, or `None`. Made by
    /// [`Scheduler::make_group`](crate::scheduler::Scheduler::make_group).
    pub group: Option<GroupId>,
}
