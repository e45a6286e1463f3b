//! At every poll, a task runs on a CPU of its CPU set.

use std::sync::{Arc, Mutex};

use hitm::{CpuSet, Handle, Priority, Span, SpawnOptions};
use hitm_machine::Random;
use hitm_topology::CpuId;

use crate::host::Host;
use crate::stage::{joined, on_cpu};
use crate::watch::polled;

every_host!(
    every_poll_is_where_it_may_be,
    a_task_that_changes_its_own_cpus_moves,
    others_change_the_cpus_of_tasks,
    a_set_that_excludes_the_only_free_cpu_waits,
);

/// Draws some CPUs of a machine, at least one.
pub(crate) fn some_cpus(random: &mut Random, count: usize) -> CpuSet {
    let count = count as u32;
    let mut cpus: CpuSet = (0..count).map(CpuId).filter(|_| random.below(3) == 0).collect();
    cpus.insert(CpuId(random.below(u64::from(count)) as u32));
    cpus
}

/// Computes, waits and yields, `steps` times.
pub(crate) async fn wander<H: Host>(handle: Handle<H>, seed: u64, steps: usize) {
    let mut random = Random::new(seed, 0);
    for _ in 0..steps {
        match random.below(4) {
            0 => handle.yield_now().await,
            1 => handle.sleep(Span::from_micros(random.below(20))).await,
            2 => handle.compute(Span::from_micros(random.below(20))).await,
            _ => handle.checkpoint().await,
        }
    }
}

async fn every_poll_is_where_it_may_be<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let mut random = Random::new(1, 0);
    let mut tasks = Vec::new();
    for number in 0..3 * cpus as u64 + 5 {
        let allowed = some_cpus(&mut random, cpus);
        let options = SpawnOptions {
            priority: Priority::fifo(1 + random.below(5) as u8),
            cpus: Some(allowed.clone()),
            ..SpawnOptions::default()
        };
        let look = move || {
            let cpu = H::current_cpu();
            assert!(allowed.contains(cpu), "task {number} on CPU {cpu}, allowed on {allowed:?}");
        };
        tasks.push(handle.spawn(options, polled(wander(handle.clone(), number, 20), look)));
    }
    for task in tasks {
        joined(task).await;
    }
}

async fn a_task_that_changes_its_own_cpus_moves<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus() as u32;
    let mut tasks = Vec::new();
    for number in 0..4 {
        let me = handle.clone();
        tasks.push(handle.spawn(Priority::fifo(2), async move {
            for step in 0..3 * cpus {
                let cpu = CpuId((number + step * 7) % cpus);
                me.set_cpus(&CpuSet::from_iter([cpu]));
                match step % 3 {
                    0 => me.yield_now().await,
                    1 => {
                        me.sleep(Span::from_micros(3)).await;
                        // A sleep whose deadline has passed when it begins does not leave its CPU.
                        me.checkpoint().await;
                    }
                    _ => me.checkpoint().await,
                }
                assert_eq!(H::current_cpu(), cpu, "step {step}");
            }
        }));
    }
    for task in tasks {
        joined(task).await;
    }
}

/// The CPUs where a task may be: its present CPU set. While the set changes, and for one poll
/// afterwards, the previous set counts too, since a CPU may have picked the task and not begun to
/// poll it.
struct Said {
    now: CpuSet,
    before: Option<CpuSet>,
    changing: bool,
}

impl Said {
    /// Records a poll on `cpu`; returns whether it is allowed there.
    fn poll_on(&mut self, cpu: CpuId) -> bool {
        let fine = self.now.contains(cpu) || self.before.as_ref().is_some_and(|before| before.contains(cpu));
        if !self.changing {
            self.before = None;
        }
        fine
    }
}

async fn others_change_the_cpus_of_tasks<H: Host>(handle: Handle<H>) {
    let cpus = handle.topology().cpus();
    let mut random = Random::new(7, 0);
    let mut tasks = Vec::new();
    for number in 0..2 * cpus as u64 + 3 {
        let allowed = some_cpus(&mut random, cpus);
        let said = Arc::new(Mutex::new(Said { now: allowed.clone(), before: None, changing: false }));
        let options = SpawnOptions { priority: Priority::fifo(2), cpus: Some(allowed), ..SpawnOptions::default() };
        let seen = said.clone();
        let look = move || {
            H::settle();
            let cpu = H::current_cpu();
            let fine = seen.lock().expect("no holder panics").poll_on(cpu);
            assert!(fine, "task {number} on CPU {cpu}, where it may not be any more");
        };
        tasks.push((handle.spawn(options, polled(wander(handle.clone(), number, 60), look)), said));
    }
    handle.set_priority(Priority::fifo(3));
    for _ in 0..40 {
        let (task, said) = &tasks[random.below(tasks.len() as u64) as usize];
        let cpus = some_cpus(&mut random, cpus);
        {
            H::settle();
            let mut said = said.lock().expect("no holder panics");
            let before = std::mem::replace(&mut said.now, cpus.clone());
            (said.before, said.changing) = (Some(before), true);
        }
        handle.set_cpus_of(task, &cpus);
        {
            H::settle();
            said.lock().expect("no holder panics").changing = false;
        }
        wander(handle.clone(), random.below(1_000), 2).await;
    }
    for (task, _) in tasks {
        joined(task).await;
    }
}

async fn a_set_that_excludes_the_only_free_cpu_waits<H: Host>(handle: Handle<H>) {
    // Two tasks may run on the first CPU only, even if other CPUs idle.
    let begun = crate::stage::Gate::new(&handle);
    let (clock, begins) = (handle.clone(), begun.clone());
    let first = handle.spawn(on_cpu(0, 5), async move {
        begins.open();
        clock.compute(Span::from_micros(300)).await;
        clock.now()
    });
    begun.pass().await;
    let clock = handle.clone();
    let second = handle.spawn(on_cpu(0, 4), async move { clock.now() });
    let (first, second) = (joined(first).await, joined(second).await);
    assert!(first <= second);
}
