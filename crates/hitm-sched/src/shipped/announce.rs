//! Advertising a waiting task to the CPUs that could run it, and pulling it from there.
//!
//! **Claim.** A task waits because all its CPUs are busy with something as urgent. It is advertised
//! only to those CPUs, or to all if it may use many. A CPU that becomes less urgent reads its own
//! line and one per LLC.
//!
//! **Origin.** Ours. In the kernel a CPU pushes as soon as it has a task that may move, and a CPU
//! that becomes less urgent asks all overloaded CPUs.
//!
//! **Protocol.** The advertiser: (1) searches for a CPU and finds none; (2) writes the
//! [words](super::waiting); (3) fences; (4) searches once more. A CPU that becomes less urgent: (1)
//! writes its queue's priority; (2) fences; (3) reads the words; (4) if it withdraws a
//! [`floor`](super::floor), reads them once more. Either the second search sees the priority, or
//! the words show the advertisement.
//!
//! Two kinds of tasks need no search. A task behind one that is advertised: see `tell_behind`. And
//! the tasks of a CPU's [ring](super::run_next), which are advertised as one: see `tell_offered`.
//! In both cases the queue has been advertised all the time, so a CPU that becomes less urgent
//! looks at it.
//!
//! **Invariants.** In a quiescent state every queued task that could move and does not run is
//! advertised, and no other queued task. The tasks of a CPU's [ring](super::run_next) are
//! advertised together or not at all.
//!
//! **Memory ordering.** That of the [words](super::waiting), which fence.
//!
//! **Cost.** A wakeup that finds its CPU idle: nothing. Becoming less urgent: the CPU's own line
//! and one per LLC, all of which hit while no task waits. Waiting: one line per CPU that may run
//! the task, twice.

use hitm_memory::{CpuSet, PlainWord, Platform};
use hitm_topology::{CpuId, Scope};

use super::Shipped;
use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::state::State;
use crate::base::stats::Count;

/// A task that may use at most this many CPUs is advertised to each of them. That costs one
/// read-modify-write per CPU, of a line that only that CPU reads. A task that may use more costs
/// one read-modify-write of a line that all CPUs read when they become less urgent.
const NARROW: u32 = 16;

/// A narrow task may use at most one CPU in this many of the machine's. Else a large part of the
/// machine reads the advertisement to all anyway.
const FEW_OF: u32 = 4;

/// A CPU that takes half of a queue takes it from the longest of this many. Two would keep queues
/// nearly equal if queues were drawn at random (M. Mitzenmacher, "The Power of Two Choices in
/// Randomized Load Balancing", 2001). They are not: the nearest ones were often halved before.
pub(super) const CHOICES: usize = 8;

/// How a task is advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Announced {
    /// It is not advertised.
    No = 0,
    /// To each CPU that it may use.
    Each = 1,
    /// To all CPUs.
    All = 2,
}

impl Announced {
    /// Decodes a task's word.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            0 => Self::No,
            1 => Self::Each,
            _ => Self::All,
        }
    }
}

impl<P: Platform> Shipped<P> {
    fn announced(state: &State<P>, id: TaskId) -> Announced {
        Announced::from_word(state.tasks.get(id).announced.get())
    }

    /// Advertises the tasks of `rq` that wait and are not advertised. `newest` comes first: mostly
    /// it is the only one. Returns whether there was any; then the caller must search for CPUs once
    /// more.
    pub(crate) fn announce(&self, state: &State<P>, rq: &RqGuard<'_, P>, newest: Option<TaskId>) -> bool {
        if rq.rt.unannounced.get() == 0 || rq.needs_resched() {
            // The CPU picks again before a task here has waited.
            return false;
        }
        if let Some(newest) = newest {
            self.tell(state, rq, newest);
        }
        let mut next = rq.rt.first_pushable(&state.tasks);
        while let Some(id) = next.filter(|_| rq.rt.unannounced.get() != 0) {
            self.tell(state, rq, id);
            next = rq.rt.next_pushable(&state.tasks, id);
        }
        self.waiting.told();
        true
    }

