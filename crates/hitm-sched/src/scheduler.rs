//! [`Scheduler`]: the run queues, the tasks and the root domain of one machine, and what a runtime asks of them.
//!
//! The operations are in a file each: [`enqueue`](crate::enqueue), [`placement`](crate::placement),
//! [`wake`](crate::wake), [`switch`](crate::switch), [`push`](crate::push), [`pull`](crate::pull),
//! [`change`](crate::change), [`hotplug`](crate::hotplug).
//!
//! **Locks.** A run queue's lock protects the queue and the tasks on it. Two of them are taken in the order of CPU numbers.
//! A task's `pi_lock` is taken before any queue's, and the lock of [`hotplug`](crate::hotplug) before both. `rto_lock` is
//! innermost.

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
use crate::wake::Coming;

/// Why a CPU looks for another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The running task has nothing to do.
    Block,
    /// The running task lets its equals go first.
    Yield,
    /// The CPU was asked to look; or nothing runs.
    Preempt,
    /// The running task has ended.
    Exit,
}

/// What a waker knows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeHint {
    /// Nothing.
    #[default]
    None,
    /// It is about to sleep: its CPU may soon have room. Linux's synchronous wakeup; fair tasks heed it.
    WakerSleeps,
}

/// A scheduler, as a runtime sees it: without the types that say where its fields stand.
///
/// [`begin_poll`](Scheduling::begin_poll), [`switch`](Scheduling::switch), [`needs_resched`](Scheduling::needs_resched),
/// [`handle`](Scheduling::handle) and [`end_of_slice`](Scheduling::end_of_slice) speak of the CPU that calls.
pub trait Scheduling<P: Platform>: Debug + Send + Sync {
    /// Makes a task that sleeps; [`wake`](Scheduling::wake) starts it.
    ///
    /// # Panics
    /// When `attributes` allow no CPU or have neither a real-time priority nor a fair policy, or too many tasks live.
    fn create(&self, attributes: &Attributes) -> TaskId;

    /// As [`create`](Scheduling::create), but nothing wakes the task before [`start`](Scheduling::start): a late wakeup that was
    /// meant for an earlier task of its number passes it by.
    ///
    /// # Panics
    /// As `create`.
    fn prepare(&self, attributes: &Attributes) -> TaskId;

    /// Queues a prepared task for the first time.
    fn start(&self, task: TaskId);

    /// Gives back the number of a task whose [`Why::Exit`] switch is done, or that was prepared and never started.
    fn free(&self, task: TaskId);

    /// Wakes a task; false when it was awake.
    fn wake(&self, task: TaskId) -> bool {
        self.wake_with(task, WakeHint::None)
    }

    /// As [`wake`](Scheduling::wake), by a task that knows something of itself.
    fn wake_with(&self, task: TaskId, hint: WakeHint) -> bool;

    /// Interrupts the CPU that runs `task`, if one does, with [`Interrupts::CONTROL`]: it has something to look at.
    fn kick(&self, task: TaskId);

    /// The running task is about to look at what it waits for: wakeups before this have been heard.
    fn begin_poll(&self, task: TaskId);

    /// Leaves the running task and returns the next; none to idle.
    fn switch(&self, why: Why) -> Option<TaskId>;

    /// Whether this CPU was asked to look for another task.
    fn needs_resched(&self) -> bool;

    /// Does what `interrupts` ask for, but for switching.
    fn handle(&self, interrupts: Interrupts);

    /// Whether `task` takes turns with its equals: a hint.
    fn is_round_robin(&self, task: TaskId) -> bool;

    /// The running round-robin task has used up its turn. True when another of its priority waits.
    fn end_of_slice(&self) -> bool;

    /// Changes how urgent a task is. A fair task that is lent a priority keeps its policy.
    ///
    /// # Panics
    /// When `prio` is no real-time priority and `policy` not fair.
    fn set_prio(&self, task: TaskId, prio: Prio, policy: Policy);

    /// As [`set_prio`](Scheduling::set_prio), with a priority that others lend the task, whatever its policy, since they wait for it: what its group may run does
    /// not hold it back.
    ///
    /// # Panics
    /// As `set_prio`.
    fn lend_prio(&self, task: TaskId, prio: Prio, policy: Policy);

    /// Changes where a task may run.
    ///
    /// # Panics
    /// When `allowed` is empty.
    fn set_allowed(&self, task: TaskId, allowed: &CpuSet);

    /// Takes a CPU out of use: its tasks go elsewhere. False when it is the last one.
    fn set_offline(&self, cpu: CpuId) -> bool;

    /// Puts a CPU to use.
    fn set_online(&self, cpu: CpuId);

    /// The running task of a CPU: a hint.
    fn running(&self, cpu: CpuId) -> Option<TaskId>;

    /// The priority of a task: a hint.
    fn prio_of(&self, task: TaskId) -> Prio;

    /// The nice level of a task that is fair, or was: a hint.
    fn nice_of(&self, task: TaskId) -> Nice;

