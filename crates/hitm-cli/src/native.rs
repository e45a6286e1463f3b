//! Native runs of a workload.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hitm::{NativeRuntime, RoleCounts};
use hitm_machine::{CostSet, Costs};
use hitm_memory::{Span, Time};
use hitm_report::latency::Latency;
use hitm_report::relative::relate;
use hitm_report::result::{Host, ResultFile, Run};
use hitm_sched::{Count, Mitigation};
use hitm_topology::Topology;
use hitm_workloads::cid_bursts::Burst;

use crate::args::HostArg;
use crate::failure::Failure;
use crate::record::{by_name, empty_file, machine_of, pairs_per_unit, per_unit};
use crate::simulate::Wakes;
use crate::workload::{Ended, Running, Stretch, Workload};

/// Between two looks whether a workload without a window is over.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The runs of a workload on this machine, with several random seeds.
pub(crate) struct Case {
    pub(crate) topology: Arc<Topology>,
    pub(crate) mitigation: Mitigation,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) seeds: Vec<u64>,
}

/// The outcome of the runs.
#[derive(Default)]
struct Outcome {
    batches: Vec<Vec<f64>>,
    latencies: Vec<Span>,
    bursts: Vec<Vec<Burst>>,
    /// Seconds of user code, of the scheduler, and idle, of all CPUs.
    booked: [f64; 3],
    measured: f64,
    operations: Vec<(Count, u64)>,
    roles: Vec<Vec<RoleCounts>>,
    wakes: Wakes,
    bytes: (usize, usize),
}

/// Runs the cases one after the other.
pub(crate) fn run(cases: &[Case]) -> ResultFile {
    let mut file = empty_file();
    for case in cases {
        if !file.machines.iter().any(|machine| machine.name == case.topology.name()) {
            let costs = Costs::of(&case.topology, CostSet::Linux);
            file.machines.push(machine_of(HostArg::Native, &case.topology, &costs));
        }
        match case.run() {
            Ok(run) => file.runs.push(run),
            Err(failure) => file.failures.push(failure.to_string()),
        }
    }
    relate(&mut file.runs);
    file
}

/// Waits until `time`. A window's end is missed by less than a wakeup.
fn until(runtime: &NativeRuntime, time: Time) {
    while runtime.now() < time {
        let left = time.since(runtime.now());
        thread::sleep(Duration::from_nanos(left.as_picos().div_ceil(1_000)));
    }
}

impl Case {
    fn run(&self) -> Result<Run, Failure> {
        let begin = Instant::now();
        let mut outcome = Outcome::default();
        for &seed in &self.seeds {
            self.run_with(self.workload.with_seed(seed), &mut outcome)?;
        }
        let Outcome { batches, latencies, bursts, booked: [user, kernel, idle], .. } = &outcome;
        let workload = &self.workload;
        let mean = workload.mean(batches, latencies);
        let (words, all) = outcome.bytes;
        let units = workload.units(mean, outcome.measured, latencies.len());
        let mitigation = workload.variant().unwrap_or(self.mitigation.name());
        let mut run = Run {
            workload: workload.name().to_owned(),
            profile: workload.profile(),
            load: workload.load(),
            mitigation: mitigation.to_owned(),
            host: Host::Native,
            machine: self.topology.name().to_owned(),
            seed: self.seeds[0],
            seeds: self.seeds.clone(),
            wall_seconds: begin.elapsed().as_secs_f64(),
            metric: workload.metric(mean),
            kernel_share: kernel / (user + kernel),
            idle_share: idle / (user + kernel + idle),
            published: workload.published(&self.topology, &self.mitigation),
            simulated_seconds: outcome.measured,
            bytes: [("root_domain".to_owned(), words), ("root_domain_with_bitmaps".to_owned(), all)].into(),
            operations: by_name(&outcome.operations),
            roles: per_unit(&outcome.roles, units),
            wakes: pairs_per_unit(outcome.wakes.iter().copied(), units),
            latency: Latency::of(latencies, workload.percents()),
            notes: self.notes(outcome.measured),
            ..Run::default()
        };
        let (topology, seeds) = (&*self.topology, self.seeds.len());
        workload.complete(
            &mut run,
            &Ended { host: HostArg::Native, topology, mitigation, seeds, batches, idle: &[], bursts },
        );
        Ok(run)
    }

    /// Runs it with one random seed, and adds to `outcome`.
    fn run_with(&self, workload: Arc<dyn Workload>, outcome: &mut Outcome) -> Result<(), Failure> {
        let fail = |error: String| Failure::new(format!("native run on `{}`: {error}", self.topology.name()));
        let builder = NativeRuntime::builder().topology(self.topology.clone()).mitigation(&self.mitigation);
        let builder = builder.roles(workload.roles()).accounting();
        let runtime = builder.build().map_err(|error| fail(error.to_string()))?;
        let started = workload.clone();
        let running = runtime
            .run(move |handle| async move { started.start_native(&handle) })
            .map_err(|error| fail(error.to_string()))?;
        let window = match workload.stretch() {
            Stretch::Window(window) => Some(window),
            Stretch::Marked | Stretch::Whole(_) => None,
        };
        if let Some(window) = window {
            until(&runtime, window.start());
        }
        let before = runtime.booked();
        match window {
            Some(window) => until(&runtime, window.end()),
            None => wait_for(&*running),
        }
        let after = runtime.booked();
        if let Some(fault) = running.fault() {
            return Err(Failure::wanting(format!("native run on `{}`: {fault}", self.topology.name())));
        }
        let measured = match workload.stretch() {
            Stretch::Window(window) => window.measured,
            Stretch::Marked => running.stretch().map_or(Span::ZERO, |(from, until)| until.since(from)),
            Stretch::Whole(span) => span,
        };
        for (mode, sum) in outcome.booked.iter_mut().enumerate() {
            *sum += after[mode].saturating_sub(before[mode]).as_secs_f64();
        }
        let handle = runtime.handle();
        outcome.measured += measured.as_secs_f64();
        outcome.batches.push(running.batches());
        outcome.latencies.extend(running.latencies());
        outcome.bursts.push(running.bursts());
        outcome.operations.extend(handle.diagnostics().stats().sums());
        outcome.bytes = handle.diagnostics().root_domain_bytes();
        outcome.roles.extend(handle.roles().map(hitm::Roles::counts));
        outcome.wakes.extend(handle.roles().map_or_else(Vec::new, hitm::Roles::wakes));
        Ok(())
    }

    fn notes(&self, measured: f64) -> Vec<String> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let cpus = self.topology.cpus();
        let mut notes = vec![format!("measured for {}", Span::from_nanos_f64(measured * 1e9))];
        if cpus > cores {
            notes.push(format!(
                "{cpus} threads on {cores} CPUs: the operating system time-shares them, so figures mean little"
            ));
        }
        notes
    }
}

/// Waits until a workload without a window is over.
fn wait_for(running: &dyn Running) {
    while !running.is_over() {
        thread::sleep(LOOK_EVERY);
    }
}
