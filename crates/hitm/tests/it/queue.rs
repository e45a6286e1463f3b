//! The queue: first in, first out, up to its capacity, until it is closed.

use std::sync::Arc;

use hitm::Handle;
use hitm::sync::{Queue, SendError};

use crate::host::Host;
use crate::ledger::Ledger;
use crate::stage::{joined, on_first_cpu, until_it_waits};

every_host!(
    what_goes_in_comes_out_in_order,
    a_full_queue_lets_senders_wait,
    every_item_is_received_once,
    a_closed_queue_gives_what_it_has,
    closing_ends_all_waits,
    a_send_that_was_dropped_has_sent_nothing,
    a_receive_that_was_dropped_has_taken_nothing,
    what_is_left_is_dropped,
);

async fn what_goes_in_comes_out_in_order<H: Host>(handle: Handle<H>) {
    for capacity in [1, 3, 64] {
        let queue = Arc::new(Queue::new(&handle, capacity));
        let other = queue.clone();
        let sends = handle.spawn((), async move {
            for item in 0..H::OFTEN {
                other.send(item).await.expect("it is open");
            }
            other.close().await;
        });
        let mut expect = 0;
        while let Some(item) = queue.recv().await {
            assert_eq!(item, expect);
            expect += 1;
        }
        assert_eq!(expect, H::OFTEN);
        joined(sends).await;
    }
}

async fn a_full_queue_lets_senders_wait<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let queue = Arc::new(Queue::new(&handle, 2));
        for item in 0..2 {
            queue.send(item).await.expect("it is open");
        }
        let other = queue.clone();
        let sends = until_it_waits(&handle, async move { other.send(2).await }).await;
        assert!(!sends.is_finished());
        assert_eq!(queue.recv().await, Some(0));
        handle.checkpoint().await;
        assert!(sends.is_finished(), "there is room");
        assert_eq!(joined(sends).await, Ok(()));
        assert_eq!((queue.recv().await, queue.recv().await), (Some(1), Some(2)));
    })
    .await;
}

async fn every_item_is_received_once<H: Host>(handle: Handle<H>) {
    let queue = Arc::new(Queue::new(&handle, 3));
    let (senders, each) = (4, H::OFTEN / 4);
    let send = |sender: usize| {
        let queue = queue.clone();
        handle.spawn((), async move {
            for number in 0..each {
                queue.send((sender, number)).await.expect("it is open");
            }
        })
    };
    let receive = |_| {
        let queue = queue.clone();
        handle.spawn((), async move {
            let mut items = Vec::new();
            while let Some(item) = queue.recv().await {
                items.push(item);
            }
            items
        })
    };
    let receivers: Vec<_> = (0..3).map(receive).collect();
    let senders_spawned: Vec<_> = (0..senders).map(send).collect();
    for sender in senders_spawned {
        joined(sender).await;
    }
    queue.close().await;
    let mut all = Vec::new();
    for receiver in receivers {
        let items = joined(receiver).await;
        for sender in 0..senders {
            let own = items.iter().filter(|item| item.0 == sender);
            assert!(own.is_sorted(), "a sender's items come in its order");
        }
        all.extend(items);
    }
    all.sort_unstable();
    let expect: Vec<_> = (0..senders).flat_map(|sender| (0..each).map(move |number| (sender, number))).collect();
    assert_eq!(all, expect);
}

async fn a_closed_queue_gives_what_it_has<H: Host>(handle: Handle<H>) {
    let queue = Queue::new(&handle, 4);
    queue.send('a').await.expect("it is open");
    queue.send('b').await.expect("it is open");
    queue.close().await;
    queue.close().await;
    assert_eq!(queue.send('c').await, Err(SendError('c')));
    assert_eq!((queue.recv().await, queue.recv().await), (Some('a'), Some('b')));
    assert_eq!((queue.recv().await, queue.recv().await), (None, None));
}

async fn closing_ends_all_waits<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let (full, empty) = (Arc::new(Queue::new(&handle, 1)), Arc::new(Queue::<H, u32>::new(&handle, 1)));
        full.send(0).await.expect("it is open");
        let mut tasks = Vec::new();
        for item in 1..4 {
            let (full, empty) = (full.clone(), empty.clone());
            let send = async move { assert_eq!(full.send(item).await, Err(SendError(item))) };
            tasks.push(until_it_waits(&handle, send).await);
            let receive = async move { assert_eq!(empty.recv().await, None) };
            tasks.push(until_it_waits(&handle, receive).await);
        }
        full.close().await;
        empty.close().await;
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
}

async fn a_send_that_was_dropped_has_sent_nothing<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let tokens = ledger.clone();
    on_first_cpu(&handle, |handle| async move {
        let queue = Arc::new(Queue::new(&handle, 1));
        queue.send((0, tokens.token())).await.expect("it is open");
        let mut senders = Vec::new();
        for item in 1..3 {
            let (other, item) = (queue.clone(), (item, tokens.token()));
            senders.push(until_it_waits(&handle, async move { drop(other.send(item).await) }).await);
        }
        let (second, first) = (senders.pop().expect("two"), senders.pop().expect("two"));
        assert_eq!(queue.recv().await.expect("an item").0, 0);
        // Both waiters were woken and have not run.
        first.abort();
        handle.checkpoint().await;
        assert!(first.await.is_err());
        joined(second).await;
        assert_eq!(queue.recv().await.expect("an item").0, 2);
    })
    .await;
    ledger
}

async fn a_receive_that_was_dropped_has_taken_nothing<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let queue = Arc::new(Queue::new(&handle, 1));
        let mut receivers = Vec::new();
        for _ in 0..2 {
            let other = queue.clone();
            receivers.push(until_it_waits(&handle, async move { other.recv().await }).await);
        }
        let (second, first) = (receivers.pop().expect("two"), receivers.pop().expect("two"));
        queue.send(7).await.expect("it is open");
        first.abort();
        assert!(first.await.is_err());
        assert_eq!(joined(second).await, Some(7));
    })
    .await;
}

async fn what_is_left_is_dropped<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    let queue = Queue::new(&handle, 5);
    for _ in 0..4 {
        assert!(queue.send(ledger.token()).await.is_ok());
    }
    drop(queue.recv().await);
    drop(queue);
    assert_eq!(ledger.counts(), (4, 4));
    ledger
}
