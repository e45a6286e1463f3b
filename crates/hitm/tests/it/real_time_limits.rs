//! Limits of groups' real-time tasks, in simulated time: the CPU time that the tasks get, and that
//! no task waits a whole period for a mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm::sync::PiMutex;
use hitm::{Group, Handle, JoinHandle, Priority, Span, SpawnOptions, Time};
use hitm_machine::Simulated;

use crate::host::{Setup, simulate};
use crate::stage::joined;

const fn millis(count: u64) -> Span {
    Span::from_micros(count * 1_000)
}

/// How long a task computes between two clock reads.
const STRETCH: Span = Span::from_micros(50);

/// One mitigation for each mechanism.
const MITIGATIONS: [&str; 2] = ["baseline", "shipped"];

fn options(group: Option<&Group>, priority: Priority) -> SpawnOptions {
    SpawnOptions { priority, group: group.cloned(), ..SpawnOptions::default() }
}

/// A task that computes until `end`, and the CPU time that it got.
fn busy(handle: &Handle<Simulated>, options: SpawnOptions, end: Time) -> (Arc<AtomicU64>, JoinHandle<Simulated, ()>) {
    let had = Arc::new(AtomicU64::new(0));
    let (clock, own) = (handle.clone(), had.clone());
    let task = handle.spawn(options, async move {
        while clock.now() < end {
            clock.compute(STRETCH).await;
            own.fetch_add(1, Ordering::Relaxed);
        }
    });
    (had, task)
}

/// Returns the CPU time of each of some tasks, in milliseconds.
async fn had<const TASKS: usize>(tasks: [(Arc<AtomicU64>, JoinHandle<Simulated, ()>); TASKS]) -> [f64; TASKS] {
    let mut had = [0.0; TASKS];
    for (had, (stretches, task)) in had.iter_mut().zip(tasks) {
        joined(task).await;
        *had = (STRETCH * stretches.load(Ordering::Relaxed)).as_secs_f64() * 1_000.0;
    }
    had
}

#[test]
fn real_time_tasks_have_their_runtime_and_fair_ones_the_rest() {
    for mitigation in MITIGATIONS {
        let setup = Setup { mitigation, ..Setup::of("core:1 pu:1") };
        let ([inner, outer, fair], throttles) = simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let group = handle.group("outer").limit_real_time(millis(50), millis(100)).unwrap();
            let below = group.group("inner").limit_real_time(millis(20), millis(100)).unwrap();
            let refused = group.group("other").limit_real_time(millis(40), millis(100)).unwrap_err();
            assert!(refused.to_string().contains("400 thousandths"), "{refused}");
            let end = handle.now() + millis(1_000);
            let tasks = [
                busy(&handle, options(Some(&below), Priority::fifo(50)), end),
                busy(&handle, options(Some(&group), Priority::fifo(40)), end),
                busy(&handle, options(None, Priority::fair(0)), end),
            ];
            (had(tasks).await, group.throttling_real_time().throttles)
        })
        .result;
        for (had, due) in [(inner, 200.0), (outer, 300.0), (fair, 500.0)] {
            assert!((had - due).abs() <= 3.0, "{mitigation}: {inner} {outer} {fair}");
        }
        assert!((9..=10).contains(&throttles), "{throttles}");
    }
}

#[test]
fn nobody_waits_a_period_for_an_owner() {
    for mitigation in MITIGATIONS {
        let setup = Setup { mitigation, ..Setup::of("core:1 pu:1") };
        let waited = simulate(setup, move |handle| async move {
            handle.set_priority(Priority::fifo(90));
            let group = handle.group("limited").limit_real_time(millis(5), millis(1_000)).unwrap();
            let mutex = Arc::new(PiMutex::new(&handle, ()));
            let (clock, owned) = (handle.clone(), mutex.clone());
            // The task owns the mutex for 10 ms; its group's runtime is 5 ms.
            let owner = handle.spawn(options(Some(&group), Priority::fifo(40)), async move {
                let guard = owned.lock().await.unwrap();
                clock.compute(millis(10)).await;
                drop(guard);
                clock.compute(millis(1)).await;
                clock.now()
            });
            handle.sleep(millis(20)).await;
            assert_eq!(group.throttling_real_time().throttles, 1);
            let began = handle.now();
            drop(mutex.lock().await.unwrap());
            let waited = handle.now().since(began);
            // At its own priority it waits for the rest: its CPU time at the lent priority is
            // subtracted too.
            let ended = joined(owner).await.since(began);
            assert!(ended > millis(1_900), "{ended}");
            waited
        })
        .result;
        assert!(waited > millis(4) && waited < millis(6), "{waited}");
    }
}

#[test]
fn a_limit_that_ends_lets_those_run_that_wait() {
    let waited = simulate(Setup::of("core:2 pu:1"), move |handle| async move {
        handle.set_priority(Priority::fifo(90));
        let group = handle.group("limited").limit_real_time(millis(1), millis(1_000)).unwrap();
        let clock = handle.clone();
        let task = handle.spawn(options(Some(&group), Priority::fifo(40)), async move {
            clock.compute(millis(10)).await;
            clock.now()
        });
        handle.sleep(millis(100)).await;
        let ends = handle.now();
        group.unlimited_real_time();
        joined(task).await.since(ends)
    })
    .result;
    assert!((8_900..9_100).contains(&(waited.as_picos() / 1_000_000)), "{waited}");
}
