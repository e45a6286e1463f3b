//! The life of groups: made, weighed, joined, left, ended.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, PlainWord, Platform};
use hitm_topology::CpuId;

use super::{CHUNK, Group, GroupId, GroupOnCpu, GroupWeight, Groups};
use crate::fair::weight::Nice;
use crate::fair::words::{FairTask, Member};
use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::task::TaskId;

impl<M: hitm_memory::Memory> Group<M> {
    /// Whether somebody has it, for checkers.
    pub(super) fn is_alive(&self) -> bool {
        // Relaxed: checkers look when nothing is in flight.
        self.words.references.load(Ordering::Relaxed) != 0
    }

    /// One more keeps it.
    #[track_caller]
    fn hold(&self) {
        // Relaxed: the caller keeps it by another reference meanwhile.
        self.words.references.fetch_add(1, Ordering::Relaxed);
    }

    /// One less keeps it; true for the last.
    #[track_caller]
    fn let_go(&self) -> bool {
        // AcqRel: who takes the last sees all that was done under the others, each of which publishes it here.
        self.words.references.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Makes a group of no tasks in `parent`, which the caller keeps, or in none.
    pub(crate) fn begin_group(&self, parent: Option<GroupId>, weight: GroupWeight) -> GroupId {
        self.make_fair();
        let cell = &self.fair().groups;
        if cell.get().is_none() {
            // Placed before it is set: a simulated CPU may be suspended here, and another may come. The first wins.
            let _came_later = cell.set(Groups::new(&self.topology));
        }
        let groups = self.groups().expect("just made");
        let id = GroupId(groups.numbers.take(P::current_cpu()));
        let index = id.0 as usize;
        let chunk = groups.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let group = match chunk[index % CHUNK].get() {
            Some(group) => group,
            None => {
                // The caller has the number for itself.
                let _first = chunk[index % CHUNK].set(Group::new(index, &self.topology));
                groups.get(id)
            }
        };
        if let Some(parent) = parent {
            groups.get(parent).hold();
        }
        // Relaxed: the number has not been told to anybody; who tells it publishes these.
        group.words.parent.store(u64::from(GroupId::link(parent)), Ordering::Relaxed);
        // Relaxed: as above.
        group.words.shares.store(u64::from(weight.shares()), Ordering::Relaxed);
        // Relaxed: as above.
        group.words.references.store(1, Ordering::Relaxed);
        for cpu in self.topology.cpu_ids() {
            if let Some(on) = group.on(cpu) {
                let _rq = self.lock(cpu);
                on.begin(parent, weight.shares());
            }
        }
        id
    }

    /// The words of `id` on `cpu`, whose queue's lock the caller holds, are there from now on.
    pub(super) fn make_group_on(&self, id: GroupId, cpu: CpuId) {
        let group = self.group(id);
        if group.on(cpu).is_none() {
            let node = self.topology.cpu(cpu).node;
            let words = GroupOnCpu::new(group.parent(), group.shares());
            let _first = group.on[cpu.index()].set(Placed::new(words, Some(id.0 as usize), Some(node)));
        }
    }

    /// Changes what `id`, which the caller keeps, gets against others.
    pub(crate) fn weigh_group(&self, id: GroupId, weight: GroupWeight) {
        let group = self.group(id);
        // Relaxed: each CPU's queue is visited below.
        group.words.shares.store(u64::from(weight.shares()), Ordering::Relaxed);
        for cpu in self.topology.cpu_ids().filter(|&cpu| group.on(cpu).is_some()) {
            let rq = self.lock(cpu);
            self.set_entity_weight(&rq, id, weight.shares());
        }
    }

    /// The entity of `id` on the CPU of `rq` weighs so much from now on.
    pub(super) fn set_entity_weight(&self, rq: &RqGuard<'_, P>, id: GroupId, weight: u32) {
        let on = self.group_on(id, rq.cpu);
        if on.entity.weight.get() == weight {
            return;
        }
        if on.queue.nr_queued.get() == 0 {
            on.entity.set_weight(weight);
        } else {
            let above = GroupId::of_link(on.entity.group.get());
            self.level(rq.cpu, above).reweigh(Member::group(id), weight, P::now());
        }
    }

    /// One less keeps `id`. With the last it ends, and perhaps the groups above it.
    pub(crate) fn release_group(&self, id: GroupId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.group(id);
            if !group.let_go() {
                return;
            }
            next = group.parent();
            self.groups().expect("it was made").numbers.give_back(id.0, P::current_cpu());
        }
    }

    /// A task was made, in `group`, which the caller keeps. Nobody else knows the task.
    pub(crate) fn join_group(&self, id: TaskId, group: Option<GroupId>) {
        if self.groups().is_none() {
            return;
        }
        if let Some(group) = group {
            self.group(group).hold();
            self.tasks.make_fair(&self.topology, id, Nice::DEFAULT);
        }
        if let Some(words) = self.tasks.fair_if_made(id) {
            words.group.set(GroupId::link(group));
        }
    }

    /// A task's number is about to be given back.
    pub(crate) fn leave_group(&self, id: TaskId) {
        if self.groups().is_none() {
            return;
        }
        let group = self.tasks.fair_if_made(id).and_then(|words| {
            let group = GroupId::of_link(words.group.get());
            words.group.set(0);
            group
        });
        group.into_iter().for_each(|group| self.release_group(group));
    }

    /// Moves a task to `group`, which the caller keeps, or to none.
    pub(crate) fn change_group(&self, id: TaskId, group: Option<GroupId>) {
        if self.groups().is_none() {
            return;
        }
        if let Some(group) = group {
            self.group(group).hold();
        }
        let task = self.tasks.get(id);
        let pi = task.pi_lock.lock();
        let mut rq = self.lock_queue_of(id);
        let words: &FairTask<P> = self.tasks.make_fair(&self.topology, id, Nice::DEFAULT);
        let before = GroupId::of_link(words.group.get());
        let change = || words.group.set(GroupId::link(group));
        if self.is_fair(id) {
            self.bracket(&rq, id, false, change);
            if rq.curr() == Some(id) {
                self.resched(&rq);
            } else if task.on_rq.get() != 0 {
                self.preempt_for(&rq, id);
            }
        } else {
            change();
        }
        self.run_balance(&mut rq);
        drop(rq);
        drop(pi);
        before.into_iter().for_each(|before| self.release_group(before));
    }

    /// What a group's entities weigh together, for checkers.
    pub(in crate::fair) fn group_shares(&self, id: GroupId) -> u32 {
        self.group(id).shares()
    }

    /// The group above a group, for checkers.
    pub(in crate::fair) fn group_above(&self, id: GroupId) -> Option<GroupId> {
        self.group(id).parent()
    }

    /// Whether `cpu` was ever used by `id`, for checkers.
    pub(in crate::fair) fn is_on(&self, id: GroupId, cpu: CpuId) -> bool {
        self.group(id).on(cpu).is_some()
    }
}