    /// Advertises the tasks of `rq` that wait and are not advertised, behind `first`, the first of
    /// them, which may run everywhere. Does nothing and returns false unless `first` is advertised
    /// to all CPUs. No search is needed: if that task finds no CPU, a less urgent one finds none
    /// either, and a CPU that becomes less urgent looks at this queue because of it.
    pub(crate) fn tell_behind(&self, state: &State<P>, rq: &RqGuard<'_, P>, first: TaskId) -> bool {
        if Self::announced(state, first) != Announced::All {
            return false;
        }
        self.tell_rest(state, rq, Prio::MOST_URGENT);
        true
    }

    /// Advertises the tasks of `rq` that wait, are not advertised, and are no more urgent than
    /// `most`. The queue is advertised already because of a task that is as urgent.
    fn tell_rest(&self, state: &State<P>, rq: &RqGuard<'_, P>, most: Prio) {
        let is_left = |&id: &TaskId| rq.rt.unannounced.get() != 0 && state.tasks.get(id).pushable_prio.get() >= most.0;
        // Most of them came last.
        let mut last = rq.rt.prev_pushable(&state.tasks, None);
        let mut any_narrow = false;
        while let Some(id) = last.filter(is_left) {
            self.tell(state, rq, id);
            any_narrow |= Self::announced(state, id) == Announced::Each;
            last = rq.rt.prev_pushable(&state.tasks, Some(id));
        }
        if any_narrow {
            // Its words must be seen once the other task is advertised no more.
            self.waiting.told();
        }
    }

    /// Counts a task that has come to the pushable list of `rq` and is not advertised yet.
    pub(crate) fn expect(&self, rq: &RqGuard<'_, P>) {
        rq.rt.unannounced.set(rq.rt.unannounced.get() + 1);
    }

    /// Returns whether a task that may use `allowed` CPUs is advertised to each of them.
    fn is_narrow(state: &State<P>, allowed: u32) -> bool {
        allowed <= NARROW && allowed.saturating_mul(FEW_OF) as usize <= state.topology.cpus()
    }

    /// Advertises `id`, which is in the pushable list of `rq`, unless it is advertised already.
    fn tell(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        let task = state.tasks.get(id);
        if Self::announced(state, id) != Announced::No {
            return;
        }
        state.stats.add(Count::OverloadSet);
        rq.rt.unannounced.set(rq.rt.unannounced.get() - 1);
        if Self::is_narrow(state, task.cpus_allowed_count.get())
            && self.waiting.tell(rq.cpu, &Self::others(state, rq, id))
        {
            task.announced.set(Announced::Each as u32);
            return;
        }
        task.announced.set(Announced::All as u32);
        let before = rq.rt.announced.get();
        rq.rt.announced.set(before + 1);
        if before == 0 {
            self.waiting.tell_all(rq.cpu);
        }
        self.count_everywhere(state, rq, id, 1);
        if self.is_urgent(state, id) {
            self.waiting.count_urgent(rq.cpu);
        }
    }

    /// Withdraws the advertisement of `id`, which waited in the pushable list of `rq`.
    pub(crate) fn withdraw(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) {
        match Self::announced(state, id) {
            Announced::No => {
                rq.rt.unannounced.set(rq.rt.unannounced.get() - 1);
                return;
            }
            Announced::Each => self.waiting.withdraw(rq.cpu, &Self::others(state, rq, id)),
            Announced::All => {
                self.withdraw_one(rq);
                self.count_everywhere(state, rq, id, -1);
                if self.is_urgent(state, id) {
                    self.waiting.uncount_urgent(rq.cpu);
                }
            }
        }
        state.stats.add(Count::OverloadClear);
        state.tasks.get(id).announced.set(Announced::No as u32);
    }

