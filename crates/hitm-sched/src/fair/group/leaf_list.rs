//! The leaf cfs_rq list: the groups with load on a CPU, and how the load of sleeping tasks decays.
//!
//! **Protocol.** A group is *listed* on a CPU when a member is attached to its queue there or is
//! queued in it. It is listed before the groups that contain it. It stays listed until it has no
//! load and no queued task, and no group in it is listed. A CPU that balances updates the groups on
//! its list, and [may](super::variant::GroupConfig::weighs_waiting) reweigh them. A CPU without
//! queued fair tasks does not tick; a ticking CPU updates its list: the first one whose tick comes
//! 32 ms after the last such update.
//!
//! **Origin.** Linux's list of leaf queues, its update of blocked averages, and its idle balance,
//! which makes that update for CPUs that have stopped their tick.
//!
//! **Invariant.** A queue that is not listed contributes nothing to its group's load: its
//! contribution is withdrawn with it. Until v6.18 Linux did not withdraw it where the
//! [rate](super::variant::PostRate) is limited.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform, Span, Time, described};
use hitm_topology::CpuId;

use super::Groups;
use super::variant::PostRate;
use crate::base::fair_words::Member;
use crate::base::numbers::GroupId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::nanos;

described! {
    /// When the load of idle CPUs is updated next.
    pub struct IdleLoad<M: Memory> as "group_idle_load" {
        /// The due time, in picoseconds. Written by the CPU that makes the update, read by every
        /// ticking CPU.
        pub(super) next: M::Atomic<u64>,
    }
}

/// The interval: Linux's.
const IDLE_UPDATES: Span = Span::from_micros(32_000);

impl<P: Platform> Groups<P> {
    /// The queue of `id` on `cpu` gets load: lists it.
    pub(in crate::fair) fn list_leaf(&self, cpu: CpuId, id: GroupId) {
        let on = self.group_on(id, cpu);
        if on.load.is_listed.get() != 0 {
            return;
        }
        // From the group's own words, as in the original.
        if let Some(parent) = self.group(id).parent() {
            self.list_leaf(cpu, parent);
            let below = &self.group_on(parent, cpu).load.listed_below;
            below.set(below.get() + 1);
        }
        let first = self.leaf_list(cpu);
        on.load.next.set(first.get());
        first.set(GroupId::link(Some(id)));
        on.load.is_listed.set(1);
    }

    /// Returns the head of a CPU's list.
    fn leaf_list(&self, cpu: CpuId) -> &P::Plain<u32> {
        &self.table.get().expect("one has load").leaf_lists[cpu].first
    }

    /// Removes `id`, which follows `before` on the list of `cpu`.
    fn unlist(&self, cpu: CpuId, before: Option<GroupId>, id: GroupId) {
        let load = &self.group_on(id, cpu).load;
        let place = match before {
            None => self.leaf_list(cpu),
            Some(before) => &self.group_on(before, cpu).load.next,
        };
        place.set(load.next.get());
        load.is_listed.set(0);
        if let Some(parent) = self.above(id, cpu) {
            let below = &self.group_on(parent, cpu).load.listed_below;
            below.set(below.get() - 1);
        }
    }

    /// As `unlist`, at any place of the list; does nothing if it is not listed.
    pub(super) fn unlist_anywhere(&self, cpu: CpuId, id: GroupId) {
        let mut before = None;
        let mut next = GroupId::of_link(self.leaf_list(cpu).get());
        while let Some(own) = next {
            if own == id {
                return self.unlist(cpu, before, id);
            }
            before = Some(own);
            next = GroupId::of_link(self.group_on(own, cpu).load.next.get());
        }
    }

    /// Updates all groups with load on the CPU of `rq`. `weigh` reweighs the entity of a group
    /// there.
    pub(in crate::fair) fn update_leaves(
        &self,
        state: &State<P>,
        rq: &RqGuard<'_, P>,
        now: Time,
        weigh: impl Fn(GroupId),
    ) {
        if !self.are_used() {
            return;
        }
        let (cpu, now) = (rq.cpu, nanos(now));
        let mut before = None;
        let mut next = GroupId::of_link(self.leaf_list(cpu).get());
        while let Some(id) = next {
            let on = self.group_on(id, cpu);
            if self.update_queue(state, cpu, on, now) {
                self.post(state, cpu, id);
            }
            let is_weighed = self.config.weighs_waiting && on.queue.nr_queued.get() != 0;
            if let Some(above) = self.above(id, cpu)
                && (is_weighed || on.load.tells.get() != 0 || on.entity.load_value.get() != 0)
            {
                self.update_load(state, cpu, above, Member::group(id), now);
            }
            if is_weighed {
                weigh(id);
            }
            next = GroupId::of_link(on.load.next.get());
            let has_load = on.load.average.get() != 0 || on.load.value.get() != 0 || on.queue.nr_queued.get() != 0;
            if has_load || on.load.listed_below.get() != 0 {
                before = Some(id);
                continue;
            }
            if self.config.rate != PostRate::LimitedWithLeak {
                self.withdraw_load(state, cpu, id);
            }
            self.unlist(cpu, before, id);
        }
    }

    /// A tick: updates the load of CPUs that do not tick, if it is due. The caller holds no lock.
    /// `ticks` says whether a CPU does, and `update` updates the groups on the CPU of a queue.
    pub(in crate::fair) fn update_idle_load(
        &self,
        state: &State<P>,
        now: Time,
        ticks: impl Fn(CpuId) -> bool,
        update: impl Fn(&RqGuard<'_, P>),
    ) {
        let Some(groups) = self.table.get() else { return };
        let (next, due) = (&groups.idle_load.next, now.as_picos());
        // Relaxed: a time; the first CPU makes the update.
        let before = next.load(Ordering::Relaxed);
        let after = due + IDLE_UPDATES.as_picos();
        // Relaxed: as above, also on failure.
        if due < before || next.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        for cpu in state.topology.cpu_ids() {
            if !ticks(cpu) && groups.leaf_lists[cpu].first.peek() != 0 {
                update(&state.lock(cpu));
            }
        }
    }
}
