//! Tasks that yield to each other and never wait spread over the CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hitm::{Handle, Priority, Span};
use hitm_machine::Simulated;
use hitm_memory::Platform;

use crate::host::{Setup, simulate};
use crate::stage::joined;

/// Two packages with two LLCs each.
const CPUS: usize = 16;

/// Tasks, which one task spawns.
const TASKS: usize = 3 * CPUS;

/// Returns how many tasks each CPU has after they have yielded for `span`.
async fn spread(handle: Handle<Simulated>, span: Span) -> Vec<u32> {
    let found: Arc<[AtomicU32]> = (0..CPUS).map(|_| AtomicU32::new(0)).collect();
    let [is_over, seen] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let task = |_| {
        let (yields, found, is_over, seen) = (handle.clone(), found.clone(), is_over.clone(), seen.clone());
        handle.spawn(Priority::default(), async move {
            // Relaxed, all: one host thread runs the machine.
            while is_over.load(Ordering::Relaxed) == 0 {
                yields.yield_now().await;
            }
            found[Simulated::current_cpu().index()].fetch_add(1, Ordering::Relaxed);
            seen.fetch_add(1, Ordering::Relaxed);
            // Who comes later still finds it here.
            while seen.load(Ordering::Relaxed) < TASKS as u32 {
                yields.yield_now().await;
            }
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    handle.set_priority(Priority::fifo(90));
    handle.sleep(span).await;
    is_over.store(1, Ordering::Relaxed);
    for task in tasks {
        joined(task).await;
    }
    found.iter().map(|tasks| tasks.load(Ordering::Relaxed)).collect()
}

#[test]
fn no_cpu_is_left_with_one_task_while_others_have_many() {
    for seed in 1..=4 {
        let setup = Setup::of("pack:2 l3:2 core:4 pu:1");
        let config = hitm_machine::Config { seed, ..setup.config.clone() };
        let setup = Setup { mitigation: "shipped", keeps_wakeups: true, config, ..setup };
        let tasks = simulate(setup, |handle| spread(handle, Span::from_micros(800))).result;
        assert!(tasks.iter().all(|tasks| (2..=5).contains(tasks)), "seed {seed}: tasks by CPU: {tasks:?}");
    }
}
