//! Handles that end tasks: [`AbortHandle`] joins nothing, [`AbortOnDrop`] ends its task with
//! itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hitm_memory::Platform;
use hitm_sched::TaskId;

use crate::body::CellRef;
use crate::join::{JoinError, JoinHandle};

/// Aborts a task, without its output: made by [`JoinHandle::abort_handle`]. Dropping it does
/// nothing.
///
/// ```
/// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
/// # runtime.run(|handle| async move {
/// let task = handle.spawn((), std::future::pending::<()>());
/// let abort = task.abort_handle();
/// abort.abort();
/// assert!(task.await.unwrap_err().is_aborted());
/// assert!(abort.is_finished());
/// # }).unwrap();
/// ```
pub struct AbortHandle<P: Platform> {
    cell: CellRef<P>,
}

impl<P: Platform> AbortHandle<P> {
    /// Asks the task to end: see [`JoinHandle::abort`].
    pub fn abort(&self) {
        self.cell.with_runtime(|runtime| runtime.abort(&self.cell));
    }

    /// Returns whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cell.has_ended()
    }

    /// Returns the task's id: see [`JoinHandle::id`].
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.cell.id
    }
}

impl<P: Platform> Clone for AbortHandle<P> {
    fn clone(&self) -> Self {
        Self { cell: self.cell.clone() }
    }
}

impl<P: Platform> fmt::Debug for AbortHandle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("task", &self.cell.id).finish_non_exhaustive()
    }
}

impl<P: Platform, T> JoinHandle<P, T> {
    /// Returns a handle that aborts the task, to be kept beside the join handle.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle<P> {
        AbortHandle { cell: self.cell.clone() }
    }

    /// Binds the task to this handle: dropping the result aborts the task.
    ///
    /// ```
    /// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// # runtime.run(|handle| async move {
    /// let task = handle.spawn((), std::future::pending::<()>());
    /// let abort = task.abort_handle();
    /// drop(task.abort_on_drop());
    /// while !abort.is_finished() {
    ///     handle.yield_now().await;
    /// }
    /// # }).unwrap();
    /// ```
    #[must_use = "the task is aborted at once"]
    pub fn abort_on_drop(self) -> AbortOnDrop<P, T> {
        AbortOnDrop(Some(self))
    }
}

/// A join handle that aborts its task when it is dropped: made by [`JoinHandle::abort_on_drop`].
/// Awaiting it returns the task's output.
pub struct AbortOnDrop<P: Platform, T>(Option<JoinHandle<P, T>>);

impl<P: Platform, T> AbortOnDrop<P, T> {
    /// Returns the join handle, which leaves the task alone when it is dropped.
    #[must_use]
    pub fn detach(mut self) -> JoinHandle<P, T> {
        self.0.take().expect("it is taken here only")
    }
}

impl<P: Platform, T> Future for AbortOnDrop<P, T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.0.as_mut().expect("it is taken by `detach` only, which consumes `self`");
        Pin::new(task).poll(context)
    }
}

impl<P: Platform, T> Drop for AbortOnDrop<P, T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl<P: Platform, T> fmt::Debug for AbortOnDrop<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AbortOnDrop").field(&self.0).finish()
    }
}
