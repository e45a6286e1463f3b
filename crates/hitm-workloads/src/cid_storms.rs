//! `cid-storms`: the threads of one program continuously begin and end, wake on other CPUs, or
//! change their CPU set. The workload measures the cost of concurrency ids themselves.
//!
//! **Origin.** Not from a publication that hitm reproduces. These are the cases in which an
//! allocator of ids may pay for its gains in [`cid_bursts`](crate::cid_bursts). The published
//! measurements contain sums of such cases (Gleixner, 2025: threads created and torn down, and a
//! database whose clients sleep and wake). Lengths are assumptions. They are short, so that ids
//! have a visible share in an operation's time.
//!
//! | load | threads | an operation |
//! |---|---|---|
//! | [`Load::CreateFew`] | one per four CPUs | a child begins, computes for 3 us, ends, and is joined |
//! | [`Load::CreateMany`] | one per CPU | the same; with their children, threads outnumber CPUs |
//! | [`Load::MigrateFew`] | one per two CPUs, beside three times as many of another program | sleeps for 10 us, wakes on a free CPU, computes for 5 us |
//! | [`Load::MigrateMany`] | two per CPU | the same |
//! | [`Load::Affinity`] | one per CPU | moves to another, randomly drawn CPU by changing its CPU set, computes for 2 us |
//!
//! **Metric.** Operations per second of the program's threads. The other program's tasks have no
//! ids, and their operations do not count.
//!
//! **Start-up.** Every thread starts two others, until all threads run.

use std::sync::Arc;

use hitm::{CpuSet, Handle, Priority, Role, Roles, SpawnOptions, Tenant};
use hitm_memory::Platform;
use hitm_topology::{CpuId, Topology};

use crate::bursts::{Burst, Bursts};
use crate::meter::{BATCHES, Meter, Window};

/// The threads' load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// Children begin and end; there are fewer tasks than CPUs.
    #[default]
    CreateFew,
    /// Children begin and end; there are more tasks than CPUs.
    CreateMany,
    /// Threads sleep and wake on other CPUs; there are fewer threads than CPUs.
    MigrateFew,
    /// Threads sleep and wake on other CPUs; there are more threads than CPUs.
    MigrateMany,
    /// Threads change their CPU set.
    Affinity,
}

impl Load {
    /// Returns the name for commands and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateFew => "create-few",
            Self::CreateMany => "create-many",
            Self::MigrateFew => "migrate-few",
            Self::MigrateMany => "migrate-many",
            Self::Affinity => "affinity",
        }
    }

    /// Returns the number of the program's threads, without children, and the number of the other
    /// program's tasks, on a machine of `cpus` CPUs.
    #[must_use]
    pub fn tasks(self, cpus: usize) -> (usize, usize) {
        match self {
            Self::CreateFew => (cpus.div_ceil(4), 0),
            Self::CreateMany | Self::Affinity => (cpus, 0),
            Self::MigrateFew => (cpus.div_ceil(2), 2 * cpus - cpus.div_ceil(2)),
            Self::MigrateMany => (2 * cpus, 0),
        }
    }
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The threads' load.
    pub load: Load,
    /// The random seed for lengths and places.
    pub seed: u64,
    /// The measurement window.
    pub window: Window,
}

/// Mean lengths in microseconds.
const CHILD: f64 = 3.0;
const BETWEEN_SLEEPS: f64 = 5.0;
const SLEEP: f64 = 10.0;
const BETWEEN_MOVES: f64 = 2.0;

/// The spread of lengths divided by their means: an assumption, as for all work here.
const SPREAD: f64 = 0.5;

/// All tasks have the same priority; the task that ends the run is more urgent.
const PRIORITY: Priority = Priority::fifo(50);
const ENDS: Priority = Priority::fifo(99);

/// The names of the tasks' roles.
pub const ROLES: [&str; 3] = ["thread", "child", "other program"];

const THREAD: Role = Role(0);
const CHILD_ROLE: Role = Role(1);
const OTHER: Role = Role(2);

/// Makes the counters for the roles of this workload.
#[must_use]
pub fn roles() -> Roles {
    Roles::new(&ROLES)
}

