//! Pushing tasks to CPUs that run something less urgent.
//!
//! **Origin.** Linux's real-time class, with the revalidation of commit 690e47d1403e (2025): after this queue's lock was let
//! go, the task must still be the first that could move. Tasks here cannot disable migration, so nothing is handed to a
//! stopper.

use hitm_memory::{Interrupts, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::root_domain::RootDomainWords;
use crate::rq::{BALANCE_PULL, BALANCE_PUSH, RqGuard};
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// Attempts to lock a CPU that stays suitable.
const TRIES: usize = 3;

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Does what was put off until here, with the lock held.
    pub(crate) fn run_balance(&self, rq: &mut RqGuard<'_, P>) {
        loop {
            let what = rq.balance.get();
            if what == 0 {
                return;
            }
            rq.balance.set(0);
            if what & BALANCE_PULL != 0 {
                self.pull(rq);
            }
            if what & BALANCE_PUSH != 0 {
                self.push_all(rq);
            }
        }
    }

    /// Pushes until nothing more can go.
    pub(crate) fn push_all(&self, rq: &mut RqGuard<'_, P>) {
        while self.push_one(rq) {}
    }

    /// Pushes the first task that could move. False when there is none, or no place for it.
    pub(crate) fn push_one(&self, rq: &mut RqGuard<'_, P>) -> bool {
        if rq.rt.overloaded.get() == 0 {
            return false;
        }
        let Some(mut next) = self.first_pushable(rq) else { return false };
        loop {
            let running = rq.curr().map(|curr| self.tasks.get(curr).prio());
            if running.is_none_or(|running| self.tasks.get(next).prio() < running) {
                // It will simply run here.
                self.resched(rq);
                return false;
            }
            if let Some(lowest) = self.find_lock_lowest(next, rq) {
                self.move_task(rq, next, &lowest);
                self.stats.add(Count::Push);
                self.resched(&lowest);
                return true;
            }
            match self.first_pushable(rq) {
                // Others pull it when they are ready.
                Some(first) if first == next => return false,
                None => return false,
                Some(first) => next = first,
            }
        }
    }

    /// Moves `id`, which is queued on `from` and does not run, to `to`.
    pub(crate) fn move_task(&self, from: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        self.dequeue(from, id);
        self.tasks.get(id).cpu.set(to.cpu.0);
        self.stats.add(Count::Migration);
        self.enqueue(to, id, false);
    }

    /// Finds a CPU for `id`, the first that could move from `rq`, and locks its queue too.
    fn find_lock_lowest<'a>(&'a self, id: TaskId, rq: &mut RqGuard<'_, P>) -> Option<RqGuard<'a, P>> {
        let task = self.tasks.get(id);
        for _ in 0..TRIES {
            let cpu = self.find_lowest(id).filter(|&cpu| cpu != rq.cpu)?;
            let prio = task.prio();
            if self.rqs[cpu].highest() <= prio {
                // Nothing was let go, so another look would see the same.
                return None;
            }
            let (lowest, let_go) = rq.lock_both(&self.rqs[cpu], cpu);
            if let_go && !self.still_pushable_to(rq, id, cpu) {
                return None;
            }
            if lowest.online.get() != 0 && lowest.highest() > task.prio() {
                return Some(lowest);
            }
        }
        None
    }

    fn still_pushable_to(&self, rq: &RqGuard<'_, P>, id: TaskId, cpu: CpuId) -> bool {
        self.first_pushable(rq) == Some(id) && self.tasks.allowed(id).contains(cpu)
    }

    /// The push token arrived at this CPU.
    pub(crate) fn run_push_work(&self) {
        let here = P::current_cpu();
        self.rd.begin_push_work();
        // Without the lock: who makes the list non-empty looks for a place itself.
        if self.has_pushable_hint(&self.rqs[here]) {
            let mut rq = self.lock(here);
            self.push_all(&mut rq);
        }
        let next = self.rd.continue_push(here);
        self.rd.end_push_work();
        if let Some(next) = next {
            self.send_push_work(next);
        }
    }

    pub(crate) fn send_push_work(&self, target: CpuId) {
        if self.rd.claim_push_work(target) {
            self.stats.add(Count::PushInterrupt);
            P::interrupt(target, Interrupts::PUSH);
        }
    }
}
