//! [`Scheduler`]: the run queues, the tasks and the root domain of one machine, and the operations
//! that a runtime calls.
//!
//! Each operation has its own file: [`enqueue`](crate::enqueue), [`placement`](crate::placement),
//! [`wake`](crate::wake), [`switch`](crate::switch), [`push`](crate::push), [`pull`](crate::pull),
//! [`change`](crate::change), [`hotplug`](crate::hotplug).
//!
//! **Locks.** A run queue's lock protects the queue and the tasks on it. Two of these locks are
//! taken in the order of CPU numbers. A task's `pi_lock` is taken before any run queue's lock, and
//! the lock of [`hotplug`](crate::hotplug) before both. `rto_lock` is innermost.

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};

use hitm_memory::{CpuSet, Interrupts, PerCpu, Placed, PlainWord, Platform, RawSpinLock, Time};
use hitm_topology::{CpuId, Scope, Topology};

use crate::check::Snapshot;
use crate::cid::{MapId, MapSnapshot, Maps};
use crate::fair::class::Fair;
use crate::fair::group::quota::{GroupQuota, GroupThrottling, QuotaRefused, RealTimeQuota};
use crate::fair::group::{GroupId, GroupWeight};
use crate::fair::weight::Nice;
use crate::hotplug::Hotplug;
use crate::journal::Entry;
use crate::prio::Prio;
use crate::root_domain::{RootDomain, RootDomainConfig, RootDomainWords};
use crate::rq::{RqGuard, RunQueue};
use crate::stats::{Count, Stats};
use crate::task::{Attributes, Policy, TaskId, TaskTable};
use crate::wake::WakeFlags;

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

/// A hint from a waker about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeHint {
    /// No hint.
    #[default]
    None,
    /// The waker is about to sleep, so its CPU may soon have room: Linux's sync wakeup. Fair tasks
    /// use it.
    WakerSleeps,
}

/// A scheduler as a runtime sees it, without the types that determine its fields' placement.
///
/// [`begin_poll`](Scheduling::begin_poll), [`switch`](Scheduling::switch),
/// [`needs_resched`](Scheduling::needs_resched), [`handle`](Scheduling::handle) and
/// [`end_of_slice`](Scheduling::end_of_slice) act on the CPU that calls them.
pub trait Scheduling<P: Platform>: Debug + Send + Sync {
    /// Creates a sleeping task. [`wake`](Scheduling::wake) starts it.
    ///
    /// # Panics
    /// When `attributes` allow no CPU, when they have neither a real-time priority nor a fair
    /// policy, or when too many tasks live.
    fn create(&self, attributes: &Attributes) -> TaskId;

    /// Creates a task like [`create`](Scheduling::create), but no wakeup has an effect before
    /// [`start`](Scheduling::start). A late wakeup for an earlier task with the same number is
    /// ignored.
    ///
    /// # Panics
    /// As `create`.
    fn prepare(&self, attributes: &Attributes) -> TaskId;

    /// Enqueues a prepared task for the first time.
    fn start(&self, task: TaskId);

    /// Frees the number of a task after its [`SwitchReason::Exit`] switch, or of a task that was
    /// prepared and never started.
    fn free(&self, task: TaskId);

    /// Wakes a task. Returns false when the task was already awake.
    fn wake(&self, task: TaskId) -> bool {
        self.wake_with(task, WakeHint::None)
    }

    /// Wakes a task like [`wake`](Scheduling::wake), with a hint about the waker.
    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool;

    /// Sends [`Interrupts::CONTROL`] to the CPU that runs `task`, if the task runs.
    fn kick(&self, task: TaskId);

    /// Marks the start of a poll: the running task consumes all wakeups before this call.
    fn begin_poll(&self, task: TaskId);

    /// Leaves the running task and returns the next one, or `None` if the CPU becomes idle.
    fn switch(&self, why: SwitchReason) -> Option<TaskId>;

    /// Returns whether this CPU was asked to reschedule.
    fn needs_resched(&self) -> bool;

    /// Does the work that `interrupts` ask for, except switching tasks.
    fn handle(&self, interrupts: Interrupts);

