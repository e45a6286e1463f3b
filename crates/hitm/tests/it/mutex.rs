//! The mutex: one holder at a time, whatever happens to its waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hitm::sync::Mutex;
use hitm::{Handle, Span};

use crate::host::Host;
use crate::stage::{joined, on_cpu, on_first_cpu, until_it_waits};

every_host!(
    one_holder_at_a_time,
    a_try_fails_while_it_is_held,
    who_runs_may_take_it_before_who_was_woken,
    it_may_be_held_across_waits_and_cpus,
    a_wait_that_was_dropped_after_its_wake_passes_it_on,
);

async fn one_holder_at_a_time<H: Host>(handle: Handle<H>) {
    let (sum, holders) = (Arc::new(Mutex::new(&handle, 0)), Arc::new(AtomicU32::new(0)));
    let (tasks, rounds) = (8, H::OFTEN / 8);
    let task = |number: usize| {
        let (sum, holders, clock) = (sum.clone(), holders.clone(), handle.clone());
        handle.spawn((), async move {
            for round in 0..rounds {
                let mut held = sum.lock().await;
                // Relaxed: the mutex orders it; otherwise the test fails.
                assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0);
                let before = *held;
                if (number + round).is_multiple_of(3) {
                    clock.yield_now().await;
                }
                *held = before + 1;
                // Relaxed: as above.
                assert_eq!(holders.fetch_sub(1, Ordering::Relaxed), 1);
            }
        })
    };
    let spawned: Vec<_> = (0..tasks).map(task).collect();
    for task in spawned {
        joined(task).await;
    }
    assert_eq!(*sum.lock().await, tasks * rounds);
    let sum = Arc::into_inner(sum).expect("the tasks have ended");
    assert_eq!(sum.into_inner(), tasks * rounds);
}

async fn a_try_fails_while_it_is_held<H: Host>(handle: Handle<H>) {
    let mutex = Mutex::new(&handle, "value");
    let held = mutex.lock().await;
    assert!(mutex.try_lock().is_none());
    drop(held);
    let held = mutex.try_lock().expect("it is free");
    assert_eq!(*held, "value");
    assert!(mutex.try_lock().is_none());
}

async fn who_runs_may_take_it_before_who_was_woken<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let mutex = Arc::new(Mutex::new(&handle, 0));
        let held = mutex.lock().await;
        let other = mutex.clone();
        let waits = until_it_waits(&handle, async move { *other.lock().await += 1 }).await;
        drop(held);
        // The other task was woken, is more urgent, and has not run.
        let held = mutex.try_lock().expect("it is not fair");
        handle.checkpoint().await;
        assert!(!waits.is_finished());
        assert_eq!(*held, 0);
        drop(held);
        joined(waits).await;
        assert_eq!(*mutex.lock().await, 1);
    })
    .await;
}

async fn it_may_be_held_across_waits_and_cpus<H: Host>(handle: Handle<H>) {
    let last = handle.topology().cpus() as u32 - 1;
    let mutex = Arc::new(Mutex::new(&handle, Vec::new()));
    let (other, clock) = (mutex.clone(), handle.clone());
    let mut held = mutex.lock().await;
    let waits = handle.spawn(on_cpu(0, 2), async move {
        let mut held = other.lock().await;
        held.push("waiter");
    });
    handle.sleep(Span::from_micros(20)).await;
    handle.set_cpus(&hitm::CpuSet::from_iter([hitm_topology::CpuId(last)]));
    handle.yield_now().await;
    assert_eq!(H::current_cpu().0, last);
    assert!(!waits.is_finished());
    held.push("holder");
    clock.compute(Span::from_micros(5)).await;
    drop(held);
    joined(waits).await;
    assert_eq!(*mutex.lock().await, ["holder", "waiter"]);
}

async fn a_wait_that_was_dropped_after_its_wake_passes_it_on<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let mutex = Arc::new(Mutex::new(&handle, 0));
        let held = mutex.lock().await;
        let mut waiters = Vec::new();
        for number in 1..=2 {
            let other = mutex.clone();
            waiters.push(until_it_waits(&handle, async move { *other.lock().await += number }).await);
        }
        let (second, first) = (waiters.pop().expect("two"), waiters.pop().expect("two"));
        drop(held);
        // The first waiter was woken and has not run: if its wake were lost, the second would wait
        // for ever.
        first.abort();
        assert!(first.await.expect_err("it was aborted").is_aborted());
        joined(second).await;
        assert_eq!(*mutex.lock().await, 2);
    })
    .await;
}
