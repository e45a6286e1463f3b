//! Joining: by one task, by several tasks, and by a task other than the one that began to join.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use hitm::{Handle, JoinHandle};

use crate::host::{Host, message};
use crate::stage::{Gate, joined, on_first_cpu, until_it_waits};

every_host!(
    one_task_joins_many,
    many_tasks_join_one_each,
    a_join_may_go_on_in_another_task,
    the_last_who_polled_is_woken,
    finished_means_that_joining_does_not_wait,
    joining_twice_is_a_mistake,
);

async fn one_task_joins_many<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let task = |n: usize| {
        let gate = gate.clone();
        handle.spawn((), async move {
            gate.pass().await;
            n
        })
    };
    let mut tasks: Vec<_> = (0..50).map(task).collect();
    gate.open();
    // The order differs from the order in which the tasks end.
    tasks.reverse();
    for (index, task) in tasks.into_iter().enumerate() {
        assert_eq!(joined(task).await, 49 - index);
    }
}

async fn many_tasks_join_one_each<H: Host>(handle: Handle<H>) {
    // A chain: each task joins the one before.
    let gate = Gate::new(&handle);
    let held = gate.clone();
    let mut last: JoinHandle<H, u32> = handle.spawn((), async move {
        held.pass().await;
        0
    });
    for _ in 0..50 {
        last = handle.spawn((), async move { joined(last).await + 1 });
    }
    gate.open();
    assert_eq!(joined(last).await, 50);
}

async fn a_join_may_go_on_in_another_task<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let held = gate.clone();
    let mut task = handle.spawn((), async move {
        held.pass().await;
        7
    });
    let once = poll_fn(|context| Poll::Ready(Pin::new(&mut task).poll(context).is_pending())).await;
    assert!(once, "the gate is shut");
    let other = handle.spawn((), async move { joined(task).await });
    gate.open();
    assert_eq!(joined(other).await, 7);
}

/// Polls a shared future, by whichever task comes.
async fn poll_shared<H: Host>(shared: Arc<Mutex<Option<JoinHandle<H, u32>>>>) -> u32 {
    poll_fn(|context| {
        // Taken out for the poll: a task must not hold a lock of the host where another CPU may
        // run.
        let mut task = shared.lock().expect("no holder panics").take().expect("one at a time");
        let poll = Pin::new(&mut task).poll(context);
        if poll.is_pending() {
            *shared.lock().expect("no holder panics") = Some(task);
        }
        poll
    })
    .await
    .expect("a value")
}

async fn the_last_who_polled_is_woken<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let gate = Gate::new(&handle);
        let held = gate.clone();
        let task = until_it_waits(&handle, async move {
            held.pass().await;
            5
        })
        .await;
        let shared = Arc::new(Mutex::new(Some(task)));
        let first = until_it_waits(&handle, poll_shared(shared.clone())).await;
        let last = until_it_waits(&handle, poll_shared(shared)).await;
        gate.open();
        assert_eq!(joined(last).await, 5);
        first.abort();
        assert!(first.await.expect_err("only the abort wakes it").is_aborted());
    })
    .await;
}

async fn finished_means_that_joining_does_not_wait<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let held = gate.clone();
    let mut task = handle.spawn((), async move { held.pass().await });
    assert!(!task.is_finished());
    gate.open();
    while !task.is_finished() {
        handle.yield_now().await;
    }
    let ready = poll_fn(|context| Poll::Ready(Pin::new(&mut task).poll(context).is_ready())).await;
    assert!(ready);
}

async fn joining_twice_is_a_mistake<H: Host>(handle: Handle<H>) {
    let mut task = handle.spawn((), async {});
    (&mut task).await.expect("it has ended");
    let again = handle.spawn((), async move { (&mut task).await.is_ok() });
    let payload = again.await.expect_err("a panic").into_panic().expect("a panic");
    assert_eq!(message(&*payload), "a task was joined twice");
}
