//! Groups: fair tasks that share CPU time as one unit, and real-time tasks that share one limit.
//!
//! **Protocol.** The scheduler's group is kept alive by its handles, by each task in it and by each
//! group in it. It ends with the last of them. A handle may therefore be dropped while tasks of its
//! group run or sleep, and these tasks keep their share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hitm_memory::{Platform, Span};
use hitm_sched::{
    GroupId, GroupQuota, GroupSlice, GroupThrottling, GroupWeight, QuotaRefused, RealTimeQuota, SliceRefused,
    TaskOrder, WeightRefused,
};

use crate::cell::Cell;
use crate::host::RuntimeId;
use crate::join::JoinHandle;
use crate::runtime::{Handle, Inner};

/// A group of tasks that are scheduled as one unit: see [`Handle::group`]. Clones refer to the same
/// group.
#[derive(Clone)]
pub struct Group(Arc<Kept>);

struct Kept {
    id: GroupId,
    name: Arc<str>,
    runtime: RuntimeId,
    owner: Arc<dyn Owner>,
}

/// The runtime that a group belongs to, independent of its platform.
trait Owner: Send + Sync {
    /// Makes a group; returns `None` when the runtime is gone.
    fn make(&self, parent: GroupId, order: TaskOrder) -> Option<GroupId>;

    fn weigh(&self, group: GroupId, weight: GroupWeight);

    fn slice(&self, group: GroupId, slice: GroupSlice);

    fn limit(&self, group: GroupId, quota: Option<GroupQuota>);

    fn throttling(&self, group: GroupId) -> GroupThrottling;

    fn limit_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused>;

    fn throttling_real_time(&self, group: GroupId) -> GroupThrottling;

    fn give_back(&self, group: GroupId);

    /// Lists a new group.
    fn list(&self, group: &Arc<Kept>);
}

/// The groups of a runtime by id, with their names. A group that has no handle left stays until its
/// id is used again: its tasks may ask for a new handle.
#[derive(Default)]
pub(crate) struct Listed(Mutex<ById>);

type ById = BTreeMap<GroupId, (Arc<str>, Weak<Kept>)>;

impl Listed {
    /// Runs `f` with the list. `f` drops no group.
    fn with<R>(&self, f: impl FnOnce(&mut ById) -> R) -> R {
        // The lock covers changes of the list alone, so it is consistent.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, group: &Arc<Kept>) {
        self.with(|listed| listed.insert(group.id, (group.name.clone(), Arc::downgrade(group))));
    }

    fn all(&self) -> Vec<Group> {
        self.with(|listed| listed.values().filter_map(|(_, group)| group.upgrade()).map(Group).collect())
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").finish_non_exhaustive()
    }
}

/// What the limits of a group did: part of [`MetricsSnapshot`](crate::MetricsSnapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupThrottle {
    /// The group's name.
    pub name: String,
    /// How often a CPU stopped running the group's tasks, because a limit was used up.
    pub throttles: u64,
    /// How long CPUs did not run the group for that reason, in nanoseconds, summed over all CPUs.
    pub nanos: u64,
}

impl<P: Platform> Owner for Weak<Inner<P>> {
    fn make(&self, parent: GroupId, order: TaskOrder) -> Option<GroupId> {
        Some(self.upgrade()?.make_group(Some(parent), order))
    }

    fn weigh(&self, group: GroupId, weight: GroupWeight) {
        if let Some(runtime) = self.upgrade() {
            runtime.system_call(|| runtime.sched.set_group_weight(group, weight));
        }
    }

    fn slice(&self, group: GroupId, slice: GroupSlice) {
        if let Some(runtime) = self.upgrade() {
            runtime.system_call(|| runtime.sched.set_group_slice(group, slice));
        }
    }

    fn limit(&self, group: GroupId, quota: Option<GroupQuota>) {
        if let Some(runtime) = self.upgrade() {
            runtime.system_call(|| runtime.sched.set_group_quota(group, quota));
        }
    }

    fn throttling(&self, group: GroupId) -> GroupThrottling {
        let throttling = |runtime: Arc<Inner<P>>| runtime.system_call(|| runtime.sched.group_throttling(group));
        self.upgrade().map(throttling).unwrap_or_default()
    }

    fn limit_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused> {
        let Some(runtime) = self.upgrade() else { return Ok(()) };
        runtime.system_call(|| runtime.sched.set_group_real_time(group, quota))
    }

