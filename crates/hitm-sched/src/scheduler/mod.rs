//! [`Scheduler`]: the run queues, the tasks and the root domain of one machine, and the operations
//! that a runtime calls.
//!
//! Each operation has its own file: [`enqueue`], [`placement`],
//! [`wake`], [`switch`], [`push`], [`pull`],
//! [`change`], [`groups`], [`hotplug`].
//!
//! **Locks.** A run queue's lock protects the queue and the tasks on it. Two of these locks are
//! taken in the order of CPU numbers. A task's `pi_lock` is taken before any run queue's lock, and
//! the lock of [`hotplug`] before both. `rto_lock` is innermost.

mod change;
pub(crate) mod choice;
mod enqueue;
mod groups;
mod hotplug;
mod placement;
mod pull;
mod push;
mod pushable;
mod switch;
mod wake;

use std::fmt::{self, Debug};
use std::sync::Arc;

use hitm_memory::{CpuSet, Interrupts, Placed, PlainWord, Platform, RawSpinLock, Time};
use hitm_topology::{CpuId, Topology};

use crate::base::attributes::{Attributes, Policy, WakeHint};
use crate::base::cid::MapSnapshot;
use crate::base::journal::Entry;
use crate::base::numbers::{MapId, TaskId};
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::stats::Stats;
use crate::base::upcalls::Upcalls;
use crate::base::weight::Nice;
use crate::cid::Ids;
use crate::config::SchedulerConfig;
use crate::fair::class::Fair;
use crate::linux::root_domain::RootDomain;
use crate::scheduler::choice::Way;
use crate::scheduler::hotplug::Hotplug;
use crate::scheduler::wake::WakeFlags;
use crate::shipped::Shipped;

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

    /// Enqueues a prepared task for the first time.
    fn start(&self, task: TaskId);

    /// Wakes a task, with a hint about the waker. Returns false when the task was already awake.
    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool;

    /// Leaves the running task and returns the next one, or `None` if the CPU becomes idle.
    fn switch(&self, why: SwitchReason) -> Option<TaskId>;

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

/// The scheduler of one machine. Methods about the running task, ticks and refills act on the CPU
/// that calls them.
pub struct Scheduler<P: Platform> {
    pub(crate) config: SchedulerConfig,
    pub(crate) rd: RootDomain<P>,
    pub(crate) way: Way<P>,
    pub(crate) state: State<P>,
    pub(crate) ids: Ids<P>,
    pub(crate) fair: Fair<P>,
    pub(crate) hotplug: Placed<P, Hotplug<P>>,
}

impl<P: Platform> Scheduler<P> {
    /// Creates a scheduler for all CPUs of `topology`, all online.
    #[must_use]
    pub(crate) fn new(topology: Arc<Topology>, config: SchedulerConfig) -> Self {
        let scheduler = Self {
            config,
            rd: RootDomain::new(&topology, config.root_domain),
            way: if config.shipped { Way::Shipped(Shipped::new(&topology)) } else { Way::Linux },
            state: State::new(topology.clone()),
            ids: Ids::new(config.cids, topology.clone()),
            fair: Fair::new(config.idle, config.tick, config.groups),
            hotplug: Placed::new(Hotplug { lock: RawSpinLock::new() }, None, None),
        };
        for cpu in topology.cpu_ids() {
            scheduler.bring_online(cpu);
        }
        scheduler
    }

    /// Returns the root domain.
    #[must_use]
    pub fn root_domain(&self) -> &RootDomain<P> {
        &self.rd
    }

    /// Creates a sleeping task. [`wake`](Scheduler::wake) starts it.
    ///
    /// # Panics
    /// When `attributes` allow no CPU, when they have neither a real-time priority nor a fair
    /// policy, or when too many tasks live.
    #[must_use]
    pub fn create(&self, attributes: &Attributes) -> TaskId {
        let id = self.prepare(attributes).expect("too many tasks live at once");
        self.state.tasks.get(id).transition_to_born();
        id
    }

