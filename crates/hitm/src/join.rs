//! Waiting for a task's result.
//!
//! **State** of a packet, under its lock. Values, errors and wakers that go are dropped after the lock is released: their
//! destructors are other people's code.
//!
//! | state | meaning |
//! |---|---|
//! | `Running` | the task has no value yet; perhaps somebody waits |
//! | `Ending` | it has its value and is about to end |
//! | `Ended` | the result waits for whoever joins |
//! | `Gone` | the result was taken, or nobody wants it |

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use hitm_memory::Platform;
use hitm_sched::task::TaskId;

use crate::cell::Cell;
use crate::contain::contain;
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

    /// Whether the task panicked: in a poll, or in a destructor when it ended.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Kind::Panicked(_))
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
    Ending(T, Option<Waker>),
    Ended(Result<T, JoinError>),
    Gone,
}

/// A task's result on its way to whoever joins it.
pub(crate) struct Packet<T>(Mutex<State<T>>);

impl<T> Packet<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Running(None))))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only moves happen while it is held, so it is whole even if a thread panicked meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task has its value. Returns it when nobody wants it.
    fn put(&self, value: T) -> Option<T> {
        let mut state = self.lock();
        match &mut *state {
            State::Running(waker) => {
                let waker = waker.take();
                *state = State::Ending(value, waker);
                None
            }
            _ => Some(value),
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<T, JoinError>> {
        // Cloned before the lock is taken, and the old one is dropped after: wakers are other people's code.
        let waker = context.waker().clone();
        let mut state = self.lock();
        let unused = match &mut *state {
            State::Running(known) | State::Ending(_, known) => match known {
                Some(known) if known.will_wake(&waker) => Some(waker),
                known => known.replace(waker),
            },
            State::Ended(_) | State::Gone => match std::mem::replace(&mut *state, State::Gone) {
                State::Ended(result) => return Poll::Ready(result),
                _ => panic!("a task was joined twice"),
            },
        };
        drop(state);
        drop(unused);
        Poll::Pending
    }

    fn is_ended(&self) -> bool {
        matches!(*self.lock(), State::Ended(_) | State::Gone)
    }

    /// Nobody will join. Returns what there is to drop.
    fn detach(&self) -> impl Sized {
        std::mem::replace(&mut *self.lock(), State::Gone)
    }
}

impl<T: Send> Finish for Packet<T> {
    fn finish(&self, result: Result<(), JoinError>) {
        let mut state = self.lock();
        let (ended, unused, waker) = match (std::mem::replace(&mut *state, State::Gone), result) {
            (State::Ending(value, waker), Ok(())) => (State::Ended(Ok(value)), None, waker),
            (State::Ending(value, waker), Err(error)) => (State::Ended(Err(error)), Some(value), waker),
            (State::Running(waker), Err(error)) => (State::Ended(Err(error)), None, waker),
            (State::Gone, result) => {
                drop(state);
                contain(|| drop(result));
                return;
            }
            (State::Running(_), Ok(())) => unreachable!("a task that is done has put its value"),
            (State::Ended(_), _) => unreachable!("a task ends once"),
        };
        *state = ended;
        drop(state);
        contain(|| drop(unused));
        if let Some(waker) = waker {
            contain(|| waker.wake());
        }
    }
}

/// A future that leaves its value in a packet.
pub(crate) struct Deliver<P: Platform, F: Future> {
    future: F,
    packet: Arc<Packet<F::Output>>,
    platform: PhantomData<P>,
}

impl<P: Platform, F: Future> Deliver<P, F> {
    pub(crate) fn new(future: F, packet: Arc<Packet<F::Output>>) -> Self {
        Self { future, packet, platform: PhantomData }
    }
}

impl<P: Platform, F: Future> Future for Deliver<P, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: nothing is moved out of it below.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `future` is pinned as long as the whole is: it is never moved, there is no `Drop` that could, and the whole
        // is `Unpin` only where `F` is.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let value = ready!(future.poll(context));
        P::settle();
        drop(this.packet.put(value));
        Poll::Ready(())
    }
}

/// Waits for a task. Dropping it lets the task go on, and nobody will have its result.
///
/// ```
/// # use hitm::{NativeRuntime, Priority};
/// # let runtime = NativeRuntime::with_cpus(1).unwrap();
/// # runtime.run(|handle| async move {
/// let task = handle.spawn(Priority::fifo(2), async { "done" });
/// assert_eq!(task.await.unwrap(), "done");
///
/// let task = handle.spawn(Priority::fifo(2), std::future::pending::<()>());
/// task.abort();
/// assert!(task.await.unwrap_err().is_aborted());
/// # }).unwrap();
/// ```
///
/// # Panics
/// When it is polled again after it gave the result.
pub struct JoinHandle<P: Platform, T> {
    pub(crate) runtime: Handle<P>,
    pub(crate) cell: Arc<Cell<P>>,
    packet: Arc<Packet<T>>,
}

impl<P: Platform, T> JoinHandle<P, T> {
    pub(crate) fn new(runtime: Handle<P>, cell: Arc<Cell<P>>, packet: Arc<Packet<T>>) -> Self {
        Self { runtime, cell, packet }
    }

    /// Ends the task where it next waits, computes or checks; its future is dropped there. Nothing happens when it has ended.
    pub fn abort(&self) {
        self.runtime.0.abort(&self.cell);
    }

    /// Whether the task has ended: its future is dropped, and joining it does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        P::settle();
        self.packet.is_ended()
    }

    /// The task's number. Another task may get it when this one has ended.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.cell.id
    }

    /// Wakes the task from [`Handle::park`], or lets its next park return at once.
    pub fn unpark(&self) {
        self.cell.unpark();
    }
}

impl<P: Platform, T> Future for JoinHandle<P, T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        P::settle();
        self.packet.poll(context)
    }
}

impl<P: Platform, T> Drop for JoinHandle<P, T> {
    fn drop(&mut self) {
        P::settle();
        drop(self.packet.detach());
    }
}

impl<P: Platform, T> fmt::Debug for JoinHandle<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.cell.id).finish_non_exhaustive()
    }
}
