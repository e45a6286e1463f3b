//! The operations of a runtime's CPUs and tasks: the trait [`Scheduling`].

use std::fmt::Debug;

use hitm_memory::{CpuSet, Interrupts, Platform};
use hitm_topology::CpuId;

use crate::base::attributes::{Attributes, Policy, WakeHint};
use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::scheduler::Scheduler;
use crate::scheduler::wake::WakeFlags;

/// The switch reason: why a CPU picks its next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The running task has nothing to do.
    Block,
    /// The running task lets tasks of its own priority run first.
    Yield,
    /// The CPU was asked to reschedule, or it runs no task.
    Preempt,
    /// The running task has ended.
    Exit,
}

/// The operations of a runtime's CPUs and tasks on a [`Scheduler`]. A call takes, or may take, a
/// lock of the scheduler. A test may put its own implementation between a runtime and its
/// scheduler.
///
/// [`switch`](Scheduling::switch), [`handle`](Scheduling::handle) and
/// [`end_of_slice`](Scheduling::end_of_slice) act on the CPU that calls them.
pub trait Scheduling<P: Platform>: Debug + Send + Sync {
    /// Creates a task like [`create`](Scheduler::create), but no wakeup has an effect before
    /// [`start`](Scheduling::start). A late wakeup for an earlier task with the same number is
    /// ignored. Returns `None` when too many tasks live.
    ///
    /// # Panics
    /// When `attributes` allow no CPU, or when they have neither a real-time priority nor a fair
    /// policy.
    fn prepare(&self, attributes: &Attributes) -> Option<TaskId>;

    /// Enqueues a prepared task for the first time, with a hint about the task that spawned it.
    fn start(&self, task: TaskId, hint: WakeHint);

    /// Wakes a task, with a hint about the waker. Returns false when the task was already awake.
    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool;

    /// Leaves the running task and returns the next one, or `None` if the CPU becomes idle.
    fn switch(&self, why: SwitchReason) -> Option<TaskId>;

    /// Lets other CPUs have the tasks that this CPU has kept for itself: see
    /// [`WakeHint::Polled`]. Call it where the running task could be preempted, if
    /// [`keeps_any`](Scheduler::keeps_any).
    fn spare(&self);

    /// Does the work that `interrupts` ask for, except switching tasks.
    fn handle(&self, interrupts: Interrupts);

    /// Ends the time slice of the running round-robin task. Returns true when another task of its
    /// priority waits.
    fn end_of_slice(&self) -> bool;

    /// Changes the priority and the policy of a task. A fair task that is lent a priority keeps its
    /// policy.
    ///
    /// # Panics
    /// When `prio` is no real-time priority and `policy` is not fair.
    fn set_prio(&self, task: TaskId, prio: Prio, policy: Policy);

    /// Sets a priority like [`set_prio`](Scheduling::set_prio), but as one that waiters lend to the
    /// task, whatever its policy. The real-time limit of the task's group does not hold back a task
    /// with a lent priority.
    ///
    /// # Panics
    /// As `set_prio`.
    fn lend_prio(&self, task: TaskId, prio: Prio, policy: Policy);

    /// Changes the set of CPUs where a task may run.
    ///
    /// # Panics
    /// When `allowed` is empty.
    fn set_allowed(&self, task: TaskId, allowed: &CpuSet);

    /// Takes a CPU out of use and moves its tasks to other CPUs. Returns false when it is the last
    /// CPU.
    fn set_offline(&self, cpu: CpuId) -> bool;

    /// Brings a CPU into use.
    fn set_online(&self, cpu: CpuId);
}

fn check_class(prio: Prio, policy: Policy) {
    let is_fair = prio == Prio::NONE && policy.nice().is_some();
    assert!(prio.is_real_time() || is_fair, "a task of policy {policy:?} cannot have priority {prio:?}");
}

impl<P: Platform> Scheduling<P> for Scheduler<P> {
    fn prepare(&self, attributes: &Attributes) -> Option<TaskId> {
        check_class(attributes.prio, attributes.policy);
        if attributes.policy.nice().is_some() {
            self.fair.make_fair(&self.state);
        }
        let here = P::current_cpu();
        let allowed = self.state.tasks.wanted(attributes);
        let cpu = if allowed.contains(here) { Some(here) } else { allowed.first_from(here) };
        let cpu = cpu.expect("a task must be allowed on some CPU");
        let id = self.state.tasks.create(&self.state.topology, attributes, cpu, here)?;
        self.state.stats.note(|| Entry::May(id, Box::new(allowed.clone())));
        self.ids.join(&self.state, id, attributes.map, allowed);
        self.fair.groups.join_group(&self.state, id, attributes.group);
        Some(id)
    }

    fn start(&self, task: TaskId, hint: WakeHint) {
        self.start_task(task, WakeFlags::New(hint));
    }

    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool {
        self.wake_task(task, hint)
    }

    fn switch(&self, why: SwitchReason) -> Option<TaskId> {
        self.switch_task(why)
    }

    fn spare(&self) {
        self.spare_kept();
    }

    fn handle(&self, interrupts: Interrupts) {
        if interrupts.contains(Interrupts::PUSH) {
            self.run_push_work();
        }
    }

    fn end_of_slice(&self) -> bool {
        self.rotate_round_robin()
    }

    fn set_prio(&self, task: TaskId, prio: Prio, policy: Policy) {
        check_class(prio, policy);
        self.change_prio(task, prio, policy, false);
    }

    fn lend_prio(&self, task: TaskId, prio: Prio, policy: Policy) {
        check_class(prio, policy);
        self.change_prio(task, prio, policy, true);
    }

    fn set_allowed(&self, task: TaskId, allowed: &CpuSet) {
        assert!(!allowed.is_empty(), "a task must be allowed on some CPU");
        self.change_allowed(task, allowed);
    }

    fn set_offline(&self, cpu: CpuId) -> bool {
        self.take_offline(cpu)
    }

    fn set_online(&self, cpu: CpuId) {
        self.bring_online(cpu);
    }
}
