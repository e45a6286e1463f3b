//! `pi_stress`: groups of three tasks that repeatedly provoke a priority inversion, each group on
//! one CPU.
//!
//! **Origin.** rt-tests 2.2, `pi_stress -D 30 -g $(($(nproc) / 2))`, as in Deng, cover letter and
//! patch 4/4, LKML 2025-07-21. The tasks of a group ([`group`]) follow its source, as described in
//! `docs/workloads.md`.
//!
//! **Placement.** The admin task at FIFO 4 has the first CPU. The groups have the following CPUs in
//! order; after the last CPU, they begin again at the first. With the usual numbering, half as many
//! groups as CPUs have a core each.
//!
//! **Metric.** Inversions per second, summed over all groups. The original reports the count of its
//! whole run.
//!
//! **Differences.** The run ends at the end of its window, and the admin's flag is never set: the
//! original's 30 seconds would take days to simulate. Groups start each other, two at a time. The
//! original's main thread starts all groups, which would take most of a short run. Flags and
//! counters are on the lines of their mutexes, so they cost nothing beside these. Neither version
//! works between the steps. Here, even the instructions between two accesses take no time.

pub mod group;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hitm::sync::Mutex;
use hitm::{CpuSet, Handle, Priority, Role, Roles, Span, SpawnOptions};
use hitm_memory::Platform;
use hitm_topology::{CpuId, Topology};

use crate::bursts::Bursts;
use crate::meter::{BATCHES, Meter, Window};

/// The priority of the admin task.
const ADMIN: Priority = Priority::fifo(4);
/// The interval at which the admin checks the groups.
const REPORT: Span = Span::from_micros(750_000);
/// The number of successive checks without an inversion after which a group counts as stuck.
const PATIENCE: u32 = 5;

/// The names of the tasks' roles.
pub const ROLES: [&str; 4] = ["low", "med", "high", "admin"];

const ADMIN_ROLE: Role = Role(3);

/// The order in which the groups start.
///
/// Under a first-come, first-served policy, groups that never pause keep the order in which they
/// first came to a lock. The order then determines, for the whole run, the CPUs between which the
/// lock is transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By number, as the original's main thread starts them: neighbours in the order are neighbours
    /// on the machine.
    #[default]
    Numbered,
    /// In a randomly drawn order.
    Drawn,
}

impl Order {
    /// Returns the name for commands and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Numbered => "numbered",
            Self::Drawn => "drawn",
        }
    }

    /// Returns the numbers of `groups` groups in this order.
    fn of(self, groups: usize, seed: u64) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..groups).collect();
        if self == Self::Drawn {
            let mut random = Bursts::new(seed, 0, 1.0);
            // Fisher and Yates: each place takes one of the remaining numbers.
            for place in (1..groups).rev() {
                numbers.swap(place, random.below(place as u64 + 1) as usize);
            }
        }
        numbers
    }
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of groups; `None` for half as many as CPUs, at least one.
    pub groups: Option<usize>,
    /// The order in which the groups start.
    pub order: Order,
    /// The random seed of the machine's jitter and of a drawn order; the workload draws nothing
    /// else.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

impl Config {
    /// Returns the number of groups on `topology`.
    #[must_use]
    pub fn groups_on(&self, topology: &Topology) -> usize {
        self.groups.unwrap_or(topology.cpus() / 2).max(1)
    }
}

/// State that all groups share.
#[derive(Debug)]
pub(crate) struct Shared<P: Platform> {
    /// Whether the admin wants the groups to end, under the common lock of all groups.
    pub(crate) shutdown: Mutex<P, bool>,
    pub(crate) meter: Arc<Meter>,
    /// The groups in the order in which they start.
    order: Vec<usize>,
    /// The inversions since the admin's last check, per group.
    pub(crate) watched: Box<[AtomicU64]>,
}

/// A running workload.
#[derive(Debug)]
pub struct PiStress {
    meter: Arc<Meter>,
    stuck: Arc<AtomicBool>,
}

/// Returns the CPU of a group: the CPUs after the admin's, in order.
#[must_use]
pub fn cpu_of_group(topology: &Topology, group: usize) -> CpuId {
    CpuId(((group + 1) % topology.cpus()) as u32)
}

