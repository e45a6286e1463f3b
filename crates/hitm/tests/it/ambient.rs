//! What belongs to threads, so natively only: the runtime of a thread, values of tasks, scopes,
//! blocking, the builder's hooks, panics and metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use hitm::{CpuId, CpuSet, Handle, NativeRuntime, PanicPolicy, Priority, Span, SpawnOptions, task_local};

fn runtime(cpus: usize) -> NativeRuntime {
    NativeRuntime::with_cpus(cpus).expect("threads")
}

#[test]
fn a_thread_has_the_runtime_that_it_entered() {
    let (one, two) = (runtime(1), runtime(2));
    let cpus = || Handle::try_current().map(|handle| handle.topology().cpus());
    assert_eq!(cpus(), None);
    let outer = one.handle().enter();
    assert_eq!(cpus(), Some(1));
    let inner = two.handle().enter();
    assert_eq!(cpus(), Some(2));
    drop(inner);
    assert_eq!(cpus(), Some(1));
    drop(outer);
    assert_eq!(cpus(), None);
    let inside = one.block_on(two.handle().spawn((), async move { cpus() }));
    assert_eq!(inside.expect("it ends"), Some(2), "a task has its own runtime");
}

#[test]
fn a_blocked_thread_borrows_and_sleeps() {
    let runtime = runtime(1);
    let (local, mut sum) = (Rc::new(1), 0);
    let start = Instant::now();
    runtime.block_on(async {
        hitm::sleep(Duration::from_millis(2)).await;
        hitm::yield_now().await;
        hitm::checkpoint().await;
        sum += *local;
        let late = hitm::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        assert!(late.is_err());
        assert_eq!(hitm::timeout_at(Instant::now(), async { 7 }).await, Ok(7), "a ready future wins");
    });
    assert_eq!(sum, 1);
    assert!(start.elapsed() >= Duration::from_millis(3));
}

/// Spawns a task on the first worker whose one poll lasts until `ends` is set, or for 10 s, and
/// returns when the poll is under way. The task returns whether `ends` was set in time.
fn one_long_poll(runtime: &NativeRuntime, ends: &Arc<AtomicBool>) -> hitm::Task<bool> {
    let (begun, begins) = std::sync::mpsc::channel();
    let ends = ends.clone();
    let options = SpawnOptions::default().on(CpuSet::from_iter([CpuId(0)]));
    let task = runtime.handle().spawn(options, async move {
        begun.send(()).expect("the test waits");
        let start = Instant::now();
        while !ends.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        ends.load(Ordering::Relaxed)
    });
    begins.recv().expect("it begins");
    task
}

#[test]
fn a_sleep_outside_tasks_waits_for_no_poll() {
    // The other worker idles, or runs tasks in short polls.
    for is_busy in [false, true] {
        let (runtime, ended) = (runtime(2), Arc::<AtomicBool>::default());
        let blocks = one_long_poll(&runtime, &ended);
        let over = ended.clone();
        let busy = is_busy.then(|| {
            runtime.handle().spawn(SpawnOptions::default().on(CpuSet::from_iter([CpuId(1)])), async move {
                while !over.load(Ordering::Relaxed) {
                    hitm::yield_now().await;
                }
            })
        });
        runtime.block_on(async {
            // One begins while all workers are busy, the other one after a wait.
            for _ in 0..2 {
                hitm::sleep(Duration::from_millis(5)).await;
            }
            assert!(hitm::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_err());
            ended.store(true, Ordering::Relaxed);
            assert!(blocks.await.expect("it ends"), "a sleep lasted as long as the poll (busy: {is_busy})");
            if let Some(busy) = busy {
                busy.await.expect("it ends");
            }
        });
    }
}

#[test]
fn a_sleep_can_begin_again_and_a_timeout_begins_with_its_call() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let (start, hour) = (hitm::now(), Duration::from_secs(3_600));
        let mut sleep = hitm::sleep(hour);
        for millis in [1, 2] {
            // Polled, so that it is in the queue of its CPU with another deadline.
            assert!(futures_lite::future::poll_once(&mut sleep).await.is_none());
            sleep.reset(start + Duration::from_millis(millis));
            assert_eq!(sleep.deadline(), start + Duration::from_millis(millis));
            (&mut sleep).await;
            assert!(hitm::now() >= sleep.deadline());
            sleep.reset(start + hour);
        }
        let (mut late, past) = (std::pin::pin!(hitm::timeout(hour, async {})), Instant::now());
        assert_eq!(late.as_mut().await, Ok(()));
        let late = hitm::timeout(Duration::from_millis(2), std::future::pending::<()>());
        std::thread::sleep(Duration::from_millis(3));
        assert!(futures_lite::future::poll_once(std::pin::pin!(late)).await.is_some(), "its time has passed");
        let mut ticks = hitm::interval_at(past, Duration::from_millis(1));
        let first = ticks.tick().await;
        assert!(hitm::now().since(first) >= Span::from_micros(3_000), "it keeps its phase");
        let second = std::future::poll_fn(|context| ticks.poll_tick(context)).await;
        assert_eq!(Duration::from(second.since(first)), Duration::from_millis(1));
    });
}

