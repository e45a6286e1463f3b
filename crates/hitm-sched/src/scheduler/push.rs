//! Push: moving waiting tasks to CPUs that run something less urgent.
//!
//! **Claim.** When a push ends, no task of this queue could run on a CPU that ran something less
//! urgent during the whole push. A CPU that becomes less urgent meanwhile, or later, pulls.
//!
//! **Origin.** Linux's real-time class, with the revalidation of commit 690e47d1403e (2025). Tasks
//! here cannot disable migration, so no stopper is needed. The differences are in cases where the
//! original gives up although a CPU may be found. First, a push skips a CPU that turns out to be
//! busy and tries the next one, each CPU once. The original ends after the first CPU that looks
//! busy and after three that are. Second, if the affinity of the first task leaves no CPU for it,
//! the push goes on with the tasks behind it.
//!
//! **Cost.** One search of cpupri per moved task, and one that finds nothing. There are more
//! searches only when other CPUs fill the CPUs that were found, or when affinities differ.

use hitm_memory::{CpuSet, Interrupts, PlainWord, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::rq::{BALANCE_PULL, BALANCE_PUSH, RqGuard};
use crate::base::stats::Count;
use crate::scheduler::Scheduler;

/// The result of a search for a task's new CPU.
enum Place<'a, P: Platform> {
    /// A queue that can take the task. It is locked.
    Found(RqGuard<'a, P>),
    /// No CPU can take the task.
    Nowhere,
    /// The lock was released meanwhile, and the task cannot be pushed from here any more.
    Gone,
}

impl<P: Platform> Scheduler<P> {
    /// Does the balancing that was deferred until now, with the lock held. Balancing that is
    /// deferred meanwhile waits for the CPU's next switch, which is requested then.
    pub(crate) fn run_balance(&self, rq: &mut RqGuard<'_, P>) {
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

    /// Pushes until no task can be moved.
    pub(crate) fn push_all(&self, rq: &mut RqGuard<'_, P>) {
        loop {
            while self.push_one(rq) {}
            if !self.searched_in_vain(rq, None) {
                return;
            }
        }
    }

    /// Pushes the first task that can be moved. Returns false when there is no such task, or no CPU
    /// for it.
    pub(crate) fn push_one(&self, rq: &mut RqGuard<'_, P>) -> bool {
        if rq.rt.overloaded.get() == 0 {
            return false;
        }
        let mut next = rq.rt.first_pushable(&self.state.tasks);
        while let Some(id) = next {
            let running = rq.curr().map(|curr| self.fair.rank(&self.state, rq, curr));
            if running.is_none_or(|running| self.state.tasks.get(id).prio() < running) {
                // The task will simply run here. The balance request then looks at the tasks behind
                // it.
                rq.request_balance(BALANCE_PUSH);
                self.state.resched(rq);
                return false;
            }
            match self.find_lock_lowest(id, rq) {
                Place::Found(lowest) => {
                    if self.lets_go_to_pull() {
                        self.move_away(rq, id, &lowest);
                    } else {
                        self.move_task(rq, id, &lowest);
                    }
                    self.state.stats.add(Count::Push);
                    self.state.resched(&lowest);
                    return true;
                }
                Place::Nowhere => next = self.pushable_behind(rq, id),
                Place::Gone => next = rq.rt.first_pushable(&self.state.tasks),
            }
        }
        false
    }

    /// Returns the next entry after `id` that may have a CPU, when there is none for `id`.
    fn pushable_behind(&self, rq: &RqGuard<'_, P>, id: TaskId) -> Option<TaskId> {
        // If a task that may run everywhere finds no CPU, less urgent tasks find none either.
        if self.runs_everywhere(id) { None } else { rq.rt.next_pushable(&self.state.tasks, id) }
    }

    /// Moves `id`, which is queued on `from` and does not run, to `to`.
    pub(crate) fn move_task(&self, from: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        self.dequeue(from, id, false);
        self.fair.groups.detach_load(&self.state, from.cpu, id);
        self.state.tasks.get(id).cpu.set(to.cpu.0);
        self.fair.groups.follow_group(&self.state, id, to.cpu);
        self.state.stats.add(Count::Migration);
        self.ids.leave_cpu(&self.state, id, from.cpu);
        self.enqueue(to, id, false);
    }

    /// Moves a task like [`move_task`](Self::move_task). If `from` was about to run `id`, other
    /// tasks may have stayed away because of it, so the CPU of `from` pulls in its current switch.
    /// It is in a switch during a pull that releases the lock, and after a wakeup.
    pub(crate) fn move_away(&self, from: &RqGuard<'_, P>, id: TaskId, to: &RqGuard<'_, P>) {
        let highest = from.highest();
        self.move_task(from, id, to);
        if highest < from.highest() && from.online.get() != 0 {
            from.request_balance(BALANCE_PULL);
        }
    }

    /// Finds a CPU for `id`, which could leave `rq`, and locks that CPU's queue too.
    fn find_lock_lowest<'a>(&'a self, id: TaskId, rq: &mut RqGuard<'_, P>) -> Place<'a, P> {
        let task = self.state.tasks.get(id);
        let mut busy = CpuSet::new();
        while let Some(cpu) = self.find_lowest(id, &busy).filter(|&cpu| cpu != rq.cpu) {
            if self.state.rqs[cpu].highest() > task.prio() {
                let (lowest, let_go) = rq.lock_both(&self.state.rqs[cpu], cpu);
                if let_go && !rq.rt.pushable(&self.state.tasks).contains(&id) {
                    return Place::Gone;
                }
                let allowed = !let_go || self.state.tasks.allowed(id).contains(cpu);
                let may = allowed && lowest.online.get() != 0 && lowest.highest() > task.prio();
                if may && self.fair.groups.holder(&self.state, cpu, id).is_none() {
                    return Place::Found(lowest);
                }
            }
            // That CPU pulls when it becomes less urgent again.
            busy.insert(cpu);
        }
        Place::Nowhere
    }

    /// Handles the push token's arrival at this CPU.
    pub(crate) fn run_push_work(&self) {
        let here = P::current_cpu();
        self.rd.begin_push_work();
        // Without the lock: a CPU that makes the list non-empty searches for a CPU itself.
        if self.state.rqs[here].rt.has_pushable_hint() {
            let mut rq = self.state.lock(here);
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
            self.state.stats.add(Count::PushInterrupt);
            P::interrupt(target, Interrupts::PUSH);
        }
    }
}