impl PiStress {
    /// Starts all groups. They run until the admin shuts the runtime down at the end of the window.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        let groups = config.groups_on(runtime.topology());
        config.window.count_roles(runtime);
        let meter = Arc::new(Meter::new(config.window));
        let shared = Arc::new(Shared {
            shutdown: Mutex::new(runtime, false),
            meter: meter.clone(),
            order: config.order.of(groups, config.seed),
            watched: (0..groups).map(|_| AtomicU64::new(0)).collect(),
        });
        let stuck = Arc::new(AtomicBool::new(false));
        let options = SpawnOptions {
            priority: ADMIN,
            cpus: Some(one(CpuId(0))),
            role: Some(ADMIN_ROLE),
            ..SpawnOptions::default()
        };
        runtime.spawn(options, administer(runtime.clone(), config.window, shared.clone(), stuck.clone()));
        launch(runtime, 0, &shared);
        Self { meter, stuck }
    }

    /// Returns the inversions per second of all groups, per batch.
    #[must_use]
    pub fn inversions_per_second(&self) -> [f64; BATCHES] {
        self.meter.rates()
    }

    /// Returns whether the admin ended the run because a group made no progress for too long.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        // Relaxed: read when the run is over.
        self.stuck.load(Ordering::Relaxed)
    }
}

/// Starts the group at a place in the order, from the group's own CPU. From there it starts the
/// groups at twice that place, so that all groups run after a few steps.
fn launch<P: Platform>(runtime: &Handle<P>, place: usize, shared: &Arc<Shared<P>>) {
    let Some(&group) = shared.order.get(place) else { return };
    let cpu = cpu_of_group(runtime.topology(), group);
    let (launcher, shared) = (runtime.clone(), shared.clone());
    runtime.spawn(SpawnOptions { priority: ADMIN, cpus: Some(one(cpu)), ..SpawnOptions::default() }, async move {
        launch(&launcher, 2 * place + 1, &shared);
        launch(&launcher, 2 * place + 2, &shared);
        group::start(&launcher, cpu, group, &shared);
    });
}

/// Returns the set of one CPU.
fn one(cpu: CpuId) -> CpuSet {
    CpuSet::from_iter([cpu])
}

/// Detects a group that makes no progress.
struct Watchdog {
    /// The number of successive checks without an inversion, per group.
    without: Vec<u32>,
}

impl Watchdog {
    /// Takes the inversions of each group since the last check; returns true when a group had none
    /// for too long.
    fn look(&mut self, done: impl Iterator<Item = u64>) -> bool {
        for (times, done) in self.without.iter_mut().zip(done) {
            *times = if done == 0 { *times + 1 } else { 0 };
        }
        self.without.iter().any(|&times| times >= PATIENCE)
    }
}

/// Checks the groups periodically, and ends the run.
async fn administer<P: Platform>(runtime: Handle<P>, window: Window, shared: Arc<Shared<P>>, stuck: Arc<AtomicBool>) {
    let mut watchdog = Watchdog { without: vec![0; shared.watched.len()] };
    let mut look = runtime.now() + REPORT;
    while look < window.end() {
        runtime.sleep_until(look).await;
        look += REPORT;
        // Relaxed: a statistic.
        if watchdog.look(shared.watched.iter().map(|watched| watched.swap(0, Ordering::Relaxed))) {
            // Relaxed: read when the run is over.
            stuck.store(true, Ordering::Relaxed);
            runtime.shutdown();
            return;
        }
    }
    runtime.sleep_until(window.end()).await;
    runtime.shutdown();
}

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_does_nothing_for_five_looks_is_stuck() {
        let mut watchdog = Watchdog { without: vec![0; 2] };
        let mut look = |done: [u64; 2]| watchdog.look(done.into_iter());
        for _ in 0..4 {
            assert!(!look([7, 0]));
        }
        assert!(!look([7, 1]), "it goes on");
        for _ in 0..4 {
            assert!(!look([7, 0]));
        }
        assert!(look([7, 0]));
    }

    #[test]
    fn groups_stand_on_the_cpus_after_the_admins() {
        let topology = hitm_topology::parse("core:4 pu:1").expect("a machine");
        let cpus = |groups| (0..groups).map(|group| cpu_of_group(&topology, group).0).collect::<Vec<_>>();
        assert_eq!(cpus(5), [1, 2, 3, 0, 1]);
        let window = Window { warm_up: Span::ZERO, measured: REPORT };
        let groups = |groups| Config { groups, order: Order::Numbered, seed: 1, window }.groups_on(&topology);
        assert_eq!((groups(None), groups(Some(3))), (2, 3));
    }

    #[test]
    fn a_drawn_order_has_every_group_once_and_is_the_seeds() {
        assert_eq!(Order::Numbered.of(4, 1), [0, 1, 2, 3]);
        let drawn = |seed| Order::Drawn.of(64, seed);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let mut sorted = drawn(1);
        sorted.sort_unstable();
        assert_eq!(sorted, Order::Numbered.of(64, 1));
    }
}
