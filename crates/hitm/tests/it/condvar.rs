//! The condition variable: the waiters that a notification reaches.

use std::sync::Arc;

use hitm::sync::{Condvar, Mutex};
use hitm::{Handle, JoinHandle};
use hitm_memory::Platform;

use crate::host::Host;
use crate::stage::{Diary, joined, on_first_cpu, until_it_waits};

every_host!(
    one_is_notified,
    all_are_notified,
    without_waiters_it_is_lost,
    a_waiter_that_was_dropped_passes_it_on,
    a_waiter_that_was_dropped_while_it_takes_the_mutex_passes_it_on,
    to_and_fro,
);

struct Shared<P: Platform> {
    state: Mutex<P, u32>,
    changed: Condvar<P>,
}

impl<P: Platform> Shared<P> {
    fn new(handle: &Handle<P>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(handle, 0), changed: Condvar::new(handle) })
    }
}

/// Spawns tasks that wait for one notification, and record it.
async fn waiters<H: Host>(handle: &Handle<H>, shared: &Arc<Shared<H>>, diary: &Diary<u32>) -> Vec<JoinHandle<H, ()>> {
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (shared, diary) = (shared.clone(), diary.clone());
        let task = until_it_waits(handle, async move {
            let guard = shared.state.lock().await;
            drop(shared.changed.wait(guard).await);
            diary.note(number);
        });
        tasks.push(task.await);
    }
    tasks
}

async fn one_is_notified<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (shared, diary) = (Shared::new(&handle), Diary::new());
        let tasks = waiters(&handle, &shared, &diary).await;
        for number in 0..4 {
            shared.changed.notify_one();
            handle.checkpoint().await;
            assert_eq!(diary.take(), [number]);
        }
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
}

async fn all_are_notified<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (shared, diary) = (Shared::new(&handle), Diary::new());
        let tasks = waiters(&handle, &shared, &diary).await;
        shared.changed.notify_all();
        handle.checkpoint().await;
        assert_eq!(diary.take(), [0, 1, 2, 3]);
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
}

async fn without_waiters_it_is_lost<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (shared, diary) = (Shared::new(&handle), Diary::new());
        shared.changed.notify_all();
        shared.changed.notify_one();
        let tasks = waiters(&handle, &shared, &diary).await;
        handle.checkpoint().await;
        assert!(diary.take().is_empty());
        shared.changed.notify_all();
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
}

async fn a_waiter_that_was_dropped_passes_it_on<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (shared, diary) = (Shared::new(&handle), Diary::new());
        let tasks = waiters(&handle, &shared, &diary).await;
        // The first waiter was chosen, and has not run.
        shared.changed.notify_one();
        tasks[0].abort();
        handle.checkpoint().await;
        assert_eq!(diary.take(), [1]);
        shared.changed.notify_all();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.is_ok());
        }
        assert_eq!(results, [false, true, true, true]);
    })
    .await;
}

async fn a_waiter_that_was_dropped_while_it_takes_the_mutex_passes_it_on<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (shared, diary) = (Shared::new(&handle), Diary::new());
        let tasks = waiters(&handle, &shared, &diary).await;
        let held = shared.state.lock().await;
        shared.changed.notify_one();
        handle.checkpoint().await;
        // The first waiter was notified and waits for the mutex.
        tasks[0].abort();
        handle.checkpoint().await;
        drop(held);
        handle.checkpoint().await;
        assert_eq!(diary.take(), [1]);
        shared.changed.notify_all();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await.is_ok());
        }
        assert_eq!(results, [false, true, true, true]);
    })
    .await;
}

/// Tasks on any CPU take turns: each waits for its turn.
async fn to_and_fro<H: Host>(handle: Handle<H>) {
    let shared = Shared::new(&handle);
    let (players, rounds) = (3, H::OFTEN as u32 / 3);
    let player = |me: u32| {
        let shared = shared.clone();
        handle.spawn((), async move {
            for _ in 0..rounds {
                let mut turn = shared.state.lock().await;
                while *turn % players != me {
                    turn = shared.changed.wait(turn).await;
                }
                *turn += 1;
                shared.changed.notify_all();
            }
        })
    };
    let tasks: Vec<_> = (0..players).map(player).collect();
    for task in tasks {
        joined(task).await;
    }
    assert_eq!(*shared.state.lock().await, players * rounds);
}
