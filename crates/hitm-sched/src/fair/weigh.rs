//! The weights of groups' entities, which follow the loads of their queues.
//!
//! [`share`](super::group::share) has what an entity should weigh. The queue above the entity is
//! another group's or the CPU's own, and takes the new weight here.

use hitm_memory::{PlainWord, Platform, Time};

use super::class::Fair;
use super::group::GroupWeight;
use crate::base::fair_words::Member;
use crate::base::numbers::GroupId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::nanos;

impl<P: Platform> Fair<P> {
    /// Weighs the entity of `id` on the CPU of `rq` by its queue's part of the group's load.
    pub(super) fn update_share(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: GroupId) {
        let on = self.groups.group_on(id, rq.cpu);
        if on.queue.nr_queued.get() == 0 && !self.groups.config().weighs_empty {
            return;
        }
        let weight = self.groups.share(state, rq.cpu, id, on);
        let entity = &on.entity;
        if entity.weight.get() == weight {
            return;
        }
        let above = self.groups.above(id, rq.cpu);
        if let Some(above) = above {
            self.groups.reweigh_load(self.groups.group_on(above, rq.cpu), entity, weight);
        }
        let member = Member::group(id);
        let line = self.level(state, rq.cpu, above);
        if entity.height.get() != 0 || line.curr() == Some(member) {
            line.reweigh(member, weight, P::moment());
        } else {
            entity.set_weight(weight);
        }
    }

    /// Sums up everything above `id` on the CPU of `rq`, and reweighs it.
    pub(super) fn update_shares_above(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: GroupId) {
        let now = nanos(P::moment());
        let mut next = Some(id);
        while let Some(id) = next {
            next = self.groups.above(id, rq.cpu);
            if let Some(above) = next {
                self.groups.update_load(state, rq.cpu, above, Member::group(id), now);
            }
            self.update_share(state, rq, id);
        }
    }

    /// Changes the weight of a group.
    pub(crate) fn set_group_weight(&self, state: &State<P>, id: GroupId, weight: GroupWeight) {
        self.groups.set_group_weight(state, id, weight, |rq, id| self.update_shares_above(state, rq, id));
    }

    /// Withdraws all load of `id`, which has ended.
    pub(crate) fn end_load(&self, state: &State<P>, id: GroupId) {
        self.groups.end_load(state, id, |rq, id| self.update_shares_above(state, rq, id));
    }

    /// Updates all groups with load on the CPU of `rq`.
    pub(super) fn update_leaves(&self, state: &State<P>, rq: &RqGuard<'_, P>, now: Time) {
        self.groups.update_leaves(state, rq, now, |id| self.update_share(state, rq, id));
    }

    /// A tick: updates the load of CPUs that do not tick, if it is due. The caller holds no lock.
    pub(super) fn update_idle_load(&self, state: &State<P>, now: Time) {
        let ticks = |cpu| self.fair_queue(cpu).nr_queued.peek() != 0;
        self.groups.update_idle_load(state, now, ticks, |rq| self.update_leaves(state, rq, P::moment()));
    }
}