#[test]
fn what_belongs_to_another_runtime_is_refused() {
    let (own, other) = (runtime(1), runtime(1));
    let [handle, foreign] = [own.handle(), other.handle()];
    let task = foreign.spawn((), std::future::pending::<()>());
    // It has the number that a task of `own` has, and would change that one.
    let same_number = handle.spawn(Priority::fifo(3), std::future::pending::<()>());
    assert_eq!(task.id(), same_number.id());
    let before = handle.diagnostics().priority_of(same_number.id());
    let (group, tenant) = (foreign.group("theirs"), foreign.tenant());
    let spawns = SpawnOptions { tenant: Some(tenant), ..SpawnOptions::default() };
    let refusal = |f: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it is refused");
        payload.downcast_ref::<String>().cloned().or_else(|| payload.downcast_ref().map(|text: &&str| text.to_string()))
    };
    let refusals = [
        refusal(&|| handle.set_priority_of(&task, Priority::fifo(9))),
        refusal(&|| handle.set_cpus_of(&task, &CpuSet::from_iter([CpuId(0)]))),
        refusal(&|| handle.set_deadline_of(&task, None)),
        refusal(&|| handle.set_group_of(&task, None)),
        refusal(&|| handle.set_group_of(&same_number, Some(&group))),
        refusal(&|| drop(handle.spawn(SpawnOptions::default().within(&group), async {}))),
        refusal(&|| drop(handle.spawn(spawns.clone(), async {}))),
        refusal(&|| handle.set_online(CpuId(7))),
    ];
    let [task_text, group_text] =
        ["the task", "the group `theirs`"].map(|what| format!("{what} belongs to another runtime"));
    let expected = [
        &task_text,
        &task_text,
        &task_text,
        &task_text,
        &group_text,
        &group_text,
        "the tenant belongs to another runtime",
        "CPU 7 of a machine that has the CPUs 0 to 0",
    ];
    assert_eq!(refusals.map(Option::unwrap_or_default), expected);
    assert_eq!(handle.diagnostics().priority_of(same_number.id()), before);
}

#[test]
fn a_child_is_where_its_spawner_is_now() {
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let (spawned_in, moved_to) = (handle.group("spawned in"), handle.group("moved to"));
    let (one, both) = ([CpuId(1)], [CpuId(0), CpuId(1)]);
    let task = handle.spawn(SpawnOptions::default().within(&spawned_in).on(one.into_iter().collect()), async move {
        let handle = Handle::current();
        let child = || {
            let SpawnOptions { group, cpus, .. } = SpawnOptions::inherited(&handle);
            (group.map(|group| group.name().to_owned()), cpus.map(|cpus| cpus.iter().collect::<Vec<_>>()))
        };
        let mut seen = vec![child()];
        handle.set_cpus(&both.into_iter().collect());
        handle.set_group(Some(&moved_to));
        seen.push(child());
        // The task alone keeps it now.
        drop(moved_to);
        seen.push(child());
        let grandchild = hitm::spawn(async { SpawnOptions::inherited(&Handle::current()).group });
        seen.push((grandchild.await.expect("it ends").map(|group| group.name().to_owned()), None));
        handle.set_group(None);
        seen.push(child());
        seen
    });
    let seen = runtime.block_on(task).expect("it ends");
    let moved = || (Some("moved to".to_owned()), None);
    let spawned = (Some("spawned in".to_owned()), Some(one.to_vec()));
    assert_eq!(seen, [spawned, moved(), moved(), moved(), (None, None)]);
    drop(spawned_in);
    // The last task is released after it has been joined.
    drop(runtime);
    let groups = handle.diagnostics().snapshot().groups;
    assert!(groups.iter().all(|group| !group.lives), "each hold is given back");
}

#[test]
fn a_hook_that_panics_ends_the_runtime() {
    let panics = |cpu: CpuId| assert!(cpu != CpuId(1), "the hook of {cpu}");
    let runtime = NativeRuntime::builder().cpus(2).on_thread_start(panics).build().expect("threads");
    let options = SpawnOptions::default().on(CpuSet::from_iter([CpuId(1)]));
    let task = runtime.handle().spawn(options, async {});
    assert!(runtime.block_on(task).expect_err("no thread runs it").is_aborted());
    let payload = catch_unwind(AssertUnwindSafe(|| drop(runtime))).expect_err("the hook's panic");
    assert_eq!(payload.downcast_ref(), Some(&"the hook of 1".to_owned()));
}

