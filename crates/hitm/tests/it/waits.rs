//! All ways to wait, by name, and how each wait is ended.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hitm::sync::{Barrier, Condvar, Futex, Mutex, Queue};
use hitm::{Handle, JoinHandle, Span};
use hitm_memory::{AtomicWord, Platform};

use crate::stage::Gate;

/// The kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Futex,
    Mutex,
    Condvar,
    QueueSend,
    QueueReceive,
    Barrier,
    Sleep,
    Park,
    Join,
    Forever,
}

/// All kinds.
pub(crate) const WAITS: [Wait; 10] = [
    Wait::Futex,
    Wait::Mutex,
    Wait::Condvar,
    Wait::QueueSend,
    Wait::QueueReceive,
    Wait::Barrier,
    Wait::Sleep,
    Wait::Park,
    Wait::Join,
    Wait::Forever,
];

pub(crate) type Blocked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One of each primitive, in a state in which every task has to wait.
pub(crate) struct Yard<P: Platform> {
    handle: Handle<P>,
    futex: Arc<Futex<P>>,
    mutex: Arc<Mutex<P, ()>>,
    condvar: Arc<(Mutex<P, bool>, Condvar<P>)>,
    full: Arc<Queue<P, u32>>,
    empty: Arc<Queue<P, u32>>,
    barrier: Arc<Barrier<P>>,
    gate: Arc<Gate<P>>,
    holder: JoinHandle<P, ()>,
}

/// When a yard's sleeps end: long after all else, unless the yard is opened.
const LATE: Span = Span::from_micros(1_800_000_000);

impl<P: Platform> Yard<P> {
    pub(crate) async fn new(handle: &Handle<P>) -> Self {
        let mutex = Arc::new(Mutex::new(handle, ()));
        let full = Arc::new(Queue::new(handle, 1));
        full.send(0).await.expect("it is open");
        let (gate, held) = (Gate::new(handle), Gate::new(handle));
        let (opens, holds, ends) = (held.clone(), mutex.clone(), gate.clone());
        let holder = handle.spawn((), async move {
            let _guard = holds.lock().await;
            opens.open();
            ends.pass().await;
        });
        held.pass().await;
        Self {
            handle: handle.clone(),
            futex: Arc::new(Futex::new(handle, 0)),
            mutex,
            condvar: Arc::new((Mutex::new(handle, false), Condvar::new(handle))),
            full,
            empty: Arc::new(Queue::new(handle, 1)),
            barrier: Arc::new(Barrier::new(handle, 1_000_000)),
            gate,
            holder,
        }
    }

    /// Waits in the yard; the waiter keeps the primitive alive.
    pub(crate) fn wait(&self, wait: Wait) -> Blocked {
        let handle = self.handle.clone();
        match wait {
            Wait::Futex => {
                let futex = self.futex.clone();
                Box::pin(async move {
                    // Relaxed: the futex provides the necessary ordering.
                    while futex.word().load(Ordering::Relaxed) == 0 {
                        futex.wait(0).await;
                    }
                })
            }
            Wait::Mutex => {
                let mutex = self.mutex.clone();
                Box::pin(async move { drop(mutex.lock().await) })
            }
            Wait::Condvar => {
                let shared = self.condvar.clone();
                Box::pin(async move {
                    let mut open = shared.0.lock().await;
                    while !*open {
                        open = shared.1.wait(open).await;
                    }
                })
            }
            Wait::QueueSend => {
                let queue = self.full.clone();
                Box::pin(async move { assert!(queue.send(1).await.is_err()) })
            }
            Wait::QueueReceive => {
                let queue = self.empty.clone();
                Box::pin(async move { assert_eq!(queue.recv().await, None) })
            }
            Wait::Barrier => {
                let barrier = self.barrier.clone();
                Box::pin(async move { assert!(!barrier.wait().await) })
            }
            Wait::Sleep => Box::pin(async move { handle.sleep(LATE).await }),
            Wait::Park => Box::pin(async move { handle.park().await }),
            Wait::Join => {
                let gate = self.gate.clone();
                let task = handle.spawn((), async move { gate.pass().await });
                Box::pin(async move { drop(task.await) })
            }
            Wait::Forever => Box::pin(pending()),
        }
    }

    /// Ends the waits that a primitive can end; the rest need time, an unpark, or an abort. Call
    /// this once.
    pub(crate) async fn open(&self) {
        // Relaxed: the wake below orders it.
        self.futex.word().store(1, Ordering::Relaxed);
        self.futex.wake(usize::MAX);
        self.gate.open();
        *self.condvar.0.lock().await = true;
        self.condvar.1.notify_all();
        self.full.close().await;
        self.empty.close().await;
    }

    /// Ends the tasks that the yard itself keeps.
    pub(crate) async fn close(self) {
        self.gate.open();
        self.holder.await.expect("the holder ends");
    }
}
