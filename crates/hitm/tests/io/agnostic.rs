//! Runtime-agnostic crates that the documentation recommends, each in tasks of this runtime. The
//! primitives that lend priority are our own: see `hitm::sync`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt};
use hitm::{Handle, Priority};

use crate::runtime;

/// Runs a test in a task of a runtime with two CPUs.
fn check(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = runtime(2);
    runtime.block_on(runtime.handle().spawn((), test)).expect("no assertion fails");
}

#[test]
fn mpsc_and_mpmc_are_async_channel() {
    check(async {
        let (sender, receiver) = async_channel::bounded(4);
        let senders: Vec<_> = (0..4)
            .map(|first| {
                let sender = sender.clone();
                hitm::spawn(async move {
                    for number in 0..25 {
                        sender.send(first * 25 + number).await.expect("a receiver");
                    }
                })
            })
            .collect();
        drop(sender);
        let mut sum = 0;
        while let Ok(number) = receiver.recv().await {
            sum += number;
        }
        assert_eq!(sum, 99 * 100 / 2);
        for sender in senders {
            sender.await.expect("it ends");
        }
    });
}

#[test]
fn oneshot_watch_notify_and_semaphore_are_tokio_sync() {
    check(async {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let (setting, mut changes) = tokio::sync::watch::channel(0);
        let permits = Arc::new(tokio::sync::Semaphore::new(2));
        let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let (permits, running, most) = (permits.clone(), running.clone(), most.clone());
                hitm::spawn(async move {
                    let _permit = permits.acquire().await.expect("it is not closed");
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    hitm::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        let watcher = hitm::spawn(async move {
            changes.wait_for(|value| *value == 3).await.expect("a sender");
            reply.send("seen").expect("a receiver");
        });
        setting.send(3).expect("a receiver");
        assert_eq!(answer.await, Ok("seen"));
        watcher.await.expect("it ends");
        for task in tasks {
            task.await.expect("it ends");
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    });
}

#[test]
fn broadcast_is_async_broadcast() {
    check(async {
        let (sender, receiver) = async_broadcast::broadcast(8);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let mut own = receiver.clone();
                hitm::spawn(async move {
                    let mut sum = 0;
                    while let Ok(number) = own.recv().await {
                        sum += number;
                    }
                    sum
                })
            })
            .collect();
        drop(receiver);
        for number in 1..=20 {
            sender.broadcast(number).await.expect("receivers");
        }
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.expect("it ends"), 210);
        }
    });
}

#[test]
fn rwlock_is_async_lock() {
    check(async {
        let lock = Arc::new(async_lock::RwLock::new(0));
        let writers: Vec<_> = (0..10)
            .map(|_| {
                let lock = lock.clone();
                hitm::spawn_with(Priority::fair(0), async move {
                    let seen = *lock.read().await;
                    *lock.write().await += 1;
                    seen
                })
            })
            .collect();
        for writer in writers {
            assert!(writer.await.expect("it ends") < 10);
        }
        assert_eq!(*lock.read().await, 10);
    });
}

#[test]
fn events_are_event_listener() {
    check(async {
        let (event, flag) = (Arc::new(event_listener::Event::new()), Arc::new(AtomicBool::new(false)));
        let (notifies, sets) = (event.clone(), flag.clone());
        let task = hitm::spawn(async move {
            sets.store(true, Ordering::SeqCst);
            notifies.notify(usize::MAX);
        });
        while !flag.load(Ordering::SeqCst) {
            let listener = event.listen();
            if !flag.load(Ordering::SeqCst) {
                listener.await;
            }
        }
        task.await.expect("it ends");
    });
}

#[test]
fn files_are_async_fs() {
    check(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file = async_fs::File::create(&path).await.expect("a file");
        file.write_all(b"some bytes").await.expect("room");
        file.close().await.expect("room");
        let mut text = String::new();
        async_fs::File::open(&path).await.expect("the file").read_to_string(&mut text).await.expect("its text");
        assert_eq!(text, "some bytes");
    });
}

#[test]
fn processes_are_async_process() {
    check(async {
        let output =
            async_process::Command::new("sh").args(["-c", "echo out; exit 3"]).output().await.expect("a shell");
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"out\n"[..], Some(3)));
    });
}

#[test]
fn signals_are_async_signal() {
    check(async {
        let mut signals = async_signal::Signals::new([async_signal::Signal::Usr2]).expect("a handler");
        let id = std::process::id().to_string();
        let sent = async_process::Command::new("sh").args(["-c", &format!("kill -USR2 {id}")]).status();
        assert!(sent.await.expect("a shell").success());
        assert_eq!(signals.next().await.expect("it goes on").expect("no error"), async_signal::Signal::Usr2);
    });
}

#[test]
fn futures_spawn_tasks() {
    use futures_task::{Spawn, SpawnError};
    let runtime = runtime(1);
    let (sender, receiver) = async_channel::bounded(1);
    let task = Box::pin(async move { sender.send(5).await.expect("a receiver") });
    Spawn::spawn_obj(runtime.handle(), task.into()).expect("the runtime is there");
    assert_eq!(runtime.block_on(receiver.recv()), Ok(5));
    let handle: Handle = runtime.handle().clone();
    drop(runtime);
    assert!(handle.status().is_err_and(|error: SpawnError| error.is_shutdown()));
}
