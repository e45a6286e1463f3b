//! The life of groups: creation, weight, joining, leaving, end.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, Placed, PlainWord, Platform, Time};
use hitm_topology::CpuId;

use super::words::GroupOnCpu;
use crate::base::fair_words::{FairTask, Member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::{TaskOrder, nanos};
use crate::base::weight::Nice;
use crate::fair::group::{CHUNK, Group, GroupWeight, Groups, Table};

impl<M: hitm_memory::Memory> Group<M> {
    /// Returns whether the group has a reference, for checkers.
    pub(super) fn is_alive(&self) -> bool {
        // Relaxed: checkers look when nothing is in flight.
        self.words.references.load(Ordering::Relaxed) != 0
    }

    /// Takes a reference.
    #[track_caller]
    pub(crate) fn hold(&self) {
        // Acquire: sees how the group was made. Pairs with the swap in `make_group`. Meanwhile the
        // caller holds another reference.
        self.words.references.fetch_add(1, Ordering::Acquire);
    }

    /// Drops a reference; returns true for the last one.
    #[track_caller]
    pub(crate) fn let_go(&self) -> bool {
        // AcqRel: the CPU that drops the last reference sees everything done under the others, and
        // each of them publishes it here.
        self.words.references.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl<P: Platform> Groups<P> {
    /// Creates an empty group in `parent` and keeps it for the caller. The fair class exists.
    pub(crate) fn make_group(
        &self,
        state: &State<P>,
        parent: Option<GroupId>,
        weight: GroupWeight,
        order: TaskOrder,
    ) -> GroupId {
        assert!(
            !parent.is_some_and(|parent| self.is_by_deadline(parent)),
            "a group in the order of deadlines contains no groups"
        );
        if !self.are_used() {
            // Placed before it is set: a simulated CPU may be suspended here, and another may come.
            // The first wins.
            let _came_later = self.table.set(Table::new(&state.topology));
        }
        let groups = self.table.get().expect("just made");
        let id = GroupId(groups.numbers.take(P::current_cpu()));
        let index = id.0 as usize;
        let chunk = groups.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let group = match chunk[index % CHUNK].get() {
            Some(group) => group,
            None => {
                // The caller alone has the number.
                let _first = chunk[index % CHUNK].set(Group::new(index, &state.topology, self.config));
                groups.get(id)
            }
        };
        if let Some(limit) = group.limit.get() {
            limit.begin();
        }
        if order == TaskOrder::Deadline {
            groups.has_deadlines.get_or_init(|| ());
        }
        // Relaxed: published by the last of the stores below.
        group.by_deadline.store(order == TaskOrder::Deadline, Ordering::Relaxed);
        // Relaxed: as above.
        group.slice.store(0, Ordering::Relaxed);
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
        for cpu in state.topology.cpu_ids() {
            if let Some(on) = group.on(cpu) {
                let _rq = state.lock(cpu);
                if let Some(parent) = parent {
                    self.make_group_on(state, parent, cpu, P::now());
                }
                on.begin(parent, weight.shares());
                if self.has_slices() {
                    on.entity.slice.set(0);
                }
            }
        }
        id
    }

    /// Makes the words of `id`, and of the groups above it, on `cpu`; the caller holds the lock of
    /// its queue.
    pub(in crate::fair) fn make_group_on(&self, state: &State<P>, id: GroupId, cpu: CpuId, now: Time) {
        let group = self.group(id);
        if group.on(cpu).is_some() {
            return;
        }
        let parent = group.parent();
        if let Some(parent) = parent {
            self.make_group_on(state, parent, cpu, now);
        }
        let node = state.topology.cpu(cpu).node;
        let words = GroupOnCpu::new(parent, group.shares(), group.own_slice(), nanos(now));
        let _first = group.on[cpu.index()].set(Placed::new(words, Some(id.0 as usize), Some(node)));
        for made in group.pointers.iter().flat_map(|pointers| &pointers[..2]) {
            // Relaxed: the reader finds the queue under the CPU's lock.
            made[cpu.index()].store(1, Ordering::Relaxed);
        }
    }

    /// A task was made in `group`, to which the caller holds a reference. No other CPU knows the
    /// task yet.
    pub(crate) fn join_group(&self, state: &State<P>, id: TaskId, group: Option<GroupId>) {
        if !self.are_used() {
            return;
        }
        if let Some(group) = group {
            self.group(group).hold();
            let words: &FairTask<P> = state.tasks.make_fair(&state.topology, id, Nice::DEFAULT);
            self.begin_order(words, group);
        }
        if let Some(words) = state.tasks.fair_if_made(id) {
            words.group.set(GroupId::link(group));
            words.begin_load(self.weight_of(words));
        }
    }

    /// A task, whose words these are, comes to `group`: it has no deadline there yet.
    pub(crate) fn begin_order(&self, words: &FairTask<P>, group: GroupId) {
        if self.is_by_deadline(group) {
            words.set_given_deadline(None);
        }
    }

    /// The number of a task is about to be freed. Returns its group, to which the caller must drop
    /// the task's reference.
    #[must_use]
    pub(crate) fn leave_group(&self, state: &State<P>, id: TaskId) -> Option<GroupId> {
        if !self.are_used() {
            return None;
        }
        self.remove_load(state, state.tasks.get(id).cpu(), id);
        let words = state.tasks.fair_if_made(id)?;
        let group = GroupId::of_link(words.group.get());
        words.group.set(0);
        group
    }

    /// The last reference to `id` was dropped, and nothing of it is left: frees its number.
    pub(crate) fn give_back_number(&self, id: GroupId) {
        self.table.get().expect("it was made").numbers.give_back(id.0, P::current_cpu());
    }

    /// `id` moves to `cpu` or to another group: reads the pointers to the group's queues there.
    #[track_caller]
    pub(crate) fn follow_group(&self, state: &State<P>, id: TaskId, cpu: CpuId) {
        if let Some(group) = self.group_hint(state, id) {
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

    /// Changes the weight of a group. `weigh_above` brings the weights of a group's entity and of
    /// those above it up to date, here as below.
    pub(in crate::fair) fn set_group_weight(
        &self,
        state: &State<P>,
        id: GroupId,
        weight: GroupWeight,
        weigh_above: impl Fn(&RqGuard<'_, P>, GroupId),
    ) {
        let group = self.group(id);
        // Relaxed: each CPU's queue is visited below.
        group.words.shares.store(u64::from(weight.shares()), Ordering::Relaxed);
        for cpu in state.topology.cpu_ids().filter(|&cpu| group.on(cpu).is_some()) {
            let rq = state.lock(cpu);
            weigh_above(&rq, id);
        }
    }

    /// Withdraws all load of `id`, which has ended.
    pub(in crate::fair) fn end_load(
        &self,
        state: &State<P>,
        id: GroupId,
        weigh_above: impl Fn(&RqGuard<'_, P>, GroupId),
    ) {
        for cpu in state.topology.cpu_ids().filter(|&cpu| self.is_on(id, cpu)) {
            let (rq, now) = (state.lock(cpu), P::now());
            let on = self.group_on(id, cpu);
            self.update_queue(state, cpu, on, nanos(now));
            if let Some(above) = self.above(id, cpu)
                && on.entity.load_updated.get() != 0
            {
                self.update_load(state, cpu, above, Member::group(id), nanos(now));
                self.detach(self.group_on(above, cpu), &on.entity);
                self.post(state, cpu, above);
                weigh_above(&rq, above);
            }
            self.unlist_anywhere(cpu, id);
            self.withdraw_load(state, cpu, id);
            on.end();
        }
    }
}
