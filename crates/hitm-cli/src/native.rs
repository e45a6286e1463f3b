//! Native runs of a workload.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hitm::NativeRuntime;
use hitm_machine::{CostSet, Costs};
use hitm_memory::{Span, Time};
use hitm_report::latency::Latency;
use hitm_report::result::{ResultFile, Run};
use hitm_report::statistics::{Mean, ratio};
use hitm_sched::mitigation::Mitigation;
use hitm_topology::Topology;

use crate::args::HostArg;
use crate::failure::Failure;
use crate::record::{empty_file, machine_of, native_roles, native_wakes};
use crate::workload::Workload;

/// A run of a workload on this machine.
pub(crate) struct Case {
    pub(crate) topology: Arc<Topology>,
    pub(crate) mitigation: Mitigation,
    pub(crate) workload: Arc<dyn Workload>,
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
    let key = |run: &Run| (run.machine.clone(), run.profile.clone());
    let baselines: Vec<_> = file
        .runs
        .iter()
        .filter(|run| run.mitigation == "baseline")
        .map(|run| (key(run), Mean { value: run.metric.value, interval: run.metric.interval }))
        .collect();
    for run in &mut file.runs {
        let baseline = baselines.iter().find(|(other, _)| *other == key(run));
        let own = Mean { value: run.metric.value, interval: run.metric.interval };
        let relative = baseline.map(|(_, baseline)| ratio(own, *baseline));
        (run.relative, run.relative_interval) = (relative.map(|mean| mean.value), relative.map(|mean| mean.interval));
    }
    file
}

/// A window's end is missed by less than this.
fn until(runtime: &NativeRuntime, time: Time) {
    while runtime.now() < time {
        let left = time.since(runtime.now());
        thread::sleep(Duration::from_nanos(left.as_picos().div_ceil(1_000)));
    }
}

impl Case {
    fn run(&self) -> Result<Run, Failure> {
        let begin = Instant::now();
        let fail = |error: String| Failure::new(format!("native run on `{}`: {error}", self.topology.name()));
        let runtime = NativeRuntime::new(self.topology.clone(), &self.mitigation, Some(self.workload.roles()), true)
            .map_err(|error| fail(error.to_string()))?;
        let workload = &self.workload;
        let window = workload.window();
        let started = workload.clone();
        let running = runtime
            .run(move |handle| async move { started.start_native(&handle) })
            .map_err(|error| fail(error.to_string()))?;
        until(&runtime, Time::START + window.warm_up);
        let before = runtime.booked();
        until(&runtime, window.end());
        let after = runtime.booked();
        if let Some(fault) = running.fault() {
            return Err(Failure::wanting(format!("native run on `{}`: {fault}", self.topology.name())));
        }
        let booked = |mode: usize| after[mode].saturating_sub(before[mode]).as_secs_f64();
        let (user, kernel, idle) = (booked(0), booked(1), booked(2));
        let latencies = running.latencies();
        let mean = workload.mean(&[running.batches()], &latencies);
        let operations = runtime.handle().scheduler().stats().sums();
        let (words, all) = runtime.handle().scheduler().root_domain_bytes();
        let units = workload.units(mean, window.measured.as_secs_f64(), latencies.len());
        Ok(Run {
            workload: workload.name().to_owned(),
            profile: workload.profile(),
            load: workload.load(),
            mitigation: self.mitigation.name().to_owned(),
            host: "native".to_owned(),
            machine: self.topology.name().to_owned(),
            arbitration: String::new(),
            coherence: String::new(),
            seed: workload.seed(),
            seeds: vec![workload.seed()],
            wall_seconds: begin.elapsed().as_secs_f64(),
            metric: workload.metric(mean),
            relative: None,
            relative_interval: None,
            kernel_share: kernel / (user + kernel),
            idle_share: idle / (user + kernel + idle),
            kernel_parts: [].into(),
            published: workload.published(&self.topology, &self.mitigation),
            simulated_seconds: window.measured.as_secs_f64(),
            accesses: 0,
            misses: 0,
            switches: 0,
            bytes: [("root_domain".to_owned(), words), ("root_domain_with_bitmaps".to_owned(), all)].into(),
            operations: operations.into_iter().map(|(count, times)| (count.name().to_owned(), times)).collect(),
            costs: Vec::new(),
            roles: native_roles(runtime.handle().roles(), units),
            wakes: native_wakes(runtime.handle().roles(), units),
            latency: Latency::of(&latencies, workload.percents()),
            notes: self.notes(),
            ..Run::default()
        })
    }

    fn notes(&self) -> Vec<String> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let cpus = self.topology.cpus();
        let window: Span = self.workload.window().measured;
        let mut notes = vec![format!("measured for {window}")];
        if cpus > cores {
            notes.push(format!(
                "{cpus} threads on {cores} CPUs: the operating system time-shares them, so figures mean little"
            ));
        }
        notes
    }
}
