//! [`Scheduler`]: the run queues, the tasks and the root domain of one machine, and the operations
//! that a runtime calls.
//!
//! Each operation has its own file: [`enqueue`], [`placement`],
//! [`wake`], [`spare`], [`run_next`], [`succeed`], [`switch`], [`urgent`], [`push`], [`pull`],
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
mod run_next;
mod scheduling;
mod spare;
mod succeed;
mod switch;
mod urgent;
mod wake;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use hitm_memory::{CpuSet, Interrupts, Placed, PlainWord, Platform, RawSpinLock, Time};
use hitm_topology::{CpuId, Topology};

pub use self::scheduling::{Scheduling, SwitchReason};
use crate::base::attributes::{Attributes, WakeHint};
use crate::base::cid::MapSnapshot;
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
use crate::shipped::Shipped;

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
            way: if config.shipped { Way::Shipped(Shipped::new(&topology, config.keeps_wakeups)) } else { Way::Linux },
            state: State::new(topology.clone(), config.keeps_wakeups),
            ids: Ids::new(config.cids, topology.clone()),
            fair: Fair::new(config.idle, config.tick, config.groups, config.keeps_wakeups),
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
        let task = self.state.tasks.get(task);
        if self.keeps_wakeups() {
            task.consume_wakeups();
        } else {
            task.transition_to_running();
        }
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

    /// Returns whether a CPU is online. The answer is a hint.
    #[must_use]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.state.rqs[cpu].online.peek() != 0
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

    /// Returns the CPUs where a task may run, if it may not run on all.
    #[must_use]
    pub fn restricted(&self, task: TaskId) -> Option<CpuSet> {
        let allowed = self.state.tasks.own_allowed(task)?.load();
        (allowed.len() < self.state.topology.cpus()).then_some(allowed)
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
    /// one at the end of its slice. If no tick is needed, `now` is not called. `periodic` is the
    /// last periodic tick that was found, and becomes the next one; the caller keeps it for its
    /// CPU.
    #[must_use]
    pub fn next_tick(&self, has_map: bool, periodic: &Cell<Time>, now: &dyn Fn() -> Time) -> Time {
        let ids_want_one = has_map && self.ids.are_swept();
        if !ids_want_one && !self.fair.is_used() {
            return Time::NEVER;
        }
        self.fair.next_tick_of(&self.state, ids_want_one, periodic, now())
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
        self.queue_fair_at_tick();
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

    fn take_offered(&self, source: RqGuard<'_, P>, rq: &RqGuard<'_, P>, takes_fair: bool) -> bool {
        Self::take_offered(self, source, rq, takes_fair)
    }

    fn offered_to(&self, cpu: CpuId) -> u32 {
        self.run_next().map_or(0, |ring| ring.hint(cpu))
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