    /// Lowers the maximum number of tasks that live at once from
    /// [`TASKS_MAX`](crate::TASKS_MAX) to `max`.
    pub fn limit_tasks(&self, max: usize) {
        self.state.tasks.limit(max);
    }

    /// Frees the number of a task after its [`SwitchReason::Exit`] switch, or of a task that was
    /// prepared and never started.
    pub fn free(&self, task: TaskId) {
        // No CPU runs the task any more, but the caller may know that from another source. The next
        // task with this number must be created after everything that the CPU which left this one
        // did. The Acquire in `wait_off_cpu` pairs with that CPU's Release.
        self.state.tasks.get(task).wait_off_cpu();
        self.ids.leave(&self.state, task);
        if let Some(group) = self.fair.groups.leave_group(&self.state, task) {
            self.free_group(group);
        }
        self.state.tasks.free(task, P::current_cpu());
    }

    /// Wakes a task. Returns false when the task was already awake.
    pub fn wake(&self, task: TaskId) -> bool {
        self.wake_with(task, WakeHint::None)
    }

    /// Returns the CPU whose queue `task` is or was on last. The answer is a hint.
    #[must_use]
    pub fn cpu_of(&self, task: TaskId) -> CpuId {
        self.state.tasks.get(task).cpu()
    }

    /// Returns whether this is our own scheduler, not a form of the original. What a runtime does
    /// around it follows the original otherwise.
    #[must_use]
    pub fn is_shipped(&self) -> bool {
        self.config.shipped
    }

    /// Sends [`Interrupts::CONTROL`] to the CPU that runs `task`, if the task runs.
    pub fn kick(&self, task: TaskId) {
        let cpu = self.state.tasks.get(task).cpu();
        if self.state.rqs[cpu].curr() == Some(task) {
            P::interrupt(cpu, Interrupts::CONTROL);
        }
    }

    /// Marks the start of a poll: the running task consumes all wakeups before this call.
    pub fn begin_poll(&self, task: TaskId) {
        self.state.tasks.get(task).transition_to_running();
    }

    /// Returns whether this CPU was asked to reschedule.
    #[must_use]
    pub fn needs_resched(&self) -> bool {
        self.state.rqs[P::current_cpu()].needs_resched()
    }

    /// Returns whether `task` uses the round-robin policy. The answer is a hint.
    #[must_use]
    pub fn is_round_robin(&self, task: TaskId) -> bool {
        self.state.tasks.get(task).is_round_robin()
    }

