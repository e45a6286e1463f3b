//! A bounded queue with one mutex and one condition variable, as in FFmpeg's pipeline since 7.0.
//!
//! Every change of the fill level wakes all waiting senders and receivers. This is simple, and as
//! expensive as the original.
//!
//! **Cancellation.** A send that is dropped before it returns has sent nothing, and its item is
//! dropped with it. A receive that is dropped has taken nothing.
//!
//! **Limits.** Items leave in the order in which their sends took the mutex. Among several waiting
//! senders, this may differ from the order in which they began to send.

use std::collections::VecDeque;
use std::fmt;

use hitm_memory::Platform;

use crate::runtime::Handle;
use crate::sync::{Condvar, Mutex};

/// The largest capacity that is allocated in advance; a larger queue grows on demand.
const ROOM: usize = 1_024;

/// A first-in, first-out queue with a bounded capacity.
///
/// ```
/// use std::sync::Arc;
/// # use hitm::{NativeRuntime, sync::Queue};
/// # let runtime = NativeRuntime::with_cpus(2).unwrap();
/// # runtime.run(|handle| async move {
/// let queue = Arc::new(Queue::new(&handle, 2));
/// let other = queue.clone();
/// let sends = handle.spawn((), async move {
///     for item in 0..5 {
///         other.send(item).await.unwrap();
///     }
///     other.close().await;
/// });
/// let mut sum = 0;
/// while let Some(item) = queue.recv().await {
///     sum += item;
/// }
/// assert_eq!(sum, 10);
/// # sends.await.unwrap();
/// # }).unwrap();
/// ```
pub struct Queue<P: Platform, T> {
    state: Mutex<P, State<T>>,
    changed: Condvar<P>,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// The error of a send to a closed queue, with the item that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed")
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

impl<P: Platform, T: Send> Queue<P, T> {
    /// Makes an empty queue for `capacity` items.
    ///
    /// # Panics
    /// When `capacity` is 0.
    #[must_use]
    pub fn new(runtime: &Handle<P>, capacity: usize) -> Self {
        assert_ne!(capacity, 0, "a queue needs a capacity of at least 1");
        let state = State { items: VecDeque::with_capacity(capacity.min(ROOM)), closed: false };
        Self { state: Mutex::new(runtime, state), changed: Condvar::new(runtime), capacity }
    }

    /// Waits for room and puts `item` at the end of the queue.
    ///
    /// # Errors
    /// Returns the item when the queue is closed.
    pub async fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut state = self.state.lock().await;
        while state.items.len() == self.capacity && !state.closed {
            state = self.changed.wait(state).await;
        }
        if state.closed {
            return Err(SendError(item));
        }
        state.items.push_back(item);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for an item and takes the first one. Returns `None` when the queue is closed and
    /// empty.
    pub async fn recv(&self) -> Option<T> {
        let mut state = self.state.lock().await;
        while state.items.is_empty() && !state.closed {
            state = self.changed.wait(state).await;
        }
        let item = state.items.pop_front();
        if item.is_some() {
            self.changed.notify_all();
        }
        item
    }

    /// Closes the queue. No more items can be sent; the remaining items can be received.
    pub async fn close(&self) {
        self.state.lock().await.closed = true;
        self.changed.notify_all();
    }
}

impl<P: Platform, T> fmt::Debug for Queue<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
