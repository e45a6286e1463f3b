//! `cyclic`: one task per CPU, at FIFO 99 and not pinned. Each task repeatedly sleeps for 100 us
//! and records how late it woke.
//!
//! **Origin.** Deng, cover letter and patch 4/4, LKML 2025-07-21:
//! `stress-ng --cyclic $(nproc) --cyclic-policy fifo` on 480 CPUs. The loop, its defaults and its
//! metric are those of stress-ng from 2022 to 2025 (0.15.06 to 0.19.02): read the clock; sleep;
//! read the clock; store the sample if there is room; count the operation in memory that the
//! instance shares with its parent; check whether to go on. The parent of each instance only waits
//! for the end and is left out.
//!
//! **An operation** is one wakeup by the timer interrupt of the CPU on which the sleep began, and
//! two switches: to the task and away from it.
//!
//! **Start-up.** Fork balancing places the instances ([`Placement`]); afterwards they may migrate
//! to any CPU. Each instance first sleeps for a part of one period that is drawn from the random
//! seed, so that phases are not synchronised. Every instance starts two other instances, so that
//! thousands of them start quickly. stress-ng starts them one after the other, long before the
//! measured time.
//!
//! **Metric.** Operations of all instances per second of real time. The wakeup latencies of all
//! instances are recorded too; stress-ng prints those of its first instance.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use hitm::{CpuSet, Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::bursts::{Burst, Bursts};
use crate::meter::{BATCHES, Meter, Window};

/// The initial placement of the instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Evenly: over the packages in turn, then over their LLC domains, then over the cores of
    /// these; second threads of cores come last. With one instance per CPU, each instance begins on
    /// its own CPU.
    #[default]
    Spread,
    /// Each instance on a randomly drawn CPU, which it may share. This models a fork balancer to
    /// which CPUs with sleeping tasks look idle.
    Drawn,
}

impl Placement {
    /// Returns the name for commands and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Drawn => "drawn",
        }
    }
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The number of instances; `None` for one per CPU.
    pub instances: Option<usize>,
    /// The length of an operation's sleep.
    pub sleep: Span,
    /// The mean work of an operation beside the sleep.
    pub work: Span,
    /// The real-time priority, 1 to 99.
    pub priority: u8,
    /// The initial placement of the instances.
    pub placement: Placement,
    /// The random seed for phases, work and drawn places.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

impl Config {
    /// stress-ng's default.
    pub const SLEEP: Span = Span::from_micros(100);
    /// Three clock reads, a sample and a counter: the work that rt-app's description of the same
    /// loop has.
    pub const WORK: Span = Span::from_micros(1);
    /// The most urgent priority, stress-ng's default for FIFO.
    pub const PRIORITY: u8 = 99;

    /// Returns the configuration of the published runs.
    #[must_use]
    pub const fn new(seed: u64, window: Window) -> Self {
        Self {
            instances: None,
            sleep: Self::SLEEP,
            work: Self::WORK,
            priority: Self::PRIORITY,
            placement: Placement::Spread,
            seed,
            window,
        }
    }

    /// Returns the number of instances on `topology`.
    #[must_use]
    pub fn instances_on(&self, topology: &Topology) -> usize {
        self.instances.unwrap_or_else(|| topology.cpus())
    }
}

/// The spread of the work divided by its mean: an assumption, as for all work here.
const SPREAD: f64 = 0.5;

/// The number of samples that an instance keeps: stress-ng's default.
pub const SAMPLES: usize = 10_000;

/// The names of the tasks' roles.
pub const ROLES: [&str; 1] = ["cyclic"];

const CYCLIC: Role = Role(0);

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

described! {
    /// Memory that an instance shares with its parent.
    struct CounterWords<M: Memory> as "bogo_counter" {
        /// The number of operations. The instance writes it; its parent reads it at the end.
        operations: M::Atomic<u64>,
    }
}

described! {
    /// Memory that all instances read.
    struct FlagWords<M: Memory> as "continue_flag" {
        /// Whether to go on. Written once, at the start.
        go_on: M::Atomic<u32>,
    }
}

/// Counts of one run that every instance updates.
#[derive(Debug)]
struct Tally {
    operations: Meter,
    /// The wakeup latencies of each instance.
    latencies: Vec<Mutex<Vec<Span>>>,
}

/// State that the instances of a run share.
struct Crew<P: Platform> {
    config: Config,
    /// The CPU where each instance begins.
    places: Vec<CpuId>,
    everywhere: CpuSet,
    flag: Placed<P, FlagWords<P>>,
    tally: Arc<Tally>,
}

/// A running workload.
#[derive(Debug)]
pub struct Cyclic {
    tally: Arc<Tally>,
    instances: usize,
}

impl Cyclic {
    /// Starts all instances. They run until a task of this workload shuts the runtime down at the
    /// end of the window.
    ///
    /// # Panics
    /// When the priority is not 1 to 99.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        config.window.open(runtime, Priority::fifo(config.priority));
        let topology = runtime.topology();
        let instances = config.instances_on(topology);
        let latencies = (0..instances).map(|_| Mutex::default()).collect();
        let tally = Arc::new(Tally { operations: Meter::new(config.window), latencies });
        let crew = Crew {
            config,
            places: places(topology, &config),
            everywhere: topology.cpu_ids().collect(),
            flag: Placed::new(FlagWords { go_on: P::Atomic::new(1) }, None, None),
            tally: tally.clone(),
        };
        launch(runtime, &Arc::new(crew), 0);
        Self { tally, instances }
    }

    /// Returns the operations per second of all instances, per batch.
    #[must_use]
    pub fn operations_per_second(&self) -> [f64; BATCHES] {
        self.tally.operations.rates()
    }

    /// Returns the wakeup latencies in the window, by instance and in order of time; at most the
    /// first [`SAMPLES`] of each.
    #[must_use]
    pub fn latencies(&self) -> Vec<Span> {
        let of_one = |own: &Mutex<Vec<Span>>| own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.tally.latencies.iter().flat_map(of_one).collect()
    }

    /// Returns the number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances
    }
}

