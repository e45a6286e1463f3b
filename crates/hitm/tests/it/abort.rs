//! Aborting a task: before it has run, in every kind of wait, while it computes, by itself, and
//! after its end.

use std::sync::Arc;
use std::sync::Mutex as HostMutex;

use hitm::sync::Mutex;
use hitm::{Handle, JoinHandle, Span, SpawnOptions};
use hitm_memory::CpuSet;
use hitm_topology::CpuId;

use crate::host::Host;
use crate::ledger::Ledger;
use crate::stage::{Gate, HIGH, LOW, joined, on_cpu, on_first_cpu, pinned, until_it_waits};
use crate::waits::{WAITS, Yard};

every_host!(
    before_the_first_poll,
    in_every_kind_of_wait,
    while_it_computes,
    while_it_yields,
    from_inside,
    from_inside_without_a_wait,
    after_the_end,
    by_many_at_once,
    while_it_is_woken,
);

async fn before_the_first_poll<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let held = ledger.clone();
    on_first_cpu(&handle, |handle| async move {
        let token = held.token();
        // The new task is less urgent than this task on the same CPU, so it has not run.
        let task = handle.spawn(pinned(LOW), async move {
            let _token = token;
            panic!("it was never polled");
        });
        task.abort();
        let error = task.await.expect_err("it was aborted") as hitm::JoinError;
        assert!(error.is_aborted() && !error.is_panic());
        assert_eq!(held.counts(), (1, 1));
    })
    .await;
    ledger
}

async fn in_every_kind_of_wait<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let held = ledger.clone();
    on_first_cpu(&handle, |handle| async move {
        let yard = Yard::new(&handle).await;
        for wait in WAITS {
            let (token, before) = (held.token(), held.counts());
            let blocked = yard.wait(wait);
            let task = until_it_waits(&handle, async move {
                let _token = token;
                blocked.await;
                panic!("{wait:?} has ended");
            })
            .await;
            assert!(!task.is_finished(), "{wait:?} does not wait");
            task.abort();
            assert!(task.await.expect_err("it was aborted").is_aborted(), "{wait:?}");
            assert_eq!(held.counts().1, before.1 + 1, "{wait:?}");
        }
        yard.close().await;
    })
    .await;
    ledger
}

async fn while_it_computes<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let cpus = handle.topology().cpus() as u32;
    // The task runs on another CPU if there is one; otherwise the aborting task preempts it.
    for cpu in [cpus - 1, 0] {
        let token = ledger.token();
        let begun = Gate::new(&handle);
        let (begins, clock) = (begun.clone(), handle.clone());
        let victim = handle.spawn(on_cpu(cpu, LOW), async move {
            let _token = token;
            begins.open();
            // Without the abort, this would take a quarter of an hour natively, and show in the
            // time when simulated.
            clock.compute(Span::from_micros(900_000_000)).await;
        });
        let aborts = handle.spawn(pinned(HIGH), async move {
            begun.pass().await;
            victim.abort();
            victim.await.expect_err("it was aborted").is_aborted()
        });
        assert!(joined(aborts).await);
    }
    if H::TIMED {
        assert!(handle.now() < hitm::Time::START + Span::from_micros(1_000), "{:?}", handle.now());
    }
    ledger
}

async fn while_it_yields<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let (token, clock) = (ledger.token(), handle.clone());
    let task: JoinHandle<H, ()> = handle.spawn((), async move {
        let _token = token;
        loop {
            clock.yield_now().await;
        }
    });
    for _ in 0..10 {
        handle.yield_now().await;
    }
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_aborted());
    ledger
}