    /// Returns whether `task` uses the round-robin policy. The answer is a hint.
    fn is_round_robin(&self, task: TaskId) -> bool;

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

    /// Returns the running task of a CPU. The answer is a hint.
    fn running(&self, cpu: CpuId) -> Option<TaskId>;

    /// Returns the priority of a task. The answer is a hint.
    fn prio_of(&self, task: TaskId) -> Prio;

    /// Returns the nice level of a task that is fair or once was. The answer is a hint.
    fn nice_of(&self, task: TaskId) -> Nice;

    /// Returns the CPUs where a task may run.
    fn allowed(&self, task: TaskId) -> CpuSet;

    /// Creates a map. Tasks of one map have concurrency ids that differ from each other.
    ///
    /// # Panics
    /// When [`MAPS_MAX`](crate::cid::MAPS_MAX) maps live.
    fn make_map(&self) -> MapId;

    /// Frees a map. The numbers of all its tasks must have been freed before.
    fn free_map(&self, map: MapId);

    /// Creates an empty group and keeps it for the caller. Its parent is `parent`, which must be a
    /// kept group, or the root for `None`.
    ///
    /// # Panics
    /// When [`GROUPS_MAX`](crate::fair::group::GROUPS_MAX) groups live.
    fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId;

    /// Changes the weight of a group.
    fn set_group_weight(&self, group: GroupId, weight: GroupWeight);

    /// Limits the run time of a kept group per period, over all CPUs together. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period, and
    /// throttled tasks may run again.
    fn set_group_quota(&self, group: GroupId, quota: Option<GroupQuota>);

    /// Returns how often and how long its limit has throttled a kept group.
    fn group_throttling(&self, group: GroupId) -> GroupThrottling;

    /// Limits the run time of a kept group's real-time tasks per CPU and period. The tasks of all
    /// groups below it count too. `None` removes the limit. A change begins a new period. Tasks
    /// with a lent priority are counted, but are not throttled.
    ///
    /// # Errors
    /// When the parent group or the CPU has too little left, or when groups below have more. Then
    /// nothing changes.
    fn set_group_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused>;

    /// Returns how often and how long that limit has throttled the real-time tasks of a kept group.
    fn group_real_time_throttling(&self, group: GroupId) -> GroupThrottling;

    /// Releases the caller's hold on a group. The group ends and its number becomes free when it
    /// has no task and no child group either.
    fn free_group(&self, group: GroupId);

    /// Moves a task to a kept group, or to no group. A real-time task has no share in its group,
    /// but its group's limit applies. It takes part in the sharing when it becomes fair again.
    fn set_group(&self, task: TaskId, group: Option<GroupId>);

    /// Returns the concurrency id of the running task, or `None` when it has no map. The id may
    /// change at every switch.
    fn cid(&self) -> Option<u32>;

    /// Returns the time after `now` at which this CPU must next call [`tick`](Scheduling::tick) if
    /// the running task runs on, or [`Time::NEVER`]. `has_map` says whether the running task has a
    /// map. Concurrency ids and waiting fair tasks need periodic ticks. A running fair task needs
    /// one at the end of its slice. If no tick is needed, `now` is not called.
    fn next_tick(&self, has_map: bool, now: &dyn Fn() -> Time) -> Time;

    /// Returns the time at which this CPU must next call [`refill`](Scheduling::refill) if it is
    /// idle, or [`Time::NEVER`]. The time may change at every switch.
    fn next_refill(&self) -> Time;

    /// Refills the groups that have used up their quota, if their next period has begun. A tick
    /// does the same.
    fn refill(&self);

    /// Handles a tick on this CPU. Some id allocators clean up at the running task's cost, and fair
    /// tasks may take turns.
    fn tick(&self);

    /// Returns the ids of a map, for checkers. Call it only in a quiescent state.
    fn map_snapshot(&self, map: MapId) -> MapSnapshot;

    /// Returns the event counts.
    fn stats(&self) -> &Stats;

    /// Returns the whole state, for checkers. Call it only in a quiescent state.
    fn snapshot(&self) -> Snapshot;

    /// Returns the bytes of the root domain's words, and the bytes of these words together with
    /// everything that their pointers lead to.
    fn root_domain_bytes(&self) -> (usize, usize);