/// State that the tasks of a run share.
struct Crew {
    config: Config,
    tenant: Tenant,
    everywhere: CpuSet,
    threads: usize,
    tasks: usize,
    operations: Arc<Meter>,
}

/// A running workload.
#[derive(Debug)]
pub struct Storms {
    operations: Arc<Meter>,
}

impl Storms {
    /// Starts all threads. They run until a task of this workload shuts the runtime down at the end
    /// of the window.
    ///
    /// # Panics
    /// When 4,096 tenants exist.
    pub fn start<P: Platform>(runtime: &Handle<P>, config: Config) -> Self {
        config.window.open(runtime, ENDS);
        let topology: &Topology = runtime.topology();
        let (threads, others) = config.load.tasks(topology.cpus());
        let operations = Arc::new(Meter::new(config.window));
        let crew = Crew {
            config,
            tenant: runtime.tenant(),
            everywhere: topology.cpu_ids().collect(),
            threads,
            tasks: threads + others,
            operations: operations.clone(),
        };
        launch(runtime, &Arc::new(crew), 0);
        Self { operations }
    }

    /// Returns the operations per second of all threads, per batch.
    #[must_use]
    pub fn operations_per_second(&self) -> [f64; BATCHES] {
        self.operations.rates()
    }
}

/// Starts task number `number`: a thread of the program, or a task of the other program.
fn launch<P: Platform>(runtime: &Handle<P>, crew: &Arc<Crew>, number: usize) {
    if number >= crew.tasks {
        return;
    }
    let options = if number < crew.threads {
        crew.options(THREAD)
    } else {
        SpawnOptions { role: Some(OTHER), ..PRIORITY.into() }
    };
    let (handle, crew) = (runtime.clone(), crew.clone());
    drop(runtime.spawn(options, async move {
        for other in [2 * number + 1, 2 * number + 2] {
            launch(&handle, &crew, other);
        }
        live(&handle, &crew, number).await;
    }));
}

impl Crew {
    fn options(&self, role: Role) -> SpawnOptions {
        let (cpus, tenant) = (Some(self.everywhere.clone()), Some(self.tenant.clone()));
        SpawnOptions { priority: PRIORITY, cpus, role: Some(role), tenant, ..SpawnOptions::default() }
    }
}

/// Runs task `number`.
async fn live<P: Platform>(runtime: &Handle<P>, crew: &Crew, number: usize) {
    let Config { load, seed, .. } = crew.config;
    let mut random = Bursts::new(seed, number as u64, 1.0);
    let mut span = |mean_micros| random.draw(Burst { mean_micros, spread: SPREAD });
    let mut place = Bursts::new(seed, u64::MAX - number as u64, 1.0);
    loop {
        match load {
            Load::CreateFew | Load::CreateMany => {
                let (clock, work) = (runtime.clone(), span(CHILD));
                let child = async move { clock.compute(work).await };
                if runtime.spawn(crew.options(CHILD_ROLE), child).await.is_err() {
                    // The runtime shuts down.
                    return;
                }
            }
            Load::MigrateFew | Load::MigrateMany => {
                runtime.sleep(span(SLEEP)).await;
                runtime.compute(span(BETWEEN_SLEEPS)).await;
            }
            Load::Affinity => {
                let cpu = CpuId(place.below(crew.everywhere.len() as u64) as u32);
                runtime.set_cpus(&CpuSet::from_iter([cpu]));
                runtime.compute(span(BETWEEN_MOVES)).await;
            }
        }
        if number < crew.threads {
            crew.operations.add(runtime, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_fewer_than_cpus_with_their_children_and_many_are_more() {
        for cpus in [1, 2, 4, 96, 480] {
            let (few, none) = Load::CreateFew.tasks(cpus);
            assert!(2 * few <= cpus.max(2) && none == 0);
            let (few, others) = Load::MigrateFew.tasks(cpus);
            assert!(few <= cpus && few + others == 2 * cpus, "the machine is as full as with many");
            assert_eq!(Load::MigrateMany.tasks(cpus), (2 * cpus, 0));
        }
    }
}