    fn throttling_real_time(&self, group: GroupId) -> GroupThrottling {
        let throttling =
            |runtime: Arc<Inner<P>>| runtime.system_call(|| runtime.sched.group_real_time_throttling(group));
        self.upgrade().map(throttling).unwrap_or_default()
    }

    fn give_back(&self, group: GroupId) {
        if let Some(runtime) = self.upgrade() {
            runtime.in_kernel(|| runtime.sched.free_group(group));
        }
    }

    fn list(&self, group: &Arc<Kept>) {
        if let Some(runtime) = self.upgrade() {
            runtime.groups.add(group);
        }
    }
}

impl<P: Platform> Inner<P> {
    fn make_group(&self, parent: Option<GroupId>, order: TaskOrder) -> GroupId {
        self.system_call(|| self.sched.make_group(parent, GroupWeight::DEFAULT, order))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.owner.give_back(self.id);
    }
}

impl Group {
    /// Returns the group's id in the scheduler.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.0.id
    }

    /// Returns the name that the group was made with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Changes the group's weight against other groups and tasks, from 1 to 10,000. A new group has
    /// weight 100, which equals one task of nice 0. Returns the group, so that the call can follow
    /// the call that makes it.
    ///
    /// # Errors
    /// When `weight` is not 1 to 10,000. The old weight then remains.
    pub fn weight(&self, weight: u32) -> Result<Self, WeightRefused> {
        self.0.owner.weigh(self.0.id, GroupWeight::new(weight)?);
        Ok(self.clone())
    }

    /// Sets the length of the group's turns: its latency class. A turn is the most CPU time that
    /// the group, or a task of it, has before it must compete again. The default depends on the
    /// number of CPUs: 0.7 ms on one, 1.4 ms on two or three, 2.1 ms on four to seven, 2.8 ms on
    /// more. Another call changes it at any time, for the turns that begin afterwards. Returns the
    /// group, as [`Group::weight`].
    ///
    /// When a task of the group wakes, and a group or task with longer turns runs on its CPU, the
    /// woken task mostly runs at the running task's next checkpoint or wait instead of after that
    /// turn. Short turns do not enlarge the group's share, if its polls are shorter than about 4
    /// ms. While the group wants less than its share, a woken task waits for the poll that is under
    /// way, and for up to about a turn divided by the group's share of the CPU. A group that has
    /// had more than its share waits until the others have had theirs, however short its turns. One
    /// that is owed time may have many turns in a row. So a tenant that should answer soon needs
    /// short turns and a large weight. Long turns suit tenants that compute beside each other. They
    /// are interrupted less often. A tenant with shorter turns that is owed time ends a long turn
    /// within about 1 ms.
    ///
    /// From the first call on, each worker with fair tasks ticks once per millisecond. A length can
    /// be changed, but not taken away.
    ///
    /// A group in this one has the same turns, unless it has its own; against the groups and tasks
    /// outside, this group's turns count. In a [deadline group](Handle::deadline_group), tasks with
    /// equal deadlines take these turns.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hitm::{NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let answers = handle.group("answers").slice(Duration::from_micros(100)).unwrap();
    ///     let reports = handle.group("reports").slice(Duration::from_millis(20)).unwrap();
    ///     let options = |group| SpawnOptions::from(Priority::fair(0)).within(group);
    ///     let report = handle.spawn(options(&reports), async { (0..1_000).sum::<u32>() });
    ///     let answer = handle.spawn(options(&answers), async { 42 });
    ///     answer.await.unwrap() + report.await.unwrap()
    /// });
    /// assert_eq!(sum.unwrap(), 499_542);
    /// ```
    ///
    /// # Errors
    /// When `slice` is not 100 us to 100 ms. The old length then remains.
    pub fn slice(&self, slice: impl Into<Span>) -> Result<Self, SliceRefused> {
        self.0.owner.slice(self.0.id, GroupSlice::new(slice.into())?);
        Ok(self.clone())
    }

    /// Limits the CPU time of the group's tasks, and of the tasks in all groups in it, to `quota`
    /// per `period`, summed over all CPUs. Half a CPU is 50 ms per 100 ms; two CPUs are 200 ms per
    /// 100 ms. The usual period is 100 ms. Another call changes the limit at any time and begins a
    /// new period. Returns the group, as [`Group::weight`].
    ///
    /// When the quota is used up, the group's fair tasks wait for the next period on every CPU,
    /// even if CPUs idle. Tasks that have a real-time priority, their own or one lent by a
    /// [`PiMutex`](crate::sync::PiMutex), neither wait nor use the quota;
    /// [`Group::limit_real_time`] limits them. CPUs take the quota in slices of 5 ms. CPUs keep an
    /// unused remainder, so one period may overrun by a slice per CPU; over many periods it
    /// averages out. A task that neither waits, computes nor reaches a checkpoint runs on; the
    /// excess is taken from the group's later quota.
    ///
    /// ```
    /// use hitm::{NativeRuntime, Priority, Span, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let millis = |count: u64| Span::from_micros(count * 1_000);
    ///     // A fifth of a CPU.
    ///     let batch = handle.group("batch").limit(millis(20), millis(100)).unwrap();
    ///     let options = SpawnOptions {
    ///         priority: Priority::fair(0),
    ///         group: Some(batch.clone()),
    ///         ..SpawnOptions::default()
    ///     };
    ///     let sum = handle.spawn(options, async { (0..100).sum::<u32>() }).await.unwrap();
    ///     batch.unlimited();
    ///     sum
    /// });
    /// assert_eq!(sum.unwrap(), 4_950);
    /// ```
    ///
    /// # Errors
    /// When `quota` is not 1 ms to 2^34 us (4.77 hours), or `period` is not 1 ms to 1 s. The old
    /// limit then remains.
    pub fn limit(&self, quota: impl Into<Span>, period: impl Into<Span>) -> Result<Self, QuotaRefused> {
        self.0.owner.limit(self.0.id, Some(GroupQuota::new(quota.into(), period.into())?));
        Ok(self.clone())
    }

    /// Ends the group's [limit](Group::limit). Tasks that waited for the next period may run at
    /// once. The limits of enclosing groups remain.
    pub fn unlimited(&self) {
        self.0.owner.limit(self.0.id, None);
    }

    /// Returns how often and how long the limit throttled the group so far; all zero when the
    /// runtime is gone.
    #[must_use]
    pub fn throttling(&self) -> GroupThrottling {
        self.0.owner.throttling(self.0.id)
    }

    /// Limits the CPU time of the group's real-time tasks, and of those in all groups in it, to
    /// `runtime` per `period` on each CPU. 300 ms per second leave 700 ms per second to other
    /// tasks, including fair tasks. The usual period is one second. Another call changes the limit
    /// at any time and begins a new period. Returns the group, as [`Group::weight`].
    ///
    /// When the runtime is used up on a CPU, the group's real-time tasks there wait for the next
    /// period, even if the CPU idles. A task that wakes goes to a CPU where its group has runtime
    /// left, if its CPU set allows one. A task that is lent a priority by a
    /// [`PiMutex`](crate::sync::PiMutex) does not wait, so that it can release the mutex; its CPU
    /// time counts. An excess is taken from the following periods. It arises from lent priorities,
    /// and from tasks that neither wait, compute nor reach a checkpoint.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hitm::{NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let millis = Duration::from_millis;
    ///     let audio = handle.group("audio").limit_real_time(millis(300), millis(1_000)).unwrap();
    ///     let mixer = audio.group("mixer").limit_real_time(millis(200), millis(1_000)).unwrap();
    ///     // 100 ms are left of the 300 ms, so the group of the meters gets no more than that.
    ///     let meters = audio.group("meters");
    ///     assert!(meters.limit_real_time(millis(200), millis(1_000)).is_err());
    ///     meters.limit_real_time(millis(100), millis(1_000)).unwrap();
    ///     let options = SpawnOptions {
    ///         priority: Priority::fifo(50),
    ///         group: Some(mixer),
    ///         ..SpawnOptions::default()
    ///     };
    ///     handle.spawn(options, async { (0..100).sum::<u32>() }).await.unwrap()
    /// });
    /// assert_eq!(sum.unwrap(), 4_950);
    /// ```
    ///
    /// # Errors
    /// When `period` is not 1 ms to 1 s, or `runtime` is less than 100 us or more than `period`.
    /// When the requested part of a CPU is larger than the part left in the next enclosing group
    /// with a real-time limit, or in the CPU. When it is smaller than the sum of the limits of the
    /// groups in it. The old limit then remains.
    pub fn limit_real_time(&self, runtime: impl Into<Span>, period: impl Into<Span>) -> Result<Self, QuotaRefused> {
        self.0.owner.limit_real_time(self.0.id, Some(RealTimeQuota::new(runtime.into(), period.into())?))?;
        Ok(self.clone())
    }

    /// Ends the [limit](Group::limit_real_time) of the group's real-time tasks. Tasks that waited
    /// for the next period may run at once. The limits of enclosing groups remain.
    pub fn unlimited_real_time(&self) {
        // Removing a limit never fails: what fitted before fits when there is more room.
        let _never_refused = self.0.owner.limit_real_time(self.0.id, None);
    }

    /// Returns how often and how long the real-time limit throttled the group so far, summed over
    /// all CPUs; all zero when the runtime is gone.
    #[must_use]
    pub fn throttling_real_time(&self) -> GroupThrottling {
        self.0.owner.throttling_real_time(self.0.id)
    }

    /// Makes an empty group in this one. The new group and this group's own tasks share this
    /// group's CPU time by weight.
    ///
    /// # Panics
    /// When this is a [deadline group](Handle::deadline_group), when the runtime is gone, or when
    /// too many groups exist.
    #[must_use]
    pub fn group(&self, name: impl Into<String>) -> Self {
        self.make(name.into(), TaskOrder::Weight)
    }

    /// As [`Group::group`], but the new group is a [deadline group](Handle::deadline_group).
    ///
    /// # Panics
    /// As [`Group::group`].
    #[must_use]
    pub fn deadline_group(&self, name: impl Into<String>) -> Self {
        self.make(name.into(), TaskOrder::Deadline)
    }

    fn make(&self, name: String, order: TaskOrder) -> Self {
        let id = self.0.owner.make(self.0.id, order).expect("a group of a runtime that is there");
        Self::listed(Kept { id, name: name.into(), runtime: self.0.runtime, owner: self.0.owner.clone() })
    }

    /// Returns the group's id for a task of `runtime`.
    ///
    /// # Panics
    /// When the group belongs to another runtime, where the id is that of another group.
    pub(crate) fn id_in(&self, runtime: RuntimeId) -> GroupId {
        assert!(self.0.runtime == runtime, "the group `{}` belongs to another runtime", self.0.name);
        self.0.id
    }

    fn listed(kept: Kept) -> Self {
        let kept = Arc::new(kept);
        kept.owner.list(&kept);
        Self(kept)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.0.name).field(&self.0.id.0).finish()
    }
}

