//! Waiting for a task's result.
//!
//! **State** of a join_state, under its lock. Replaced values, errors and wakers are dropped after
//! the lock is released, because their destructors are user code.
//!
//! | state | meaning |
//! |---|---|
//! | `Running` | the task has no value yet; the joiner's waker may be set |
//! | `Ending` | the task has its value and is about to end |
//! | `Ended` | the result is ready for the joiner |
//! | `Gone` | the result was taken, or the join handle was dropped |

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use hitm_memory::Platform;
use hitm_sched::TaskId;

use crate::cell::Cell;
use crate::contain::contain;
use crate::runtime::Handle;

/// The reason why a task has no result.
pub struct JoinError(Kind);

enum Kind {
    Aborted,
    Refused,
    Panicked(Box<dyn Any + Send>),
}

impl JoinError {
    pub(crate) fn aborted() -> Self {
        Self(Kind::Aborted)
    }

    pub(crate) fn refused() -> Self {
        Self(Kind::Refused)
    }

    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        Self(Kind::Panicked(payload))
    }

    /// Returns whether the task was aborted, by its handle or because the runtime shut down.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Kind::Aborted)
    }

    /// Returns whether the task was refused, because too many tasks lived when it was spawned.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Kind::Refused)
    }

    /// Returns whether the task panicked, in a poll or in a destructor when it ended.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Kind::Panicked(_))
    }

    /// Returns the payload that the task panicked with.
    ///
    /// # Errors
    /// Returns the error itself when the task did not panic.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.0 {
            Kind::Panicked(payload) => Ok(payload),
            Kind::Aborted | Kind::Refused => Err(self),
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
            Kind::Refused => f.write_str("the task was refused: too many tasks live"),
            Kind::Panicked(payload) => {
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(f, "the task panicked: {}", text.unwrap_or("no message"))
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// Completes a task's join state, independent of the type of its result.
pub(crate) trait Finish: Send + Sync {
    /// Records that the task has ended. With `Ok`, its value was stored before.
    fn finish(&self, result: Result<(), JoinError>);
}

enum State<T> {
    Running(Option<Waker>),
    Ending(T, Option<Waker>),
    Ended(Result<T, JoinError>),
    Gone,
}

/// The join state: holds a task's result until the joiner takes it.
pub(crate) struct JoinState<T>(Mutex<State<T>>);

impl<T> JoinState<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Running(None))))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The lock only covers moves, so the state is consistent even if a thread panicked
        // meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the task's value. Returns the value when the join handle was dropped.
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
        // The waker is cloned before the lock is taken and the old one is dropped after: wakers are
        // user code.
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

    /// Marks the result as unwanted. Returns the old state for the caller to drop.
    fn detach(&self) -> impl Sized {
        std::mem::replace(&mut *self.lock(), State::Gone)
    }
}

impl<T: Send> Finish for JoinState<T> {
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

/// A future that stores its output in a join state.
pub(crate) struct Deliver<P: Platform, F: Future> {
    future: F,
    join_state: Arc<JoinState<F::Output>>,
    platform: PhantomData<P>,
}

impl<P: Platform, F: Future> Deliver<P, F> {
    pub(crate) fn new(future: F, join_state: Arc<JoinState<F::Output>>) -> Self {
        Self { future, join_state, platform: PhantomData }
    }
}

impl<P: Platform, F: Future> Future for Deliver<P, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: nothing is moved out of `this` below.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `future` is pinned as long as `self` is: it is never moved, no `Drop`
        // implementation could move it, and `Self` is `Unpin` only where `F` is.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let value = ready!(future.poll(context));
        P::settle();
        drop(this.join_state.put(value));
        Poll::Ready(())
    }
}

/// Waits until a task ends and returns its output. Dropping the handle detaches the task: the task
/// goes on, and its result is dropped.
///
/// # Errors
/// When the task was aborted, was refused or panicked: see [`JoinError`].
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
/// When it is polled again after it returned the result.
pub struct JoinHandle<P: Platform, T> {
    pub(crate) runtime: Handle<P>,
    pub(crate) cell: Arc<Cell<P>>,
    join_state: Arc<JoinState<T>>,
}

impl<P: Platform, T> JoinHandle<P, T> {
    pub(crate) fn new(runtime: Handle<P>, cell: Arc<Cell<P>>, join_state: Arc<JoinState<T>>) -> Self {
        Self { runtime, cell, join_state }
    }

    /// Asks the task to end. Its future is dropped where the task next waits, computes or reaches a
    /// checkpoint. Does nothing when the task has ended.
    pub fn abort(&self) {
        self.runtime.0.abort(&self.cell);
    }

    /// Returns whether the task has ended. Then its future has been dropped, and joining it does
    /// not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        P::settle();
        self.join_state.is_ended()
    }

    /// Returns the task's id. Another task may reuse the id after this one has ended. A task that
    /// was refused shows an id that no task has.
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
        self.join_state.poll(context)
    }
}

impl<P: Platform, T> Drop for JoinHandle<P, T> {
    fn drop(&mut self) {
        P::settle();
        drop(self.join_state.detach());
    }
}

impl<P: Platform, T> fmt::Debug for JoinHandle<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.cell.id).finish_non_exhaustive()
    }
}
