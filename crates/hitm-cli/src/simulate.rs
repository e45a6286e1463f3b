//! One simulated run: a machine, a scheduler, the runtime and the workload, on one host thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hitm::{Handle, RoleCounts};
use hitm_machine::{
    Account, Arbitration, Arrangement, Capacity, Clock, Config, Costs, Machine, Results, Simulated, Stalled, Timeline,
};
use hitm_memory::{Span, Time};
use hitm_report::objects;
use hitm_report::relative::is_baseline;
use hitm_report::result::Objects;
use hitm_sched::{Conservation, Count, Mitigation};
use hitm_topology::{CpuId, Topology};
use hitm_workloads::cid_bursts::Burst;
use hitm_workloads::meter::Window;

use crate::args::CoherenceArg;
use crate::failure::Failure;
use crate::record::{LINES_KEPT, functions, task_group_wait};
use crate::workload::{Running, Stretch, Workload};

/// A run of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) topology: Arc<Topology>,
    pub(crate) costs: Costs,
    pub(crate) arbitration: Arbitration,
    pub(crate) coherence: CoherenceArg,
    pub(crate) mitigation: Mitigation,
    pub(crate) workload: Arc<dyn Workload>,
    /// See [`Config::capacity`].
    pub(crate) capacity: Option<Capacity>,
    /// See [`Config::arrangements`].
    pub(crate) arrangements: Arrangements,
    pub(crate) roles: bool,
    /// The part of the run of which a timeline is kept.
    pub(crate) timeline: Option<(Time, Time)>,
    /// See [`Config::livelock_after`].
    pub(crate) livelock_after: Option<u64>,
}

/// Layouts that are tried, by object.
pub(crate) type Arrangements = BTreeMap<String, Arc<Arrangement>>;

/// Wakeups by the roles of waker and wakee.
pub(crate) type Wakes = Vec<(Option<&'static str>, &'static str, u64)>;

/// The outcome of a run, with one random seed or several.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The random seeds.
    pub(crate) seeds: Vec<u64>,
    /// The figure of merit per batch, for each seed: mostly work units per second.
    pub(crate) batches: Vec<Vec<f64>>,
    /// The idle CPUs in the time of each batch, for each seed; empty where they are not watched.
    pub(crate) idle: Vec<Vec<f64>>,
    /// The measured time, of all seeds.
    pub(crate) seconds: f64,
    /// See [`Running::bursts`](crate::workload::Running::bursts); by seed.
    pub(crate) bursts: Vec<Vec<Burst>>,
    /// Of all seeds; see [`Running::latencies`](crate::workload::Running::latencies).
    pub(crate) latencies: Vec<Span>,
    pub(crate) results: Results,
    /// Its lines by kind of object, once [`keep_hottest`](Outcome::keep_hottest) has dropped most of
    /// them.
    pub(crate) objects: Option<Vec<Objects>>,
    /// Of the first seed, where one is kept.
    pub(crate) timeline: Option<Timeline>,
    /// Picoseconds that CPUs waited for the fields of groups that a mitigation moves.
    pub(crate) task_group_wait: u64,
    pub(crate) operations: Vec<(Count, u64)>,
    /// Counts of the measured stretch.
    pub(crate) measured: Vec<(Count, u64)>,
    /// For each seed, where it is watched.
    pub(crate) conservation: Vec<Conservation>,
    /// For each seed.
    pub(crate) roles: Vec<Vec<RoleCounts>>,
    pub(crate) wakes: Wakes,
    /// Bytes of the root domain's words, and of everything that they point to.
    pub(crate) bytes: (usize, usize),
    pub(crate) wall_seconds: f64,
}

/// What a look at the measured stretch shows.
#[derive(Clone, Debug)]
pub(crate) struct Glance {
    /// The figure of merit; not a number where no work unit was completed.
    pub(crate) figure: f64,
    /// Work units per second, by batch; empty where the figure of merit is none.
    pub(crate) batches: Vec<f64>,
    /// Where the CPUs' time went.
    pub(crate) account: Account,
}

