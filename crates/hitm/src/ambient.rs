//! The runtime of the calling thread, and functions that use it: for programs and libraries that
//! pass no handle around. Native only.
//!
//! A worker thread belongs to its runtime for life. Another thread belongs to a runtime inside
//! [`Handle::enter`] and [`Handle::block_on`].
//!
//! **Limits.** On a simulated machine, all CPUs are coroutines of one thread, so a value per thread
//! says nothing about a CPU. Programs for both worlds pass a [`Handle`].

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hitm_memory::{Native, Time};

use crate::interval::Interval;
use crate::join::JoinHandle;
use crate::options::SpawnOptions;
use crate::runtime::Handle;
use crate::time::{Elapsed, Sleep, first_of};

/// The handle of a thread. Its count is written at each use, so it has lines of its own: memory
/// beside it may be a task of another CPU. `hitm exec` found that.
#[repr(align(128))]
pub(crate) struct Current {
    handle: Handle<Native>,
}

impl Deref for Current {
    type Target = Handle<Native>;

    fn deref(&self) -> &Handle<Native> {
        &self.handle
    }
}

thread_local! {
    /// In an `Rc`: a function that only calls the runtime copies that, and does not write the count
    /// of the runtime's references, which all CPUs would write.
    static CURRENT: RefCell<Option<Rc<Current>>> = const { RefCell::new(None) };
}

/// Keeps the calling thread in a runtime. Made by [`Handle::enter`]. Drop the guards of one thread
/// in the reverse order of their making.
#[must_use = "the thread leaves the runtime when this is dropped"]
pub struct Entered {
    before: Option<Rc<Current>>,
    /// The guard changes the thread that made it.
    stays: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The handle of this runtime is dropped outside the borrow: it may be the last one.
        let own = CURRENT.with(|current| current.replace(self.before.take()));
        drop(own);
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

fn try_here() -> Option<Rc<Current>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

#[track_caller]
fn here() -> Rc<Current> {
    try_here().expect("this thread belongs to no runtime: call it in a task, or enter a runtime first")
}

impl Handle<Native> {
    /// Returns the runtime of the calling thread: in a task, in [`Handle::block_on`] and in
    /// [`Handle::enter`].
    ///
    /// ```
    /// use hitm::{Handle, NativeRuntime};
    ///
    /// let runtime = NativeRuntime::with_cpus(1).unwrap();
    /// let cpus = runtime.block_on(async { Handle::current().topology().cpus() });
    /// assert_eq!(cpus, 1);
    /// assert!(Handle::try_current().is_none());
    /// ```
    ///
    /// # Panics
    /// When the thread belongs to no runtime. [`Handle::try_current`] returns `None` there.
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        Self::clone(&*here())
    }

    /// Returns the runtime of the calling thread; `None` when the thread belongs to no runtime.
    #[must_use]
    pub fn try_current() -> Option<Self> {
        Some(Self::clone(&*try_here()?))
    }

    /// Makes this runtime the calling thread's, until the guard is dropped. Then [`spawn`] and
    /// [`Handle::current`] work there. The thread does not become a CPU of the runtime.
    ///
    /// ```
    /// let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// let entered = runtime.handle().enter();
    /// let task = hitm::spawn(async { 1 });
    /// drop(entered);
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// ```
    pub fn enter(&self) -> Entered {
        let before = CURRENT.with(|current| current.replace(Some(Rc::new(Current { handle: self.clone() }))));
        Entered { before, stays: PhantomData }
    }
}

/// Spawns a task on the calling thread's runtime. The task inherits priority, group and more of its
/// spawner: see [`SpawnOptions::inherited`]. Outside a task it gets the defaults.
///
/// ```
/// let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
/// let sum = runtime.block_on(async {
///     let tasks: Vec<_> = (1..=4).map(|number| hitm::spawn(async move { number })).collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum, 10);
/// ```
///
/// # Panics
/// When the thread belongs to no runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<Native, F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handle = here();
    handle.spawn_as(&mut handle.inherited(), future)
}

/// Spawns a task on the calling thread's runtime with these options: see [`Handle::spawn`].
///
/// # Panics
/// When the thread belongs to no runtime, and as [`Handle::spawn`].
#[track_caller]
pub fn spawn_with<F>(options: impl Into<SpawnOptions>, future: F) -> JoinHandle<Native, F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    here().spawn(options, future)
}

