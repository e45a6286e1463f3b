//! The load of a group on each CPU, and how it propagates to the queues above.
//!
//! **Protocol.** Under the CPU's lock. A member is *attached* to the queue of its group when it is
//! first queued there. It stays attached until it migrates, changes its group, or ends; so a
//! sleeping member counts, with a decaying load. Before anything changes on a queue, its sum is
//! brought up to date. The load that a queue gains or loses with its members is kept until the next
//! update of the queue above, and reaches it through the group's entity.
//!
//! A sleeping task that migrates is removed without the lock. Its load is put down beside the queue
//! that it leaves, together with the time of that load, and the next update subtracts it. The time
//! is that of the queue's last update as far as the migrating side can see. Another update may come
//! before the load is put down, so the load is first decayed to the present and then subtracted.
//! (Linux subtracts the load as it was put down.)
//!
//! **Origin.** Linux's, of v6.4. The propagation of a lost load to the queue above is Vincent
//! Guittot's, "sched/fair: Propagate load during synchronous attach/detach", 2016.
//!
//! **Invariants.** When nothing is in flight: (1) apart from rounding, a queue's sum is the sum
//! over its attached members, each times its weight, plus the load that was put down beside it; (2)
//! a queue has load only while it is [listed](super::leaf_list).

use hitm_memory::{PlainWord, Platform};
use hitm_topology::CpuId;

use super::Groups;
use super::words::{GroupOnCpu, Loaded};
use crate::base::fair_words::{FairTask, Member, link, member};
use crate::base::numbers::{GroupId, TaskId};
use crate::base::state::State;
use crate::base::timeline::nanos;
use crate::fair::group::load::Sum;

impl<P: Platform> Groups<P> {
    /// Returns the weight of a member's sum.
    pub(crate) fn weight_of(&self, words: &FairTask<P>) -> u64 {
        self.config.coarse(u64::from(words.weight.get()))
    }

    /// Returns the weight that is queued in a group, including the running member.
    pub(super) fn queued_weight(&self, state: &State<P>, cpu: CpuId, on: &GroupOnCpu<P>) -> u64 {
        let curr = member(on.queue.curr.get());
        let curr = curr.map_or(0, |curr| u64::from(self.words_of(state, curr, cpu).weight.get()));
        self.config.coarse(on.queue.load.get() + curr)
    }

    /// Returns whether a member of the queue of `on` is queued there.
    fn is_queued(on: &GroupOnCpu<P>, words: &FairTask<P>, member: Member) -> bool {
        words.height.get() != 0 || on.queue.curr.get() == link(Some(member))
    }

    /// Brings the sum of a group's queue up to `now`. Returns true when its average must be
    /// examined: a period has ended, or a member has left.
    pub(super) fn update_queue(&self, state: &State<P>, cpu: CpuId, on: &GroupOnCpu<P>, now: u64) -> bool {
        let mut sum = on.load.sum();
        let has_lost = on.load.removed_count.peek() != 0;
        if has_lost {
            let [weighed, value] = on.take_removed(sum.updated);
            sum.value = sum.value.saturating_sub(weighed);
            on.tell(-(value as i64));
        }
        let weight = self.queued_weight(state, cpu, on);
        let ended = sum.advance(now, weight);
        on.load.set_sum(sum);
        if ended || has_lost {
            on.load.average.set(sum.average(1));
        }
        ended || has_lost
    }

    /// Brings the sum of `member` on the queue of `group`, and that queue, up to `now`. Attaches
    /// the member if it is not attached, and publishes the load.
    pub(in crate::fair) fn update_load(&self, state: &State<P>, cpu: CpuId, group: GroupId, member: Member, now: u64) {
        let on = self.group_on(group, cpu);
        let words = self.words_of(state, member, cpu);
        let mut changed = self.update_queue(state, cpu, on, now);
        if words.load_updated.get() == 0 {
            self.attach(state, cpu, group, member, words);
            changed = true;
        } else {
            let mut sum = words.sum();
            // As far as its queue's time, which another CPU's clock may have set a little ahead.
            sum.advance(on.load.updated.get(), u64::from(Self::is_queued(on, words, member)));
            words.set_sum(sum);
        }
        if let Some(below) = member.as_group() {
            changed |= self.hear(state, cpu, on, words, below);
        }
        if changed {
            self.post(state, cpu, group);
        }
    }

