//! Waiting for a task's result: [`JoinHandle`]. The [word](crate::join_word) between the handle and
//! the task says which of them uses what.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use hitm_memory::Platform;
use hitm_sched::TaskId;

use crate::body::CellRef;
use crate::join_word::Seen;

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
    pub(crate) cell: CellRef<P>,
    output: PhantomData<fn() -> T>,
}

impl<P: Platform, T> JoinHandle<P, T> {
    /// Makes the handle of a new task, whose output is `T`.
    pub(crate) fn new(cell: CellRef<P>) -> Self {
        Self { cell, output: PhantomData }
    }

    /// Asks the task to end. Its future is dropped where the task next waits, computes or reaches a
    /// checkpoint. Does nothing when the task has ended.
    pub fn abort(&self) {
        self.cell.with_runtime(|runtime| runtime.abort(&self.cell));
    }

    /// Returns whether the task has ended. Then its future has been dropped, and joining it does
    /// not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        P::settle();
        self.cell.join.seen() == Seen::Ended
    }

    /// Returns the task's id. Another task may reuse the id after this one has ended. A task that
    /// was refused shows an id that no task has.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.cell.id
    }

    /// Wakes the task from [`Handle::park`](crate::Handle::park), or lets its next park return at
    /// once.
    pub fn unpark(&self) {
        self.cell.unpark();
    }
}

// A result is taken whole or not at all.
impl<P: Platform, T> UnwindSafe for JoinHandle<P, T> {}
impl<P: Platform, T> RefUnwindSafe for JoinHandle<P, T> {}

impl<P: Platform, T> Future for JoinHandle<P, T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        P::settle();
        let (cell, word) = (&self.cell, &self.cell.join);
        let has_place = match word.seen() {
            Seen::Lives => true,
            Seen::Waited => word.withdraw(),
            Seen::Ended => false,
        };
        if has_place {
            // SAFETY: the word has given the place to the handle, which is borrowed.
            let place = unsafe { cell.place() };
            let waker = context.waker();
            if place.as_ref().is_none_or(|known| !known.will_wake(waker)) {
                *place = Some(waker.clone());
            }
            if word.publish() {
                return Poll::Pending;
            }
            // SAFETY: the task has ended, and has left the place to the handle.
            drop(unsafe { cell.place() }.take());
        }
        // SAFETY: the task has ended, and the handle is of a task with this output.
        let Some(result) = (unsafe { cell.take_result() }) else { panic!("a task was joined twice") };
        Poll::Ready(result)
    }
}

impl<P: Platform, T> Drop for JoinHandle<P, T> {
    fn drop(&mut self) {
        P::settle();
        let (cell, word) = (&self.cell, &self.cell.join);
        // Dropped last: wakers are user code.
        let mut waker = None;
        if word.seen() == Seen::Waited && word.withdraw() {
            // SAFETY: the word has given the place to the handle.
            waker = unsafe { cell.place() }.take();
        }
        if word.seen() == Seen::Ended || word.give_up() {
            // SAFETY: the word has given the result to the handle.
            unsafe { cell.drop_result() };
        }
        drop(waker);
    }
}

impl<P: Platform, T> fmt::Debug for JoinHandle<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.cell.id).finish_non_exhaustive()
    }
}
