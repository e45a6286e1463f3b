//! Concurrency ids: no two tasks of a tenant that run at the same time have the same id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hitm::sync::Barrier;
use hitm::{CpuSet, Handle, Priority, Span, SpawnOptions, Tenant};
use hitm_machine::Random;
use hitm_memory::Platform;
use hitm_topology::CpuId;

use crate::affinity::some_cpus;
use crate::host::Host;
use crate::stage::joined;

every_host!(
    who_has_no_tenant_has_no_id,
    ids_of_running_tasks_differ,
    ids_are_below_their_bound,
    an_id_stays_with_a_pinned_task,
    ids_are_enough_where_affinity_gives_way,
);

fn of(tenant: &Tenant, priority: u8, cpus: CpuSet) -> SpawnOptions {
    SpawnOptions {
        priority: Priority::fifo(priority),
        cpus: Some(cpus),
        tenant: Some(tenant.clone()),
        ..SpawnOptions::default()
    }
}

async fn who_has_no_tenant_has_no_id<H: Host>(handle: Handle<H>) {
    assert_eq!(handle.concurrency_id(), None);
    let [one, other] = [handle.tenant(), handle.tenant()];
    assert_ne!(one.map(), other.map());
    let me = handle.clone();
    joined(handle.spawn((), async move { assert_eq!(me.concurrency_id(), None) })).await;
}

/// The task that has each id of a tenant, as the tasks report it.
#[derive(Debug)]
struct Owners {
    /// By id.
    users: Vec<AtomicU32>,
    /// The highest id seen, plus 1.
    highest: AtomicU32,
}

impl Owners {
    fn new(cpus: usize) -> Arc<Self> {
        Arc::new(Self { users: (0..cpus).map(|_| AtomicU32::new(0)).collect(), highest: AtomicU32::new(0) })
    }

    /// The activity of a task between two waits.
    fn look<P: Platform>(&self, handle: &Handle<P>) -> u32 {
        let id = handle.concurrency_id().expect("it has a tenant");
        let user = self.users.get(id as usize).unwrap_or_else(|| panic!("id {id} of {} CPUs", self.users.len()));
        P::settle();
        assert_eq!(user.fetch_add(1, Ordering::AcqRel), 0, "two tasks run with id {id}");
        // Time passes for other tasks, not for this one.
        for _ in 0..3 {
            assert_eq!(handle.concurrency_id(), Some(id), "an id changed under a running task");
        }
        P::settle();
        assert_eq!(user.fetch_sub(1, Ordering::AcqRel), 1, "two tasks run with id {id}");
        self.highest.fetch_max(id + 1, Ordering::Relaxed);
        id
    }
}

/// The life of a task: checks its id, and leaves its CPU in every way.
async fn live<P: Platform>(handle: Handle<P>, tenant: Tenant, owners: Arc<Owners>, seed: u64, steps: u32) {
    let mut random = Random::new(seed, 0);
    let cpus = handle.topology().cpus();
    for step in 0..steps {
        owners.look(&handle);
        match random.below(8) {
            0 => handle.yield_now().await,
            1 => handle.sleep(Span::from_micros(random.below(20))).await,
            2 => handle.compute(Span::from_micros(random.below(20))).await,
            3 => handle.set_cpus(&some_cpus(&mut random, cpus)),
            4 if step > steps / 2 => {
                let child = live_shortly(handle.clone(), owners.clone());
                joined(handle.spawn(of(&tenant, 3, some_cpus(&mut random, cpus)), child)).await;
            }
            5 if step > steps / 2 => {
                // The nearest equivalent in the runtime to a task that leaves its tenant for a new
                // one: see `Handle::tenant`.
                let new = handle.tenant();
                let child = live_alone(handle.clone(), Owners::new(cpus));
                joined(handle.spawn(of(&new, 3, some_cpus(&mut random, cpus)), child)).await;
            }
            _ => handle.checkpoint().await,
        }
    }
    owners.look(&handle);
}

/// Runs the only task of a new tenant, whose map id other tenants had before.
async fn live_alone<P: Platform>(handle: Handle<P>, owners: Arc<Owners>) {
    assert_eq!(owners.look(&handle), 0, "no other task has ids");
    live_shortly(handle, owners).await;
}

