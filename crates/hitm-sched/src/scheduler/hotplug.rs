//! CPU hotplug: CPUs that go offline and come online.
//!
//! **Protocol.** Offline: (1) the CPU is no longer active, so searches skip it. (2) Under its
//! queue's lock it withdraws its overload and its level, leaves the domain, and ends the throttling
//! of groups on it. (3) Queued tasks that do not run move to other CPUs. (4) The running task moves
//! when the CPU leaves it, which is requested. Online: the reverse of 2 and 1; then the CPU pulls.
//! A waker that chose the CPU before step 1 finds it offline under the lock and chooses again.
//!
//! **Locks.** One CPU goes or comes at a time: the set of active CPUs is read and written as a
//! whole, and the last CPU must stay. That lock is taken before all others.

use std::sync::atomic::Ordering;

use hitm_memory::{PlainWord, Platform, RawSpinLock, described};
use hitm_topology::CpuId;

use crate::base::journal::Entry;
use crate::base::numbers::TaskId;
use crate::scheduler::Scheduler;

described! {
    /// The lock that lets one CPU go or come at a time.
    pub(crate) struct Hotplug<M: Memory> as "hotplug" {
        /// Held while a CPU goes or comes.
        pub(crate) lock: RawSpinLock<M>,
    }
}

impl<P: Platform> Scheduler<P> {
    pub(crate) fn bring_online(&self, cpu: CpuId) {
        let _one_at_a_time = self.hotplug.lock.lock();
        let mut rq = self.state.lock(cpu);
        if rq.online.get() != 0 {
            return;
        }
        rq.online.set(1);
        self.state.stats.note(|| Entry::Online(cpu, true));
        self.tell_online(cpu, rq.rt.overloaded.get() != 0, Some(rq.highest()));
        self.rd.set_active(cpu, true);
        // SeqCst: this CPU looks for overloaded CPUs next. An overloaded CPU that advertises itself
        // looks for an active CPU. One of the two must see the other. Pairs with the operation or
        // the fence at the end of `set_overload`.
        P::fence(Ordering::SeqCst);
        // Other CPUs may be overloaded and may have searched when there was no CPU for their tasks.
        self.pull(&mut rq);
        if self.keeps_wakeups() {
            // If it idles, it must be counted as idle.
            self.state.resched(&rq);
        }
    }

    pub(crate) fn take_offline(&self, cpu: CpuId) -> bool {
        let _one_at_a_time = self.hotplug.lock.lock();
        let mut others = self.rd.active.load();
        others.remove(cpu);
        if others.is_empty() {
            return false;
        }
        let mut rq = self.state.lock(cpu);
        if rq.online.get() == 0 {
            return true;
        }
        self.rd.set_active(cpu, false);
        self.tell_online(cpu, rq.rt.overloaded.get() != 0, None);
        rq.online.set(0);
        self.state.stats.note(|| Entry::Online(cpu, false));
        self.fair.unthrottle_all(&self.state, &self.rd, self, &rq);
        self.queue_offered(&rq);
        while let Some(id) = self.first_waiting(&rq) {
            self.expel(&mut rq, id);
        }
        self.fair.groups.withdraw_loads(&self.state, &rq);
        if rq.curr().is_some() {
            self.state.resched(&rq);
        }
        true
    }

    /// Returns a task that is queued and does not run.
    fn first_waiting(&self, rq: &crate::base::rq::RqGuard<'_, P>) -> Option<TaskId> {
        self.queued(rq).into_iter().find(|&id| rq.curr() != Some(id) && !self.state.tasks.get(id).is_on_cpu())
    }
}
