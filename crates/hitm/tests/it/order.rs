//! The order in which tasks run on one CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hitm::{Handle, Priority, Span};

use crate::host::Host;
use crate::stage::{Diary, Gate, HIGH, LOW, SAME, joined, on_first_cpu, pinned, until_it_waits};

every_host!(
    equals_run_in_the_order_in_which_they_came,
    equals_run_in_the_order_in_which_they_were_woken,
    the_more_urgent_run_first,
    yielding_lets_equals_go_first,
    yielding_does_not_let_the_less_urgent_go_first,
    a_task_runs_until_it_waits,
    a_preempted_task_goes_on_before_its_equals,
);

async fn equals_run_in_the_order_in_which_they_came<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let task = |n: u32| {
            let diary = diary.clone();
            handle.spawn(pinned(LOW), async move { diary.note(n) })
        };
        let tasks: Vec<_> = (0..20).map(task).collect();
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(diary.take(), (0..20).collect::<Vec<_>>());
    })
    .await;
}

async fn equals_run_in_the_order_in_which_they_were_woken<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let mut tasks = Vec::new();
        for n in 0..10_u32 {
            let (diary, me) = (diary.clone(), handle.clone());
            let task = until_it_waits(&handle, async move {
                me.park().await;
                diary.note(n);
            });
            tasks.push(Some(task.await));
        }
        let order = [3, 1, 4, 5, 9, 2, 6, 8, 7, 0];
        for n in order {
            tasks[n].as_ref().expect("a task").unpark();
        }
        assert!(diary.take().is_empty(), "none runs before this task makes way");
        handle.checkpoint().await;
        assert_eq!(diary.take(), order.map(|n| n as u32));
    })
    .await;
}

async fn the_more_urgent_run_first<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let task = |n: u8| {
            let (diary, priority) = (diary.clone(), n * 7 % 19 + 1);
            handle.spawn(pinned(priority), async move { diary.note(priority) })
        };
        let tasks: Vec<_> = (0..19).map(task).collect();
        for task in tasks {
            joined(task).await;
        }
        assert_eq!(diary.take(), (1..=19).rev().collect::<Vec<_>>());
    })
    .await;
}

async fn yielding_lets_equals_go_first<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let task = |name: char| {
            let (diary, me) = (diary.clone(), handle.clone());
            handle.spawn(pinned(LOW), async move {
                for round in 0..3 {
                    diary.note((name, round));
                    me.yield_now().await;
                }
            })
        };
        for task in ['a', 'b', 'c'].map(task) {
            joined(task).await;
        }
        let expect = (0..3).flat_map(|round| ['a', 'b', 'c'].map(|name| (name, round)));
        assert_eq!(diary.take(), expect.collect::<Vec<_>>());
    })
    .await;
}

async fn yielding_does_not_let_the_less_urgent_go_first<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let notes = diary.clone();
        let task = handle.spawn(pinned(LOW), async move { notes.note(()) });
        for _ in 0..10 {
            handle.yield_now().await;
        }
        assert!(diary.take().is_empty());
        joined(task).await;
    })
    .await;
}

async fn a_task_runs_until_it_waits<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let notes = diary.clone();
        let task = handle.spawn(pinned(SAME), async move { notes.note(()) });
        for _ in 0..10 {
            handle.checkpoint().await;
            handle.compute(Span::from_micros(20)).await;
        }
        assert!(diary.take().is_empty(), "a task of the same priority preempts none");
        joined(task).await;
    })
    .await;
}

async fn a_preempted_task_goes_on_before_its_equals<H: Host>(handle: Handle<H>) {
    let diary = Diary::new();
    let notes = diary.clone();
    on_first_cpu(&handle, |handle| async move {
        let urgent_ran = Arc::new(AtomicBool::new(false));
        let begun = Gate::new(&handle);
        let (a, b, c) = (notes.clone(), notes.clone(), notes);
        let (seen, begins, me) = (urgent_ran.clone(), begun.clone(), handle.clone());
        let first = handle.spawn(pinned(LOW), async move {
            begins.open();
            // Relaxed: there is one CPU.
            while !seen.load(Ordering::Relaxed) {
                me.compute(Span::from_micros(20)).await;
            }
            a.note("first");
        });
        let second = handle.spawn(pinned(LOW), async move { b.note("second") });
        let me = handle.clone();
        let urgent = handle.spawn(pinned(HIGH), async move {
            begun.pass().await;
            me.sleep(Span::from_micros(100)).await;
            c.note("urgent");
            // Relaxed: as above.
            urgent_ran.store(true, Ordering::Relaxed);
        });
        handle.set_priority(Priority::fifo(1));
        joined(urgent).await;
        joined(first).await;
        joined(second).await;
    })
    .await;
    assert_eq!(diary.take(), ["urgent", "first", "second"]);
}