    /// Where a task may run.
    fn allowed(&self, task: TaskId) -> CpuSet;

    /// Makes a map: what tasks share whose concurrency ids differ from each other's.
    ///
    /// # Panics
    /// When [`MAPS_MAX`](crate::cid::MAPS_MAX) maps live.
    fn make_map(&self) -> MapId;

    /// Gives a map back. The numbers of all its tasks were given back.
    fn free_map(&self, map: MapId);

    /// Makes a group of no tasks: in `parent`, which somebody keeps, or beside the tasks that have none. Its maker keeps it.
    ///
    /// # Panics
    /// When [`GROUPS_MAX`](crate::fair::group::GROUPS_MAX) groups live.
    fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId;

    /// Changes what a group gets against others.
    fn set_group_weight(&self, group: GroupId, weight: GroupWeight);

    /// Limits how long the tasks of a group, which somebody keeps, and of all groups in it run in each period, on all CPUs together; none ends the
    /// limit. It begins anew: a period begins, and what waited for one may run.
    fn set_group_quota(&self, group: GroupId, quota: Option<GroupQuota>);

    /// What its limit has done to a group that somebody keeps.
    fn group_throttling(&self, group: GroupId) -> GroupThrottling;

    /// Limits how long the real-time tasks of a group, which somebody keeps, and of all groups in it run on each CPU in each period; none ends the limit.
    /// It begins anew. Those whose priority is lent run on, and are counted.
    ///
    /// # Errors
    /// When the group above, or the CPU, has not as much left, or the groups in it have more. Then nothing changes.
    fn set_group_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused>;

    /// What that limit has done to the real-time tasks of a group that somebody keeps.
    fn group_real_time_throttling(&self, group: GroupId) -> GroupThrottling;

    /// The maker of a group keeps it no longer. It ends, and its number is free, when it has no task and no group either.
    fn free_group(&self, group: GroupId);

    /// Moves a task to a group that somebody keeps, or to none. A task that is not fair shares nothing, but is
    /// limited with its group, and shares with it again when it is.
    fn set_group(&self, task: TaskId, group: Option<GroupId>);

    /// The concurrency id of the running task; none when it has no map. It may be another one after every switch.
    fn cid(&self) -> Option<u32>;

    /// When, after `now`, this CPU is to call [`tick`](Scheduling::tick) next, if the running task, which has a map or not, runs on:
    /// [`Time::NEVER`] for not at all, and then `now` is not called. Ids want the multiples of a period, and so do fair tasks that wait; a fair task that runs wants
    /// the end of its slice.
    fn next_tick(&self, has_map: bool, now: &dyn Fn() -> Time) -> Time;

    /// When this CPU is to call [`refill`](Scheduling::refill) next if it idles: [`Time::NEVER`] for not at all. It may be another time after every switch.
    fn next_refill(&self) -> Time;

    /// Gives groups that have used up a quota what they have of the next period, if one has begun. A tick does the same.
    fn refill(&self);

    /// A tick of this CPU: some allocators of ids clear up then, at the running task's cost; fair tasks take turns.
    fn tick(&self);

    /// The ids of a map, for checkers. Only when nothing is in flight.
    fn map_snapshot(&self, map: MapId) -> MapSnapshot;

    /// The counts.
    fn stats(&self) -> &Stats;

    /// Everything that a checker looks at. Only when nothing is in flight.
    fn snapshot(&self) -> Snapshot;

    /// Bytes of the root domain's words, and of all that they lead to.
    fn root_domain_bytes(&self) -> (usize, usize);

    /// The topology.
    fn topology(&self) -> &Arc<Topology>;
}

/// The scheduler of one machine. `R` is where the root domain's fields stand.
pub struct Scheduler<P: Platform, R: RootDomainWords<P>> {
    pub(crate) topology: Arc<Topology>,
    pub(crate) rd: RootDomain<P, R>,
    pub(crate) rqs: PerCpu<P, RunQueue<P>>,
    pub(crate) tasks: TaskTable<P>,
    pub(crate) maps: Maps<P>,
    /// Made with the first fair task.
    pub(crate) fair: OnceLock<Fair<P>>,
    pub(crate) hotplug: Placed<P, Hotplug<P>>,
    pub(crate) stats: Stats,
    /// For every CPU the sets around it, smallest first: core, LLC, node, machine.
    pub(crate) neighbourhoods: Box<[[Arc<CpuSet>; 4]]>,
    /// The CPUs of every LLC.
    pub(crate) llcs: Box<[Arc<CpuSet>]>,
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// A scheduler of all CPUs of `topology`, all online.
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

    /// Asks the CPU of `rq` to look for another task.
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

    /// The root domain.
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
        self.start_task(task, Coming::New);
    }

    fn free(&self, task: TaskId) {
        // Nobody runs it any more. But who frees it may know that from elsewhere, and the next task of this number is made after all that
        // the CPU which left this one did: the look pairs with that CPU's Release.
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

    fn switch(&self, why: Why) -> Option<TaskId> {
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