    /// Returns the topology.
    fn topology(&self) -> &Arc<Topology>;
}

/// The scheduler of one machine. `R` gives the placement of the root domain's fields.
pub struct Scheduler<P: Platform, R: RootDomainWords<P>> {
    pub(crate) topology: Arc<Topology>,
    pub(crate) rd: RootDomain<P, R>,
    pub(crate) rqs: PerCpu<P, RunQueue<P>>,
    pub(crate) tasks: TaskTable<P>,
    pub(crate) maps: Maps<P>,
    /// Created with the first fair task.
    pub(crate) fair: OnceLock<Fair<P>>,
    pub(crate) hotplug: Placed<P, Hotplug<P>>,
    pub(crate) stats: Stats,
    /// For each CPU, the sets of CPUs around it, smallest first: core, LLC, node, machine.
    pub(crate) neighbourhoods: Box<[[Arc<CpuSet>; 4]]>,
    /// The CPUs of each LLC.
    pub(crate) llcs: Box<[Arc<CpuSet>]>,
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Creates a scheduler for all CPUs of `topology`, all online.
    #[must_use]
    pub fn new(topology: Arc<Topology>, config: RootDomainConfig) -> Self {
        let sets = |scope| -> Vec<Arc<CpuSet>> {
            let set = |part| Arc::new(topology.cpus_of(scope, part).iter().copied().collect());
            (0..topology.parts(scope)).map(set).collect()
        };
        let scopes = [Scope::Core, Scope::Llc, Scope::Node, Scope::Machine];
        let by_scope = scopes.map(sets);
        let around = |cpu| std::array::from_fn(|at| by_scope[at][topology.part_of(scopes[at], cpu)].clone());
        let scheduler = Self {
            rd: RootDomain::new(&topology, config),
            rqs: PerCpu::new(&topology, |_| RunQueue::new()),
            tasks: TaskTable::new(&topology),
            maps: Maps::new(config.cids, topology.clone()),
            fair: OnceLock::new(),
            hotplug: Placed::new(Hotplug { lock: RawSpinLock::new() }, None, None),
            stats: Stats::new(topology.cpus(), P::current_cpu, P::now),
            neighbourhoods: topology.cpu_ids().map(around).collect(),
            llcs: by_scope[1].iter().cloned().collect(),
            topology,
        };
        for cpu in scheduler.topology.cpu_ids() {
            scheduler.bring_online(cpu);
        }
        scheduler
    }

    #[track_caller]
    pub(crate) fn lock(&self, cpu: CpuId) -> RqGuard<'_, P> {
        RqGuard::lock(&self.rqs[cpu], cpu)
    }

    /// Asks the CPU of `rq` to reschedule.
    pub(crate) fn resched(&self, rq: &RqGuard<'_, P>) {
        if rq.needs_resched() {
            return;
        }
        rq.set_need_resched();
        if rq.cpu != P::current_cpu() {
            self.stats.add(Count::Kick);
            P::interrupt(rq.cpu, Interrupts::RESCHEDULE);
        }
    }

    /// Returns the root domain.
    #[must_use]
    pub fn root_domain(&self) -> &RootDomain<P, R> {
        &self.rd
    }
}

fn check_class(prio: Prio, policy: Policy) {
    let is_fair = prio == Prio::NONE && policy.nice().is_some();
    assert!(prio.is_real_time() || is_fair, "a task of policy {policy:?} cannot have priority {prio:?}");
}