#[test]
fn a_task_inherits_priority_group_and_deadline() {
    let runtime = runtime(2);
    let group = runtime.handle().group("batch");
    let options = SpawnOptions::from(Priority::fair(5)).within(&group).named("parent");
    let task = runtime.handle().spawn(options, async {
        let inherited = SpawnOptions::inherited(&Handle::current());
        let child = hitm::spawn(async { SpawnOptions::inherited(&Handle::current()) }).await.expect("it ends");
        (hitm::task_name(), inherited, child)
    });
    let (name, parent, child) = runtime.block_on(task).expect("it ends");
    assert_eq!(name.as_deref(), Some("parent"));
    for options in [parent, child] {
        assert_eq!(options.priority, Priority::fair(5));
        assert_eq!(options.group.expect("a group").id(), group.id());
        assert_eq!(options.name, None, "a name is one task's");
    }
    let requests = runtime.handle().deadline_group("requests");
    let deadline = runtime.handle().now() + Duration::from_secs(3_600);
    let options = SpawnOptions::from(Priority::fair(0)).within(&requests).due(deadline);
    let child = runtime.handle().spawn(options, async { hitm::spawn(async { Handle::current().deadline() }).await });
    assert_eq!(runtime.block_on(child).expect("it ends").expect("it ends"), Some(deadline));
    let entered = runtime.handle().enter();
    assert_eq!(SpawnOptions::inherited(runtime.handle()).priority, Priority::default());
    assert_eq!(hitm::task_name(), None);
    drop(entered);
}

task_local! {
    static REQUEST: usize;
}

#[test]
fn a_value_follows_its_task() {
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let inside = async move {
                for _ in 0..10 {
                    assert_eq!(REQUEST.with(|request| *request), number);
                    REQUEST.scope(number + 100, async { assert_eq!(REQUEST.with(|own| *own), number + 100) }).await;
                    hitm::yield_now().await;
                }
            };
            runtime.handle().spawn((), REQUEST.scope(number, inside))
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no assertion fails");
        }
    });
}

#[test]
fn a_value_is_there_when_its_future_is_dropped() {
    struct Look(Arc<Mutex<Option<usize>>>);
    impl Drop for Look {
        fn drop(&mut self) {
            *self.0.lock().expect("no holder panics") = REQUEST.try_with(|request| *request);
        }
    }
    let seen = Arc::new(Mutex::new(None));
    let look = Look(seen.clone());
    drop(REQUEST.scope(3, async move {
        let _look = look;
        std::future::pending::<()>().await;
    }));
    assert_eq!(*seen.lock().expect("no holder panics"), Some(3));
    assert_eq!(REQUEST.try_with(|_| ()), None);
}

#[test]
fn a_scope_waits_for_tasks_that_borrow() {
    let runtime = runtime(2);
    let sum = AtomicUsize::new(0);
    let add = |number: usize| sum.fetch_add(number, Ordering::Relaxed);
    let add = &add;
    let returned = runtime.handle().scope(|scope| {
        for number in 1..=4 {
            let outer = scope.spawn((), async move {
                hitm::sleep(Duration::from_millis(1)).await;
                // A task of the scope spawns another one.
                let inner = scope.spawn((), async move { add(number) });
                inner.await.expect("it ends");
                number
            });
            if number == 4 {
                outer.abort();
            }
        }
        "returned"
    });
    assert_eq!(returned, "returned");
    assert_eq!(sum.load(Ordering::Relaxed), 6, "all but the aborted task have run");
}

