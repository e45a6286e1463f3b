//! Announcing what waits to those CPUs alone that could take it, and getting it from there.
//!
//! **Claim.** A task that waits because every CPU it may use is busy with something as urgent is announced to just those CPUs, or,
//! when it may use many, to all. A CPU that becomes less urgent looks at its own line and at one an LLC.
//!
//! **Origin.** Ours. The kernel has a CPU push as soon as it has a task that may move, and has a CPU that becomes less urgent ask all
//! that are overloaded.
//!
//! **Protocol.** Who announces: (1) looks for a place and finds none; (2) writes the [words](crate::waiting); (3) fences; (4) looks once
//! more. Who becomes less urgent: (1) writes its queue's priority; (2) fences; (3) reads the words; (4) where it takes away a
//! [`floor`](crate::floor), reads them once more. Either the second look sees the priority or the words show the announcement.
//!
//! **Invariants.** With nothing in flight every task that could move and does not run is announced, and nothing else.
//!
//! **Memory ordering.** That of the [words](crate::waiting), which fence.
//!
//! **Cost.** A wakeup that finds its CPU idle: nothing. Becoming less urgent: the own line and one an LLC, all of which hit while
//! nobody waits. Waiting: a line for each CPU that may help, twice.

use hitm_memory::{CpuSet, PlainWord, Platform};

use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// Tasks that may use no more CPUs than this are announced to each of them. Each costs a read-modify-write of a line that only that
/// CPU reads; a task that may use more costs one of a line that all read when they become less urgent.
const NARROW: u32 = 16;

/// And only where they are at most one in so many of the machine's: few others then read what is told to all.
const FEW_OF: u32 = 4;

/// How a task is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Announced {
    /// Not at all.
    No = 0,
    /// To each CPU that it may use.
    Each = 1,
    /// To all.
    All = 2,
}

impl Announced {
    /// From what a task keeps.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            0 => Self::No,
            1 => Self::Each,
            _ => Self::All,
        }
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    fn announced(&self, id: TaskId) -> Announced {
        Announced::from_word(self.tasks.get(id).announced.get())
    }

    /// Announces what waits on `rq` and is not announced, `newest` first: mostly there is nothing else. Whether there was any: then the
    /// caller looks for places once more.
    pub(crate) fn announce(&self, rq: &RqGuard<'_, P>, newest: Option<TaskId>) -> bool {
        if rq.rt.unannounced.get() == 0 || rq.needs_resched() {
            // The CPU looks again before anything here has waited.
            return false;
        }
        if let Some(newest) = newest {
            self.tell(rq, newest);
        }
        let mut next = self.first_pushable(rq);
        while let Some(id) = next.filter(|_| rq.rt.unannounced.get() != 0) {
            self.tell(rq, id);
            next = self.next_pushable(rq, id);
        }
        self.rd.waiting().told();
        true
    }

    /// A task has come to the pushable list of `rq`.
    pub(crate) fn expect_announcement(&self, rq: &RqGuard<'_, P>) {
        rq.rt.unannounced.set(rq.rt.unannounced.get() + 1);
    }

    /// Whether a task that may use `allowed` CPUs is announced to each of them.
    fn is_narrow(&self, allowed: u32) -> bool {
        allowed <= NARROW && allowed.saturating_mul(FEW_OF) as usize <= self.topology.cpus()
    }

    /// Announces `id`, of the pushable list of `rq`, if it is not announced.
    fn tell(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        let task = self.tasks.get(id);
        if self.announced(id) != Announced::No {
            return;
        }
        self.stats.add(Count::OverloadSet);
        rq.rt.unannounced.set(rq.rt.unannounced.get() - 1);
        if self.is_narrow(task.cpus_allowed_count.get()) && self.rd.waiting().tell(rq.cpu, &self.others(rq, id)) {
            task.announced.set(Announced::Each as u32);
            return;
        }
        task.announced.set(Announced::All as u32);
        let before = rq.rt.announced.get();
        rq.rt.announced.set(before + 1);
        if before == 0 {
            self.rd.waiting().tell_all(rq.cpu);
        }
    }

    /// `id`, which was in the pushable list of `rq`, does not wait there any more.
    pub(crate) fn withdraw(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        match self.announced(id) {
            Announced::No => {
                rq.rt.unannounced.set(rq.rt.unannounced.get() - 1);
                return;
            }
            Announced::Each => self.rd.waiting().withdraw(rq.cpu, &self.others(rq, id)),
            Announced::All => {
                let left = rq.rt.announced.get() - 1;
                rq.rt.announced.set(left);
                if left == 0 {
                    self.rd.waiting().withdraw_from_all(rq.cpu);
                }
            }
        }
        self.stats.add(Count::OverloadClear);
        self.tasks.get(id).announced.set(Announced::No as u32);
    }

    /// The CPUs but that of `rq` that `id` may use. The same at its announcement and its withdrawal: what a task may use changes
    /// while it is on no queue.
    fn others(&self, rq: &RqGuard<'_, P>, id: TaskId) -> CpuSet {
        let mut others = self.tasks.allowed(id).load();
        others.remove(rq.cpu);
        others
    }

    /// Gets what waits elsewhere and is more urgent than what is queued here.
    pub(crate) fn pull_waiting(&self, rq: &mut RqGuard<'_, P>) {
        let mut pulled = self.pull_told(rq);
        // A CPU that has found something is as busy as its LLC is said to be, and writes nothing.
        if self.rd.waiting().floors.fell(rq.cpu, rq.highest()) {
            pulled |= self.pull_told(rq);
        }
        if pulled {
            self.resched(rq);
        }
    }

    /// Gets what this CPU is told of. Whether there was anything.
    fn pull_told(&self, rq: &mut RqGuard<'_, P>) -> bool {
        let (near, anywhere) = self.rd.waiting().any_for(rq.cpu);
        if !near && !anywhere {
            return false;
        }
        self.stats.add(Count::Pull);
        let mut pulled = false;
        let here = rq.cpu;
        if near {
            for cpu in self.rd.waiting().sources_for(here).iter() {
                pulled |= self.pull_from(rq, cpu);
            }
        }
        if anywhere {
            for cpu in self.rd.waiting().all_sources().snapshot().iter().filter(|&cpu| cpu != here) {
                if !self.rd.waiting().any_for_all(here) {
                    break;
                }
                pulled |= self.pull_from(rq, cpu);
            }
        }
        pulled
    }
}