/// A machine that ran, and what ran on it.
struct Ran {
    machine: Machine,
    runtime: Handle<Simulated>,
    running: Box<dyn Running>,
}

impl Outcome {
    /// Adds the outcome with another random seed.
    pub(crate) fn merge(&mut self, other: Self) {
        self.seeds.extend(other.seeds);
        self.batches.extend(other.batches);
        self.idle.extend(other.idle);
        self.seconds += other.seconds;
        self.bursts.extend(other.bursts);
        self.latencies.extend(other.latencies);
        self.results.merge(&other.results);
        debug_assert!(self.objects.is_none() && other.objects.is_none(), "no lines were dropped");
        self.timeline = self.timeline.take().or(other.timeline);
        self.task_group_wait += other.task_group_wait;
        self.operations.extend(other.operations);
        self.measured.extend(other.measured);
        self.conservation.extend(other.conservation);
        self.roles.extend(other.roles);
        self.wakes.extend(other.wakes);
        self.wall_seconds += other.wall_seconds;
    }

    /// Drops the lines that are not reported, after it has summed all lines by kind of object.
    /// Nothing may be merged after.
    pub(crate) fn keep_hottest(&mut self) {
        self.objects = Some(self.objects());
        self.results.keep_hottest(LINES_KEPT);
    }

    /// Returns all lines by kind of object.
    pub(crate) fn objects(&self) -> Vec<Objects> {
        self.objects.clone().unwrap_or_else(|| objects::of_results(&self.results, &self.results.lines, &functions()))
    }
}

impl Case {
    /// Returns what stands for the mitigation in reports.
    pub(crate) fn mitigation_name(&self) -> &str {
        self.workload.variant().unwrap_or(self.mitigation.name())
    }

    /// Returns whether other runs are compared with this one.
    pub(crate) fn is_baseline(&self) -> bool {
        is_baseline(self.mitigation_name())
    }

    /// Returns the name that the progress shows.
    pub(crate) fn name(&self) -> String {
        let Self { topology, arbitration, workload, .. } = self;
        let mitigation = self.mitigation_name();
        let objects: Vec<&str> = self.arrangements.keys().map(String::as_str).collect();
        let tried = if objects.is_empty() { String::new() } else { format!(" with a new {}", objects.join(", ")) };
        format!("{mitigation}{tried} on {}, {}, seed {}", topology.name(), arbitration.name(), workload.seed())
    }

    /// Returns the command that repeats this run alone.
    fn again(&self) -> String {
        let Self { topology, arbitration, coherence, mitigation, workload, .. } = self;
        // A part of a machine is given by the machine's name and the number of CPUs.
        let part = topology.name().rsplit_once('@').filter(|(_, cpus)| *cpus == topology.cpus().to_string());
        let cpus = part.map_or_else(String::new, |(_, cpus)| format!("--cpus {cpus} "));
        format!(
            "see it again, alone, with `{cpus}--arbitration {} --coherence {} --mitigation {} --seed {} --seeds 1{}`",
            arbitration.name(),
            coherence.name(),
            mitigation.name(),
            workload.seed(),
            workload.options()
        )
    }

    fn config(&self) -> Config {
        let usual = Config::default();
        let (measure_from, measure_until) = match self.workload.stretch() {
            Stretch::Window(Window { warm_up, measured }) => (warm_up, warm_up + measured),
            // From when the workload says so.
            Stretch::Marked => (usual.measure_until, usual.measure_until),
            Stretch::Whole(_) => (usual.measure_from, usual.measure_until),
        };
        Config {
            seed: self.workload.seed(),
            arbitration: self.arbitration,
            coherence: self.coherence.model(),
            capacity: self.capacity,
            arrangements: self.arrangements.clone(),
            measure_from,
            measure_until,
            livelock_after: self.livelock_after.unwrap_or(usual.livelock_after),
            ..usual
        }
    }

