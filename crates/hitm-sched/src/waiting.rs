//! Who waits for a CPU, told to those CPUs alone that could take it.
//!
//! **Claim.** A task that waits because every CPU it may use is busy with something as urgent is announced to just those CPUs, one
//! word each, or, when it may use many, once in its LLC. A CPU that becomes less urgent looks at its own word and at one an LLC.
//! Nothing is written for a task that runs at once, or for a CPU that changes its priority.
//!
//! **Origin.** Ours. The kernel announces a CPU as overloaded while it has any task that may move, to all CPUs, in one word.
//!
//! **Roles.** Announce and withdraw are called under the lock of the queue that the task waits on. The test is called by the CPU that
//! has become less urgent, under its own queue's lock.
//!
//! **Protocol.** Who announces: (1) looks for a place and finds none; (2) adds to the words; (3) looks once more. Who becomes less
//! urgent: (1) writes its queue's priority; (2) fences; (3) reads the words. Either the second look sees the priority or the test
//! sees the announcement: both sides put a full barrier between their write and their read.

use std::sync::atomic::Ordering;

use hitm_memory::{AtomicWord, CpuSet, Memory, PerCpu, PlainWord, Platform, ScopedCounter, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// Tasks that may use no more CPUs than this are announced to each of them.
const NARROW: u32 = 16;

described! {
    /// What waits for one CPU.
    pub(crate) struct WaitingFor<M: Memory> as "waiting" {
        /// Tasks that wait elsewhere and may run here. Written by their queues' holders, read by this CPU.
        tasks: M::Atomic<i32>,
        /// The queue that announced last. A hint.
        from: M::Atomic<u32>,
    }
}

/// All announcements.
#[derive(Debug)]
pub(crate) struct Waiting<M: Memory> {
    by_cpu: PerCpu<M, WaitingFor<M>>,
    /// Tasks that may use more than [`NARROW`] CPUs, by the LLC that they wait in.
    anywhere: ScopedCounter<M>,
    unused: M::Atomic<i32>,
}

impl<M: Memory> std::fmt::Debug for WaitingFor<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitingFor").finish_non_exhaustive()
    }
}

impl<M: Memory> Waiting<M> {
    pub(crate) fn new(topology: &Topology) -> Self {
        let none = |_| WaitingFor { tasks: M::Atomic::new(0), from: M::Atomic::new(0) };
        Self {
            by_cpu: PerCpu::new(topology, none),
            anywhere: ScopedCounter::new("waiting_anywhere", topology, Scope::Llc),
            unused: M::Atomic::new(0),
        }
    }

    fn anywhere(&self, cpu: CpuId) -> i32 {
        self.anywhere.sum_beyond(&self.unused, cpu, 0)
    }
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    fn tell(&self, rq: &RqGuard<'_, P>, id: TaskId, by: i32) {
        let waiting = &self.rd.waiting;
        let task = self.tasks.get(id);
        task.announced.set(u32::from(by > 0));
        if task.cpus_allowed_count.get() > NARROW {
            waiting.anywhere.cell(&waiting.unused, rq.cpu).fetch_add(by, Ordering::SeqCst);
            return;
        }
        for cpu in self.tasks.allowed(id).load().iter().filter(|&cpu| cpu != rq.cpu) {
            let word = &waiting.by_cpu[cpu];
            word.tasks.fetch_add(by, Ordering::SeqCst);
            if by > 0 {
                word.from.store(rq.cpu.0, Ordering::Relaxed);
            }
        }
    }

    /// Announces what waits on `rq` and is not announced; whether there was any.
    pub(crate) fn announce_waiting(&self, rq: &RqGuard<'_, P>) -> bool {
        if rq.needs_resched() {
            // The CPU looks again before anything here has waited.
            return false;
        }
        let mut told = false;
        for id in self.pushable(rq) {
            if self.tasks.get(id).announced.get() == 0 {
                self.tell(rq, id, 1);
                told = true;
            }
        }
        if told {
            self.stats.add(Count::OverloadSet);
            self.rd.rto_mask.row(self.rd.rto_mask.pointer_to(0)).set(rq.cpu, Ordering::SeqCst);
        }
        told
    }

    /// `id` does not wait on `rq` any more.
    pub(crate) fn withdraw(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.tasks.get(id).announced.get() != 0 {
            self.tell(rq, id, -1);
            if self.first_pushable(rq).is_none() {
                self.stats.add(Count::OverloadClear);
                self.rd.rto_mask.row(self.rd.rto_mask.pointer_to(0)).clear(rq.cpu, Ordering::Relaxed);
            }
        }
    }

    /// Gets what waits for this CPU.
    pub(crate) fn pull_waiting(&self, rq: &mut RqGuard<'_, P>) {
        P::fence(Ordering::SeqCst);
        let waiting = &self.rd.waiting;
        let here = rq.cpu;
        let own = || waiting.by_cpu[here].tasks.load(Ordering::Relaxed) > 0;
        let any = || own() || waiting.anywhere(here) > 0;
        if !any() {
            return;
        }
        self.stats.add(Count::Pull);
        let mut pulled = false;
        if own() {
            let from = CpuId(waiting.by_cpu[here].from.load(Ordering::Relaxed));
            pulled |= self.pull_from(rq, from);
        }
        if any() {
            let row = self.rd.rto_mask.row(self.rd.rto_mask.pointer_to(0));
            for cpu in row.snapshot().iter().filter(|&cpu| cpu != here) {
                pulled |= self.pull_from(rq, cpu);
                if !any() {
                    break;
                }
            }
        }
        if pulled {
            self.resched(rq);
        }
    }

    /// A CPU that runs something less urgent than `id` and is not `busy`: the nearest idle one, else the least urgent.
    pub(crate) fn find_near(&self, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        let task = self.tasks.get(id);
        if !task.can_move() {
            return None;
        }
        let mut left = self.tasks.allowed(id).load();
        left.intersect(&self.rd.active.load());
        for cpu in busy.iter() {
            left.remove(cpu);
        }
        let from = task.cpu();
        let cursor = &self.rqs[P::current_cpu()].cursor;
        let mut best = (task.prio(), None);
        for around in &self.neighbourhoods[from.index()] {
            let mut near = left.clone();
            near.intersect(around);
            let start = CpuId((cursor.peek() + 1) % self.topology.cpus() as u32);
            let mut next = near.first_from(start);
            while let Some(cpu) = next {
                near.remove(cpu);
                left.remove(cpu);
                let highest = self.rqs[cpu].highest();
                if !highest.is_real_time() {
                    cursor.set(cpu.0);
                    return Some(cpu);
                }
                if highest > best.0 {
                    best = (highest, Some(cpu));
                }
                next = near.first_from(cpu);
            }
        }
        best.1
    }

    /// Whether any CPU that `id` may run on runs something less urgent than `id`.
    pub(crate) fn any_near(&self, id: TaskId) -> bool {
        let prio = self.tasks.get(id).prio();
        self.tasks.allowed(id).load().iter().any(|cpu| self.rqs[cpu].highest() > prio)
    }
}
