//! How a group's queue on a CPU publishes its load, and how the group's entity there is weighed.
//!
//! **Claim.** The entities of a group together weigh what the group does. Each has the part of that
//! weight that its queue has of the group's load. A queue with all of the load has all of the
//! weight.
//!
//! **Origin.** Linux's `update_tg_load_avg` and `calc_group_shares`, v6.4, and their limits since.
//! [`PostRate::LimitedBoth`] is hitm's: the read-modify-write that adds to the group's load also
//! returns the load of the other CPUs, and the CPU weighs by that value until it may look again.
//!
//! **Invariants.** (1) When nothing is in flight, a group's `load_avg` is exactly the sum of its
//! queues' contributions. (2) A contribution is never negative, and that of an offline CPU is 0.
//! (3) An entity weighs at least 2 and at most its group's shares.
//!
//! **Memory ordering.** None: `load_avg` is a statistic, and a contribution belongs to its CPU.
//!
//! **Cost.** Per enqueue, dequeue, tick and level: a load of `load_avg`, to whose line other CPUs
//! add. An addition to it when the queue's average has changed by a 64th: in every period and every
//! migration. With [`PostRate::LimitedBoth`]: one of the two per millisecond.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, PlainWord, Platform};
use hitm_topology::CpuId;

use super::variant::{LEAST_APART, PostRate};
use super::words::GroupOnCpu;
use crate::base::fair_words::FairTask;
use crate::base::numbers::GroupId;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::timeline::PICOS;
use crate::base::weight::WEIGHT_LEAST;
use crate::fair::group::{Group, Groups};

/// A change is published if it is more than the published load divided by this: Linux's.
const TOLD_FROM: i64 = 64;

/// Returns whether `now` is too soon after `last`, in nanoseconds; `last` is 0 for never.
fn is_too_soon(last: u64, now: u64) -> bool {
    last != 0 && now.saturating_sub(last) < LEAST_APART.as_picos() / PICOS
}

impl<P: Platform> Groups<P> {
    /// Adds to the load of a group, for `cpu`. Returns the load before.
    #[track_caller]
    fn add_load(&self, state: &State<P>, group: &Group<P>, cpu: CpuId, load: i64) -> i64 {
        match &group.parts {
            Some(parts) => {
                parts.add(&state.topology, cpu, load);
                parts.sum() - load
            }
            // Relaxed: a statistic; nothing is ordered by it.
            None => group.words.load_avg.fetch_add(load, Ordering::Relaxed),
        }
    }

    /// Returns the load of a group.
    #[track_caller]
    pub(super) fn load_of_group(&self, group: &Group<P>) -> i64 {
        match &group.parts {
            Some(parts) => parts.sum(),
            // Relaxed: as above.
            None => group.words.load_avg.load(Ordering::Relaxed),
        }
    }

    /// Publishes the new average of the queue of `id` on `cpu`, if the change is large enough and
    /// not too soon.
    pub(super) fn post(&self, state: &State<P>, cpu: CpuId, id: GroupId) {
        if state.rqs[cpu].online.get() == 0 {
            return;
        }
        let (group, load) = (self.group(id), &self.group_on(id, cpu).load);
        let (average, before) = (load.average.get() as i64, load.contribution.get());
        let is_limited = self.config.rate != PostRate::Always;
        let now = load.updated.get();
        if is_limited && is_too_soon(load.posted.get(), now) {
            return;
        }
        if (average - before).abs() <= before / TOLD_FROM {
            return;
        }
        let was = self.add_load(state, group, cpu, average - before);
        load.contribution.set(average);
        if is_limited {
            load.posted.set(now);
        }
        if self.config.rate == PostRate::LimitedBoth {
            load.others.set(was - before);
            load.looked.set(now);
        }
    }

    /// Withdraws the contribution of the queue of `id` on `cpu`.
    pub(super) fn withdraw_load(&self, state: &State<P>, cpu: CpuId, id: GroupId) {
        let contribution = &self.group_on(id, cpu).load.contribution;
        let before = contribution.get();
        if before != 0 {
            self.add_load(state, self.group(id), cpu, -before);
            contribution.set(0);
        }
    }

    /// Returns the load of `id` on other CPUs.
    fn load_of_others(&self, id: GroupId, on: &GroupOnCpu<P>) -> i64 {
        let load = &on.load;
        let seldom = self.config.rate == PostRate::LimitedBoth;
        let now = load.updated.get();
        if seldom && is_too_soon(load.looked.get(), now) {
            return load.others.get();
        }
        let others = self.load_of_group(self.group(id)) - load.contribution.get();
        if seldom {
            load.others.set(others);
            load.looked.set(now);
        }
        others
    }

    /// Returns the due weight of the entity of `id` on `cpu`.
    pub(in crate::fair) fn share(&self, state: &State<P>, cpu: CpuId, id: GroupId, on: &GroupOnCpu<P>) -> u32 {
        let shares = i128::from(self.group(id).shares());
        let load = i128::from(self.queued_weight(state, cpu, on).max(on.load.average.get()));
        // Contributions of other CPUs may be on the way from one CPU to another.
        let all = i128::from(self.load_of_others(id, on).max(0)) + load;
        let share = if all == 0 { shares } else { shares * load / all };
        share.clamp(i128::from(WEIGHT_LEAST), shares) as u32
    }

    /// Weighs the entity of `id` on `cpu`, which is on no queue, by its queue's part of the group's
    /// load, before anything of it is counted. (Linux makes a group's entities with the group and
    /// weighs them while they have nothing. An entity that came with the group's whole weight would
    /// publish that much for every CPU to the group above, and the entities that come later would
    /// weigh almost nothing beside it.)
    pub(super) fn weigh_first(&self, state: &State<P>, cpu: CpuId, id: GroupId, entity: &FairTask<P>) {
        entity.set_weight(self.share(state, cpu, id, self.group_on(id, cpu)));
    }

    /// Withdraws all contributions of the CPU of `rq`, which goes offline.
    pub(crate) fn withdraw_loads(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        // A group that another CPU is making is not found by `living`, and has contributed nothing
        // here yet.
        for id in self.living().filter(|&id| self.group(id).on(rq.cpu).is_some()) {
            self.withdraw_load(state, rq.cpu, id);
        }
    }
}