#[test]
fn a_scope_waits_when_its_closure_panics() {
    let runtime = runtime(1);
    let ended = AtomicUsize::new(0);
    let scope = || {
        runtime.handle().scope(|scope| {
            scope.spawn((), async {
                hitm::sleep(Duration::from_millis(2)).await;
                ended.fetch_add(1, Ordering::Relaxed);
            });
            let panics = scope.spawn((), async { std::panic::resume_unwind(Box::new(())) });
            let result: Result<(), _> = runtime.block_on(panics);
            assert!(result.expect_err("the task panics").is_panic());
            std::panic::resume_unwind(Box::new("the closure's"));
        });
    };
    let payload = catch_unwind(AssertUnwindSafe(scope)).expect_err("the closure panics");
    assert_eq!(payload.downcast_ref(), Some(&"the closure's"));
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

#[test]
fn threads_have_names_stacks_and_hooks() {
    let (starts, stops) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (start, stop) = (starts.clone(), stops.clone());
    let runtime = NativeRuntime::builder()
        .cpus(2)
        .thread_name(|cpu| format!("own-{cpu}"))
        .stack_size(8 << 20)
        .spin(Duration::ZERO)
        .on_thread_start(move |_| _ = start.fetch_add(1, Ordering::Relaxed))
        .on_thread_stop(move |_| _ = stop.fetch_add(1, Ordering::Relaxed))
        .build()
        .expect("threads");
    let task = runtime.handle().spawn_on(CpuId(1), (), || async {
        // More than the default stack has.
        let large = std::hint::black_box([0_u8; 4 << 20]);
        (std::thread::current().name().map(str::to_owned), large[large.len() - 1])
    });
    let (name, zero) = runtime.block_on(task).expect("it ends");
    assert_eq!((name.as_deref(), zero), (Some("own-1"), 0));
    drop(runtime);
    assert_eq!((starts.load(Ordering::Relaxed), stops.load(Ordering::Relaxed)), (2, 2));
}

#[test]
fn a_panic_shuts_the_runtime_down_if_it_is_asked_to() {
    for (policy, goes_on) in [(PanicPolicy::Continue, true), (PanicPolicy::Shutdown, false)] {
        let runtime = NativeRuntime::builder().cpus(1).on_panic(policy).build().expect("a thread");
        let waits = runtime.handle().spawn((), std::future::pending::<()>());
        let panics = runtime.handle().spawn((), async { std::panic::resume_unwind(Box::new(())) });
        let result: Result<(), _> = runtime.block_on(panics);
        assert!(result.expect_err("it panics").is_panic());
        if goes_on {
            assert!(!waits.is_finished());
        } else {
            assert!(runtime.block_on(waits).expect_err("the runtime shuts down").is_aborted());
        }
    }
}

#[test]
fn metrics_count_by_class() {
    let slow = Arc::new(Mutex::new(Vec::new()));
    let report = slow.clone();
    let runtime = NativeRuntime::builder()
        .cpus(1)
        .slow_polls(Duration::from_millis(5), move |poll| {
            report.lock().expect("no holder panics").push(poll.to_string());
        })
        .build()
        .expect("a thread");
    let handle = runtime.handle().clone();
    let group = handle.group("a \"batch\"");
    for (priority, polls) in [(Priority::fifo(9), 3), (Priority::fair(0), 5)] {
        let options = SpawnOptions::from(priority).named("polled").within(&group);
        let task = handle.spawn(options, async move {
            for _ in 1..polls {
                hitm::yield_now().await;
            }
        });
        runtime.block_on(task).expect("it ends");
    }
    let blocks = SpawnOptions::default().named("blocks");
    runtime.block_on(handle.spawn(blocks, async { std::thread::sleep(Duration::from_millis(6)) })).expect("it ends");
    // The last poll is counted after its task has been joined.
    drop(runtime);
    let metrics = handle.metrics().expect("they are on");
    let counts: Vec<_> =
        metrics.classes.iter().map(|class| (class.wakeups.count(), class.polls.count(), class.queued)).collect();
    assert_eq!(counts, [(1, 3, 0), (1, 1, 0), (1, 5, 0)]);
    assert!(metrics.classes[1].polls.quantile(1.0) >= Some(8_192), "{metrics:?}");
    assert_eq!((metrics.slow_polls, metrics.panics), (1, 0));
    let slow = slow.lock().expect("no holder panics");
    assert!(slow.len() == 1 && slow[0].starts_with("task `blocks` ("), "{slow:?}");
    let page = metrics.to_string();
    assert!(page.contains("hitm_group_throttled_total{group=\"a \\\"batch\\\"\"} 0\n"), "{page}");
    assert!(page.contains("hitm_wakeup_seconds_bucket{class=\"fair\",le=\"+Inf\"} 1\n"), "{page}");
    assert_eq!(runtime_without().metrics(), None);
}

fn runtime_without() -> Handle {
    runtime(1).handle().clone()
}

#[hitm::test(cpus = 2)]
async fn an_attribute_makes_a_runtime() -> Result<(), hitm::JoinError> {
    assert_eq!(Handle::current().topology().cpus(), 2);
    let local = Rc::new(1);
    assert_eq!(hitm::spawn(async { 1 }).await? + *local, 2);
    Ok(())
}

/// What a future does may park the thread too, and take the token of a wakeup that came meanwhile.
#[test]
fn a_wakeup_is_not_lost_to_what_parks_the_thread() {
    let runtime = NativeRuntime::with_cpus(1).expect("a runtime");
    let task = runtime.handle().spawn((), async { 1 });
    let woken = runtime.block_on(async {
        let mut is_first = true;
        std::future::poll_fn(|context| {
            if !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            // It is woken, and parks: the thread's token is gone.
            context.waker().wake_by_ref();
            std::thread::park();
            Poll::Pending
        })
        .await;
        task.await.expect("it ends")
    });
    assert_eq!(woken, 1);
}
