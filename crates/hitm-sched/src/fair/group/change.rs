//! The life of groups: creation, weight, joining, leaving, end.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::average::nanos;
use super::words::GroupOnCpu;
use crate::base::fair_words::{FairTask, Member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::BALANCE_PULL;
use crate::base::weight::Nice;
use crate::fair::group::{CHUNK, Group, GroupWeight, Groups};
use crate::scheduler::Scheduler;

impl<M: hitm_memory::Memory> Group<M> {
    /// Returns whether the group has a reference, for checkers.
    pub(super) fn is_alive(&self) -> bool {
        // Relaxed: checkers look when nothing is in flight.
        self.words.references.load(Ordering::Relaxed) != 0
    }

    /// Takes a reference.
    #[track_caller]
    fn hold(&self) {
        // Acquire: sees how the group was made. Pairs with the swap in `make_group`. Meanwhile the
        // caller holds another reference.
        self.words.references.fetch_add(1, Ordering::Acquire);
    }

    /// Drops a reference; returns true for the last one.
    #[track_caller]
    fn let_go(&self) -> bool {
        // AcqRel: the CPU that drops the last reference sees everything done under the others, and
        // each of them publishes it here.
        self.words.references.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<P: Platform> Scheduler<P> {
    /// Creates an empty group and keeps it for the caller. Its parent is `parent`, which must be a
    /// kept group, or the root for `None`.
    ///
    /// # Panics
    /// When [`GROUPS_MAX`](super::GROUPS_MAX) groups live.
    #[must_use]
    pub fn make_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId {
        self.make_fair();
        let cell = &self.fair().groups;
        if cell.get().is_none() {
            // Placed before it is set: a simulated CPU may be suspended here, and another may come.
            // The first wins.
            let _came_later = cell.set(Groups::new(&self.state.topology, self.config.groups));
        }
        let groups = self.groups().expect("just made");
        let id = GroupId(groups.numbers.take(P::current_cpu()));
        let index = id.0 as usize;
        let chunk = groups.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let group = match chunk[index % CHUNK].get() {
            Some(group) => group,
            None => {
                // The caller alone has the number.
                let _first = chunk[index % CHUNK].set(Group::new(index, &self.state.topology, groups.config));
                groups.get(id)
            }
        };
        if let Some(limit) = group.limit.get() {
            limit.begin();
        }
        if let Some(parent) = parent {
            groups.get(parent).hold();
        }
        // Relaxed: published by the last of these.
        group.words.parent.store(u64::from(GroupId::link(parent)), Ordering::Relaxed);
        // Relaxed: as above.
        group.words.shares.store(u64::from(weight.shares()), Ordering::Relaxed);
        // Release, and a read-modify-write: a CPU that learns the number by whatever means finds
        // the stores above done. Pairs with the additions in `hold`, each of which continues the
        // release sequence, and with whatever publishes the number.
        group.words.references.swap(1, Ordering::Release);
        for cpu in self.state.topology.cpu_ids() {
            if let Some(on) = group.on(cpu) {
                let _rq = self.state.lock(cpu);
                if let Some(parent) = parent {
                    self.make_group_on(parent, cpu, P::now());
                }
                on.begin(parent, weight.shares());
            }
        }
        id
    }

    /// Makes the words of `id`, and of the groups above it, on `cpu`; the caller holds the lock of
    /// its queue.
    pub(super) fn make_group_on(&self, id: GroupId, cpu: CpuId, now: Time) {
        let group = self.group(id);
        if group.on(cpu).is_some() {
            return;
        }
        let parent = group.parent();
        if let Some(parent) = parent {
            self.make_group_on(parent, cpu, now);
        }
        let node = self.state.topology.cpu(cpu).node;
        let words = GroupOnCpu::new(parent, group.shares(), nanos(now));
        let _first = group.on[cpu.index()].set(Placed::new(words, Some(id.0 as usize), Some(node)));
        for made in group.pointers.iter().flat_map(|pointers| &pointers[..2]) {
            // Relaxed: the reader finds the queue under the CPU's lock.
            made[cpu.index()].store(1, Ordering::Relaxed);
        }
    }

    /// Changes the weight of a group.
    pub fn set_group_weight(&self, id: GroupId, weight: GroupWeight) {
        let group = self.group(id);
        // Relaxed: each CPU's queue is visited below.
        group.words.shares.store(u64::from(weight.shares()), Ordering::Relaxed);
        for cpu in self.state.topology.cpu_ids().filter(|&cpu| group.on(cpu).is_some()) {
            let rq = self.state.lock(cpu);
            self.update_shares_above(&rq, id);
        }
    }

    /// Releases the caller's hold on a group. The group ends and its number becomes free when it
    /// has no task and no child group either.
    pub fn free_group(&self, id: GroupId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.group(id);
            if !group.let_go() {
                return;
            }
            next = group.parent();
            self.end_limit(id);
            self.end_load(id);
            self.groups().expect("it was made").numbers.give_back(id.0, P::current_cpu());
        }
    }

    /// Withdraws all load of `id`, which has ended.
    fn end_load(&self, id: GroupId) {
        for cpu in self.state.topology.cpu_ids().filter(|&cpu| self.is_on(id, cpu)) {
            let (rq, now) = (self.state.lock(cpu), P::now());
            let on = self.group_on(id, cpu);
            self.update_queue(cpu, on, nanos(now));
            if let Some(above) = self.above(id, cpu)
                && on.entity.load_updated.get() != 0
            {
                self.update_load(cpu, above, Member::group(id), nanos(now));
                self.detach(self.group_on(above, cpu), &on.entity);
                self.post(cpu, above);
                self.update_shares_above(&rq, above);
            }
            self.unlist_anywhere(cpu, id);
            self.withdraw_load(cpu, id);
            on.end();
        }
    }

    /// A task was made in `group`, to which the caller holds a reference. No other CPU knows the
    /// task yet.
    pub(crate) fn join_group(&self, id: TaskId, group: Option<GroupId>) {
        if self.groups().is_none() {
            return;
        }
        if let Some(group) = group {
            self.group(group).hold();
            self.state.tasks.make_fair(&self.state.topology, id, Nice::DEFAULT);
        }
        if let Some(words) = self.state.tasks.fair_if_made(id) {
            words.group.set(GroupId::link(group));
            words.begin_load(self.weight_of(words));
        }
    }

    /// The number of a task is about to be freed.
    pub(crate) fn leave_group(&self, id: TaskId) {
        if self.groups().is_none() {
            return;
        }
        self.remove_load(self.state.tasks.get(id).cpu(), id);
        let group = self.state.tasks.fair_if_made(id).and_then(|words| {
            let group = GroupId::of_link(words.group.get());
            words.group.set(0);
            group
        });
        group.into_iter().for_each(|group| self.free_group(group));
    }

    /// Moves a task to a kept group, or to no group. A real-time task has no share in its group,
    /// but its group's limit applies. It takes part in the sharing when it becomes fair again.
    pub fn set_group(&self, id: TaskId, group: Option<GroupId>) {
        if self.groups().is_none() {
            return;
        }
        if let Some(group) = group {
            self.group(group).hold();
        }
        let task = self.state.tasks.get(id);
        let pi = task.pi_lock.lock();
        let mut rq = self.state.lock_queue_of(id);
        let words: &FairTask<P> = self.state.tasks.make_fair(&self.state.topology, id, Nice::DEFAULT);
        let before = GroupId::of_link(words.group.get());
        let cpu = rq.cpu;
        let change = || {
            self.detach_load(cpu, id);
            words.group.set(GroupId::link(group));
            if before.is_none() {
                words.begin_load(self.weight_of(words));
            }
            self.follow_group(id, cpu);
        };
        if self.is_fair(id) || self.has_real_time_limits() {
            self.charge_real_time(&rq);
            let highest = self.has_real_time_limits().then(|| rq.highest());
            self.bracket(&rq, id, false, change);
            if rq.curr() == Some(id) {
                self.state.resched(&rq);
            } else if task.on_rq.get() != 0 {
                self.preempt_for(&rq, id);
            }
            if highest.is_some_and(|highest| highest < rq.highest()) {
                rq.request_balance(BALANCE_PULL);
            }
        } else {
            change();
        }
        self.run_balance(&mut rq);
        drop(rq);
        drop(pi);
        before.into_iter().for_each(|before| self.free_group(before));
    }

    /// `id` moves to `cpu` or to another group: reads the pointers to the group's queues there.
    #[track_caller]
    pub(crate) fn follow_group(&self, id: TaskId, cpu: CpuId) {
        if let Some(group) = self.group_hint(id) {
            self.group(group).follow(cpu);
        }
    }

    /// Returns the weight of all entities of a group together, for checkers.
    pub(in crate::fair) fn group_shares(&self, id: GroupId) -> u32 {
        self.group(id).shares()
    }

    /// Returns the group above a group, for checkers.
    pub(in crate::fair) fn group_above(&self, id: GroupId) -> Option<GroupId> {
        self.group(id).parent()
    }

    /// Returns whether `id` was ever used on `cpu`.
    pub(in crate::fair) fn is_on(&self, id: GroupId, cpu: CpuId) -> bool {
        self.group(id).on(cpu).is_some()
    }
}
