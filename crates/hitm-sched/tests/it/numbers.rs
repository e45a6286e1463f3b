//! Numbers of tasks, which are used again.

use std::cell::Cell;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::mitigation::Mitigation;
use hitm_sched::prio::Prio;
use hitm_sched::scheduler::{Scheduling, Why};
use hitm_sched::task::{Attributes, Policy};
use hitm_topology::CpuId;

use crate::bench::Bench;

/// One CPU runs a task to its end, another is told of that by what is not in shared memory, gives the number back and makes the next task of
/// it. The race detector watches.
#[test]
fn a_number_that_another_cpu_gives_back_is_used_again_in_order() {
    let bench: Bench<dyn Scheduling<Simulated>> =
        Bench::with("core:2 pu:1", true, |topology| Mitigation::shipped().scheduler(topology));
    let ended = Rc::new(Cell::new(None));
    bench.each(move |cpu, sched| {
        let allowed = CpuSet::from_iter([CpuId(1)]);
        let attributes = Attributes { prio: Prio(49), policy: Policy::Fifo, allowed, map: None };
        if cpu == CpuId(1) {
            let task = sched.create(&attributes);
            sched.wake(task);
            assert_eq!(sched.switch(Why::Preempt), Some(task));
            sched.begin_poll(task);
            assert_eq!(sched.switch(Why::Exit), None);
            ended.set(Some(task));
            return;
        }
        // Long enough.
        let left = Simulated::compute(Span::from_micros(100));
        assert!(left.is_zero(), "nobody interrupts");
        let task = ended.get().expect("it has ended");
        sched.free(task);
        assert_eq!(sched.create(&attributes), task, "the number is used again");
    });
}
