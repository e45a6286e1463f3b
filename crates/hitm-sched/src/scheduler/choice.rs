//! The choice between the two ways to place real-time tasks: that of the replica, [`linux`], and
//! hitm's own, [`shipped`]. No other file of the scheduler asks which one it is.
//!
//! [`linux`]: crate::linux
//! [`shipped`]: crate::shipped

use hitm_memory::{CpuSet, Platform};
use hitm_topology::CpuId;

use crate::base::numbers::TaskId;
use crate::base::prio::Prio;
use crate::base::rq::RqGuard;
use crate::base::stats::Count;
use crate::scheduler::Scheduler;
use crate::shipped::Shipped;
use crate::shipped::run_next::RunNext;
use crate::shipped::searchers::Searchers;
use crate::shipped::urgent::UrgentTasks;

/// Who places real-time tasks.
#[expect(clippy::large_enum_variant, reason = "a scheduler has one, which is never moved")]
pub(crate) enum Way<P: Platform> {
    /// Linux: every CPU publishes its level and whether it is overloaded, in the root domain.
    Linux,
    /// hitm: only a task that waits is advertised.
    Shipped(Shipped<P>),
}

impl<P: Platform> Scheduler<P> {
    /// Returns the state of hitm's own way, if that is the chosen one, for checkers.
    pub(crate) fn shipped(&self) -> Option<&Shipped<P>> {
        match &self.way {
            Way::Linux => None,
            Way::Shipped(own) => Some(own),
        }
    }

    /// Returns the idle CPUs, if CPUs keep the tasks that their own tasks wake.
    #[inline]
    pub(super) fn searchers(&self) -> Option<&Searchers<P>> {
        match &self.way {
            Way::Linux => None,
            Way::Shipped(own) => own.searchers.as_ref(),
        }
    }

    /// Returns the urgent tasks that their CPUs have not begun, there too.
    #[inline]
    pub(super) fn urgent(&self) -> Option<&UrgentTasks<P>> {
        match &self.way {
            Way::Linux => None,
            Way::Shipped(own) => own.urgent.as_ref(),
        }
    }

    /// Returns the offered tasks of each CPU, there too.
    #[inline]
    pub(crate) fn run_next(&self) -> Option<&RunNext<P>> {
        match &self.way {
            Way::Linux => None,
            Way::Shipped(own) => own.run_next.as_ref(),
        }
    }

    /// Publishes `prio`, the new priority of the queue's most urgent task. The CPU is online.
    pub(super) fn tell_level(&self, cpu: CpuId, prio: Prio) {
        match self.way {
            Way::Linux => {
                self.state.stats.add(Count::LevelChange);
                self.rd.set_level(cpu, Some(prio));
            }
            Way::Shipped(_) => {}
        }
    }

    /// Publishes that the queue of `cpu`, which is online, has a task that could run elsewhere, or
    /// has none any more.
    pub(super) fn tell_overload(&self, cpu: CpuId, is_overloaded: bool) {
        match self.way {
            Way::Linux if is_overloaded => {
                self.state.stats.add(Count::OverloadSet);
                self.rd.set_overload(cpu);
            }
            Way::Linux => {
                self.state.stats.add(Count::OverloadClear);
                self.rd.clear_overload(cpu);
            }
            Way::Shipped(_) => {}
        }
    }

    /// Publishes the state of a CPU that comes online, or withdraws that of a CPU that goes
    /// offline, which is `None`.
    pub(super) fn tell_online(&self, cpu: CpuId, is_overloaded: bool, prio: Option<Prio>) {
        match self.way {
            Way::Linux => {
                match prio {
                    Some(_) if is_overloaded => self.rd.set_overload(cpu),
                    None if is_overloaded => self.rd.clear_overload(cpu),
                    _ => {}
                }
                self.rd.set_level(cpu, prio);
            }
            Way::Shipped(_) => {}
        }
    }

    /// A task has come to the pushable list of `rq`.
    pub(super) fn begin_wait(&self, rq: &RqGuard<'_, P>) {
        match &self.way {
            Way::Linux => {}
            Way::Shipped(own) => own.expect(rq),
        }
    }

    /// `id` has left the pushable list of `rq`.
    pub(super) fn end_wait(&self, rq: &RqGuard<'_, P>, id: TaskId) {
        match &self.way {
            Way::Linux => {}
            Way::Shipped(own) => own.withdraw(&self.state, rq, id),
        }
    }

    /// A search has found no CPU for the tasks that wait on `rq`, of which `newest` came last.
    /// Returns true when there must be a second search, which may find one.
    pub(super) fn searched_in_vain(&self, rq: &RqGuard<'_, P>, newest: Option<TaskId>) -> bool {
        match &self.way {
            Way::Linux => false,
            Way::Shipped(own) => own.announce(&self.state, rq, newest),
        }
    }

    /// Pulls tasks that wait elsewhere and are more urgent than the tasks queued here, or requests
    /// a push.
    pub(crate) fn pull(&self, rq: &mut RqGuard<'_, P>) {
        self.state.stats.add(Count::Look);
        let pulled = match &self.way {
            Way::Linux => self.pull_overloaded(rq),
            Way::Shipped(own) => own.pull(&self.state, rq, |rq, cpu| self.pull_from(rq, cpu)),
        };
        if pulled {
            self.state.resched(rq);
        }
    }

    /// Returns whether a pull takes other queues' locks, so that the puller's own lock may be
    /// released meanwhile.
    pub(super) fn lets_go_to_pull(&self) -> bool {
        match self.way {
            Way::Linux => !self.rd.config.push_by_interrupt,
            Way::Shipped(_) => true,
        }
    }

    /// Returns a CPU that runs something less urgent than `id`, which may move, and is not `busy`.
    pub(super) fn find_less_urgent(&self, id: TaskId, busy: &CpuSet) -> Option<CpuId> {
        match &self.way {
            Way::Linux => self.find_by_level(id, busy),
            Way::Shipped(own) => own.find(&self.state, &self.rd.active, id, busy),
        }
    }

    /// Returns whether any CPU where `id` may run runs something less urgent.
    pub(super) fn is_any_less_urgent(&self, id: TaskId) -> bool {
        match &self.way {
            Way::Linux => self.rd.cpupri.any(&self.search(id, self.state.tasks.get(id).prio())),
            Way::Shipped(own) => own.any_less_urgent(&self.state, &self.rd.active, id),
        }
    }
}
