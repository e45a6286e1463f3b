//! Parking: the token, and that only an unpark ends a park.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use hitm::{Handle, JoinHandle};

use crate::host::Host;
use crate::stage::{Diary, Gate, joined, on_first_cpu, until_it_waits};

every_host!(
    an_unpark_before_counts,
    two_unparks_count_once,
    unparks_and_parks_alternate,
    spurious_wakeups_do_not_end_it,
    a_park_that_was_dropped_leaves_its_token,
);

async fn an_unpark_before_counts<H: Host>(handle: Handle<H>) {
    let gate = Gate::new(&handle);
    let (held, me) = (gate.clone(), handle.clone());
    let task = handle.spawn((), async move {
        held.pass().await;
        me.park().await;
    });
    task.unpark();
    gate.open();
    joined(task).await;
}

async fn two_unparks_count_once<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let (notes, me, gate) = (diary.clone(), handle.clone(), Gate::new(&handle));
        let held = gate.clone();
        let task = until_it_waits(&handle, async move {
            held.pass().await;
            me.park().await;
            notes.note("first");
            me.park().await;
            notes.note("second");
        })
        .await;
        task.unpark();
        task.unpark();
        gate.open();
        handle.checkpoint().await;
        assert_eq!(diary.take(), ["first"]);
        task.unpark();
        handle.checkpoint().await;
        assert_eq!(diary.take(), ["second"]);
        joined(task).await;
        // The task has ended.
        let ended = until_it_waits(&handle, async {}).await;
        ended.unpark();
        joined(ended).await;
    })
    .await;
}

type Shared<H> = Arc<Mutex<Option<JoinHandle<H, usize>>>>;

async fn unparks_and_parks_alternate<H: Host>(handle: Handle<H>) {
    let shared: Shared<H> = Shared::default();
    let ready = Gate::new(&handle);
    let (other, me, begins) = (shared.clone(), handle.clone(), ready.clone());
    let pong = handle.spawn((), async move {
        begins.pass().await;
        let ping = other.lock().expect("no holder panics").take().expect("its partner");
        for _ in 0..H::OFTEN {
            me.park().await;
            ping.unpark();
        }
        joined(ping).await
    });
    let me = handle.clone();
    let partner = Arc::new(pong);
    let unparks = partner.clone();
    let ping = handle.spawn((), async move {
        for _ in 0..H::OFTEN {
            unparks.unpark();
            me.park().await;
        }
        H::OFTEN
    });
    *shared.lock().expect("no holder panics") = Some(ping);
    ready.open();
    while !partner.is_finished() {
        handle.yield_now().await;
    }
}

async fn spurious_wakeups_do_not_end_it<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (me, waker) = (handle.clone(), Arc::new(Mutex::new(None)));
        let leaves = waker.clone();
        let task = until_it_waits(&handle, async move {
            poll_fn(|context| {
                *leaves.lock().expect("no holder panics") = Some(context.waker().clone());
                Poll::Ready(())
            })
            .await;
            me.park().await;
        })
        .await;
        let waker = waker.lock().expect("no holder panics").take().expect("it has run");
        for _ in 0..10 {
            waker.wake_by_ref();
            handle.checkpoint().await;
            assert!(!task.is_finished());
        }
        task.unpark();
        joined(task).await;
    })
    .await;
}

async fn a_park_that_was_dropped_leaves_its_token<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (me, gate) = (handle.clone(), Gate::new(&handle));
        let held = gate.clone();
        let task = until_it_waits(&handle, async move {
            {
                let mut park = Box::pin(me.park());
                assert!(poll_fn(|context| Poll::Ready(park.as_mut().poll(context).is_pending())).await);
            }
            held.pass().await;
            me.park().await;
        })
        .await;
        // No task waits for the token now; the next park takes it.
        task.unpark();
        gate.open();
        joined(task).await;
    })
    .await;
}
