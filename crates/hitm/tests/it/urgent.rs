//! An urgent task does not wait for one CPU: the first CPU that can leave something less urgent
//! takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hitm::{Handle, Span};

use crate::host::Host;
use crate::stage::{joined, on_cpu};

/// How long a CPU stays in one poll, at most.
fn most<H: Host>() -> Span {
    // A thread of a busy machine may wait for its CPU for long.
    Span::from_micros(if H::TIMED { 5_000 } else { 20_000_000 })
}

/// A flag that tasks of both hosts share.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set<H: Host>(&self) {
        H::settle();
        // Release: as an event. Pairs with `is_set`.
        self.0.store(true, Ordering::Release);
    }

    fn is_set<H: Host>(&self) -> bool {
        H::settle();
        // Acquire: pairs with `set`.
        self.0.load(Ordering::Acquire)
    }
}

/// The first CPU is inside a poll without a checkpoint, as if the operating system had preempted
/// its thread. An urgent task is woken that ran there last. The other CPU computes.
/// Returns whether it has run by the end of that poll.
async fn another_cpu_takes_it<H: Host>(handle: Handle<H>) -> bool {
    let (ready, ran) = (Flag::default(), Flag::default());
    let (computes, over) = (handle.clone(), ran.clone());
    let other = handle.spawn(on_cpu(1, 10), async move {
        while !over.is_set::<H>() {
            computes.compute(Span::from_micros(20)).await;
        }
    });
    let (waits, is_ready, runs) = (handle.clone(), ready.clone(), ran.clone());
    let urgent = handle.spawn(on_cpu(0, 50), async move {
        waits.set_cpus(&waits.topology().cpu_ids().collect());
        is_ready.set::<H>();
        waits.park().await;
        runs.set::<H>();
    });
    while !ready.is_set::<H>() {
        handle.sleep(Span::from_micros(50)).await;
    }
    let (clock, has_run, urgent) = (handle.clone(), ran.clone(), Arc::new(urgent));
    let wakes = urgent.clone();
    let blocked = handle.spawn(on_cpu(0, 10), async move {
        let begin = clock.now();
        wakes.unpark();
        while !has_run.is_set::<H>() && clock.now().since(begin) < most::<H>() {
            H::compute(Span::from_micros(10));
        }
        has_run.is_set::<H>()
    });
    let is_taken = joined(blocked).await;
    joined(other).await;
    drop(urgent);
    is_taken
}

#[test]
fn natively_another_cpu_takes_it() {
    crate::host::native_with(2, "shipped", |handle| async {
        assert!(another_cpu_takes_it(handle).await, "it waits for a CPU that does not leave its poll");
    });
}

#[cfg(not(miri))]
#[test]
fn on_a_simulated_machine_another_cpu_takes_it() {
    use crate::host::{Setup, simulate};

    // Without it, the task waits for the CPU that it was given to.
    for takes in [true, false] {
        let setup = Setup { mitigation: "shipped", keeps_wakeups: takes, ..Setup::of("core:2 pu:1") };
        assert_eq!(simulate(setup, another_cpu_takes_it).result, takes);
    }
}
