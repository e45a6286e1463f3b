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
//! **Protocol.** Who announces: (1) looks for a place and finds none; (2) adds to the words; (3) fences; (4) looks once more. Who
//! becomes less urgent: (1) writes its queue's priority; (2) fences; (3) reads the words. Either the second look sees the priority
//! or the test sees the announcement.
//!
//! **Places.** A CPU's priority is read where its queue has it anyway, nearest CPUs first, up to the first that idles. Nothing is
//! kept for the search, so a CPU that begins or ends real-time work writes nothing that others share.
//!
//! **Invariants.** With nothing in flight: (1) every task that could move and does not run is announced; (2) each word is the number
//! of tasks announced to it; (3) a source's bit is set while a task of its queue is announced.
//!
//! **Memory ordering.**
//!
//! | one side | other side | what follows |
//! |---|---|---|
//! | `announce`: words, fence SeqCst, priorities | `pull_waiting`: priority, fence SeqCst, words | one of them sees the other |
//! | `tell`, add to a word Release | `pull_waiting`, load Relaxed, then fence Acquire | the source's bit, and what its list begins with |
//!
//! **Cost.** A wakeup that finds its CPU idle: nothing. A search: a line a CPU looked at. Becoming less urgent: the own line and one
//! an LLC, all of which hit while nobody waits. Waiting: a line for each CPU that may help, twice.
//!
//! **Limits.** A search on a machine without an idle CPU looks at every CPU that the task may use.

use std::fmt;
use std::sync::atomic::Ordering;

use hitm_memory::{
    AtomicWord, BitmapRow, CpuSet, Encoding, LINE, Memory, PerCpu, PlainWord, Platform, ScopedBitmaps, ScopedCounter,
    described,
};
use hitm_topology::{CpuId, Scope, Topology};

use crate::root_domain::RootDomainWords;
use crate::rq::RqGuard;
use crate::scheduler::Scheduler;
use crate::stats::Count;
use crate::task::TaskId;

/// Tasks that may use no more CPUs than this are announced to each of them. Each costs a read-modify-write of a line that only that
/// CPU reads; a task that may use more costs one of a line that all read when they become less urgent.
const NARROW: u32 = 16;

described! {
    /// What waits for one CPU.
    pub(crate) struct WaitingFor<M: Memory> as "waiting" {
        /// Tasks that wait elsewhere and may run here. Written by the holders of their queues, read by this CPU.
        tasks: M::Atomic<i32>,
        /// The queue that announced last: where to look first.
        from: M::Atomic<u32>,
    }
}

/// All announcements.
pub(crate) struct Waiting<M: Memory> {
    by_cpu: PerCpu<M, WaitingFor<M>>,
    /// Tasks that may use more than [`NARROW`] CPUs, by the LLC that they wait in.
    anywhere: ScopedCounter<M>,
    /// The CPUs that have announced anything, by LLC.
    sources: ScopedBitmaps<M>,
}

/// The announcements, for checkers.
#[derive(Clone, Debug)]
pub struct WaitingSnapshot {
    /// By CPU: tasks that wait elsewhere and may run there.
    pub by_cpu: Vec<i32>,
    /// Tasks that wait and may run on many.
    pub anywhere: i32,
    /// The CPUs that have announced anything.
    pub sources: CpuSet,
}

impl<M: Memory> Waiting<M> {
    /// Nobody waits.
    pub(crate) fn new(topology: &Topology) -> Self {
        let none = |_| WaitingFor { tasks: M::Atomic::new(0), from: M::Atomic::new(0) };
        Self {
            by_cpu: PerCpu::new(topology, none),
            anywhere: ScopedCounter::of_parts("waiting_anywhere", topology, Scope::Llc),
            sources: ScopedBitmaps::new("waiting_sources", "cpus", 1, topology, Scope::Llc, Encoding::Zeros),
        }
    }

    /// Whether anything waits that may run on `cpu`.
    #[track_caller]
    fn any_for(&self, cpu: CpuId) -> bool {
        // Relaxed, here and inside: the caller has fenced before and fences after.
        self.by_cpu[cpu].tasks.load(Ordering::Relaxed) > 0 || self.anywhere.sum_of_parts(cpu, 0) > 0
    }

    fn sources(&self) -> BitmapRow<'_, M> {
        self.sources.row(self.sources.pointer_to(0))
    }

    /// What is announced. Only when nothing is in flight.
    pub(crate) fn snapshot(&self) -> WaitingSnapshot {
        // Relaxed: nothing is in flight.
        let tasks = |waiting: &WaitingFor<M>| waiting.tasks.load(Ordering::Relaxed);
        WaitingSnapshot {
            by_cpu: self.by_cpu.iter().map(tasks).collect(),
            anywhere: self.anywhere.sum_of_parts(CpuId(0), i32::MAX),
            sources: self.sources().snapshot(),
        }
    }

    /// Bytes of all of it, whole lines.
    pub(crate) fn bytes(&self) -> usize {
        self.by_cpu.iter().count() * LINE + self.anywhere.bytes() + self.sources.bytes()
    }
}

impl<M: Memory> fmt::Debug for Waiting<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("anywhere", &self.anywhere).finish_non_exhaustive()
    }
}

/// Whether a task that may use this many CPUs is announced to each of them.
pub(crate) fn is_narrow(cpus: u32) -> bool {
    cpus <= NARROW
}

