//! [`JoinSet`]: tasks that are joined in the order in which they end.
//!
//! **Protocol.** Each task of the set has its own waker, an [`Entry`]. When the task ends, the
//! entry puts its key into the list of ready keys and wakes the waiter of the set. The waiter polls
//! ready tasks only. A key enters the list once when its task is spawned, so that the first poll
//! registers the entry.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use hitm_memory::Platform;

use crate::abort_handle::AbortHandle;
use crate::join::{JoinError, JoinHandle};
use crate::options::SpawnOptions;
use crate::runtime::Handle;

/// A set of tasks. Dropping it aborts its tasks; their futures are dropped where each task next
/// waits, computes or reaches a checkpoint.
///
/// ```
/// use hitm::{JoinSet, NativeRuntime};
///
/// let runtime = NativeRuntime::with_cpus(2).unwrap();
/// let sum = runtime.run(|handle| async move {
///     let mut tasks = JoinSet::new(&handle);
///     for number in 1..=4 {
///         tasks.spawn((), async move { number });
///     }
///     let mut sum = 0;
///     while let Some(result) = tasks.join_next().await {
///         sum += result.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum.unwrap(), 10);
/// ```
pub struct JoinSet<P: Platform, T> {
    runtime: Handle<P>,
    tasks: HashMap<u64, JoinHandle<P, T>>,
    /// The key of the next task.
    next: u64,
    shared: Arc<Shared>,
}

/// What the entries tell the set.
#[derive(Default)]
struct Shared(Mutex<Ready>);

#[derive(Default)]
struct Ready {
    keys: VecDeque<u64>,
    waiter: Option<Waker>,
}

impl Shared {
    fn with<P: Platform, R>(&self, f: impl FnOnce(&mut Ready) -> R) -> R {
        P::settle();
        // No user code runs while the lock is held, so the state is consistent.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The waker of one task of the set.
struct Entry<P> {
    key: u64,
    shared: Arc<Shared>,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform> Wake for Entry<P> {
    fn wake(self: Arc<Self>) {
        let waiter = self.shared.with::<P, _>(|ready| {
            ready.keys.push_back(self.key);
            ready.waiter.take()
        });
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<P: Platform, T: Send + 'static> JoinSet<P, T> {
    /// Makes a set without tasks.
    #[must_use]
    pub fn new(runtime: &Handle<P>) -> Self {
        Self { runtime: runtime.clone(), tasks: HashMap::new(), next: 0, shared: Arc::default() }
    }

    /// Spawns a task of the set: see [`Handle::spawn`].
    ///
    /// # Panics
    /// As [`Handle::spawn`].
    pub fn spawn<F>(&mut self, options: impl Into<SpawnOptions>, future: F) -> AbortHandle<P>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let task = self.runtime.spawn(options, future);
        self.insert(task)
    }

    /// Takes a task into the set.
    pub fn insert(&mut self, task: JoinHandle<P, T>) -> AbortHandle<P> {
        let (abort, key) = (task.abort_handle(), self.next);
        self.next += 1;
        self.tasks.insert(key, task);
        let waiter = self.shared.with::<P, _>(|ready| {
            ready.keys.push_back(key);
            ready.waiter.take()
        });
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        abort
    }

    /// Waits until one of the tasks has ended, removes it and returns its result. Returns `None`
    /// when the set has no tasks.
    ///
    /// # Cancel safety
    /// A dropped wait has removed no task.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// Removes a task that has ended and returns its result; `None` when no task has ended.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        match self.poll_join_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => None,
        }
    }

    /// Polls for the next task that has ended: see [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.tasks.is_empty() {
            return Poll::Ready(None);
        }
        // The waiter is registered before the keys are looked at: a task that ends later wakes it.
        let waiter = context.waker().clone();
        let before = self.shared.with::<P, _>(|ready| ready.waiter.replace(waiter));
        drop(before);
        while let Some(key) = self.shared.with::<P, _>(|ready| ready.keys.pop_front()) {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            let entry = Entry::<P> { key, shared: self.shared.clone(), platform: PhantomData };
            let waker = Waker::from(Arc::new(entry));
            if let Poll::Ready(result) = Pin::new(task).poll(&mut Context::from_waker(&waker)) {
                self.tasks.remove(&key);
                return Poll::Ready(Some(result));
            }
        }
        Poll::Pending
    }

    /// Waits for all tasks and returns their outputs, in the order in which the tasks ended.
    ///
    /// # Errors
    /// The error of the first task that panicked, was aborted or was refused. The other tasks are
    /// then aborted.
    pub async fn join_all(mut self) -> Result<Vec<T>, JoinError> {
        let mut outputs = Vec::with_capacity(self.tasks.len());
        while let Some(result) = self.join_next().await {
            outputs.push(result?);
        }
        Ok(outputs)
    }

    /// Aborts all tasks and waits until their futures have been dropped.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

#[cfg(feature = "blocking")]
impl<T: Send + 'static> JoinSet<hitm_memory::Native, T> {
    /// Spawns a task of the set that calls `f` on a thread for code that blocks: see
    /// [`spawn_blocking`](crate::spawn_blocking). If the task is aborted before `f` is called, `f`
    /// is dropped. A call that has begun goes on, and its value is dropped.
    ///
    /// ```
    /// # let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// # let lines = runtime.run(|handle| async move {
    /// let mut tasks = hitm::JoinSet::new(&handle);
    /// for path in ["Cargo.toml", "src/lib.rs"] {
    ///     tasks.spawn_blocking((), move || std::fs::read_to_string(path).unwrap().lines().count());
    /// }
    /// let lines = tasks.join_all().await.unwrap();
    /// # lines
    /// # });
    /// # assert_eq!(lines.unwrap().len(), 2);
    /// ```
    ///
    /// # Panics
    /// As [`Handle::spawn`].
    pub fn spawn_blocking<F>(&mut self, options: impl Into<SpawnOptions>, f: F) -> AbortHandle<hitm_memory::Native>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        let call = {
            let _entered = self.runtime.enter();
            crate::blocking::AbortedCall(crate::spawn_blocking(f))
        };
        self.spawn(options, call.value())
    }
}

impl<P: Platform, T> JoinSet<P, T> {
    /// Returns the number of tasks that have not been joined.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether the set has no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts all tasks. They stay in the set until they are joined.
    pub fn abort_all(&self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }

    /// Removes all tasks and lets them go on.
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }
}

impl<P: Platform, T> Drop for JoinSet<P, T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<P: Platform, T> fmt::Debug for JoinSet<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}
