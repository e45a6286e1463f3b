//! Groups: fair tasks that share as one what they have with others, and real-time tasks that are limited as one.
//!
//! **Protocol.** The scheduler's group is kept by its handle, by each task in it and by each group in it: with the last of them it ends. So a
//! handle may be dropped while tasks of its group run or sleep, and they keep their share.

use std::fmt;
use std::sync::{Arc, Weak};

use hitm_memory::{Platform, Span};
use hitm_sched::fair::group::quota::{GroupQuota, GroupThrottling, QuotaRefused, RealTimeQuota};
use hitm_sched::fair::group::{GroupId, GroupWeight};

use crate::join::JoinHandle;
use crate::runtime::{Handle, Inner};

/// Fair tasks that share as one: see [`Handle::group`]. Clones are the same group.
#[derive(Clone)]
pub struct Group(Arc<Kept>);

struct Kept {
    id: GroupId,
    name: String,
    owner: Arc<dyn Owner>,
}

/// A runtime, whatever it runs on.
trait Owner: Send + Sync {
    /// Makes a group; none when the runtime is gone.
    fn make(&self, parent: GroupId) -> Option<GroupId>;

    fn weigh(&self, group: GroupId, weight: GroupWeight);

    fn limit(&self, group: GroupId, quota: Option<GroupQuota>);

    fn throttling(&self, group: GroupId) -> GroupThrottling;

    fn limit_real_time(&self, group: GroupId, quota: Option<RealTimeQuota>) -> Result<(), QuotaRefused>;

    fn throttling_real_time(&self, group: GroupId) -> GroupThrottling;

    fn give_back(&self, group: GroupId);
}

impl<P: Platform> Owner for Weak<Inner<P>> {
    fn make(&self, parent: GroupId) -> Option<GroupId> {
        let runtime = self.upgrade()?;
        Some(runtime.system_call(|| runtime.sched.make_group(Some(parent), GroupWeight::DEFAULT)))
    }

    fn weigh(&self, group: GroupId, weight: GroupWeight) {
        if let Some(runtime) = self.upgrade() {
            runtime.system_call(|| runtime.sched.set_group_weight(group, weight));
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
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.owner.give_back(self.id);
    }
}

impl Group {
    /// Its number at the scheduler.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.0.id
    }

