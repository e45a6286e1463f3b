//! Regression tests for pushes that were forgotten.

use std::sync::Arc;

use hitm_memory::{CpuSet, Native, NativeWorkers, Platform};
use hitm_sched::{Attributes, Mitigation, Policy, Prio, Scheduler, Scheduling, SwitchReason, TaskId};
use hitm_topology::CpuId;

/// A scheduler of three CPUs, on one thread that is each of them in turn.
struct Three {
    sched: Arc<Scheduler<Native>>,
    workers: Arc<NativeWorkers>,
}

impl Three {
    fn new() -> Self {
        let topology = Arc::new(hitm_topology::parse("core:3 pu:1").expect("three CPUs"));
        let workers = NativeWorkers::new(3, false);
        let sched = workers.visit(CpuId(0), || Mitigation::baseline().scheduler::<Native>(topology));
        Self { sched, workers }
    }

    fn on<R>(&self, cpu: u32, f: impl FnOnce(&Scheduler<Native>) -> R) -> R {
        self.workers.visit(CpuId(cpu), || f(&self.sched))
    }

    /// Creates a sleeping task that may run anywhere, as if it had slept on `cpu`.
    fn task(&self, cpu: u32) -> TaskId {
        let allowed: CpuSet = (0..3).map(CpuId).collect();
        self.on(cpu, |sched| {
            sched.create(&Attributes {
                prio: Prio(0),
                policy: Policy::Fifo,
                allowed: Some(allowed),
                map: None,
                group: None,
            })
        })
    }

    /// `cpu` takes its interrupts, and switches if it was asked to. Returns its running task.
    fn look(&self, cpu: u32) -> Option<TaskId> {
        self.on(cpu, |sched| sched.handle(Native::take_interrupts()));
        if self.on(cpu, |sched| sched.needs_resched()) {
            return self.on(cpu, |sched| sched.switch(SwitchReason::Preempt));
        }
        self.sched.running(CpuId(cpu))
    }
}

/// A wakeup leaves the push to a CPU that is about to reschedule. That CPU then goes on with the
/// same task, and must push all the same.
#[test]
fn a_look_that_changes_nothing_pushes() {
    let three = Three::new();
    let (first, second) = (three.task(0), three.task(2));
    assert!(three.on(0, |sched| sched.wake(first)));
    assert_eq!(three.look(0), Some(first));
    assert!(three.on(1, |sched| sched.set_offline(CpuId(2))));
    // CPU 0 is asked to reschedule, since it goes offline. It comes back before it does so.
    assert!(three.on(1, |sched| sched.set_offline(CpuId(0))));
    three.on(1, |sched| sched.set_online(CpuId(0)));
    // Its own CPU is offline, so it is queued on CPU 0, behind the first.
    assert!(three.on(2, |sched| sched.wake(second)));
    assert_eq!(three.look(0), Some(first));
    assert_eq!(three.look(1), Some(second));
    assert_eq!(three.sched.snapshot().priority_inversions(), Vec::<String>::new());
}