    /// Returns the running task of a CPU. The answer is a hint.
    #[must_use]
    pub fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.state.rqs[cpu].curr()
    }

    /// Returns the priority of a task. The answer is a hint.
    #[must_use]
    pub fn prio_of(&self, task: TaskId) -> Prio {
        self.state.tasks.get(task).prio()
    }

    /// Returns the nice level of a task that is fair or once was. The answer is a hint.
    #[must_use]
    pub fn nice_of(&self, task: TaskId) -> Nice {
        Nice::new(self.state.tasks.fair(task).nice.peek() as i8)
    }

    /// Returns the CPUs where a task may run.
    #[must_use]
    pub fn allowed(&self, task: TaskId) -> CpuSet {
        self.state.tasks.allowed(task).load()
    }

    /// Creates a map. Tasks of one map have concurrency ids that differ from each other.
    ///
    /// # Panics
    /// When [`MAPS_MAX`](crate::cid::MAPS_MAX) maps live.
    #[must_use]
    pub fn make_map(&self) -> MapId {
        self.ids.make()
    }

    /// Frees a map. The numbers of all its tasks must have been freed before.
    pub fn free_map(&self, map: MapId) {
        self.ids.free(&self.state, map);
    }

    /// Returns the time after `now` at which this CPU must next call [`tick`](Scheduler::tick) if
    /// the running task runs on, or [`Time::NEVER`]. `has_map` says whether the running task has a
    /// map. Concurrency ids and waiting fair tasks need periodic ticks. A running fair task needs
    /// one at the end of its slice. If no tick is needed, `now` is not called.
    #[must_use]
    pub fn next_tick(&self, has_map: bool, now: &dyn Fn() -> Time) -> Time {
        let ids_want_one = has_map && self.ids.are_swept();
        if !ids_want_one && !self.fair.is_used() {
            return Time::NEVER;
        }
        self.fair.next_tick_of(&self.state, ids_want_one, now())
    }

    /// Returns the concurrency id of the running task, or `None` when it has no map. The id may
    /// change at every switch.
    #[must_use]
    pub fn cid(&self) -> Option<u32> {
        self.ids.current(&self.state)
    }

    /// Returns the ids of a map, for checkers. Call it only in a quiescent state.
    #[must_use]
    pub fn map_snapshot(&self, map: MapId) -> MapSnapshot {
        self.ids.snapshot(&self.state, map)
    }

    /// Handles a tick on this CPU. Some id allocators clean up at the running task's cost, and fair
    /// tasks may take turns.
    pub fn tick(&self) {
        self.ids.tick(&self.state);
        self.fair.tick_fair(&self.state, &self.rd, self);
    }

    /// Returns the event counts.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.state.stats
    }

    /// Returns the bytes of the root domain's words, and the bytes of these words together with
    /// everything that their pointers lead to.
    #[must_use]
    pub fn root_domain_bytes(&self) -> (usize, usize) {
        let (words, all) = self.rd.bytes();
        (words, all + self.shipped().map_or(0, |own| own.waiting.bytes()))
    }

    /// Returns the topology.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        &self.state.topology
    }
}

fn check_class(prio: Prio, policy: Policy) {
    let is_fair = prio == Prio::NONE && policy.nice().is_some();
    assert!(prio.is_real_time() || is_fair, "a task of policy {policy:?} cannot have priority {prio:?}");
}

impl<P: Platform> Upcalls<P> for Scheduler<P> {
    fn enqueue(&self, rq: &RqGuard<'_, P>, id: TaskId, at_head: bool) {
        Self::enqueue(self, rq, id, at_head);
    }

    fn dequeue(&self, rq: &RqGuard<'_, P>, id: TaskId, sleeps: bool) {
        Self::dequeue(self, rq, id, sleeps);
    }

    fn move_task(&self, from: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        Self::move_task(self, from, id, to);
    }

    fn preempt_for(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        Self::preempt_for(self, rq, id);
    }

    fn run_balance(&self, rq: &mut RqGuard<'_, P>) {
        Self::run_balance(self, rq);
    }
}

impl<P: Platform> fmt::Debug for Scheduler<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("topology", &self.state.topology.name()).finish_non_exhaustive()
    }
}

impl<P: Platform> Scheduling<P> for Scheduler<P> {
    fn prepare(&self, attributes: &Attributes) -> Option<TaskId> {
        check_class(attributes.prio, attributes.policy);
        if attributes.policy.nice().is_some() {
            self.fair.make_fair(&self.state);
        }
        let here = P::current_cpu();
        let cpu = if attributes.allowed.contains(here) { Some(here) } else { attributes.allowed.first_from(here) };
        let cpu = cpu.expect("a task must be allowed on some CPU");
        let id = self.state.tasks.create(&self.state.topology, attributes, cpu, here)?;
        self.state.stats.note(|| Entry::May(id, attributes.allowed.clone()));
        self.ids.join(&self.state, id, attributes.map, &attributes.allowed);
        self.fair.groups.join_group(&self.state, id, attributes.group);
        Some(id)
    }

    fn start(&self, task: TaskId) {
        self.start_task(task, WakeFlags::New);
    }

    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool {
        self.wake_task(task, hint)
    }

    fn switch(&self, why: SwitchReason) -> Option<TaskId> {
        self.switch_task(why)
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