    /// What it was called when it was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Changes what the group gets against others, from 1 to 10,000; 100, which it begins with, is as much as one task of nice 0.
    ///
    /// # Panics
    /// When `weight` is not 1 to 10,000.
    #[allow(
        clippy::must_use_candidate,
        reason = "the group is changed, and handed on so that it may be said where it is made"
    )]
    pub fn weight(self, weight: u32) -> Self {
        self.0.owner.weigh(self.0.id, GroupWeight::new(weight));
        self
    }

    /// Limits how long the group's tasks, and those of all groups in it, run in each period: `quota`, on all CPUs together. Half a CPU is 50 ms of
    /// each 100, two CPUs are 200 of each 100; 100 ms are the usual period. Another call changes that at any time, and begins a period.
    ///
    /// When the quota is used up the group's fair tasks wait for the next period, wherever they are and whoever idles; those that have a
    /// real-time priority, of their own or lent by a [`PiMutex`](crate::sync::PiMutex), neither wait nor count: their limit is
    /// [another](Group::limit_real_time). CPUs take the quota in slices of 5 ms, and keep what they have left
    /// of one: in a single period a group may run for as much more on each CPU, over many it does not. A task that neither computes nor checks nor
    /// waits runs on; what it uses too much the group lacks later.
    ///
    /// ```
    /// use hitm::{NativeRuntime, Priority, Span, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     // A fifth of a CPU.
    ///     let batch = handle.group("batch").limit(Span::from_micros(20_000), Span::from_micros(100_000));
    ///     let options = SpawnOptions { priority: Priority::fair(0), group: Some(batch.clone()), ..SpawnOptions::default() };
    ///     let sum = handle.spawn(options, async { (0..100).sum::<u32>() }).await.unwrap();
    ///     batch.unlimited();
    ///     sum
    /// });
    /// assert_eq!(sum.unwrap(), 4_950);
    /// ```
    ///
    /// # Panics
    /// When `quota` is not 1 ms to 4 hours, or `period` not 1 ms to 1 s.
    #[allow(
        clippy::must_use_candidate,
        reason = "the group is changed, and handed on so that it may be said where it is made"
    )]
    pub fn limit(self, quota: Span, period: Span) -> Self {
        self.0.owner.limit(self.0.id, Some(GroupQuota::new(quota, period)));
        self
    }

    /// Ends the group's [limit](Group::limit): what waited for the next period may run. Those of groups around it hold.
    #[allow(clippy::must_use_candidate, reason = "as above")]
    pub fn unlimited(self) -> Self {
        self.0.owner.limit(self.0.id, None);
        self
    }

    /// What its limit has done to the group so far; nothing when the runtime is gone.
    #[must_use]
    pub fn throttling(&self) -> GroupThrottling {
        self.0.owner.throttling(self.0.id)
    }

    /// Limits how long the group's tasks with a real-time priority, and those of all groups in it, run on each CPU in each period: `runtime`. 300 ms of each
    /// second leave 700 to others, fair tasks too; a second is the usual period. Another call changes that at any time, and begins a period.
    ///
    /// When the runtime is used up on a CPU the group's real-time tasks there wait for the next period, whoever idles; one that wakes goes where
    /// its group has some left, if it may. A task that is lent a priority by a [`PiMutex`](crate::sync::PiMutex) does not wait, so that nobody waits for it; it
    /// counts. What is used too much, so or since a task neither computed nor checked nor waited, is taken off the periods that follow.
    ///
    /// ```
    /// use hitm::{NativeRuntime, Priority, Span, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let millis = |count: u64| Span::from_micros(count * 1_000);
    ///     let audio = handle.group("audio").limit_real_time(millis(300), millis(1_000)).unwrap();
    ///     let (mixer, refused) = (audio.group("mixer"), audio.group("meters"));
    ///     let mixer = mixer.limit_real_time(millis(200), millis(1_000)).unwrap();
    ///     assert!(refused.limit_real_time(millis(200), millis(1_000)).is_err());
    ///     let options = SpawnOptions { priority: Priority::fifo(50), group: Some(mixer), ..SpawnOptions::default() };
    ///     handle.spawn(options, async { (0..100).sum::<u32>() }).await.unwrap()
    /// });
    /// assert_eq!(sum.unwrap(), 4_950);
    /// ```
    ///
    /// # Errors
    /// When that is a larger part of a CPU than is left of what the next group around it with such a limit, or the CPU, has; or a smaller one than the
    /// groups in it have together. Then nothing changes.
    ///
    /// # Panics
    /// When `period` is not 1 ms to 1 s, or `runtime` less than 100 us or more than `period`.
    pub fn limit_real_time(self, runtime: Span, period: Span) -> Result<Self, QuotaRefused> {
        self.0.owner.limit_real_time(self.0.id, Some(RealTimeQuota::new(runtime, period)))?;
        Ok(self)
    }

    /// Ends the [limit](Group::limit_real_time) of the group's real-time tasks: what waited for the next period may run. Those of groups around it hold.
    #[allow(clippy::must_use_candidate, reason = "as above")]
    pub fn unlimited_real_time(self) -> Self {
        // Nothing that fits ceases to when there is more room.
        let _never_refused = self.0.owner.limit_real_time(self.0.id, None);
        self
    }

    /// What the limit of its real-time tasks has done to the group so far, all CPUs together; nothing when the runtime is gone.
    #[must_use]
    pub fn throttling_real_time(&self) -> GroupThrottling {
        self.0.owner.throttling_real_time(self.0.id)
    }

    /// A group in this one, with tasks of none: it shares with this one's own tasks what this one gets.
    ///
    /// # Panics
    /// When the runtime is gone, or too many groups live.
    #[must_use]
    pub fn group(&self, name: impl Into<String>) -> Self {
        let id = self.0.owner.make(self.0.id).expect("a group of a runtime that is there");
        Self(Arc::new(Kept { id, name: name.into(), owner: self.0.owner.clone() }))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.0.name).field(&self.0.id.0).finish()
    }
}

impl<P: Platform> Handle<P> {
    /// A group of no tasks; [`SpawnOptions::group`](crate::SpawnOptions::group) and [`Handle::set_group_of`] make tasks its own. It is for this
    /// runtime alone. Each call makes another one, whatever its name, which is for people.
    ///
    /// Where fair tasks of several groups want a CPU, each group gets of it what its weight says, however many tasks it has; so does a task that
    /// is in none. What a group gets on all CPUs together is its weight too: it is divided over the CPUs where the group has load. Tasks with a
    /// real-time priority share nothing, but may be [limited](Group::limit_real_time).
    ///
    /// ```
    /// use hitm::{NativeRuntime, Priority, SpawnOptions};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let sum = runtime.run(|handle| async move {
    ///     let batch = handle.group("batch").weight(50);
    ///     let served = handle.group("served").weight(300);
    ///     let urgent = served.group("urgent").weight(1_000);
    ///     let options = |group| SpawnOptions { priority: Priority::fair(0), group: Some(group), ..SpawnOptions::default() };
    ///     let tasks = [batch, served, urgent].map(|group| handle.spawn(options(group), async { 1 }));
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
    /// When too many groups live.
    #[must_use]
    pub fn group(&self, name: impl Into<String>) -> Group {
        let id = self.0.system_call(|| self.0.sched.make_group(None, GroupWeight::DEFAULT));
        Group(Arc::new(Kept { id, name: name.into(), owner: Arc::new(Arc::downgrade(&self.0)) }))
    }

    /// Moves the calling task to a group, or out of all.
    ///
    /// # Panics
    /// Outside a task.
    pub fn set_group(&self, group: Option<&Group>) {
        let cell = self.current_cell();
        self.0.system_call(|| self.0.sched.set_group(cell.id, group.map(Group::id)));
    }

    /// Moves a task to a group, or out of all. Nothing happens when it has ended.
    pub fn set_group_of<T>(&self, task: &JoinHandle<P, T>, group: Option<&Group>) {
        self.with_number(task, |cell| self.0.sched.set_group(cell.id, group.map(Group::id)));
    }
}
