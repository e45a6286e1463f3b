//! Tasks whose futures cannot be sent: [`Handle::spawn_on`] and [`spawn_local`].
//!
//! **Claim.** A future that is not `Send` is made, polled and dropped by one thread.
//!
//! **Protocol.** The task may run on one CPU only, which is one thread. The wrapper notes the
//! thread that makes the future. A poll on another thread panics before it touches the future: CPUs
//! that go offline send their tasks away, so such a poll can happen. A drop on another thread leaks
//! the future: the runtime drops tasks elsewhere when a CPU has met a bug, and when a CPU is
//! offline.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use hitm_memory::{CpuSet, Native, Platform};
use hitm_topology::CpuId;

use crate::join::JoinHandle;
use crate::options::SpawnOptions;
use crate::runtime::Handle;

impl<P: Platform> Handle<P> {
    /// Spawns a task on one CPU. The task calls `make` there and runs the future, which need not be
    /// `Send`. The CPUs of `options` are replaced by `cpu`.
    ///
    /// Do not take that CPU offline, and do not change the task's CPUs: the future cannot follow.
    /// The task then panics.
    ///
    /// ```
    /// use std::rc::Rc;
    /// use hitm::{CpuId, NativeRuntime};
    ///
    /// let runtime = NativeRuntime::with_cpus(2).unwrap();
    /// let task = runtime.handle().spawn_on(CpuId(1), (), || async {
    ///     let shared = Rc::new(20);
    ///     let other = shared.clone();
    ///     hitm::yield_now().await;
    ///     *shared + *other
    /// });
    /// assert_eq!(runtime.block_on(task).unwrap(), 40);
    /// ```
    ///
    /// # Panics
    /// When the machine does not have `cpu`, and as [`Handle::spawn`].
    pub fn spawn_on<M, F>(&self, cpu: CpuId, options: impl Into<SpawnOptions>, make: M) -> JoinHandle<P, F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        assert!(cpu.index() < self.topology().cpus(), "CPU {cpu} of a machine that has {}", self.topology().cpus());
        let options = SpawnOptions { cpus: Some(CpuSet::from_iter([cpu])), ..options.into() };
        let bound = self.0.locals[cpu.index()].bound_tasks().enter();
        self.spawn(options, async move {
            let _bound = bound;
            Stays::new(make()).await
        })
    }
}

/// Spawns a future that need not be `Send` from a task. The new task runs on the CPU where the
/// calling task runs now, and inherits the other options: see [`SpawnOptions::inherited`].
///
/// ```
/// use std::rc::Rc;
///
/// let runtime = hitm::NativeRuntime::with_cpus(2).unwrap();
/// let task = runtime.handle().spawn((), async {
///     let task = {
///         let shared = Rc::new(7);
///         hitm::spawn_local(async move { *shared })
///     };
///     task.await.unwrap()
/// });
/// assert_eq!(runtime.block_on(task).unwrap(), 7);
/// ```
///
/// # Panics
/// Outside a task. The task panics if its CPU goes offline.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<Native, F::Output>
where
    F: Future + 'static,
    F::Output: Send + 'static,
{
    let handle = crate::ambient::task_here().expect("only a task may spawn a task on its own CPU");
    let cpu = Native::current_cpu();
    let bound = handle.0.locals[cpu.index()].bound_tasks().enter();
    let options = SpawnOptions { cpus: Some(CpuSet::from_iter([cpu])), ..handle.inherited() };
    let stays = Stays::new(future);
    handle.spawn(options, async move {
        let _bound = bound;
        stays.await
    })
}

/// A future that stays on the thread where it was made.
struct Stays<F> {
    home: ThreadId,
    future: ManuallyDrop<Pin<Box<F>>>,
}

impl<F> Stays<F> {
    fn new(future: F) -> Self {
        Self { home: thread::current().id(), future: ManuallyDrop::new(Box::pin(future)) }
    }
}

// SAFETY: `future` is made on the thread `home`; `poll` and `drop` touch it on that thread alone.
// `home` is `Send`.
unsafe impl<F> Send for Stays<F> {}

impl<F: Future> Future for Stays<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        assert_eq!(self.home, thread::current().id(), "a task that is bound to a CPU was moved to another one");
        self.future.as_mut().poll(context)
    }
}

impl<F> Drop for Stays<F> {
    fn drop(&mut self) {
        if self.home == thread::current().id() {
            // SAFETY: it is dropped here only, once.
            unsafe { ManuallyDrop::drop(&mut self.future) };
        }
    }
}

impl<F> fmt::Debug for Stays<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stays").field("home", &self.home).finish_non_exhaustive()
    }
}
