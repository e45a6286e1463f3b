//! `cyclic`: a task a CPU, at FIFO 99 and not pinned, that does nothing but sleep for 100 us and note how late it woke.
//!
//! **Origin.** Seeds 000 and 001: `stress-ng --cyclic $(nproc) --cyclic-policy fifo` on 480 CPUs. The loop, its defaults and its
//! metric are stress-ng's of 2022 to 2025 (0.15.06 to 0.19.02): read the clock, sleep, read the clock, keep the sample if there is
//! room, count the operation in memory that the instance shares with its parent, look whether to go on. The parent of each instance
//! waits for the end and is left out.
//!
//! **An operation** is one wakeup, by the timer interrupt of the CPU on which the sleep began, and two switches: to the task
//! and away from it.
//!
//! **Start-up.** Instances begin where fork balancing puts them ([`Placement`]) and may go anywhere from then on. Each first
//! sleeps for a time that the seed draws from one period, so that phases are not synchronised. Every instance starts two
//! others, so that thousands are there soon; stress-ng starts them one after the other, long before what is measured here.
//!
//! **Metric.** Operations of all instances per second of real time. How late instance 0 woke is kept beside it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use hitm::{CpuSet, Handle, Priority, Role, Roles, SpawnOptions};
use hitm_memory::{AtomicWord, Placed, Platform, Span, described};
use hitm_topology::{CpuId, Scope, Topology};

use crate::bursts::{Burst, Bursts};
use crate::meter::{BATCHES, Meter, Window};

/// Where the instances begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Evenly: packages in turn, in them LLC domains, in those cores, and second threads of cores last. With an instance a CPU each
    /// has a CPU of its own.
    #[default]
    Spread,
    /// Each on a CPU that the seed draws, whoever else is there: how it is when those that sleep look like idle CPUs to who
    /// places the next.
    Drawn,
}

impl Placement {
    /// The name in commands and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Drawn => "drawn",
        }
    }
}

/// What a run of the workload is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How many instances; none for one a CPU.
    pub instances: Option<usize>,
    /// How long an operation sleeps.
    pub sleep: Span,
    /// Mean of what an operation does beside that.
    pub work: Span,
    /// The real-time priority, 1 to 99.
    pub priority: u8,
    /// Where the instances begin.
    pub placement: Placement,
    /// Seeds phases, work and drawn places.
    pub seed: u64,
    /// When to measure.
    pub window: Window,
}

impl Config {
    /// stress-ng's default.
    pub const SLEEP: Span = Span::from_micros(100);
    /// Three reads of the clock, a sample and a counter: what rt-app's description of the same loop gives it.
    pub const WORK: Span = Span::from_micros(1);
    /// The most urgent, which stress-ng takes for FIFO.
    pub const PRIORITY: u8 = 99;

    /// As the seeds ran it.
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

    /// How many instances run on `topology`.
    #[must_use]
    pub fn instances_on(&self, topology: &Topology) -> usize {
        self.instances.unwrap_or_else(|| topology.cpus())
    }
}

/// Spread of the work over its mean: an assumption, as for all work here.
const SPREAD: f64 = 0.5;

/// Samples that an instance keeps: stress-ng's default.
pub const SAMPLES: usize = 10_000;

/// The roles that tasks are counted as.
pub const ROLES: [&str; 1] = ["cyclic"];

const CYCLIC: Role = Role(0);

/// Counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

described! {
    /// What an instance shares with its parent.
    struct CounterWords<M: Memory> as "bogo_counter" {
        /// Operations. Written by the instance, read by its parent at the end.
        operations: M::Atomic<u64>,
    }
}

described! {
    /// What all instances look at.
    struct FlagWords<M: Memory> as "continue_flag" {
        /// Whether to go on. Written once, at the start.
        go_on: M::Atomic<u32>,
    }
}

/// Counts of one run that every instance adds to.
#[derive(Debug)]
struct Tally {
    operations: Meter,
    /// How late instance 0 woke.
    latencies: Mutex<Vec<Span>>,
}