async fn live_shortly<P: Platform>(handle: Handle<P>, owners: Arc<Owners>) {
    owners.look(&handle);
    handle.compute(Span::from_micros(2)).await;
    owners.look(&handle);
}

async fn ids_of_running_tasks_differ<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let mut random = Random::new(5, 0);
    let mut tasks = Vec::new();
    let mut tenants = Vec::new();
    for _ in 0..2 {
        let (tenant, owners) = (handle.tenant(), Owners::new(cpus));
        for number in 0..2 * cpus as u64 + 2 {
            let options = of(&tenant, 2 + (number % 3) as u8, some_cpus(&mut random, cpus));
            tasks.push(handle.spawn(options, live(handle.clone(), tenant.clone(), owners.clone(), number, 40)));
        }
        tenants.push(tenant);
    }
    for task in tasks {
        joined(task).await;
    }
    for tenant in tenants {
        let look = || handle.diagnostics().ids_of(&tenant);
        // A task is joined before its id is freed.
        while look().users > 0 {
            handle.sleep(Span::from_micros(20)).await;
        }
        let map = look();
        assert_eq!(map.taken, map.held, "no task is left: {map:?}");
    }
}

async fn ids_are_below_their_bound<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let every: CpuSet = handle.topology().cpu_ids().collect();
    let (tenant, owners) = (handle.tenant(), Owners::new(cpus));
    let count = cpus.min(2);
    let tasks: Vec<_> = (0..count as u64)
        .map(|number| {
            let (me, owners) = (handle.clone(), owners.clone());
            handle.spawn(of(&tenant, 2, every.clone()), async move {
                let mut random = Random::new(number, 0);
                for _ in 0..40 {
                    owners.look(&me);
                    me.set_cpus(&some_cpus(&mut random, cpus));
                    me.sleep(Span::from_micros(random.below(10))).await;
                    me.checkpoint().await;
                }
            })
        })
        .collect();
    // Both tasks were there, even if they have left by now.
    let bound = handle.diagnostics().ids_of(&tenant).bound.max(count as u32);
    for task in tasks {
        joined(task).await;
    }
    let highest = owners.highest.load(Ordering::Relaxed);
    assert!(highest <= bound, "{highest} ids, {bound} are promised of {count} tasks on {cpus} CPUs");
}

async fn an_id_stays_with_a_pinned_task<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let (tenant, owners) = (handle.tenant(), Owners::new(cpus));
    let together = Arc::new(Barrier::new(&handle, cpus));
    let tasks: Vec<_> = (0..cpus as u32)
        .map(|cpu| {
            let (me, owners, together) = (handle.clone(), owners.clone(), together.clone());
            handle.spawn(of(&tenant, 2, CpuSet::from_iter([CpuId(cpu)])), async move {
                // From here on the number of tasks is constant, so all ids are below it.
                together.wait().await;
                let first = owners.look(&me);
                for _ in 0..20 {
                    me.sleep(Span::from_micros(5)).await;
                    let now = owners.look(&me);
                    assert!(!H::TIMED || now == first, "no task needs id {first}, and 100 ms have not passed: {now}");
                }
                together.wait().await;
            })
        })
        .collect();
    for task in tasks {
        joined(task).await;
    }
}

/// Tasks that may run on one CPU only, which goes offline, run on other CPUs at the same time.
async fn ids_are_enough_where_affinity_gives_way<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let (tenant, owners) = (handle.tenant(), Owners::new(cpus));
    let last = CpuId(cpus as u32 - 1);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (me, owners) = (handle.clone(), owners.clone());
            handle.spawn(of(&tenant, 2, CpuSet::from_iter([last])), async move {
                for _ in 0..30 {
                    owners.look(&me);
                    me.compute(Span::from_micros(5)).await;
                    owners.look(&me);
                    me.sleep(Span::from_micros(2)).await;
                }
            })
        })
        .collect();
    handle.sleep(Span::from_micros(20)).await;
    // The last CPU stays online.
    let gone = handle.set_offline(last);
    assert_eq!(gone, cpus > 1);
    for task in tasks {
        joined(task).await;
    }
    handle.set_online(last);
}