    /// Attaches a member, with its average, to the queue of `group`, which is up to date.
    fn attach(&self, state: &State<P>, cpu: CpuId, group: GroupId, member: Member, words: &FairTask<P>) {
        self.list_leaf(cpu, group);
        if let Some(below) = member.as_group() {
            self.weigh_first(state, cpu, below, words);
        }
        let on = self.group_on(group, cpu);
        let (mut sum, weight) = (on.load.sum(), self.weight_of(words));
        sum.value = (words.load_average.get() * sum.divider() / weight).min(sum.divider());
        words.set_sum(sum);
        on.add(weight, sum.value as i64);
        on.tell(sum.value as i64);
    }

    /// Detaches a member, which is up to date with the queue of `on`. It keeps its average.
    pub(super) fn detach(&self, on: &GroupOnCpu<P>, words: &FairTask<P>) {
        let (sum, weight) = (words.sum(), self.weight_of(words));
        on.add(weight, -(sum.value as i64));
        on.tell(-(sum.value as i64));
        words.load_average.set(sum.average(weight));
        words.load_updated.set(0);
    }

    /// Propagates to the queue of `on` what the queue of `below`, whose entity it has, gained or
    /// lost. Returns true when there was a change.
    fn hear(&self, state: &State<P>, cpu: CpuId, on: &GroupOnCpu<P>, entity: &FairTask<P>, below: GroupId) -> bool {
        let child = self.group_on(below, cpu);
        if child.load.tells.get() == 0 {
            return false;
        }
        let told = child.load.to_tell.get();
        child.load.tells.set(0);
        child.load.to_tell.set(0);
        let mut sum = entity.sum();
        let (before, most) = (sum.value, sum.divider());
        sum.value = if told >= 0 {
            (before + told as u64).min(most)
        } else {
            // The load that went cannot be distinguished from the load that stays. At most the
            // queue's present weight is left, as of one member.
            let weight = self.queued_weight(state, cpu, child);
            before.min(child.load.value.get().checked_div(weight).map_or(0, |left| left.min(most)))
        };
        entity.set_sum(sum);
        on.add(self.weight_of(entity), sum.value as i64 - before as i64);
        on.tell(told);
        true
    }

    /// Adjusts the load before the entity of a group on the queue of `on` gets the weight `weight`.
    pub(in crate::fair) fn reweigh_load(&self, on: &GroupOnCpu<P>, entity: &FairTask<P>, weight: u32) {
        if entity.load_updated.get() != 0 {
            let value = entity.load_value.get() as i64;
            on.add(self.weight_of(entity), -value);
            on.add(self.config.coarse(u64::from(weight)), value);
        }
    }

    /// Propagates a change on the queue of a group all the way up.
    pub(super) fn tell_above(&self, state: &State<P>, cpu: CpuId, group: GroupId, now: u64) {
        let mut below = group;
        while let Some(group) = self.above(below, cpu) {
            self.update_load(state, cpu, group, Member::group(below), now);
            below = group;
        }
    }

    /// A fair task on no queue, last queued on `cpu`, leaves its group there: for another group,
    /// CPU or class. The caller holds the queue's lock.
    pub(crate) fn detach_load(&self, state: &State<P>, cpu: CpuId, id: TaskId) {
        let Some(group) = self.group_hint(state, id) else { return };
        let words = state.tasks.fair(id);
        if words.load_updated.get() == 0 {
            return;
        }
        let (on, now) = (self.group_on(group, cpu), nanos(P::now()));
        self.update_queue(state, cpu, on, now);
        let mut sum = words.sum();
        sum.advance(on.load.updated.get(), 0);
        words.set_sum(sum);
        self.detach(on, words);
        self.post(state, cpu, group);
        self.tell_above(state, cpu, group, now);
    }

    /// Adjusts the average of `id`, whose load is counted nowhere, to its new weight.
    pub(crate) fn recount_load(&self, state: &State<P>, id: TaskId) {
        if self.group_hint(state, id).is_some() {
            let words = state.tasks.fair(id);
            words.load_average.set(words.sum().average(self.weight_of(words)));
        }
    }

