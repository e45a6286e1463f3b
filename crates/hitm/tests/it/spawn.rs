//! Spawning: values, nesting, detached tasks, options.

use std::pin::pin;

use hitm::{CpuSet, Handle, JoinHandle, Priority, SpawnOptions};
use hitm_topology::CpuId;

use crate::host::{Host, message};
use crate::ledger::Ledger;
use crate::stage::{Gate, joined};

every_host!(
    values_come_back,
    nested_to_depth,
    nested_in_breadth,
    a_dropped_handle_lets_the_task_go_on,
    results_that_nobody_takes_are_dropped,
    a_task_knows_its_number,
    a_future_stays_where_it_was_polled,
    options_that_make_no_sense_are_refused,
    a_task_too_many_is_refused,
);

async fn values_come_back<H: Host>(handle: Handle<H>) {
    let tasks: Vec<_> = (0..100).map(|n: u64| handle.spawn((), async move { n * n })).collect();
    let mut sum = 0;
    for task in tasks {
        sum += task.await.expect("a value");
    }
    assert_eq!(sum, 328_350);
}

fn descend<H: Host>(handle: Handle<H>, depth: usize) -> JoinHandle<H, usize> {
    handle.clone().spawn((), async move { if depth == 0 { 0 } else { joined(descend(handle, depth - 1)).await + 1 } })
}

async fn nested_to_depth<H: Host>(handle: Handle<H>) {
    assert_eq!(joined(descend(handle, 100)).await, 100);
}

fn spread<H: Host>(handle: Handle<H>, depth: usize) -> JoinHandle<H, usize> {
    handle.clone().spawn(Priority::fifo(5), async move {
        let children: Vec<_> = (0..4).take_while(|_| depth > 0).map(|_| spread(handle.clone(), depth - 1)).collect();
        let mut tasks = 1;
        for child in children {
            tasks += joined(child).await;
        }
        tasks
    })
}

async fn nested_in_breadth<H: Host>(handle: Handle<H>) {
    assert_eq!(joined(spread(handle, 4)).await, 1 + 4 + 16 + 64 + 256);
}

async fn a_dropped_handle_lets_the_task_go_on<H: Host>(handle: Handle<H>) {
    let (begun, done) = (Gate::new(&handle), Gate::new(&handle));
    let (early, late) = (begun.clone(), done.clone());
    let clock = handle.clone();
    drop(handle.spawn((), async move {
        early.pass().await;
        clock.yield_now().await;
        late.open();
    }));
    begun.open();
    done.pass().await;
}

async fn results_that_nobody_takes_are_dropped<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    // Dropped before the task has begun, after it has ended, and at a time in between.
    for round in 0..20 {
        let (inner, value) = (ledger.token(), ledger.token());
        let task = handle.spawn((), async move {
            let _inner = inner;
            value
        });
        match round % 3 {
            0 => drop(task),
            1 => {
                while !task.is_finished() {
                    handle.yield_now().await;
                }
                let (made, dropped) = ledger.counts();
                drop(task);
                let (_, now) = ledger.counts();
                assert!(now > dropped, "of {made}, {dropped} and then {now} were dropped");
            }
            _ => {
                handle.yield_now().await;
                drop(task);
            }
        }
    }
    ledger
}

async fn a_task_knows_its_number<H: Host>(handle: Handle<H>) {
    let me = handle.clone();
    let gate = Gate::new(&handle);
    let held = gate.clone();
    let task = handle.spawn((), async move {
        held.pass().await;
        let first = me.task_id();
        me.yield_now().await;
        (first, me.task_id())
    });
    let id = task.id();
    gate.open();
    assert_eq!(joined(task).await, (Some(id), Some(id)));
    assert_ne!(handle.task_id(), None);
}

async fn a_future_stays_where_it_was_polled<H: Host>(handle: Handle<H>) {
    let clock = handle.clone();
    let task = handle.spawn((), async move {
        let mut pinned = pin!(0_u64);
        let first: *const u64 = &raw const *pinned;
        let first = first.addr();
        for _ in 0..5 {
            clock.yield_now().await;
            assert_eq!((&raw const *pinned).addr(), first);
            pinned.set(*pinned + 1);
        }
        *pinned
    });
    assert_eq!(joined(task).await, 5);
}

async fn a_task_too_many_is_refused<H: Host>(handle: Handle<H>) -> Ledger {
    const MOST: usize = 40;
    let ledger = Ledger::default();
    handle.diagnostics().limit_tasks(MOST);
    let spawn = || {
        let token = ledger.token();
        handle.spawn((), async move {
            let _token = token;
            std::future::pending::<()>().await;
        })
    };
    // The case itself is a task.
    let mut tasks: Vec<_> = (1..MOST).map(|_| spawn()).collect();
    for _ in 0..3 {
        let late = spawn();
        assert!(late.is_finished());
        late.abort();
        late.unpark();
        handle.set_priority_of(&late, Priority::fifo(9));
        let error = late.await.expect_err("one task too many");
        assert!(error.is_refused() && !error.is_aborted() && !error.is_panic());
        assert_eq!(error.to_string(), "the task was refused: too many tasks live");
    }
    let (made, dropped) = ledger.counts();
    assert_eq!((made - dropped, tasks.iter().filter(|task| task.is_finished()).count()), (MOST - 1, 0));
    // Each task that ends makes room for another.
    for _ in 0..H::OFTEN {
        let ends = tasks.swap_remove(0);
        ends.abort();
        assert!(ends.await.expect_err("an error").is_aborted());
        loop {
            let task = spawn();
            if !task.is_finished() {
                tasks.push(task);
                break;
            }
            // The id is freed after the joiner was woken.
            handle.yield_now().await;
        }
    }
    ledger
}

async fn options_that_make_no_sense_are_refused<H: Host>(handle: Handle<H>) {
    let beyond = CpuId(handle.topology().cpus() as u32);
    for cpus in [CpuSet::new(), CpuSet::from_iter([beyond])] {
        let inner = handle.clone();
        let task = handle.spawn((), async move {
            let options = SpawnOptions { cpus: Some(cpus), ..SpawnOptions::default() };
            inner.spawn(options, async {}).await
        });
        let payload = task.await.expect_err("a panic").into_panic().expect("a panic");
        let expect = format!("a task must be allowed on some CPU of the machine's {}", beyond.0);
        assert_eq!(message(&*payload), expect);
    }
    // CPUs that the machine does not have are ignored.
    let some = CpuSet::from_iter([CpuId(0), beyond]);
    let options = SpawnOptions { cpus: Some(some), ..SpawnOptions::default() };
    let task = handle.spawn(options, async { 1 });
    let allowed = handle.diagnostics().cpus_of(task.id());
    assert!(allowed == CpuSet::from_iter([CpuId(0)]) || task.is_finished());
    assert_eq!(joined(task).await, 1);
}
