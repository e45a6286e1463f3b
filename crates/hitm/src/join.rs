//! Waiting for a task's result.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use hitm_memory::Platform;

use crate::cell::Cell;
use crate::runtime::Handle;

/// Why a task has no result.
pub struct JoinError(Kind);

enum Kind {
    Aborted,
    Panicked(Box<dyn Any + Send>),
}

impl JoinError {
    pub(crate) fn aborted() -> Self {
        Self(Kind::Aborted)
    }

    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        Self(Kind::Panicked(payload))
    }

    /// Whether the task was aborted, by its handle or because the runtime shut down.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Kind::Aborted)
    }

    /// What the task panicked with.
    ///
    /// # Errors
    /// The error itself, when the task did not panic.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.0 {
            Kind::Panicked(payload) => Ok(payload),
            Kind::Aborted => Err(self),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Aborted => f.write_str("the task was aborted"),
            Kind::Panicked(payload) => {
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(f, "the task panicked: {}", text.unwrap_or("no message"))
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// The end of a task, whatever its result's type.
pub(crate) trait Finish: Send + Sync {
    /// The task has ended; with `Ok` its value was put in before.
    fn finish(&self, result: Result<(), JoinError>);
}

enum State<T> {
    Running(Option<Waker>),
    /// The task has its value and is about to end.
    Ending(T, Option<Waker>),
    Ended(Result<T, JoinError>),
    Taken,
}

/// A task's result on its way to whoever joins it.
pub(crate) struct Packet<T>(Mutex<State<T>>);

impl<T> Packet<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Running(None))))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panic while it was held is impossible but in `T`'s drop, which leaves `Taken`.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, value: T) {
        let mut state = self.lock();
        if let State::Running(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Ending(value, waker);
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<T, JoinError>> {
        let mut state = self.lock();
        match &mut *state {
            State::Running(waker) | State::Ending(_, waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Ended(_) => match std::mem::replace(&mut *state, State::Taken) {
                State::Ended(result) => Poll::Ready(result),
                _ => unreachable!("matched above"),
            },
            State::Taken => panic!("a task was joined twice"),
        }
    }

    fn is_ended(&self) -> bool {
        matches!(*self.lock(), State::Ended(_) | State::Taken)
    }
}

impl<T: Send> Finish for Packet<T> {
    fn finish(&self, result: Result<(), JoinError>) {
        let mut state = self.lock();
        let (ended, waker) = match (std::mem::replace(&mut *state, State::Taken), result) {
            (State::Ending(value, waker), Ok(())) => (Ok(value), waker),
            (State::Ending(_, waker) | State::Running(waker), Err(error)) => (Err(error), waker),
            (State::Running(_), Ok(())) => unreachable!("a task that is done has put its value"),
            (State::Ended(_) | State::Taken, _) => unreachable!("a task ends once"),
        };
        *state = State::Ended(ended);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that leaves its value in a packet.
pub(crate) struct Deliver<F: Future> {
    future: F,
    packet: Arc<Packet<F::Output>>,
}

impl<F: Future> Deliver<F> {
    pub(crate) async fn run(future: F, packet: Arc<Packet<F::Output>>) {
        let deliver = Self { future, packet };
        deliver.packet.put(deliver.future.await);
    }
}

/// Waits for a task. Dropping it lets the task go on.
pub struct JoinHandle<P: Platform, T> {
    runtime: Handle<P>,
    cell: Arc<Cell>,
    packet: Arc<Packet<T>>,
}

impl<P: Platform, T> JoinHandle<P, T> {
    pub(crate) fn new(runtime: Handle<P>, cell: Arc<Cell>, packet: Arc<Packet<T>>) -> Self {
        Self { runtime, cell, packet }
    }

    /// Ends the task where it next waits; its future is dropped there. Nothing happens when it has ended.
    pub fn abort(&self) {
        self.cell.abort();
        self.runtime.wake_cell(&self.cell);
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.is_ended()
    }

    /// The task's number.
    #[must_use]
    pub fn id(&self) -> hitm_sched::task::TaskId {
        self.cell.id
    }

    /// Wakes the task from [`Handle::park`], or lets its next park return at once.
    pub fn unpark(&self) {
        self.runtime.unpark_cell(&self.cell);
    }
}

impl<P: Platform, T> Future for JoinHandle<P, T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.packet.poll(context));
        Poll::Ready(result)
    }
}

impl<P: Platform, T> fmt::Debug for JoinHandle<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.cell.id).finish_non_exhaustive()
    }
}