    /// `new` comes to the pushable list of `rq` in exchange for `old`, and is advertised from now
    /// on as that was. They are as urgent, and may run everywhere. Does nothing and returns false
    /// if `old` is advertised and other tasks of the list are not.
    pub(crate) fn pass_on(&self, state: &State<P>, rq: &RqGuard<'_, P>, old: TaskId, new: TaskId) -> bool {
        match Self::announced(state, old) {
            Announced::No => true,
            Announced::All if rq.rt.unannounced.get() == 0 => {
                state.tasks.get(old).announced.set(Announced::No as u32);
                state.tasks.get(new).announced.set(Announced::All as u32);
                true
            }
            Announced::All | Announced::Each => false,
        }
    }

    /// Counts `id`, which is advertised to all CPUs from now on or no longer, if it may run on all.
    fn count_everywhere(&self, state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId, change: i32) {
        if self.run_next.is_some() && state.runs_everywhere(id) {
            rq.rt.everywhere.set(rq.rt.everywhere.get().wrapping_add_signed(change));
        }
    }

    /// Advertises the tasks that are offered to the CPU of `rq`, which calls, as one. They may run
    /// on all CPUs, and a task of the pushable list that may is advertised. So no search is needed,
    /// as in [`tell_behind`](Self::tell_behind).
    #[inline]
    pub(crate) fn tell_offered(&self, rq: &RqGuard<'_, P>) {
        if rq.rt.tells_offered.get() == 0 {
            rq.rt.tells_offered.set(1);
            rq.rt.announced.set(rq.rt.announced.get() + 1);
            rq.rt.everywhere.set(rq.rt.everywhere.get() + 1);
        }
    }

    /// Withdraws the advertisement of the offered tasks of `rq`, of which none is left.
    #[inline]
    pub(crate) fn withdraw_offered(&self, rq: &RqGuard<'_, P>) {
        if rq.rt.tells_offered.get() != 0 {
            rq.rt.tells_offered.set(0);
            rq.rt.everywhere.set(rq.rt.everywhere.get() - 1);
            self.withdraw_one(rq);
        }
    }

    /// Offered tasks of `rq` were queued: if they were advertised, they stay so.
    #[inline]
    pub(crate) fn tell_queued(&self, state: &State<P>, rq: &RqGuard<'_, P>) {
        if rq.rt.tells_offered.get() != 0 {
            self.tell_rest(state, rq, Prio::ORDINARY);
        }
    }

    /// Counts one task less that `rq` advertises to all CPUs.
    fn withdraw_one(&self, rq: &RqGuard<'_, P>) {
        let left = rq.rt.announced.get() - 1;
        rq.rt.announced.set(left);
        if left == 0 {
            self.waiting.withdraw_from_all(rq.cpu);
        }
    }

    /// Returns whether `id`, which is or was in a pushable list, is counted as urgent: whether it
    /// came there with more than the default priority. The result is the same at its advertisement
    /// and at its withdrawal.
    fn is_urgent(&self, state: &State<P>, id: TaskId) -> bool {
        self.waiting.counts_urgent() && state.tasks.get(id).pushable_prio.get() < Prio::ORDINARY.0
    }

    /// Returns whether it is known that no task which is advertised to all CPUs is more urgent than
    /// what is queued on `rq`. Its CPU has seen that such tasks are there.
    fn is_served(&self, rq: &RqGuard<'_, P>) -> bool {
        self.waiting.counts_urgent() && rq.highest() <= Prio::ORDINARY && !self.waiting.any_urgent(rq.cpu)
    }

    /// Returns the CPUs that `id` may use, except that of `rq`. The set is the same at its
    /// advertisement and at its withdrawal, as affinity changes only while the task is on no queue.
    fn others(state: &State<P>, rq: &RqGuard<'_, P>, id: TaskId) -> CpuSet {
        let mut others = state.tasks.allowed(id).load();
        others.remove(rq.cpu);
        others
    }