impl<P: Platform, R: RootDomainWords<P>> fmt::Debug for Scheduler<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("topology", &self.topology.name()).finish_non_exhaustive()
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduling<P> for Scheduler<P, R> {
    fn create(&self, attributes: &Attributes) -> TaskId {
        let id = self.prepare(attributes);
        self.tasks.get(id).transition_to_born();
        id
    }

    fn prepare(&self, attributes: &Attributes) -> TaskId {
        check_class(attributes.prio, attributes.policy);
        if attributes.policy.nice().is_some() {
            self.make_fair();
        }
        let here = P::current_cpu();
        let cpu = if attributes.allowed.contains(here) { Some(here) } else { attributes.allowed.first_from(here) };
        let cpu = cpu.expect("a task must be allowed on some CPU");
        let id = self.tasks.create(&self.topology, attributes, cpu, here);
        self.stats.note(|| Entry::May(id, attributes.allowed.clone()));
        self.join_map(id, attributes.map, &attributes.allowed);
        self.join_group(id, attributes.group);
        id
    }

    fn start(&self, task: TaskId) {
        self.start_task(task, WakeFlags::New);
    }

    fn free(&self, task: TaskId) {
        // No CPU runs the task any more, but the caller may know that from another source. The next
        // task with this number must be created after everything that the CPU which left this one
        // did. The Acquire in `wait_off_cpu` pairs with that CPU's Release.
        self.tasks.get(task).wait_off_cpu();
        self.leave_map(task);
        self.leave_group(task);
        self.tasks.free(task, P::current_cpu());
    }

    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool {
        self.wake_task(task, hint)
    }

    fn kick(&self, task: TaskId) {
        let cpu = self.tasks.get(task).cpu();
        if self.rqs[cpu].curr() == Some(task) {
            P::interrupt(cpu, Interrupts::CONTROL);
        }
    }

    fn begin_poll(&self, task: TaskId) {
        self.tasks.get(task).transition_to_running();
    }

    fn switch(&self, why: SwitchReason) -> Option<TaskId> {
        self.switch_task(why)
    }

    fn needs_resched(&self) -> bool {
        self.rqs[P::current_cpu()].needs_resched()
    }

    fn handle(&self, interrupts: Interrupts) {
        if interrupts.contains(Interrupts::PUSH) {
            self.run_push_work();
        }
    }

    fn is_round_robin(&self, task: TaskId) -> bool {
        self.tasks.get(task).is_round_robin()
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

    fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.rqs[cpu].curr()
    }

    fn prio_of(&self, task: TaskId) -> Prio {
        self.tasks.get(task).prio()
    }

    fn nice_of(&self, task: TaskId) -> Nice {
        Nice::new(self.tasks.fair(task).nice.peek() as i8)
    }

    fn allowed(&self, task: TaskId) -> CpuSet {
        self.tasks.allowed(task).load()
    }

    fn make_map(&self) -> MapId {
        self.maps.make()
    }

    fn free_map(&self, map: MapId) {
        self.maps.give_back(map, self);
    }

    fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId {
        self.begin_group(parent, weight)
    }

    fn set_group_weight(&self, group: GroupId, weight: GroupWeight) {
        self.weigh_group(group, weight);
    }

    fn set_group_quota(&self, group: GroupId, quota: Option<GroupQuota>) {
        self.limit_group(group, quota);
    }

    fn group_throttling(&self, group: GroupId) -> GroupThrottling {
        self.throttling_of(group)
    }

    fn set_group_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused> {
        self.limit_real_time(group, quota)
    }

    fn group_real_time_throttling(&self, group: GroupId) -> GroupThrottling {
        self.real_time_throttling_of(group)
    }

    fn free_group(&self, group: GroupId) {
        self.release_group(group);
    }

    fn set_group(&self, task: TaskId, group: Option<GroupId>) {
        self.change_group(task, group);
    }

    fn cid(&self) -> Option<u32> {
        self.current_id()
    }

    fn next_tick(&self, has_map: bool, now: &dyn Fn() -> Time) -> Time {
        let ids_want_one = has_map && self.maps.are_swept();
        if !ids_want_one && self.fair.get().is_none() {
            return Time::NEVER;
        }
        self.next_tick_of(ids_want_one, now())
    }

    fn next_refill(&self) -> Time {
        self.refill_due()
    }

    fn refill(&self) {
        self.look_after_limits();
    }

    fn tick(&self) {
        self.tick_ids();
        self.tick_fair();
    }

    fn map_snapshot(&self, map: MapId) -> MapSnapshot {
        self.map_snapshot(map)
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn snapshot(&self) -> Snapshot {
        self.take_snapshot()
    }

    fn root_domain_bytes(&self) -> (usize, usize) {
        self.rd.bytes()
    }

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }
}
