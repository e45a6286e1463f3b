//! Panics in a poll, in destructors, in values and in wakers. A panic affects only the task that
//! panics.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hitm::sync::{Mutex, PiMutex, PiMutexGuard};
use hitm::{Handle, JoinError};
use hitm_memory::Platform;

use crate::host::{Host, message};
use crate::ledger::{Ledger, Token};
use crate::stage::{Gate, SAME, joined, on_first_cpu, pinned, until_it_waits};

every_host!(
    in_a_poll,
    in_a_destructor_of_an_aborted_task,
    in_a_destructor_of_a_task_that_was_never_polled,
    in_a_destructor_after_a_panic,
    in_a_destructor_of_a_task_that_is_done,
    in_a_value_that_nobody_joins,
    in_a_payload_that_nobody_joins,
    in_a_waker_of_a_join,
    while_it_holds_a_mutex,
    in_a_destructor_that_catches_it_and_releases_a_mutex,
    while_others_work,
);

fn panic_of(result: Result<impl Sized, JoinError>) -> String {
    let error = result.err().expect("a panic");
    assert!(error.is_panic() && !error.is_aborted());
    let shown = error.to_string();
    let payload = error.into_panic().expect("a panic");
    assert_eq!(shown, format!("the task panicked: {}", message(&*payload)));
    message(&*payload).to_owned()
}

/// A value whose destructor panics.
struct Bomb(&'static str, Option<Token>);

impl Drop for Bomb {
    fn drop(&mut self) {
        drop(self.1.take());
        panic!("{}", self.0);
    }
}

async fn in_a_poll<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let (first, second, clock) = (ledger.token(), ledger.token(), handle.clone());
    let at_once = handle.spawn((), async move {
        let _token = first;
        panic!("at once");
    });
    let later = handle.spawn((), async move {
        let _token = second;
        clock.yield_now().await;
        panic!("later, {}", 1);
    });
    assert_eq!(panic_of(at_once.await), "at once");
    assert_eq!(panic_of(later.await), "later, 1");
    assert_eq!(joined(handle.spawn((), async { 1 })).await, 1);
    ledger
}

async fn in_a_destructor_of_an_aborted_task<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let token = ledger.token();
    let begun = Gate::new(&handle);
    let (begins, clock) = (begun.clone(), handle.clone());
    let task = handle.spawn((), async move {
        let _bomb = Bomb("aborted", Some(token));
        begins.open();
        clock.park().await;
    });
    begun.pass().await;
    task.abort();
    assert_eq!(panic_of(task.await), "aborted");
    ledger
}

async fn in_a_destructor_of_a_task_that_was_never_polled<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let token = ledger.token();
    on_first_cpu(&handle, |handle| async move {
        let bomb = Bomb("never polled", Some(token));
        let task = handle.spawn(crate::stage::pinned(crate::stage::LOW), async move { drop(bomb) });
        task.abort();
        assert_eq!(panic_of(task.await), "never polled");
    })
    .await;
    ledger
}

/// A future that panics in its poll, and again in its destructor.
struct Twice(Option<Token>);

impl Future for Twice {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        panic!("in the poll");
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        drop(self.0.take());
        panic!("in the destructor");
    }
}

async fn in_a_destructor_after_a_panic<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let task = handle.spawn((), Twice(Some(ledger.token())));
    assert_eq!(panic_of(task.await), "in the poll");
    ledger
}

/// A future that is ready at once and panics in its destructor.
struct DoneBomb(Ledger, #[expect(dead_code, reason = "it is there to be dropped")] Bomb);

impl Future for DoneBomb {
    type Output = Token;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Token> {
        Poll::Ready(self.0.token())
    }
}

async fn in_a_destructor_of_a_task_that_is_done<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let bomb = Bomb("done", Some(ledger.token()));
    let task = handle.spawn((), DoneBomb(ledger.clone(), bomb));
    // The value is dropped; the joiner gets the panic.
    assert_eq!(panic_of(task.await), "done");
    assert_eq!(ledger.counts(), (2, 2));
    ledger
}

async fn in_a_value_that_nobody_joins<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    on_first_cpu(&handle, {
        let ledger = ledger.clone();
        |handle| async move {
            // The handle is dropped while the task runs: the task drops its value.
            let gate = Gate::new(&handle);
            let (held, token) = (gate.clone(), ledger.token());
            let task = until_it_waits(&handle, async move {
                held.pass().await;
                Bomb("unwanted", Some(token))
            })
            .await;
            drop(task);
            gate.open();
            handle.checkpoint().await;
            assert_eq!(ledger.counts(), (1, 1));
            // The handle is dropped after the task's end: the dropping task drops the value, and
            // panics.
            let token = ledger.token();
            let task = until_it_waits(&handle, async move { Bomb("given up", Some(token)) }).await;
            let gives_up = handle.spawn((), async move { drop(task) });
            assert_eq!(panic_of(gives_up.await), "given up");
            assert_eq!(ledger.counts(), (2, 2));
        }
    })
    .await;
    ledger
}

