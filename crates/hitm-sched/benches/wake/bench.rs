//! A scheduler, driven by hand by one thread that acts as one CPU after another.

use std::sync::Arc;
use std::time::Instant;

use hitm_memory::{Native, NativeWorkers, Platform};
use hitm_sched::{Attributes, Mitigation, Scheduler, Scheduling, SwitchReason, TaskId};
use hitm_topology::{CpuId, Topology};

/// A scheduler and the workers that act as its CPUs.
pub(crate) struct Bench {
    pub(crate) sched: Arc<Scheduler<Native>>,
    workers: Arc<NativeWorkers>,
    pub(crate) cpus: usize,
}

impl Bench {
    pub(crate) fn new(topology: &Arc<Topology>, mitigation: &str) -> Self {
        let workers = NativeWorkers::new(topology.cpus(), false);
        let mitigation = Mitigation::parse(mitigation).expect(mitigation);
        let sched = workers.visit(CpuId(0), || mitigation.scheduler::<Native>(topology.clone()));
        Self { sched, workers, cpus: topology.cpus() }
    }

    /// Creates a sleeping task.
    pub(crate) fn create(&self, attributes: &Attributes) -> TaskId {
        self.on(CpuId(0), || self.sched.create(attributes))
    }

    /// Does `f` as `cpu`.
    pub(crate) fn on<R>(&self, cpu: CpuId, f: impl FnOnce() -> R) -> R {
        self.workers.visit(cpu, f)
    }

    /// The CPU that this thread acts as handles its interrupts, and picks a task.
    pub(crate) fn look(&self) -> Option<TaskId> {
        self.sched.handle(Native::take_interrupts());
        let next = self.sched.switch(SwitchReason::Preempt)?;
        self.sched.begin_poll(next);
        Some(next)
    }

    /// The running task of the CPU that this thread acts as blocks, and the next one begins.
    pub(crate) fn block(&self) -> Option<TaskId> {
        let next = self.sched.switch(SwitchReason::Block)?;
        self.sched.begin_poll(next);
        Some(next)
    }

    /// `task` wakes and runs on `cpu`, which runs nothing more urgent.
    pub(crate) fn begin(&self, cpu: CpuId, task: TaskId) {
        self.on(cpu, || {
            self.sched.wake(task);
            assert_eq!(self.look(), Some(task), "it runs");
        });
    }

    /// Returns the first `count` CPUs, or all.
    pub(crate) fn first(&self, count: usize) -> Vec<CpuId> {
        (0..self.cpus.min(count) as u32).map(CpuId).collect()
    }
}

/// The repeated action.
pub(crate) type Cycle = Box<dyn Fn(&Bench) + Sync>;

/// Returns the nanoseconds per cycle of `times` cycles.
pub(crate) fn time(bench: &Bench, cycle: &Cycle, times: u32) -> f64 {
    let start = Instant::now();
    (0..times).for_each(|_| cycle(bench));
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

/// Returns the nanoseconds of each round by subject, the fastest first.
pub(crate) fn rounds<const N: usize>(count: usize, mut round: impl FnMut(usize) -> f64) -> [Vec<f64>; N] {
    let mut nanos = [const { Vec::new() }; N];
    for _ in 0..count {
        nanos.iter_mut().enumerate().for_each(|(at, nanos)| nanos.push(round(at)));
    }
    nanos.iter_mut().for_each(|nanos| nanos.sort_by(f64::total_cmp));
    nanos
}

/// Prints the head of a table with these columns.
pub(crate) fn print_head<const N: usize>(what: &str, columns: [&str; N]) {
    println!("\n{what:<18}{}", columns.map(|column| format!(" {column:>18} {:>6}", "ratio")).concat());
}

pub(crate) fn print<const N: usize>(case: &str, nanos: [f64; N]) {
    println!("{case:<18}{}", nanos.map(|each| format!(" {each:>18.0} {:>6.2}", each / nanos[0])).concat());
}

/// Times the cycles of `prepare` with each mitigation, in alternating rounds, and prints the
/// fastest of each.
pub(crate) fn print_fastest<const N: usize>(
    topology: &Arc<Topology>,
    mitigations: [&str; N],
    case: &str,
    (count, times): (usize, u32),
    prepare: impl Fn(&Bench) -> Cycle,
) {
    let subjects = mitigations.map(|mitigation| {
        let bench = Bench::new(topology, mitigation);
        let cycle = prepare(&bench);
        (bench, cycle)
    });
    let nanos: [_; N] = rounds(count, |at| time(&subjects[at].0, &subjects[at].1, times));
    print(case, nanos.map(|nanos| nanos[0]));
}
