//! The futex: which tasks wait, which tasks a wake reaches, and dropped waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::Handle;
use hitm::sync::Futex;
use hitm_memory::AtomicWord;

use crate::host::Host;
use crate::stage::{Diary, joined, on_first_cpu, until_it_waits};

every_host!(
    who_comes_after_the_change_does_not_wait,
    a_store_alone_wakes_nobody,
    a_wake_wakes_as_many_as_it_says,
    a_wake_wakes_once_whatever_the_word_says,
    a_wait_that_was_dropped_passes_its_wake_on,
    a_wait_that_was_dropped_leaves_the_queue,
    no_change_with_a_wake_is_missed,
);

async fn who_comes_after_the_change_does_not_wait<H: Host>(handle: Handle<H>) {
    let futex = Futex::new(&handle, 3);
    futex.wait(2).await;
    // Relaxed: this is the only task.
    futex.word().store(4, Ordering::Relaxed);
    futex.wait(3).await;
    assert_eq!(futex.wake(usize::MAX), 0);
}

async fn a_store_alone_wakes_nobody<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let futex = Arc::new(Futex::new(&handle, 0));
        let shared = futex.clone();
        let waits = until_it_waits(&handle, async move { shared.wait(0).await }).await;
        // Relaxed: there is one CPU.
        futex.word().store(1, Ordering::Relaxed);
        for _ in 0..5 {
            handle.yield_now().await;
        }
        assert!(!waits.is_finished());
        assert_eq!(futex.wake(1), 1);
        joined(waits).await;
    })
    .await;
}

async fn a_wake_wakes_as_many_as_it_says<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (futex, diary) = (Arc::new(Futex::new(&handle, 0)), Diary::new());
        let mut tasks = Vec::new();
        for number in 0..6 {
            let (futex, diary) = (futex.clone(), diary.clone());
            let task = until_it_waits(&handle, async move {
                futex.wait(0).await;
                diary.note(number);
            });
            tasks.push(task.await);
        }
        for (count, woken) in [(0, 0..0), (1, 0..1), (3, 1..4), (usize::MAX, 4..6), (usize::MAX, 6..6)] {
            assert_eq!(futex.wake(count), woken.len());
            handle.checkpoint().await;
            assert_eq!(diary.take(), woken.collect::<Vec<_>>(), "in the order in which they came");
        }
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
}

async fn a_wake_wakes_once_whatever_the_word_says<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let futex = Arc::new(Futex::new(&handle, 0));
        let shared = futex.clone();
        let waits = until_it_waits(&handle, async move {
            shared.wait(0).await;
            shared.wait(0).await;
        })
        .await;
        for _ in 0..2 {
            assert!(!waits.is_finished());
            assert_eq!(futex.wake(1), 1, "the word has not changed");
            handle.checkpoint().await;
        }
        joined(waits).await;
    })
    .await;
}

async fn a_wait_that_was_dropped_passes_its_wake_on<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let futex = Arc::new(Futex::new(&handle, 0));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let futex = futex.clone();
            tasks.push(until_it_waits(&handle, async move { futex.wait(0).await }).await);
        }
        let mut tasks = tasks.into_iter();
        let (first, second, third) = (tasks.next().unwrap(), tasks.next().unwrap(), tasks.next().unwrap());
        // The first two waiters are chosen before they are aborted; the third one remains.
        assert_eq!(futex.wake(1), 1);
        first.abort();
        second.abort();
        assert!(first.await.is_err() && second.await.is_err());
        joined(third).await;
        assert_eq!(futex.wake(usize::MAX), 0);
    })
    .await;
}

async fn a_wait_that_was_dropped_leaves_the_queue<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let futex = Arc::new(Futex::new(&handle, 0));
        let shared = futex.clone();
        let waits = until_it_waits(&handle, async move { shared.wait(0).await }).await;
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(futex.wake(usize::MAX), 0);
    })
    .await;
}

/// Two tasks on any CPU pass a number back and forth: each change comes with a wake.
async fn no_change_with_a_wake_is_missed<H: Host>(handle: Handle<H>) {
    let futex = Arc::new(Futex::new(&handle, 0));
    let rounds = H::OFTEN as u32;
    let player = |me: u32| {
        let futex = futex.clone();
        handle.spawn((), async move {
            for round in 0..rounds {
                let mine = 2 * round + me;
                loop {
                    // Acquire: pairs with the Release below.
                    let found = futex.word().load(Ordering::Acquire);
                    if found == mine {
                        break;
                    }
                    futex.wait(found).await;
                }
                // Release: pairs with the Acquire above.
                futex.word().store(mine + 1, Ordering::Release);
                futex.wake(1);
            }
        })
    };
    for task in [0, 1].map(player) {
        joined(task).await;
    }
    // Relaxed: the joins order it.
    assert_eq!(futex.word().load(Ordering::Relaxed), 2 * rounds);
}

/// The simulated machine detects that no task can go on.
#[cfg(not(miri))]
#[test]
fn a_wake_that_was_forgotten_is_a_deadlock() {
    use crate::host::{Setup, try_simulate};

    let stalled = try_simulate(Setup::of("core:2 pu:1"), |handle| async move {
        let futex = Arc::new(Futex::new(&handle, 0));
        let shared = futex.clone();
        drop(handle.spawn((), async move {
            // Relaxed: no task reads it.
            shared.word().store(1, Ordering::Relaxed);
        }));
        futex.wait(0).await;
        futex.wait(1).await;
    });
    let text = stalled.err().expect("no task wakes it").to_string();
    assert!(text.starts_with("deadlock"), "{text}");
}