impl<P: Platform> Handle<P> {
    /// Makes an empty group of this runtime. [`SpawnOptions::group`](crate::SpawnOptions::group)
    /// and [`Handle::set_group_of`] move tasks into it. Each call makes a new group, even with the
    /// same name; the name is for people only.
    ///
    /// Where fair tasks of several groups want the same CPU, each group gets CPU time in proportion
    /// to its weight, however many tasks it has. A task without a group takes part by its own
    /// weight. A group's weight applies to all CPUs together: it is divided over the CPUs where the
    /// group has load. Tasks with a real-time priority do not share by weight, but their group may
    /// be [limited](Group::limit_real_time).
    ///
    /// ```
    /// use hitm::{NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let batch = handle.group("batch").weight(50).unwrap();
    ///     let served = handle.group("served").weight(300).unwrap();
    ///     let urgent = served.group("urgent").weight(1_000).unwrap();
    ///     let options = |group| SpawnOptions {
    ///         priority: Priority::fair(0),
    ///         group: Some(group),
    ///         ..SpawnOptions::default()
    ///     };
    ///     let spawn = |group| handle.spawn(options(group), async { 1 });
    ///     let tasks = [batch, served, urgent].map(spawn);
    ///     let mut sum = 0;
    ///     for task in tasks {
    ///         sum += task.await.unwrap();
    ///     }
    ///     sum
    /// });
    /// assert_eq!(sum.unwrap(), 3);
    /// ```
    ///
    /// # Panics
    /// When too many groups exist.
    #[must_use]
    pub fn group(&self, name: impl Into<String>) -> Group {
        self.make_group(name.into(), TaskOrder::Weight)
    }