/// Sleeps for at least `duration` from the call on: see [`Handle::sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
/// let start = Instant::now();
/// runtime.block_on(async {
///     hitm::sleep(Duration::from_millis(1)).await;
/// });
/// assert!(start.elapsed() >= Duration::from_millis(1));
/// ```
///
/// # Panics
/// When the thread belongs to no runtime.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    here().sleep(duration)
}

/// Sleeps until `deadline`; returns at once when it has passed.
///
/// # Panics
/// When the thread belongs to no runtime.
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    sleep(deadline.saturating_duration_since(Instant::now()))
}

/// Waits for `future`, but no longer than `patience` from the call on: see [`Handle::timeout`].
///
/// # Errors
/// [`Elapsed`] when the time passes first. The future is then dropped.
///
/// # Panics
/// When the thread belongs to no runtime.
#[track_caller]
pub fn timeout<F: Future>(patience: Duration, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    first_of(future, sleep(patience))
}

/// Returns the time on the clock of this thread's runtime: see [`Handle::now`].
///
/// # Panics
/// When the thread belongs to no runtime.
#[must_use]
#[track_caller]
pub fn now() -> Time {
    here().now()
}

/// Changes the deadline of the calling task among the tasks of its [deadline
/// group](Handle::deadline_group): see [`Handle::set_deadline`]. A task that serves one request
/// after the other calls this with each request's deadline.
///
/// ```
/// use std::time::Duration;
///
/// use hitm::{NativeRuntime, Priority, SpawnOptions};
///
/// let runtime = NativeRuntime::with_cpus(1).unwrap();
/// let requests = runtime.handle().deadline_group("requests");
/// let options = SpawnOptions::from(Priority::fair(0)).within(&requests);
/// let connection = runtime.handle().spawn(options, async {
///     let deadline = hitm::now() + Duration::from_millis(20);
///     hitm::set_deadline(Some(deadline));
///     assert_eq!(hitm::Handle::current().deadline(), Some(deadline));
///     hitm::set_deadline(None);
/// });
/// runtime.block_on(connection).unwrap();
/// ```
///
/// # Panics
/// Outside a task.
#[track_caller]
pub fn set_deadline(deadline: Option<Time>) {
    here().set_deadline(deadline);
}

/// Waits for `future`, but no longer than until `deadline`. A server gives each request its
/// deadline in this way.
///
/// # Errors
/// [`Elapsed`] when the time comes first. The future is then dropped.
///
/// # Panics
/// When the thread belongs to no runtime.
#[track_caller]
pub fn timeout_at<F: Future>(
    deadline: Instant,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    first_of(future, sleep_until(deadline))
}

/// Makes ticks every `period`, the first one at once: see [`Handle::interval`].
///
/// # Panics
/// When `period` is zero, or the thread belongs to no runtime.
#[track_caller]
pub fn interval(period: Duration) -> Interval<Native> {
    here().interval(period)
}

/// Makes ticks every `period`, the first one at `start`: see [`Handle::interval`]. A start before
/// the runtime was made counts as that time.
///
/// # Panics
/// When `period` is zero, or the thread belongs to no runtime.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval<Native> {
    let handle = here();
    let (now, of_runtime) = (Instant::now(), handle.now());
    let first = match start.checked_duration_since(now) {
        Some(ahead) => of_runtime + ahead,
        None => Time::START + of_runtime.since(Time::START).saturating_sub((now - start).into()),
    };
    handle.interval_at(first, period)
}

/// Lets tasks of the same priority run first. Outside a task, only polls the future again.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(move |context| match task_here() {
        Some(handle) => handle.poll_yield(&mut yielded, context),
        None if std::mem::replace(&mut yielded, true) => Poll::Ready(()),
        None => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Lets more urgent tasks run first: see [`Handle::checkpoint`]. Does nothing outside a task.
pub async fn checkpoint() {
    let mut made_way = false;
    // Each poll looks for the runtime again: a handle that is kept would be counted.
    poll_fn(move |context| match task_here() {
        Some(handle) => handle.poll_checkpoint(&mut made_way, context),
        None => Poll::Ready(()),
    })
    .await;
}

/// Returns the name of the calling task: [`SpawnOptions::name`]. `None` outside a task and in a
/// task without a name.
#[must_use]
pub fn task_name() -> Option<Arc<str>> {
    task_here()?.task_name()
}

/// Returns the runtime if the caller is one of its tasks.
pub(crate) fn task_here() -> Option<Rc<Current>> {
    try_here().filter(|handle| handle.task_id().is_some())
}
