//! Sets of tasks, aborts that follow a handle, and tasks that stay on a CPU.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hitm::{CpuId, Handle, JoinSet, MissedTicks, Span};

use crate::host::Host;
use crate::stage::{HIGH, joined, on_first_cpu, pinned};

every_host!(
    tasks_are_joined_in_the_order_of_their_ends,
    a_crowd_is_joined_once,
    a_set_that_is_dropped_aborts_its_tasks,
    a_panic_ends_join_all,
    a_bound_task_ends_with_its_handle,
    a_local_task_stays,
    ticks_are_equally_far_apart,
);

async fn tasks_are_joined_in_the_order_of_their_ends<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let mut set = JoinSet::new(&handle);
        assert!(set.join_next().await.is_none());
        for micros in [300, 100, 200] {
            let clock = handle.clone();
            set.spawn(pinned(HIGH), async move {
                clock.sleep(Span::from_micros(micros)).await;
                micros
            });
        }
        assert!(set.try_join_next().is_none(), "no task has ended");
        let mut ends = Vec::new();
        while let Some(result) = set.join_next().await {
            ends.push(result.expect("no task panics"));
        }
        ends.truncate(3);
        if H::TIMED {
            assert_eq!(ends, [100, 200, 300]);
        }
        ends.sort_unstable();
        assert_eq!(ends, [100, 200, 300]);
    })
    .await;
}

async fn a_crowd_is_joined_once<H: Host>(handle: Handle<H>) {
    let mut set = JoinSet::new(&handle);
    let count = H::CROWD.min(400);
    for number in 0..count {
        set.spawn((), async move { number });
    }
    assert_eq!(set.len(), count);
    let mut numbers = set.join_all().await.expect("no task panics");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
}

/// Counts drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn a_set_that_is_dropped_aborts_its_tasks<H: Host>(handle: Handle<H>) {
    let drops = Arc::<AtomicUsize>::default();
    let mut set = JoinSet::new(&handle);
    let mut aborts = Vec::new();
    for _ in 0..5 {
        let counted = Counted(drops.clone());
        aborts.push(set.spawn((), async move {
            std::future::pending::<()>().await;
            drop(counted);
        }));
    }
    drop(set);
    for abort in aborts {
        while !abort.is_finished() {
            handle.sleep(Span::from_micros(20)).await;
        }
    }
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

async fn a_panic_ends_join_all<H: Host>(handle: Handle<H>) {
    let mut set = JoinSet::new(&handle);
    let waits = set.spawn((), std::future::pending::<()>());
    set.spawn((), async { std::panic::resume_unwind(Box::new("the task's")) });
    let error = set.join_all().await.expect_err("a task panics");
    assert!(error.is_panic());
    while !waits.is_finished() {
        handle.sleep(Span::from_micros(20)).await;
    }
}

async fn a_bound_task_ends_with_its_handle<H: Host>(handle: Handle<H>) {
    let bound = handle.spawn((), async { 1 }).abort_on_drop();
    assert_eq!(bound.await.expect("it ends"), 1);
    let bound = handle.spawn((), std::future::pending::<()>()).abort_on_drop();
    let task = bound.detach();
    assert!(!task.is_finished(), "a detached task goes on");
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_aborted());
}

async fn a_local_task_stays<H: Host>(handle: Handle<H>) {
    let last = CpuId(handle.topology().cpus() as u32 - 1);
    let me = handle.clone();
    let task = handle.spawn_on(last, (), move || async move {
        let shared = Rc::new(Cell::new(0));
        for _ in 0..5 {
            assert_eq!(H::current_cpu(), last);
            let other = shared.clone();
            me.yield_now().await;
            other.set(other.get() + 1);
        }
        shared.get()
    });
    assert_eq!(joined(task).await, 5);
}

async fn ticks_are_equally_far_apart<H: Host>(handle: Handle<H>) {
    let period = Span::from_micros(100);
    let mut ticks = handle.interval(period).on_missed(MissedTicks::Burst);
    let first = ticks.tick().await;
    for number in 1..5 {
        let due = ticks.tick().await;
        assert_eq!(due, first + Span::from_micros(100 * number));
        assert!(handle.now() >= due);
    }
    ticks.reset();
    let due = ticks.tick().await;
    assert!(due > first + Span::from_micros(400));
}