async fn in_a_payload_that_nobody_joins<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let token = ledger.token();
    let done = Gate::new(&handle);
    let opens = done.clone();
    drop(handle.spawn((), async move {
        opens.open();
        std::panic::panic_any(Bomb("payload", Some(token)));
    }));
    done.pass().await;
    joined(handle.spawn((), async {})).await;
    ledger
}

/// A waker that panics.
struct Grenade(AtomicUsize);

impl Wake for Grenade {
    fn wake(self: Arc<Self>) {
        // Relaxed: a count.
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a waker");
    }
}

async fn in_a_waker_of_a_join<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let held = gate.clone();
    let mut task = handle.spawn((), async move {
        held.pass().await;
        4
    });
    let grenade = Arc::new(Grenade(AtomicUsize::new(0)));
    let waker = Waker::from(grenade.clone());
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    while !task.is_finished() {
        handle.yield_now().await;
    }
    assert_eq!(joined(task).await, 4);
    // A plain waiter too: the other waiters are woken all the same.
    let gate = Gate::new(&handle);
    let mut wait = Box::pin(gate.pass());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let held = gate.clone();
    let other = handle.spawn((), async move { held.pass().await });
    gate.open();
    joined(other).await;
    drop(wait);
    // Relaxed: a count.
    assert_eq!(grenade.0.load(Ordering::Relaxed), 2);
}

async fn while_it_holds_a_mutex<H: Host>(handle: Handle<H>) {
    let mutex = Arc::new(Mutex::new(&handle, 0));
    let begun = Gate::new(&handle);
    let (held, begins, clock) = (mutex.clone(), begun.clone(), handle.clone());
    let panics = handle.spawn((), async move {
        let mut value = held.lock().await;
        *value = 1;
        begins.open();
        clock.yield_now().await;
        panic!("with the mutex");
    });
    begun.pass().await;
    // There is no poisoning: the next holder, also one that waits already, finds the value as it
    // was left.
    let waits: Vec<_> = (0..4)
        .map(|_| {
            let mutex = mutex.clone();
            handle.spawn((), async move { *mutex.lock().await })
        })
        .collect();
    assert_eq!(panic_of(panics.await), "with the mutex");
    for wait in waits {
        assert_eq!(joined(wait).await, 1);
    }
}

/// Drops a guard while it unwinds, and catches its own panic.
struct Catches<'a, P: Platform>(Option<PiMutexGuard<'a, P, ()>>);

impl<P: Platform> Drop for Catches<'_, P> {
    fn drop(&mut self) {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _owned = self.0.take();
            panic!("while it owns");
        }));
        assert!(caught.is_err());
    }
}

async fn in_a_destructor_that_catches_it_and_releases_a_mutex<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let mutex: &PiMutex<H, ()> = Box::leak(Box::new(PiMutex::new(&handle, ())));
        let mut owned = Catches(None);
        // What it owns is dropped with the future, after its last poll.
        let future = poll_fn(move |_| {
            owned.0 = mutex.try_lock().ok();
            Poll::Ready(owned.0.is_some())
        });
        assert!(joined(handle.spawn(pinned(SAME), future)).await);
        assert!(mutex.try_lock().is_ok(), "the mutex is free, and its last owner has not died");
        // SAFETY: `Box::leak` made it above, and no task refers to it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(mutex).cast_mut()) });
    })
    .await;
}

async fn while_others_work<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let mutex = Arc::new(Mutex::new(&handle, 0_usize));
    let work = |n: usize| {
        let (mutex, clock, token) = (mutex.clone(), handle.clone(), ledger.token());
        handle.spawn(hitm::Priority::fifo(1 + (n % 3) as u8), async move {
            let _token = token;
            for round in 0..3 {
                clock.yield_now().await;
                let mut count = mutex.lock().await;
                *count += 1;
                assert!(n.is_multiple_of(2) || round < 2, "odd tasks panic with the mutex held");
            }
        })
    };
    let tasks: Vec<_> = (0..40).map(work).collect();
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.is_err(), n % 2 == 1, "task {n}");
    }
    assert_eq!(*mutex.lock().await, 120);
    // No task is left in an inconsistent state.
    poll_fn(|_| Poll::Ready(())).await;
    ledger
}