/// What the instances of a run have in common.
struct Crew<P: Platform> {
    config: Config,
    /// Where each begins.
    places: Vec<CpuId>,
    everywhere: CpuSet,
    flag: Placed<P, FlagWords<P>>,
    tally: Arc<Tally>,
}

/// The workload, running.
#[derive(Debug)]
pub struct Cyclic {
    tally: Arc<Tally>,
    instances: usize,
}

impl Cyclic {
    /// Starts all instances. They run until the runtime shuts down, which a task of this does at the end of the window.
    ///
    /// # Panics
    /// When the priority is not 1 to 99.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        config.window.open(runtime, Priority::fifo(config.priority));
        let topology = runtime.topology();
        let instances = config.instances_on(topology);
        let tally = Arc::new(Tally { operations: Meter::new(config.window), latencies: Mutex::default() });
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

    /// Operations per second of all instances together, by batch.
    #[must_use]
    pub fn operations_per_second(&self) -> [f64; BATCHES] {
        self.tally.operations.rates()
    }

    /// How much later than asked for instance 0 woke, in the window, in order of time; the first [`SAMPLES`].
    #[must_use]
    pub fn latencies(&self) -> Vec<Span> {
        self.tally.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.instances
    }
}

/// Where each instance begins.
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

/// The CPUs in the order in which equal tasks are put on them: each as far from those before as can be.
fn spread(topology: &Topology) -> Vec<CpuId> {
    let position = |scope, cpu: CpuId| {
        let part = topology.part_of(scope, cpu);
        topology.cpus_of(scope, part).iter().position(|&other| other == cpu).unwrap_or(0)
    };
    let mut cpus: Vec<CpuId> = topology.cpu_ids().collect();
    // The thread within its core first, then the core within its LLC domain, then the domain within its package.
    cpus.sort_by_cached_key(|&cpu| {
        let (thread, core) = (position(Scope::Core, cpu), topology.part_of(Scope::Core, cpu));
        let llc = topology.part_of(Scope::Llc, cpu);
        let first_core = topology.cpus_of(Scope::Llc, llc).iter().map(|&cpu| topology.part_of(Scope::Core, cpu)).min();
        let package = topology.cpu(cpu).package;
        (thread, core - first_core.unwrap_or(core), topology.llc_position_in_package(topology.cpu(cpu).llc), package)
    });
    cpus
}

/// Random numbers that are no instance's own.
const PLACES: u64 = u64::MAX;

/// Starts instance number `instance` where it begins.
fn launch<P: Platform>(runtime: &Handle<P>, crew: &Arc<Crew<P>>, instance: usize) {
    let Some(&place) = crew.places.get(instance) else { return };
    let options = SpawnOptions {
        priority: Priority::fifo(crew.config.priority),
        cpus: Some(CpuSet::from_iter([place])),
        role: Some(CYCLIC),
        tenant: None,
        group: None,
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

/// The life of an instance.
async fn run<P: Platform>(runtime: &Handle<P>, crew: &Crew<P>, instance: usize) {
    let Config { sleep, work, seed, window, .. } = crew.config;
    let counter =
        Placed::<P, CounterWords<P>>::new(CounterWords { operations: P::Atomic::new(0) }, Some(instance), None);
    let mut random = Bursts::new(seed, instance as u64, 1.0);
    runtime.sleep(Span::from_picos(random.below(sleep.as_picos()))).await;
    // Relaxed: nothing is published by it.
    while crew.flag.go_on.load(Ordering::Relaxed) != 0 {
        let asleep = runtime.now();
        runtime.sleep(sleep).await;
        let awake = runtime.now();
        if instance == 0 && (window.start()..window.end()).contains(&awake) {
            let mut latencies = crew.tally.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            if latencies.len() < SAMPLES {
                latencies.push(awake.since(asleep).saturating_sub(sleep));
            }
        }
        // Relaxed: the instance alone writes it, so two accesses are enough; a reader wants a recent number.
        let operations = counter.operations.load(Ordering::Relaxed);
        // Relaxed: as above.
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
        // With every place drawn by itself, 64 places have 40 different ones in the mean, by 3.2 as much or less.
        assert!((27..=53).contains(&once.len()), "{} of 64", once.len());
    }
}
