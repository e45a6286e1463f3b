//! Tests of joins and scopes with helpers that are plain threads, which Miri can run too. Those on
//! a runtime are in `tests/it/fork_join.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::*;

/// Counts calls for helpers; the tests have theirs already.
#[derive(Default)]
struct Counts {
    helpers: AtomicU32,
}

impl Crew for Counts {
    fn call_helper(&self) {
        // Relaxed: a count.
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    fn look_around(&self) {}
}

/// Runs `f` as a participant while another thread helps all the time. Returns the number of jobs
/// that the other thread ran.
fn with_another(f: impl FnOnce(&Participant<'_>)) -> u32 {
    let computation = Computation::new(2, 1);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let other = threads.spawn(|| {
            let mut jobs = 0;
            assert!(computation.helpers.come(0));
            // Relaxed: nothing else is read after.
            while !stop.load(Ordering::Relaxed) {
                jobs += u32::from(computation.help(&Counts::default()));
                thread::yield_now();
            }
            computation.helpers.go();
            jobs
        });
        /// Ends the other thread, also when `f` panics.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                // Relaxed: nothing else is published.
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stop = Stop(&stop);
        participate(&computation, &Counts::default(), f);
        drop(stop);
        other.join().expect("it does not panic")
    })
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (one, other) = join(|| fib(n - 1), || fib(n - 2));
    one + other
}

#[test]
fn a_recursion_computes_the_same_on_two_threads() {
    let n = if cfg!(miri) { 6 } else { 18 };
    let alone = fib(n);
    with_another(|_| assert_eq!(fib(n), alone));
}

/// Waits until `flag` is set.
fn wait_for(flag: &AtomicBool) {
    // Acquire: pairs with the Release of the tests.
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

#[test]
fn a_stolen_closure_returns_its_value_and_its_panic() {
    let stolen = with_another(|_| {
        let begun = AtomicBool::new(false);
        let set = || begun.store(true, Ordering::Release);
        let (one, other) = join(
            || {
                wait_for(&begun);
                Box::new(1)
            },
            || {
                set();
                vec![2]
            },
        );
        assert_eq!((*one, &*other), (1, &[2][..]));
        let begun = AtomicBool::new(false);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            join(
                || wait_for(&begun),
                || {
                    // Release: pairs with the Acquire in `wait_for`.
                    begun.store(true, Ordering::Release);
                    panic!("the second")
                },
            )
        }));
        let payload = panicked.expect_err("it goes on in the caller");
        assert_eq!(payload.downcast_ref(), Some(&"the second"));
    });
    assert_eq!(stolen, 2);
}

#[test]
fn a_waiter_that_sleeps_is_woken() {
    with_another(|_| {
        let begun = AtomicBool::new(false);
        let (one, other) = join(
            || wait_for(&begun),
            || {
                // Release: pairs with the Acquire in `wait_for`.
                begun.store(true, Ordering::Release);
                thread::sleep(std::time::Duration::from_millis(20));
                7
            },
        );
        assert_eq!((one, other), ((), 7));
    });
}

#[test]
fn a_closure_that_is_not_stolen_is_dropped_after_a_panic() {
    let token = Arc::new(());
    let held = token.clone();
    let computation = Computation::new(1, 0);
    participate(&computation, &Counts::default(), |_| {
        let first = || panic!("the first");
        let panicked = catch_unwind(AssertUnwindSafe(|| join(first, move || drop(held))));
        assert_eq!(panicked.expect_err("it goes on").downcast_ref(), Some(&"the first"));
    });
    assert_eq!(Arc::strong_count(&token), 1);
    assert!(computation.helpers.renew(0) || !computation.has_jobs());
}

#[test]
fn a_scope_waits_for_closures_of_closures() {
    let mut squares = [0_u32; 8];
    with_another(|_| {
        scope(|scope| {
            let (left, right) = squares.split_at_mut(4);
            for (at, half) in [left, right].into_iter().enumerate() {
                scope.spawn(move |scope| {
                    for (place, n) in half.iter_mut().zip(4 * at as u32..) {
                        scope.spawn(move |_| *place = n * n);
                    }
                });
            }
        });
    });
    assert_eq!(squares, [0, 1, 4, 9, 16, 25, 36, 49]);
}

#[test]
fn a_scope_goes_on_with_the_first_panic_after_all_have_ended() {
    let ended = AtomicU32::new(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        with_another(|_| {
            scope(|scope| {
                scope.spawn(|_| panic!("spawned"));
                // Relaxed: the scope publishes it.
                (0..4).for_each(|_| scope.spawn(|_| _ = ended.fetch_add(1, Ordering::Relaxed)));
            });
        });
    }));
    assert_eq!(panicked.expect_err("it goes on").downcast_ref(), Some(&"spawned"));
    // Relaxed: as above.
    assert_eq!(ended.load(Ordering::Relaxed), 4);
}

#[test]
fn a_helper_is_called_once_until_it_is_counted_out() {
    let computation = Computation::new(2, 1);
    let counts = Counts::default();
    participate(&computation, &counts, |_| {
        fib(5);
        // Relaxed: a count.
        assert_eq!(counts.helpers.load(Ordering::Relaxed), 1);
        computation.helpers.go();
        fib(5);
        // Relaxed: a count.
        assert_eq!(counts.helpers.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn no_more_helpers_are_called_than_there_may_be() {
    let computation = Computation::new(4, 2);
    let counts = Counts::default();
    let calls = || {
        fib(5);
        // Relaxed: a count.
        counts.helpers.load(Ordering::Relaxed)
    };
    participate(&computation, &counts, |_| {
        assert_eq!(calls(), 1, "it searches");
        computation.helpers.find();
        assert_eq!(calls(), 2, "the first one has found a job");
        computation.helpers.find();
        assert_eq!(calls(), 2, "there are two");
        computation.helpers.search();
        computation.helpers.go();
        assert_eq!(calls(), 3, "one has gone");
    });
    assert!(!computation.helpers.renew(0), "there are helpers");
    computation.helpers.go();
    computation.helpers.search();
    computation.helpers.go();
    assert!(computation.helpers.renew(0));
    participate(&computation, &counts, |_| assert_eq!(calls(), 3, "there may be none"));
}

#[test]
fn without_a_runtime_closures_run_here() {
    assert_eq!(fib(7), 13);
    let mut ran = false;
    scope(|scope| scope.spawn(|_| ran = true));
    assert!(ran);
}