/// A task that receives its own handle.
fn with_own_handle<H: Host, F>(
    handle: &Handle<H>,
    main: impl FnOnce(Handle<H>, Arc<HostMutex<Option<JoinHandle<H, u32>>>>) -> F,
) -> Arc<HostMutex<Option<JoinHandle<H, u32>>>>
where
    F: Future<Output = u32> + Send + 'static,
{
    let own = Arc::new(HostMutex::new(None));
    let task = handle.spawn(pinned(LOW), main(handle.clone(), own.clone()));
    *own.lock().expect("no holder panics") = Some(task);
    own
}

async fn from_inside<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let held = ledger.clone();
    on_first_cpu(&handle, |handle| async move {
        let token = held.token();
        let own = with_own_handle(&handle, |handle, own| async move {
            let _token = token;
            let me = own.lock().expect("no holder panics").take().expect("its handle");
            me.abort();
            // The task goes on until it waits.
            let watch = handle.spawn((), me);
            drop(watch);
            handle.checkpoint().await;
            unreachable!("a checkpoint heeds an abort");
        });
        while held.counts() != (1, 1) {
            handle.set_priority(hitm::Priority::fifo(LOW));
            handle.yield_now().await;
        }
        assert!(own.lock().expect("no holder panics").is_none());
    })
    .await;
    ledger
}

async fn from_inside_without_a_wait<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let outcome = Gate::new(&handle);
        let (opens, shared) = (outcome.clone(), Arc::new(HostMutex::new(None)));
        let result = shared.clone();
        let own = with_own_handle(&handle, |handle, own| async move {
            let me = own.lock().expect("no holder panics").take().expect("its handle");
            me.abort();
            drop(handle.spawn((), async move {
                *result.lock().expect("no holder panics") = me.await.ok();
                opens.open();
            }));
            9
        });
        outcome.pass().await;
        assert_eq!(*shared.lock().expect("no holder panics"), Some(9), "a task that ends by itself has its value");
        drop(own);
    })
    .await;
}

async fn after_the_end<H: Host>(handle: Handle<H>) {
    let task = handle.spawn((), async { 3 });
    while !task.is_finished() {
        handle.yield_now().await;
    }
    task.abort();
    // Another task may use the id by now; it is not touched.
    let others: Vec<_> = (0..10).map(|n| handle.spawn((), async move { n })).collect();
    task.abort();
    for (index, other) in others.into_iter().enumerate() {
        assert_eq!(joined(other).await, index);
    }
    assert_eq!(joined(task).await, 3);
}

async fn by_many_at_once<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    for _ in 0..5 {
        let (token, clock) = (ledger.token(), handle.clone());
        let victim = Arc::new(handle.spawn((), async move {
            let _token = token;
            loop {
                clock.park().await;
            }
        }));
        let abort = |_| {
            let victim = victim.clone();
            handle.spawn(hitm::Priority::fifo(2), async move {
                victim.unpark();
                victim.abort();
            })
        };
        let aborts: Vec<_> = (0..8).map(abort).collect();
        for abort in aborts {
            joined(abort).await;
        }
        let victim: JoinHandle<H, ()> = Arc::into_inner(victim).expect("the others have ended");
        assert!(victim.await.expect_err("it was aborted").is_aborted());
    }
    ledger
}

/// An abort and the event that the task waits for happen at the same time: the task ends in one of
/// the two ways, once.
async fn while_it_is_woken<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let mutex = Arc::new(Mutex::new(&handle, ()));
    for _ in 0..20 {
        let guard = mutex.lock().await;
        let (token, other) = (ledger.token(), mutex.clone());
        let options = SpawnOptions {
            cpus: Some(CpuSet::from_iter([CpuId(handle.topology().cpus() as u32 - 1)])),
            ..SpawnOptions::default()
        };
        let task = handle.spawn(options, async move {
            let _token = token;
            drop(other.lock().await);
        });
        handle.yield_now().await;
        drop(guard);
        task.abort();
        match task.await {
            Ok(()) => {}
            Err(error) => assert!(error.is_aborted()),
        }
        // In either case the mutex is free.
        drop(mutex.lock().await);
    }
    ledger
}
