//! Joins and scopes on the native runtime: what is stolen has the priority, the group and the name
//! of the task that began, and gives way to more urgent tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hitm::fork_join::scope;
use hitm::{Handle, NativeRuntime, Priority, SpawnOptions, join};

use crate::host::{native, native_with};

/// Longer than a thread of a busy machine waits for its CPU.
const PATIENCE: Duration = Duration::from_secs(60);

/// A flag that a closure sets for another one.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self) {
        // Release: pairs with `wait`.
        self.0.store(true, Ordering::Release);
    }

    fn wait(&self) {
        let begin = Instant::now();
        // Acquire: pairs with `set`.
        while !self.0.load(Ordering::Acquire) {
            assert!(begin.elapsed() < PATIENCE, "the other closure was not stolen");
            thread::yield_now();
        }
    }
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (one, other) = join(|| fib(n - 1), || fib(n - 2));
    one + other
}

#[test]
fn a_stolen_closure_has_the_options_of_the_task() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    let group = runtime.handle().group("batch");
    let options = SpawnOptions::from(Priority::fair(5)).within(&group).named("report");
    let task = runtime.handle().spawn(options, async {
        let begun = Flag::default();
        let own = thread::current().id();
        let (_, stolen) = join(
            || begun.wait(),
            || {
                begun.set();
                let inherited = SpawnOptions::inherited(&Handle::current());
                let is_stolen = thread::current().id() != own;
                (is_stolen, inherited.priority, inherited.group.is_some(), hitm::task_name())
            },
        );
        stolen
    });
    let (is_stolen, priority, is_in_group, name) = runtime.block_on(task).expect("it ends");
    assert!(is_stolen);
    assert_eq!((priority, is_in_group, name.as_deref()), (Priority::fair(5), true, Some("report")));
}

#[test]
fn a_worker_runs_a_more_urgent_task_before_it_steals() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    let order = Arc::new(AtomicU32::new(1));
    // Relaxed: the join and the join handle publish it.
    let next = |order: &AtomicU32| order.fetch_add(1, Ordering::Relaxed);
    let (blocks, release) = (Flag::default(), Flag::default());
    let (is_blocked, released) = (blocks.clone(), release.clone());
    let blocker = runtime.handle().spawn(Priority::fifo(50), async move {
        is_blocked.set();
        released.wait();
    });
    blocks.wait();
    let task = runtime.handle().spawn(Priority::fair(0), async move {
        let (begun, urgent_order) = (Flag::default(), order.clone());
        join(
            || {
                let urgent = hitm::spawn_with(Priority::fifo(50), async move { next(&urgent_order) });
                release.set();
                begun.wait();
                urgent
            },
            || {
                begun.set();
                next(&order)
            },
        )
    });
    let ((urgent, stolen), _) = runtime.block_on(async {
        let (urgent, stolen) = task.await.expect("it ends");
        ((urgent.await.expect("it ends"), stolen), blocker.await.expect("it ends"))
    });
    assert_eq!((urgent, stolen), (1, 2));
}

async fn many_compute_at_once(handle: Handle) {
    let priorities = [Priority::fair(0), Priority::fair(10), Priority::fifo(1), Priority::round_robin(7)];
    let group = handle.group("computes");
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let options = SpawnOptions::from(priorities[n % 4]);
            let options = if n % 3 == 0 { options.within(&group) } else { options };
            handle.spawn(options, async move {
                for _ in 0..20 {
                    assert_eq!(fib(12), 144);
                    hitm::checkpoint().await;
                    let mut places = [0; 9];
                    scope(|scope| {
                        for (place, n) in places.iter_mut().zip(1..) {
                            scope.spawn(move |_| *place = fib(n));
                        }
                    });
                    assert_eq!(places, [1, 1, 2, 3, 5, 8, 13, 21, 34]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it ends");
    }
}

#[test]
fn many_tasks_compute_at_once() {
    native(many_compute_at_once);
}

#[test]
fn a_panic_goes_on_in_the_task_and_the_runtime_lives() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    for is_first in [true, false] {
        let task = runtime.handle().spawn((), async move {
            let fail = |fails: bool| assert!(!fails, "on purpose");
            join(|| fail(is_first), || fail(!is_first))
        });
        assert!(runtime.block_on(task).expect_err("it panics").is_panic());
    }
    let task = runtime.handle().spawn((), async { fib(7) });
    assert_eq!(runtime.block_on(task).expect("it ends"), 13);
}

#[test]
fn a_thread_of_a_runtime_computes_there() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    let own = thread::current().id();
    let (ran_here, words) = runtime.block_on(async {
        let words = ["a", "bc"];
        let (one, other) = join(|| words[0].len() + words[1].len(), || thread::current().id() == own);
        (other, one)
    });
    assert_eq!((ran_here, words), (false, 3));
    let panicked = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { join(|| (), || panic!("here")) })));
    assert_eq!(panicked.expect_err("it goes on").downcast_ref(), Some(&"here"));
    assert_eq!(fib(7), 13, "without a runtime");
}

#[test]
fn a_computation_ends_while_the_runtime_shuts_down() {
    for _ in 0..50 {
        native_with(2, "shipped", |handle: Handle| async move {
            let shuts_down = handle.clone();
            let (one, ()) = join(|| fib(10), || shuts_down.shutdown());
            assert_eq!(one + fib(5), 60);
        });
    }
}
