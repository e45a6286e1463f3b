//! Tasks that borrow from the stack of a thread: [`Handle::scope`].
//!
//! **Claim.** A scope returns only when the futures of all its tasks have been dropped, also when
//! its closure panics. So a task may borrow what outlives the scope.
//!
//! **Why it blocks.** An async scope is unsound: its future could be leaked (`std::mem::forget`)
//! while its tasks run, and the borrowed data would end before the tasks. A blocking function
//! cannot be left in that way. This is the argument of `std::thread::scope`.
//!
//! **Protocol.** The lifetime of a task's future is erased when the task is spawned. The future has
//! a guard beside it, which is dropped after it, wherever the runtime drops it: after the last
//! poll, after a panic, after an abort, or at once if the task was refused. The scope counts
//! guards, and returns when none is left.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hitm_memory::Native;

use crate::join::{JoinError, JoinHandle};
use crate::options::SpawnOptions;
use crate::runtime::Handle;

/// Spawns tasks that borrow: see [`Handle::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    runtime: Handle<Native>,
    guards: Arc<Guards>,
    scope: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

/// The number of guards that exist.
#[derive(Default)]
struct Guards {
    count: Mutex<usize>,
    none: Condvar,
}

impl Guards {
    fn lock(&self) -> MutexGuard<'_, usize> {
        // The lock covers an addition, so the count is right even if a thread panicked meanwhile.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let mut count = self.lock();
        while *count != 0 {
            count = self.none.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Exists while a task's future does.
struct Guard(Arc<Guards>);

impl Guard {
    fn new(guards: &Arc<Guards>) -> Self {
        *guards.lock() += 1;
        Self(guards.clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

/// The future of a task and its guard.
struct Guarded<'scope> {
    /// Dropped first: fields are dropped in the order of their declaration.
    future: Pin<Box<dyn Future<Output = ()> + Send + 'scope>>,
    _guard: Guard,
}

impl Future for Guarded<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(context)
    }
}

impl Handle<Native> {
    /// Runs `f`, whose scope spawns tasks that may borrow from the caller, and blocks the calling
    /// thread until all of them have ended. Returns the closure's value.
    ///
    /// ```
    /// let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
    /// let words = ["a", "bc", "def"];
    /// let mut lengths = [0; 3];
    /// runtime.handle().scope(|scope| {
    ///     for (word, length) in words.iter().zip(&mut lengths) {
    ///         scope.spawn((), async move { *length = word.len() });
    ///     }
    /// });
    /// assert_eq!(lengths, [1, 2, 3]);
    /// ```
    ///
    /// A task cannot borrow from the closure itself:
    ///
    /// ```compile_fail,E0373
    /// let runtime = hitm::NativeRuntime::with_cpus(1).unwrap();
    /// runtime.handle().scope(|scope| {
    ///     let number = 1;
    ///     scope.spawn((), async { println!("{number}") });
    /// });
    /// ```
    ///
    /// An `async` form would be unsound: its future could be forgotten while its tasks run.
    ///
    /// # Panics
    /// When one of the runtime's own CPUs calls, or the thread of an
    /// [`Embedded`](crate::Embedded) runtime, since it would wait for itself. When `f` panics:
    /// resumes that panic, after all tasks have ended. A task's panic is in its [`ScopedTask`].
    pub fn scope<'env, R>(&self, f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        assert!(!self.0.host.is_only_thread(), "the tasks of an embedded runtime do not run while its thread waits");
        assert!(!self.0.host.is_cpu(), "a task must not block its CPU: spawn and await instead of `scope`");
        let guards = Arc::<Guards>::default();
        let runtime = self.clone();
        let scope = Scope { runtime, guards: guards.clone(), scope: PhantomData, environment: PhantomData };
        // Unwind safety: the panic is resumed below.
        let result: Result<R, Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        guards.wait();
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a task that may borrow what outlives the scope: see [`Handle::spawn`].
    ///
    /// # Panics
    /// As [`Handle::spawn`].
    pub fn spawn<F>(&'scope self, options: impl Into<SpawnOptions>, future: F) -> ScopedTask<'scope, F::Output>
    where
        F: Future + Send + 'scope,
        F::Output: Send + 'scope,
    {
        let output: Arc<Mutex<Option<F::Output>>> = Arc::default();
        let slot = output.clone();
        let future = Box::pin(async move {
            let value = future.await;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        let guarded: Guarded<'scope> = Guarded { future, _guard: Guard::new(&self.guards) };
        // SAFETY: only the lifetime changes. All that has it is inside `guarded.future`, which is
        // dropped before the guard is, and `Handle::scope` does not return while the guard exists.
        // A guard is made only through `&'scope self`: in the closure of `Handle::scope`, or in a
        // task whose own guard exists. So the count does not rise again after it fell to zero.
        let guarded = unsafe { std::mem::transmute::<Guarded<'scope>, Guarded<'static>>(guarded) };
        let task = self.runtime.spawn(options, guarded);
        ScopedTask { task, output, scope: PhantomData }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("tasks", &*self.guards.lock()).finish_non_exhaustive()
    }
}

/// A task of a scope: made by [`Scope::spawn`]. Awaiting it in the closure's or in another task's
/// future returns the output. Dropping it detaches the task; the scope waits for it all the same.
///
/// # Panics
/// When it is polled again after it returned the result.
pub struct ScopedTask<'scope, T> {
    task: JoinHandle<Native, ()>,
    output: Arc<Mutex<Option<T>>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedTask<'_, T> {
    /// Asks the task to end: see [`JoinHandle::abort`].
    pub fn abort(&self) {
        self.task.abort();
    }
}

impl<T> Future for ScopedTask<'_, T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.task).poll(context)).map(|()| {
            let value = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
            value.expect("a task that returned has put its value")
        }))
    }
}

impl<T> fmt::Debug for ScopedTask<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedTask").field("task", &self.task).finish_non_exhaustive()
    }
}