    /// Runs it, on a machine that keeps `clock`.
    ///
    /// # Errors
    /// When the machine stalls.
    pub(crate) fn run(&self, clock: &Arc<Clock>) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let ran = self.simulate(clock, self.config(), |machine, main| machine.run(main))?;
        let Ran { machine, runtime, running } = ran;
        let stats = runtime.diagnostics().stats();
        let (from, until) = match self.workload.stretch() {
            Stretch::Window(window) => (window.start(), window.end()),
            Stretch::Marked => running.stretch().expect("the machine ends after the stretch"),
            Stretch::Whole(span) => (Time::START, Time::START + span),
        };
        let results = machine.results();
        let batches = running.batches();
        let idle = if self.workload.watches_idle_cpus() { stats.idle_cpus(from, until, batches.len()) } else { None };
        Ok(Outcome {
            seeds: vec![self.workload.seed()],
            idle: idle.into_iter().collect(),
            batches: vec![batches],
            seconds: until.since(from).as_secs_f64(),
            bursts: vec![running.bursts()],
            latencies: running.latencies(),
            task_group_wait: task_group_wait(&results),
            results,
            objects: None,
            timeline: machine.timeline(),
            operations: stats.sums(),
            measured: stats.sums_between(),
            conservation: stats.conservation(from, until).into_iter().collect(),
            roles: runtime.roles().map(hitm::Roles::counts).into_iter().collect(),
            wakes: runtime.roles().map_or_else(Vec::new, hitm::Roles::wakes),
            bytes: runtime.diagnostics().root_domain_bytes(),
            wall_seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Runs a case with a window to the window's end, and no further.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn glance(&self, clock: &Arc<Clock>) -> Result<Glance, Failure> {
        // No line is named.
        let config = Config { count_accesses: false, ..self.config() };
        let ran = self.simulate(clock, config, |machine, main| machine.run_measurement(main))?;
        let Ran { machine, runtime, running } = ran;
        let batches = running.batches();
        let figure = self.workload.mean(std::slice::from_ref(&batches), &running.latencies()).value;
        // Tasks in the middle of their work are never dropped.
        std::mem::forget((runtime, running));
        Ok(Glance { figure, batches, account: machine.account() })
    }

    /// Makes a machine that keeps `clock`, and runs this on it by `run`.
    fn simulate(
        &self,
        clock: &Arc<Clock>,
        config: Config,
        run: impl FnOnce(&Machine, Box<dyn Fn(CpuId)>) -> Result<(), Stalled>,
    ) -> Result<Ran, Failure> {
        let machine = Machine::new(self.topology.clone(), self.costs.clone(), config).with_clock(clock.clone());
        if let Some((from, until)) = self.timeline {
            machine.keep_timeline(from, until);
        }
        let runtime = machine.enter(|| {
            let roles = self.workload.roles().filter(|_| self.roles);
            let runtime = Handle::<Simulated>::new(self.topology.clone(), &self.mitigation, roles);
            let stats = runtime.diagnostics().stats();
            if let Stretch::Window(window) = self.workload.stretch() {
                stats.count_between(window.start(), window.end());
            }
            if self.workload.is_fair() {
                stats.keep_journal();
            }
            runtime
        });
        let started = Arc::new(Mutex::new(None));
        let (handle, workload, slot) = (runtime.clone(), self.workload.clone(), started.clone());
        let main = move |cpu: CpuId| {
            if cpu.index() == 0 {
                let running = workload.start_simulated(&handle);
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            }
            handle.run_cpu(cpu);
        };
        let ended = run(&machine, Box::new(main));
        let fail =
            |what: &dyn std::fmt::Display| Failure::wanting(format!("{}: {what}; {}", self.name(), self.again()));
        ended.map_err(|stalled| fail(&stalled))?;
        let running = started.lock().unwrap_or_else(PoisonError::into_inner).take();
        let running = running.expect("CPU 0 starts the workload before it idles");
        if let Some(fault) = running.fault() {
            // Its tasks may be in the middle of their work: they are never dropped.
            std::mem::forget((runtime, running));
            return Err(fail(&fault));
        }
        Ok(Ran { machine, runtime, running })
    }
}
