//! The barrier: all tasks arrive before any of them goes on, round after round.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::Handle;
use hitm::sync::Barrier;

use crate::host::Host;
use crate::stage::{joined, on_first_cpu, until_it_waits};

every_host!(
    nobody_is_a_round_ahead,
    alone_nobody_waits,
    who_was_dropped_after_it_arrived_has_arrived,
    a_barrier_for_nobody_is_a_mistake,
);

async fn nobody_is_a_round_ahead<H: Host>(handle: Handle<H>) {
    let (parties, rounds) = (5, H::OFTEN / 5);
    let (barrier, arrived) = (Arc::new(Barrier::new(&handle, parties)), Arc::new(AtomicUsize::new(0)));
    let party = |number: usize| {
        let (barrier, arrived, clock) = (barrier.clone(), arrived.clone(), handle.clone());
        handle.spawn((), async move {
            let mut led = 0;
            for round in 0..rounds {
                if (number + round).is_multiple_of(3) {
                    clock.yield_now().await;
                }
                // Relaxed: the barrier orders it; otherwise the test fails.
                arrived.fetch_add(1, Ordering::Relaxed);
                led += usize::from(barrier.wait().await);
                // Relaxed: as above.
                let seen = arrived.load(Ordering::Relaxed);
                let all = parties * (round + 1);
                assert!((all..all + parties).contains(&seen), "{seen} arrivals after round {round}");
            }
            led
        })
    };
    let tasks: Vec<_> = (0..parties).map(party).collect();
    let mut led = 0;
    for task in tasks {
        led += joined(task).await;
    }
    assert_eq!(led, rounds, "one of them leads each round");
}

async fn alone_nobody_waits<H: Host>(handle: Handle<H>) {
    let barrier = Barrier::new(&handle, 1);
    for _ in 0..3 {
        assert!(barrier.wait().await);
    }
}

async fn who_was_dropped_after_it_arrived_has_arrived<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let barrier = Arc::new(Barrier::new(&handle, 3));
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let other = barrier.clone();
            tasks.push(until_it_waits(&handle, async move { other.wait().await }).await);
        }
        tasks[0].abort();
        handle.checkpoint().await;
        assert!(!tasks[1].is_finished());
        assert!(barrier.wait().await, "the last to arrive");
        let second = tasks.pop().expect("two");
        assert!(!joined(second).await);
    })
    .await;
}

async fn a_barrier_for_nobody_is_a_mistake<H: Host>(handle: Handle<H>) {
    let inner = handle.clone();
    let task = handle.spawn((), async move { drop(Barrier::new(&inner, 0)) });
    assert!(task.await.expect_err("a panic").is_panic());
}