/// Returns the CPU where each instance begins.
#[must_use]
pub fn places(topology: &Topology, config: &Config) -> Vec<CpuId> {
    let instances = config.instances_on(topology);
    let order = spread(topology);
    match config.placement {
        Placement::Spread => (0..instances).map(|instance| order[instance % order.len()]).collect(),
        Placement::Drawn => {
            let mut random = Bursts::new(config.seed, PLACES, 1.0);
            (0..instances).map(|_| order[random.below(order.len() as u64) as usize]).collect()
        }
    }
}

/// Returns the CPUs in the order in which equal tasks are placed: each is as far as possible from
/// those before it.
fn spread(topology: &Topology) -> Vec<CpuId> {
    let position = |scope, cpu: CpuId| {
        let part = topology.part_of(scope, cpu);
        topology.cpus_of(scope, part).iter().position(|&other| other == cpu).unwrap_or(0)
    };
    let mut cpus: Vec<CpuId> = topology.cpu_ids().collect();
    // The sort key: the thread within its core first, then the core within its LLC domain, then the
    // domain within its package.
    cpus.sort_by_cached_key(|&cpu| {
        let (thread, core) = (position(Scope::Core, cpu), topology.part_of(Scope::Core, cpu));
        let llc = topology.part_of(Scope::Llc, cpu);
        let first_core = topology.cpus_of(Scope::Llc, llc).iter().map(|&cpu| topology.part_of(Scope::Core, cpu)).min();
        let package = topology.cpu(cpu).package;
        (thread, core - first_core.unwrap_or(core), topology.llc_position_in_package(topology.cpu(cpu).llc), package)
    });
    cpus
}

/// The random stream for drawn places; no instance uses it.
const PLACES: u64 = u64::MAX;

/// Starts instance number `instance` on its initial CPU.
fn launch<P: Platform>(runtime: &Handle<P>, crew: &Arc<Crew<P>>, instance: usize) {
    let Some(&place) = crew.places.get(instance) else { return };
    let options = SpawnOptions {
        priority: Priority::fifo(crew.config.priority),
        cpus: Some(CpuSet::from_iter([place])),
        role: Some(CYCLIC),
        ..SpawnOptions::default()
    };
    let (handle, crew) = (runtime.clone(), crew.clone());
    runtime.spawn(options, async move {
        for child in [2 * instance + 1, 2 * instance + 2] {
            launch(&handle, &crew, child);
        }
        handle.set_cpus(&crew.everywhere);
        run(&handle, &crew, instance).await;
    });
}

/// Runs an instance.
async fn run<P: Platform>(runtime: &Handle<P>, crew: &Crew<P>, instance: usize) {
    let Config { sleep, work, seed, window, .. } = crew.config;
    let counter =
        Placed::<P, CounterWords<P>>::new(CounterWords { operations: P::Atomic::new(0) }, Some(instance), None);
    let mut random = Bursts::new(seed, instance as u64, 1.0);
    runtime.sleep(Span::from_picos(random.below(sleep.as_picos()))).await;
    // Relaxed: the flag publishes nothing.
    while crew.flag.go_on.load(Ordering::Relaxed) != 0 {
        let asleep = runtime.now();
        runtime.sleep(sleep).await;
        let awake = runtime.now();
        if (window.start()..window.end()).contains(&awake) {
            let mut latencies = crew.tally.latencies[instance].lock().unwrap_or_else(PoisonError::into_inner);
            if latencies.len() < SAMPLES {
                latencies.push(awake.since(asleep).saturating_sub(sleep));
            }
        }
        // Relaxed: only the instance writes it, so a load and a store suffice; a reader wants a
        // recent number.
        let operations = counter.operations.load(Ordering::Relaxed);
        // Relaxed: as for the load.
        counter.operations.store(operations + 1, Ordering::Relaxed);
        crew.tally.operations.add_at(awake, 1);
        if !work.is_zero() {
            let burst = Burst { mean_micros: work.as_nanos_f64() / 1e3, spread: SPREAD };
            runtime.compute(random.draw(burst)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { warm_up: Span::ZERO, measured: Span::from_micros(1) };

    fn numbers(machine: &str, config: &Config) -> Vec<u32> {
        let topology = hitm_topology::parse(machine).expect("a machine");
        places(&topology, config).iter().map(|cpu| cpu.0).collect()
    }

    #[test]
    fn equals_are_spread_over_packages_then_domains_then_cores_then_threads() {
        let config = Config::new(1, WINDOW);
        let topology = "pack:2 l3:2 core:2 pu:2";
        assert_eq!(numbers(topology, &config), [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]);
        let twice = Config { instances: Some(18), ..config };
        assert_eq!(numbers(topology, &twice)[16..], [0, 8], "and round again");
    }

    #[test]
    fn drawn_places_are_the_seeds() {
        let drawn = |seed| numbers("core:64", &Config { placement: Placement::Drawn, ..Config::new(seed, WINDOW) });
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let mut once = drawn(1);
        once.sort_unstable();
        once.dedup();
        // 64 independently drawn places have 40 different CPUs on average, with a standard
        // deviation of 3.2 CPUs.
        assert!((27..=53).contains(&once.len()), "{} of 64", once.len());
    }
}
