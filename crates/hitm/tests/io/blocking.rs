//! Code that blocks: on threads of its own, and in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hitm::{CpuId, CpuSet, SpawnOptions};

use crate::runtime;

#[test]
fn values_and_panics_come_back() {
    let test = async {
        assert_eq!(hitm::spawn_blocking(|| 6 * 7).await.expect("no panic"), 42);
        let panics: Result<(), _> = hitm::spawn_blocking(|| std::panic::resume_unwind(Box::new(1))).await;
        assert_eq!(panics.expect_err("it panics").into_panic().expect("a payload").downcast_ref(), Some(&1));
    };
    let runtime = runtime(1);
    runtime.block_on(runtime.handle().spawn((), test)).expect("no assertion fails");
}

#[test]
fn a_call_goes_on_inside_its_runtime_unless_it_is_aborted() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let (sent, mut received) = async_broadcast::broadcast(1);
        drop(hitm::spawn_blocking(move || {
            let spawned = hitm::spawn(async { 7 });
            let value = hitm::Handle::current().block_on(spawned).expect("it ends");
            sent.try_broadcast(value).expect("there is place");
        }));
        assert_eq!(received.recv().await, Ok(7), "the call is not cancelled");
        let mut aborted = hitm::spawn_blocking(|| ());
        aborted.abort();
        assert!(aborted.await.expect_err("it has no value").is_aborted());
    });
}

#[test]
fn calls_that_block_are_tasks_of_a_set() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let test = async move {
        let mut calls = hitm::JoinSet::new(&handle);
        for number in 1..=4 {
            calls.spawn_blocking((), move || number);
        }
        let mut values = calls.join_all().await.expect("no panic");
        values.sort_unstable();
        assert_eq!(values, [1, 2, 3, 4]);
        let mut calls = hitm::JoinSet::new(&handle);
        calls.spawn_blocking((), || -> () { std::panic::resume_unwind(Box::new(1)) });
        let panics = calls.join_next().await.expect("one").expect_err("it panics");
        assert_eq!(panics.into_panic().expect("a payload").downcast_ref(), Some(&1));
        // A call that has begun goes on, and its task has no value.
        let (begun, is_begun) = std::sync::mpsc::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let aborted = calls.spawn_blocking((), move || {
            begun.send(()).expect("it is awaited");
            goes_on.recv().expect("it is sent");
            ended.send(()).expect("it is awaited");
        });
        hitm::block_in_place(|| is_begun.recv().expect("it begins"));
        aborted.abort();
        assert!(calls.join_next().await.expect("one").expect_err("it has no value").is_aborted());
        go_on.send(()).expect("it goes on");
        hitm::block_in_place(|| has_ended.recv().expect("it ends"));
    };
    runtime.block_on(runtime.handle().spawn((), test)).expect("no assertion fails");
}

/// Another task that is queued on the CPU of a task that blocks in place runs meanwhile, unless a
/// task is bound to the CPU.
#[test]
fn queued_tasks_leave_a_cpu_that_blocks() {
    for (is_bound, runs) in [(false, true), (true, false)] {
        let runtime = runtime(2);
        let first = || SpawnOptions::default().on(CpuSet::from_iter([CpuId(0)]));
        let bound = is_bound.then(|| runtime.handle().spawn_on(CpuId(0), (), std::future::pending::<()>));
        let ran = runtime.handle().spawn(first(), async move {
            let has_run = Arc::new(AtomicBool::new(false));
            let set = has_run.clone();
            let other = hitm::spawn(async move { set.store(true, Ordering::Relaxed) });
            hitm::block_in_place(|| {
                let mut patience = if runs { 2_000 } else { 20 };
                while !has_run.load(Ordering::Relaxed) && patience > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                    patience -= 1;
                }
            });
            let ran = has_run.load(Ordering::Relaxed);
            other.await.expect("it ends");
            ran
        });
        assert_eq!(runtime.block_on(ran).expect("it ends"), runs, "bound: {is_bound}");
        // The CPU is back: it polls a task that may run nowhere else.
        runtime.block_on(runtime.handle().spawn(first(), async {})).expect("it ends");
        drop(bound);
    }
}

#[test]
fn one_cpu_blocks_in_place() {
    let task = hitm::spawn_with;
    let runtime = runtime(1);
    let entered = runtime.handle().enter();
    let value = runtime.block_on(task((), async { hitm::block_in_place(|| 7) }));
    drop(entered);
    assert_eq!(value.expect("it ends"), 7);
    assert_eq!(hitm::block_in_place(|| 8), 8, "outside a task");
}