    /// A fair task that is on no queue leaves its group on `cpu`. The caller owns the task, and
    /// need not hold the lock.
    pub(crate) fn remove_load(&self, state: &State<P>, cpu: CpuId, id: TaskId) {
        let Some(group) = self.group_hint(state, id) else { return };
        let words = state.tasks.fair(id);
        if words.load_updated.get() == 0 {
            return;
        }
        let on = self.group_on(group, cpu);
        let mut sum = words.sum();
        // As of the queue's last update, so that the queue loses exactly what it has of the task.
        sum.advance(on.load.updated.peek(), 0);
        let weight = self.weight_of(words);
        words.load_average.set(sum.average(weight));
        on.put_down(weight, sum);
        words.load_updated.set(0);
    }
}

impl<M: hitm_memory::Memory> GroupOnCpu<M> {
    /// Adds the load of a member of `weight` to the queue's sum, which does not fall below zero.
    fn add(&self, weight: u64, value: i64) {
        let mut sum = self.load.sum();
        sum.value = sum.value.saturating_add_signed(weight as i64 * value);
        self.load.value.set(sum.value);
        self.load.average.set(sum.average(1));
    }

    /// Marks the change for the queue above.
    fn tell(&self, value: i64) {
        self.load.tells.set(1);
        self.load.to_tell.set(self.load.to_tell.get() + value);
    }

    /// Puts down the sum of a sleeping task that has left.
    fn put_down(&self, weight: u64, mut sum: Sum) {
        let load = &self.load;
        let _removed = load.removed_lock.lock();
        let count = load.removed_count.get();
        // All removed sums are from now on as of the same, later time.
        let others = if count == 0 { [0; 2] } else { self.removed_by(sum.updated) };
        if count != 0 {
            sum.advance(load.removed_updated.get(), 0);
        }
        load.removed_count.set(count + 1);
        load.removed_updated.set(sum.updated);
        load.removed_passed.set(sum.passed);
        load.removed_weighed.set(others[0] + weight * sum.value);
        load.removed_value.set(others[1] + sum.value);
    }

    /// Returns the removed load by `now`: weighed sums, and plain sums. Under the lock.
    fn removed_by(&self, now: u64) -> [u64; 2] {
        let (updated, passed) = (self.load.removed_updated.get(), self.load.removed_passed.get());
        let words = [&self.load.removed_weighed, &self.load.removed_value];
        words.map(|word| Sum { updated, value: word.get(), passed }.faded_by(now))
    }

    /// Returns the removed weighed load as of the queue's last update, for checkers.
    pub(super) fn peek_removed(&self) -> u64 {
        let load = &self.load;
        let [updated, value] = [&load.removed_updated, &load.removed_weighed].map(|word| word.peek());
        Sum { updated, value, passed: load.removed_passed.peek() }.faded_by(load.updated.peek())
    }

    /// As [`removed_by`](Self::removed_by), and empties it.
    fn take_removed(&self, now: u64) -> [u64; 2] {
        let _removed = self.load.removed_lock.lock();
        let removed = self.removed_by(now);
        self.load.removed_count.set(0);
        self.load.removed_weighed.set(0);
        self.load.removed_value.set(0);
        removed
    }
}

#[cfg(test)]
mod tests {
    use hitm_memory::Native;

    use super::*;

    /// A removed load is subtracted in its decayed form, whether the queue was updated before the
    /// load was put down or not.
    #[test]
    fn what_went_is_forgotten_as_what_stays() {
        const PERIOD: u64 = 1 << 20;
        let sum = |value, updated| Sum { updated, value, passed: 0 };
        let (early, late) = (sum(9_000_000, 0), sum(5_000_000, 2 * PERIOD));
        for order in [[(3, early), (7, late)], [(7, late), (3, early)]] {
            let on = GroupOnCpu::<Native>::new(None, 1_024, 0, 0);
            order.into_iter().for_each(|(weight, sum)| on.put_down(weight, sum));
            // The queue was updated after both removals.
            let is = on.take_removed(5 * PERIOD);
            let [early, late] = [early, late].map(|sum| sum.faded_by(5 * PERIOD));
            // Each step rounds off at most one weight.
            assert!(is[0].abs_diff(3 * early + 7 * late) <= 20, "{is:?}, not {early} and {late}");
            assert!(is[1].abs_diff(early + late) <= 2, "{is:?}, not {early} and {late}");
            assert_eq!(on.take_removed(6 * PERIOD), [0; 2]);
        }
    }
}