    /// Makes an empty group whose tasks run by deadline. It takes part in the sharing as any
    /// [group](Handle::group) does: its weight and limits say how much CPU time it gets. Of its
    /// fair tasks that wait for a CPU, the one with the earliest deadline gets that time. So a
    /// tenant orders its own requests, and no deadline of one tenant costs another tenant anything.
    ///
    /// [`SpawnOptions::due`](crate::SpawnOptions::due) and [`Handle::set_deadline`] give a task its
    /// deadline. Tasks without one run when no task with a deadline waits. Tasks with equal
    /// deadlines, and those without one, take turns. Weights (nice levels) have no effect within
    /// the group, and it cannot contain groups.
    ///
    /// **Limits.** The order holds on each CPU: a CPU that has tasks of the group does not look at
    /// the deadlines of tasks that wait elsewhere. A CPU without work takes every second one of
    /// another CPU's waiting tasks. A running task with a later deadline is preempted where it next
    /// computes, waits or reaches a checkpoint. A task that yields lets only tasks run whose
    /// deadline is no later; so one that yields until a later task has run may do so for ever. No
    /// lock lends a deadline. A task keeps a deadline that has passed: it runs before tasks whose
    /// deadlines can still be met.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    ///
    /// use hitm::{NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// let order = runtime.run(|handle| async move {
    ///     let requests = handle.deadline_group("requests");
    ///     let options = SpawnOptions::from(Priority::fair(0)).within(&requests);
    ///     let (now, order) = (handle.now(), Arc::new(Mutex::new(Vec::new())));
    ///     let request = |millis| {
    ///         let order = order.clone();
    ///         let options = options.clone().due(now + Duration::from_millis(millis));
    ///         handle.spawn(options, async move { order.lock().unwrap().push(millis) })
    ///     };
    ///     for task in [request(300), request(100), request(200)] {
    ///         task.await.unwrap();
    ///     }
    ///     order.lock().unwrap().clone()
    /// });
    /// assert_eq!(order.unwrap(), [100, 200, 300]);
    /// ```
    ///
    /// # Panics
    /// When too many groups exist.
    #[must_use]
    pub fn deadline_group(&self, name: impl Into<String>) -> Group {
        self.make_group(name.into(), TaskOrder::Deadline)
    }

