//! A runtime on the caller's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hitm::{NativeRuntime, Priority};

/// Longer than a thread of a busy machine waits for its CPU.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_tick_polls_the_most_urgent_task_once() {
    let mut runtime = NativeRuntime::embedded();
    assert!(!runtime.try_tick());
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    for (n, priority) in [(3, Priority::fair(0)), (2, Priority::fifo(10)), (1, Priority::fifo(90))] {
        let order = order.clone();
        runtime.handle().spawn(priority, async move {
            order.lock().unwrap().push(n);
            hitm::yield_now().await;
            order.lock().unwrap().push(10 * n);
        });
    }
    let seen = |length: usize| {
        let order = order.lock().unwrap();
        assert_eq!(order.len(), length);
        order.clone()
    };
    assert!(runtime.try_tick());
    assert_eq!(seen(1), [1]);
    assert!(runtime.try_tick());
    assert_eq!(seen(2), [1, 10]);
    while runtime.try_tick() {}
    assert_eq!(seen(6), [1, 10, 2, 20, 3, 30]);
}

#[test]
fn a_tick_waits_for_a_sleep_or_for_another_thread() {
    let mut runtime = NativeRuntime::embedded();
    let begin = Instant::now();
    assert!(!runtime.tick(Duration::from_millis(5)), "there is no task");
    assert!(begin.elapsed() >= Duration::from_millis(5));
    let sleeps = runtime.handle().spawn((), async { hitm::sleep(Duration::from_millis(5)).await });
    let begin = Instant::now();
    while !sleeps.is_finished() {
        assert!(runtime.tick(PATIENCE));
    }
    assert!(begin.elapsed() >= Duration::from_millis(5));
    let (send, received) = mpsc::channel();
    let handle = runtime.handle().clone();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        drop(handle.spawn((), async move { send.send(thread::current().id()).unwrap() }));
    });
    assert!(runtime.tick(PATIENCE));
    assert_eq!(received.recv(), Ok(thread::current().id()));
    other.join().unwrap();
}

#[test]
fn a_future_that_borrows_runs_beside_the_tasks() {
    let mut runtime = NativeRuntime::embedded();
    let (own, mut sum) = (Rc::new(1), 0);
    let (sender, receiver) = async_channel::bounded(1);
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        sender.send_blocking(20).unwrap();
    });
    runtime.block_on(async {
        let task = hitm::spawn(async {
            hitm::sleep(Duration::from_millis(1)).await;
            300
        });
        sum += *own + receiver.recv().await.unwrap() + task.await.unwrap();
    });
    assert_eq!(sum, 321);
    other.join().unwrap();
}

#[test]
fn tasks_that_are_left_end_when_it_is_dropped() {
    let token = Arc::new(());
    let mut runtime = NativeRuntime::embedded();
    let handle = runtime.handle().clone();
    for n in 0..4 {
        let held = token.clone();
        handle.spawn(if n % 2 == 0 { Priority::fair(0) } else { Priority::fifo(5) }, async move {
            std::future::pending::<()>().await;
            drop(held);
        });
    }
    assert!(runtime.try_tick() && runtime.try_tick());
    drop(runtime);
    assert_eq!(Arc::strong_count(&token), 1);
    crate::host::check_scheduler(&handle);
    assert!(handle.spawn((), async {}).is_finished(), "it is aborted at once");
}

#[test]
fn a_task_cannot_wait_for_a_runtime() {
    let outer = NativeRuntime::with_cpus(1).expect("a thread");
    let panicked = outer.block_on(outer.handle().spawn((), async {
        let mut inner = NativeRuntime::embedded();
        let tick = catch_unwind(AssertUnwindSafe(|| inner.try_tick()));
        std::mem::forget(inner);
        tick.is_err()
    }));
    assert!(panicked.expect("it ends"));
}

#[test]
fn panics_of_tasks_are_theirs() {
    let mut runtime = NativeRuntime::embedded();
    let task = runtime.handle().spawn((), async { panic!("on purpose") });
    let error: Result<(), _> = runtime.block_on(task);
    assert!(error.expect_err("it panicked").is_panic());
    assert_eq!(runtime.block_on(async { hitm::spawn(async { 7 }).await.unwrap() }), 7);
}

#[test]
fn a_computation_runs_here() {
    let mut runtime = NativeRuntime::embedded();
    let task = runtime.handle().spawn((), async { hitm::join(|| 1, || 2) });
    assert_eq!(runtime.block_on(task).unwrap(), (1, 2));
}

#[test]
fn a_computation_beside_the_tasks_waits_for_none() {
    let mut runtime = NativeRuntime::embedded();
    assert_eq!(runtime.block_on(async { hitm::join(|| 1, || 2) }), (1, 2));
    let mut sum = 0;
    runtime.block_on(async { hitm::fork_join::scope(|scope| scope.spawn(|_| sum += 3)) });
    assert_eq!(sum, 3);
    let handle = runtime.handle().clone();
    let scope = || handle.scope(|scope| drop(scope.spawn((), async {})));
    catch_unwind(AssertUnwindSafe(scope)).expect_err("no thread would run the scope's task");
}
