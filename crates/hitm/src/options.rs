//! Options for spawning a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use hitm_memory::{CpuSet, Platform, Time};
use hitm_sched::{Nice, Policy, Prio};

use crate::group::Group;
use crate::roles::Role;
use crate::runtime::Handle;
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
    /// The task's name in warnings and traces; `None` for no name.
    pub name: Option<Arc<str>>,
    /// The task's deadline, if its group is a [deadline group](Handle::deadline_group): see
    /// [`SpawnOptions::due`].
    pub deadline: Option<Time>,
}

impl SpawnOptions {
    /// Gives the task a name.
    ///
    /// ```
    /// use hitm::{Priority, SpawnOptions};
    ///
    /// let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// let options = SpawnOptions::from(Priority::fifo(20)).named("acceptor");
    /// let task = runtime.handle().spawn(options, async { hitm::task_name() });
    /// assert_eq!(runtime.block_on(task).unwrap().as_deref(), Some("acceptor"));
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Puts the task into `group`.
    #[must_use]
    pub fn within(self, group: &Group) -> Self {
        Self { group: Some(group.clone()), ..self }
    }

    /// Gives the task a deadline, on the clock of [`Handle::now`] and [`hitm::now`](crate::now).
    ///
    /// In a [deadline group](Handle::deadline_group), the fair task with the earliest deadline runs
    /// first. Elsewhere, and for a task with a real-time priority, a deadline has no effect. The
    /// default priority is a real-time one: use [`Priority::fair`].
    #[must_use]
    pub fn due(self, deadline: Time) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Lets the task run on `cpus` only.
    #[must_use]
    pub fn on(self, cpus: CpuSet) -> Self {
        Self { cpus: Some(cpus), ..self }
    }

    /// Returns the options with which [`spawn`](fn@crate::spawn) spawns a task in the calling task:
    /// its present own priority, deadline, group and CPUs, and its tenant. The name and the role
    /// are not inherited. Outside a task, returns the defaults.
    ///
    /// A library that spawns tasks while it serves a request thereby stays within the request's
    /// group and tenant.
    #[must_use]
    pub fn inherited<P: Platform>(handle: &Handle<P>) -> Self {
        handle.inherited()
    }
}

/// What a task keeps of its options, beside what its scheduler keeps, and what is counted by role.
#[derive(Debug)]
pub(crate) struct Kept {
    group: Option<Group>,
    name: Option<Arc<str>>,
    role: Option<Role>,
    tenant: Option<Tenant>,
    /// The CPU that the task ran on last, plus 1; 0 before the first time. Only the task's CPU uses
    /// this and the next field.
    pub(crate) last_cpu: AtomicU32,
    /// Whether the task slept before this poll.
    pub(crate) slept: AtomicBool,
}

impl Kept {
    /// Takes what is kept of the options. Most tasks have none of it.
    pub(crate) fn of(options: &mut SpawnOptions) -> Option<Box<Self>> {
        let SpawnOptions { group, name, role, tenant, .. } = options;
        if group.is_none() && name.is_none() && role.is_none() && tenant.is_none() {
            return None;
        }
        let (last_cpu, slept) = (AtomicU32::new(0), AtomicBool::new(true));
        let (group, name, tenant) = (group.take(), name.take(), tenant.take());
        Some(Box::new(Self { group, name, role: *role, tenant, last_cpu, slept }))
    }

    pub(crate) fn role(&self) -> Option<Role> {
        self.role
    }

    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }
}

impl<P: Platform> Handle<P> {
    /// Returns the name of the calling task; `None` outside a task and in a task without a name.
    #[must_use]
    pub fn task_name(&self) -> Option<Arc<str>> {
        self.0.polled()?.kept()?.name().cloned()
    }

    pub(crate) fn inherited(&self) -> SpawnOptions {
        let Some(cell) = self.0.polled() else { return SpawnOptions::default() };
        let (prio, policy) = cell.own_priority(&self.0);
        let cpus = self.0.sched.restricted(cell.id);
        let group = self.present_group(&cell, cell.kept().and_then(|kept| kept.group.as_ref()));
        let priority = Priority { prio, policy };
        let deadline = if group.is_some() { self.0.sched.deadline_of(cell.id) } else { None };
        SpawnOptions { priority, cpus, role: None, tenant: cell.tenant().cloned(), group, name: None, deadline }
    }
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