    fn make_group(&self, name: String, order: TaskOrder) -> Group {
        let id = self.0.make_group(None, order);
        Group::listed(Kept { id, name: name.into(), runtime: self.0.number, owner: self.owner() })
    }

    fn owner(&self) -> Arc<dyn Owner> {
        Arc::new(Arc::downgrade(&self.0))
    }

    /// Returns the group in which the task of `cell`, which calls, is now. `spawned_in` is the one
    /// that it was spawned in: mostly that is still so, and its handle is at hand.
    pub(crate) fn present_group(&self, cell: &Cell<P>, spawned_in: Option<&Group>) -> Option<Group> {
        let hint = self.0.sched.group_of(cell.id)?;
        if let Some(group) = spawned_in.filter(|group| group.0.id == hint) {
            return Some(group.clone());
        }
        let id = self.0.in_kernel(|| self.0.sched.hold_group_of(cell.id))?;
        let owner = self.owner();
        let group = self.0.groups.with(|listed| {
            let (name, group) = listed.get_mut(&id).expect("a group is listed when it is made");
            if let Some(known) = group.upgrade() {
                return Err(known);
            }
            let held = Arc::new(Kept { id, name: name.clone(), runtime: self.0.number, owner });
            *group = Arc::downgrade(&held);
            Ok(held)
        });
        Some(Group(group.unwrap_or_else(|known| {
            self.0.in_kernel(|| self.0.sched.free_group(id));
            known
        })))
    }

    /// Returns what the limits of all groups did; groups of the same name are summed.
    pub(crate) fn throttled_groups(&self) -> Vec<GroupThrottle> {
        let mut sums = BTreeMap::<String, (u64, u64)>::new();
        for group in self.0.groups.all() {
            for own in [group.throttling(), group.throttling_real_time()] {
                let sum = sums.entry(group.name().to_owned()).or_default();
                *sum = (sum.0 + own.throttles, sum.1 + own.throttled.as_picos() / 1_000);
            }
        }
        sums.into_iter().map(|(name, (throttles, nanos))| GroupThrottle { name, throttles, nanos }).collect()
    }

    /// Moves the calling task to `group`, or out of its group with `None`. It loses its deadline.
    ///
    /// # Panics
    /// Outside a task, and when `group` belongs to another runtime.
    pub fn set_group(&self, group: Option<&Group>) {
        let (cell, group) = (self.current_cell(), group.map(|group| group.id_in(self.0.number)));
        self.0.system_call(|| self.0.sched.set_group(cell.id, group));
    }

    /// Moves a task to `group`, or out of its group with `None`. It loses its deadline. Does
    /// nothing when the task has ended.
    ///
    /// # Panics
    /// When the task or `group` belongs to another runtime.
    pub fn set_group_of<T>(&self, task: &JoinHandle<P, T>, group: Option<&Group>) {
        let group = group.map(|group| group.id_in(self.0.number));
        self.with_number(task, |cell| self.0.sched.set_group(cell.id, group));
    }
}