    /// Pulls tasks that wait elsewhere and are more urgent than the tasks queued here. `pull_from`
    /// pulls one from a CPU, and returns whether there was one. Returns whether any was pulled.
    pub(crate) fn pull(
        &self,
        state: &State<P>,
        rq: &mut RqGuard<'_, P>,
        pull_from: impl Fn(&mut RqGuard<'_, P>, CpuId) -> bool,
    ) -> bool {
        let mut pulled = self.pull_told(state, rq, &pull_from);
        // A CPU that has pulled a task is as busy as the floor of its LLC says, and writes nothing.
        if self.waiting.floors.fell(rq.cpu, rq.highest()) {
            pulled |= self.pull_told(state, rq, &pull_from);
        }
        pulled
    }

    /// Returns the other CPUs with tasks that are advertised to all, in the order in which `here`
    /// asks them. Where CPUs keep wakeups, those of its LLC come first, beginning behind `here`,
    /// and the longest queue of the first few is the very first: it will be halved.
    fn sources_around(&self, state: &State<P>, here: CpuId) -> Vec<CpuId> {
        let mut sources = self.sources_elsewhere(here);
        if self.searchers.is_none() {
            return sources.iter().collect();
        }
        let llc = &state.llcs[state.topology.part_of(Scope::Llc, here)];
        let mut order: Vec<CpuId> = sources.common_from(llc, here).collect();
        sources.subtract(llc);
        order.extend(sources.common_from(&sources, here));
        let longest = self.longest(state, order.iter().copied());
        if let Some(place) = order.iter().position(|&cpu| longest.is_some_and(|(longest, _)| longest == cpu)) {
            order.swap(0, place);
        }
        order
    }

    /// Returns the CPU with the longest queue of a few that have tasks which are advertised to all,
    /// and the length. The few begin at `here` the first `time`, and elsewhere each further time:
    /// the nearest queues may be equally long while far ones are not.
    pub(crate) fn crowded_around(&self, state: &State<P>, here: CpuId, time: u32) -> Option<(CpuId, u32)> {
        if !self.waiting.any_for_all(here) {
            return None;
        }
        let sources = self.sources_elsewhere(here);
        let cpus = state.topology.cpus() as u32;
        // Fibonacci hashing: times next to each other begin far from each other.
        let far = (u64::from(time) * 0x9E37_79B9 % u64::from(cpus)) as u32;
        let from = CpuId((here.0 + far) % cpus);
        self.longest(state, sources.common_from(&sources, from))
    }

    /// Returns the CPUs but `here` with tasks that are advertised to all.
    fn sources_elsewhere(&self, here: CpuId) -> CpuSet {
        let mut sources = self.waiting.all_sources().snapshot();
        sources.remove(here);
        sources
    }

    /// Returns the CPU with the longest queue of the first few of `cpus`, and the length.
    fn longest(&self, state: &State<P>, cpus: impl Iterator<Item = CpuId>) -> Option<(CpuId, u32)> {
        let length = |cpu: CpuId| {
            // Peeks: hints. The locks decide.
            let queue = &state.rqs[cpu].rt;
            let ring = self.run_next.as_ref().filter(|_| queue.tells_offered.peek() != 0);
            (cpu, queue.rt_nr_running.peek() + ring.map_or(0, |ring| ring.hint(cpu)))
        };
        cpus.take(CHOICES).map(length).max_by_key(|&(_, length)| length)
    }

    /// Pulls the tasks that are advertised to this CPU. Returns whether there was any.
    fn pull_told(
        &self,
        state: &State<P>,
        rq: &mut RqGuard<'_, P>,
        pull_from: &impl Fn(&mut RqGuard<'_, P>, CpuId) -> bool,
    ) -> bool {
        let (near, anywhere) = self.waiting.any_for(rq.cpu);
        if !near && !anywhere {
            return false;
        }
        state.stats.add(Count::Pull);
        let mut pulled = false;
        let here = rq.cpu;
        if near {
            for cpu in self.waiting.sources_for(here).iter() {
                pulled |= pull_from(rq, cpu);
            }
        }
        if anywhere && !self.is_served(rq) {
            for cpu in self.sources_around(state, here) {
                if !self.waiting.any_for_all(here) {
                    break;
                }
                pulled |= pull_from(rq, cpu);
                if self.is_served(rq) {
                    break;
                }
            }
        }
        pulled
    }
}