impl<P: Platform, R: RootDomainWords<P>> Scheduler<P, R> {
    /// Announces what waits on `rq` and is not announced. Whether there was any: then the caller looks for places once more.
    pub(crate) fn announce(&self, rq: &RqGuard<'_, P>) -> bool {
        if rq.needs_resched() {
            // The CPU looks again before anything here has waited.
            return false;
        }
        let before = rq.rt.announced.get();
        let waits = |id: &TaskId| self.tasks.get(*id).announced.get() == 0;
        let told: Vec<TaskId> = self.pushable(rq).into_iter().filter(waits).collect();
        if told.is_empty() {
            return false;
        }
        if before == 0 {
            self.stats.add(Count::OverloadSet);
            // Relaxed: published by the words.
            self.rd.waiting.sources().set(rq.cpu, Ordering::Relaxed);
        }
        rq.rt.announced.set(before + told.len() as u32);
        for id in told {
            self.tasks.get(id).announced.set(1);
            self.tell(rq, id, 1);
        }
        // SeqCst: between the announcement and the caller's second look. Pairs with the fence in `pull_waiting`.
        P::fence(Ordering::SeqCst);
        true
    }

    /// `id`, which was in the pushable list of `rq`, does not wait there any more.
    pub(crate) fn withdraw(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        if self.tasks.get(id).announced.get() == 0 {
            return;
        }
        self.tasks.get(id).announced.set(0);
        self.tell(rq, id, -1);
        rq.rt.announced.set(rq.rt.announced.get() - 1);
        if rq.rt.announced.get() == 0 {
            self.stats.add(Count::OverloadClear);
            // Relaxed: who still sees it looks in vain at worst.
            self.rd.waiting.sources().clear(rq.cpu, Ordering::Relaxed);
        }
    }

    /// Adds `by` where `id`, which waits on `rq`, is announced.
    fn tell(&self, rq: &RqGuard<'_, P>, id: TaskId, by: i32) {
        let waiting = &self.rd.waiting;
        if !is_narrow(self.tasks.get(id).cpus_allowed_count.get()) {
            // Release: publishes the source's bit and what stands first in its list. Pairs with the fence in `pull_waiting`.
            waiting.anywhere.cell_of(rq.cpu).fetch_add(by, Ordering::Release);
            return;
        }
        for cpu in self.tasks.allowed(id).load().iter().filter(|&cpu| cpu != rq.cpu) {
            let word = &waiting.by_cpu[cpu];
            // Release: as above.
            word.tasks.fetch_add(by, Ordering::Release);
            if by > 0 {
                // Relaxed: a hint.
                word.from.store(rq.cpu.0, Ordering::Relaxed);
            }
        }
    }

    /// Gets what waits elsewhere and is more urgent than what is queued here.
    pub(crate) fn pull_waiting(&self, rq: &mut RqGuard<'_, P>) {
        // SeqCst: between this queue's new priority and the test. Pairs with the fence in `announce`.
        P::fence(Ordering::SeqCst);
        let (waiting, here) = (&self.rd.waiting, rq.cpu);
        if !waiting.any_for(here) {
            return;
        }
        // Acquire: what was published with the announcements. Pairs with the Releases in `tell`.
        P::fence(Ordering::Acquire);
        self.stats.add(Count::Pull);
        // Relaxed: a hint.
        let first = CpuId(waiting.by_cpu[here].from.load(Ordering::Relaxed));
        let mut pulled = first != here && self.pull_from(rq, first);
        let others = waiting.sources().snapshot();
        for cpu in others.iter().filter(|&cpu| cpu != here && cpu != first) {
            if !waiting.any_for(here) {
                break;
            }
            pulled |= self.pull_from(rq, cpu);
        }
        if pulled {
            self.resched(rq);
        }
    }

    /// A CPU that runs something less urgent than `id` and is not `busy`: the nearest that idles, else the least urgent of all.
    pub(crate) fn find_near(&self, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        let task = self.tasks.get(id);
        if !task.can_move() {
            return None;
        }
        let mut left = self.candidates(id);
        busy.iter().for_each(|cpu| left.remove(cpu));
        let cursor = &self.rqs[P::current_cpu()].cursor;
        let mut least = (task.prio(), None);
        for around in &self.neighbourhoods[task.cpu().index()] {
            let mut near = left.clone();
            near.intersect(around);
            // Peek: as in `any_of`.
            let mut next = near.first_from(CpuId((cursor.peek() + 1) % self.topology.cpus() as u32));
            while let Some(cpu) = next {
                near.remove(cpu);
                left.remove(cpu);
                let highest = self.rqs[cpu].highest();
                if !highest.is_real_time() {
                    cursor.set(cpu.0);
                    return Some(cpu);
                }
                if highest > least.0 {
                    least = (highest, Some(cpu));
                }
                next = near.first_from(cpu);
            }
        }
        least.1
    }

    /// Whether any CPU that `id` may run on runs something less urgent than `id`.
    pub(crate) fn any_less_urgent(&self, id: TaskId) -> bool {
        let prio = self.tasks.get(id).prio();
        self.candidates(id).iter().any(|cpu| self.rqs[cpu].highest() > prio)
    }

    /// The active CPUs that `id` may run on.
    fn candidates(&self, id: TaskId) -> CpuSet {
        let mut cpus = self.tasks.allowed(id).load();
        cpus.intersect(&self.rd.active.load());
        cpus
    }
}
