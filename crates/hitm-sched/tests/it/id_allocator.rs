//! Task numbers, which are used again.

use std::cell::Cell;
use std::rc::Rc;

use hitm_machine::Simulated;
use hitm_memory::{CpuSet, Platform, Span};
use hitm_sched::{Attributes, Policy, Prio, Scheduling, SwitchReason};
use hitm_topology::CpuId;

use crate::bench::Bench;

/// One CPU runs a task to its end. Another learns of that outside shared memory, gives the number
/// back and creates the next task with it. The race detector is on.
#[test]
fn a_number_that_another_cpu_gives_back_is_used_again_in_order() {
    let bench = Bench::new("core:2 pu:1", "shipped", true);
    let ended = Rc::new(Cell::new(None));
    bench.each(move |cpu, sched| {
        let allowed = CpuSet::from_iter([CpuId(1)]);
        let attributes =
            Attributes { prio: Prio(49), policy: Policy::Fifo, allowed: Some(allowed), map: None, group: None };
        if cpu == CpuId(1) {
            let task = sched.create(&attributes);
            sched.wake(task);
            assert_eq!(sched.switch(SwitchReason::Preempt), Some(task));
            sched.begin_poll(task);
            assert_eq!(sched.switch(SwitchReason::Exit), None);
            ended.set(Some(task));
            return;
        }
        // Long enough for the other CPU.
        let left = Simulated::compute(Span::from_micros(100));
        assert!(left.is_zero(), "no interrupt comes");
        let task = ended.get().expect("it has ended");
        sched.free(task);
        assert_eq!(sched.create(&attributes), task, "the number is used again");
    });
}

/// Half of the CPUs prepare tasks. For each of them, the CPU that is `distance` further on frees
/// the tasks. Returns the misses per task, by object.
fn misses(distance: u32, objects: [&str; 2]) -> [f64; 2] {
    const TASKS: u32 = 300;
    let bench = Bench::new("pack:2 l3:2 core:4 pu:1", "shipped", false);
    let cpus = bench.sched.topology().cpus() as u32;
    let prepared: Vec<Cell<Vec<_>>> = (0..cpus).map(|_| Cell::default()).collect();
    bench.each(move |cpu, sched| {
        let prepares = (cpu.0 / distance).is_multiple_of(2);
        let between = &prepared[if prepares { cpu.index() } else { cpu.index() - distance as usize }];
        let allowed = CpuSet::from_iter([cpu]);
        let attributes =
            Attributes { prio: Prio(49), policy: Policy::Fifo, allowed: Some(allowed), map: None, group: None };
        let mut left = TASKS;
        while left > 0 {
            let prepared = prepares.then(|| sched.prepare(&attributes).expect("a number"));
            Simulated::settle();
            let mut tasks = between.take();
            if let Some(task) = prepared {
                tasks.push(task);
                left -= 1;
                between.set(tasks);
            } else {
                left -= tasks.len() as u32;
                tasks.into_iter().for_each(|task| sched.free(task));
            }
            let rest = Simulated::compute(Span::from_micros(1));
            assert!(rest.is_zero(), "no interrupt comes");
        }
    });
    let results = bench.machine.results();
    objects.map(|object| {
        let lines = results.lines.iter().filter(|line| line.object == object);
        lines.map(|line| line.misses().count()).sum::<u64>() as f64 / f64::from(TASKS * cpus / 2)
    })
}

/// Within an LLC, and from one package to the other.
#[test]
fn tasks_that_end_elsewhere_cost_the_common_list_little() {
    for distance in [1, 8] {
        let [common, own] = misses(distance, ["task_table", "task_numbers"]);
        assert!(common > 0.0 && common < 0.5, "{common} misses of the common list a task, {distance} CPUs on");
        assert!(own < 0.1, "{own} misses of the CPU's own list a task, {distance} CPUs on");
    }
}
