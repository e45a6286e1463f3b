//! One program on either host.

use std::sync::{Arc, Barrier, Mutex, PoisonError};

use hitm_machine::{Config, CostSet, Costs, Machine, Results, Simulated, Stalled};
use hitm_memory::{Native, NativeWorkers, Span};
use hitm_topology::{CpuId, Topology};
use hitm_workloads::probe::{Measured, Probe};

use crate::program::Program;

/// A simulated machine: its shape, its costs and its setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The shape.
    pub topology: Arc<Topology>,
    /// The costs.
    pub costs: Costs,
    /// Everything else.
    pub config: Config,
}

impl Setting {
    /// Returns `topology` with its own cost table, or the nearest family's, and the kernel's path
    /// costs.
    #[must_use]
    pub fn of(topology: &Arc<Topology>, config: Config) -> Self {
        Self { topology: topology.clone(), costs: Costs::of(topology, CostSet::Linux), config }
    }
}

/// The outcome of a program.
#[derive(Debug)]
pub struct Output {
    /// Each participant's figures, in the order of the CPUs given.
    pub measured: Vec<Measured>,
    /// Delays of single participants, from the probes that record them: see [`Probe::delays`].
    pub delays: Vec<(usize, Span)>,
    /// The machine's counts, if it was simulated.
    pub results: Option<Results>,
    /// Time for which the operating system kept participants waiting for their CPUs, summed, where
    /// it says so.
    pub kept_waiting: Span,
}

/// Returns the nanoseconds between two operations of a CPU: the mean over all operations, in which
/// a slow CPU has few.
#[must_use]
pub fn mean_nanos(measured: &[Measured]) -> f64 {
    let rate: f64 = measured.iter().map(|measured| 1.0 / measured.nanos_each()).sum();
    measured.len() as f64 / rate
}

/// Runs `program` on `cpus` of a simulated machine.
///
/// # Errors
/// When the machine stalls.
pub fn simulate(setting: &Setting, cpus: &[CpuId], program: &Program) -> Result<Output, Stalled> {
    let mut config = setting.config.clone();
    if let Some(time) = program.time() {
        // A probe does nothing but access memory, so the usual limit of a livelock would end it. An
        // access takes at least a tenth of a nanosecond. Round trips end by their number.
        let longest = time.as_picos().saturating_mul(20) / 100;
        config.livelock_after = longest.saturating_mul(cpus.len() as u64).max(config.livelock_after);
    }
    let machine = Machine::new(setting.topology.clone(), setting.costs.clone(), config);
    let make = || program.make::<Simulated>(&setting.topology, cpus);
    let body: Arc<dyn Probe<Simulated>> = machine.enter(make).into();
    let measured = Arc::new(Mutex::new(vec![Measured::default(); cpus.len()]));
    let (participants, slots, main) = (cpus.to_vec(), measured.clone(), body.clone());
    machine.run(move |cpu| {
        let Some(index) = participants.iter().position(|&participant| participant == cpu) else { return };
        let own = main.run(index, cpu);
        slots.lock().unwrap_or_else(PoisonError::into_inner)[index] = own;
    })?;
    let measured = measured.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Output { measured, delays: body.delays(), results: Some(machine.results()), kept_waiting: Span::ZERO })
}

/// Runs `program` here, with one thread per CPU of `cpus`. Each thread is pinned to its CPU if
/// `topology` is this machine's.
///
/// # Panics
/// When a probe panics, which none does.
#[must_use]
pub fn measure(topology: &Arc<Topology>, cpus: &[CpuId], program: &Program) -> Output {
    let workers = NativeWorkers::new(topology.cpus(), false);
    let body = workers.visit(CpuId(0), || program.make::<Native>(topology, cpus));
    let (measured, kept_waiting) = on_threads(&workers, topology, cpus, |index, cpu| body.run(index, cpu));
    Output { measured, delays: body.delays(), results: None, kept_waiting }
}

/// Runs `body` for each of `cpus` on a thread of its own, pinned to its CPU if `topology` is this
/// machine's. Also returns the time for which the operating system kept the threads waiting for
/// their CPUs, summed, after all had begun.
pub(crate) fn on_threads<R: Send>(
    workers: &Arc<NativeWorkers>,
    topology: &Topology,
    cpus: &[CpuId],
    body: impl Fn(usize, CpuId) -> R + Sync,
) -> (Vec<R>, Span) {
    let begin = Barrier::new(cpus.len());
    let run = |(index, &cpu): (usize, &CpuId)| {
        let os_index = (topology.name() == "this").then(|| topology.cpu(cpu).os_index);
        workers.enter(cpu, os_index, || {
            begin.wait();
            let before = kept_waiting("/proc/thread-self/schedstat");
            let given = body(index, cpu);
            (given, kept_waiting("/proc/thread-self/schedstat").saturating_sub(before))
        })
    };
    let given: Vec<(R, Span)> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = cpus.iter().enumerate().map(|each| scope.spawn(move || run(each))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a probe does not panic")).collect()
    });
    let waited = given.iter().fold(Span::ZERO, |sum, (_, waited)| sum + *waited);
    (given.into_iter().map(|(given, _)| given).collect(), waited)
}

/// Returns the time for which a thread was runnable and did not run, from its scheduler statistics
/// at `path`; zero where Linux does not provide them.
pub(crate) fn kept_waiting(path: &str) -> Span {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The file has the time on a CPU and the time waiting for one, both in nanoseconds, and the
    // number of turns.
    let nanos = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Span::from_nanos(nanos.unwrap_or(0))
}
